// The lines that server and client exchange.
//
//   request   GET <request> <route> <what is left in microseconds, or - for no deadline>
//   answer    <OK, BUSY, LATE or BAD> <request>
//
// The deadline travels as what is left of it, never as a time of day: the two machines share no clock.
#pragma once

#include "timers/deadline.hpp"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

namespace timerbench::examples {

struct request_line {
    std::string request;
    std::string route;
    std::optional<duration> left; // empty: no deadline
};

[[nodiscard]] inline std::string to_line(const request_line& r) {
    const std::string left =
        r.left ? std::to_string(std::chrono::floor<std::chrono::microseconds>(*r.left).count()) : "-";
    return "GET " + r.request + ' ' + r.route + ' ' + left + '\n';
}

/// Empty for a line that is none of ours. Spans beyond what a deadline can hold count as none.
[[nodiscard]] inline std::optional<request_line> parse_request(const std::string& line) {
    std::istringstream in{line};
    std::string verb;
    std::string left;
    std::string more;
    request_line r;
    if (!(in >> verb >> r.request >> r.route >> left) || (in >> more) || verb != "GET") {
        return std::nullopt;
    }
    if (left != "-") {
        std::int64_t us = 0;
        const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), us);
        if (error != std::errc{} || end != left.data() + left.size()) {
            return std::nullopt;
        }
        constexpr std::int64_t most = duration::max().count() / 1000;
        if (us < most) {
            r.left = std::chrono::microseconds{us < 0 ? 0 : us};
        }
    }
    return r;
}

struct answer_line {
    std::string status; // empty: no answer
    std::string request;
};

[[nodiscard]] inline std::string to_line(const answer_line& a) {
    return a.status + ' ' + a.request + '\n';
}

[[nodiscard]] inline answer_line parse_answer(const std::string& line) {
    std::istringstream in{line};
    answer_line a;
    in >> a.status >> a.request;
    return a;
}

} // namespace timerbench::examples
