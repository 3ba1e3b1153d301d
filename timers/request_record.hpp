// One record for one request, written as one line of JSON: what it had, who spent it, why it ended and what it left behind.
//
// A log that says "timeout" leaves open whose. Here every hop says what was left of the deadline when it was entered and what it spent itself, without the
// hops below it, so that the sums can be compared; the hop that spent most is named. What was cancelled and what was still running when the
// request ended stand side by side: the second list is work for a caller who has left.
//
// The line
//   {"request":"8f3a","route":"/orders","left_us":300000,"took_us":301250,"ended":"deadline","attempts":2,"spent_by":"store",
//    "hops":[{"hop":"A","left_us":300000,"spent_us":1200,"attempts":1}, ...],"cancelled":["B"],"kept_running":["store"]}
// (here broken in two). Spans are whole microseconds, rounded down; null for no deadline. Names may hold any bytes: JSON's own characters are
// escaped, what is no UTF-8 becomes U+FFFD. Locales have no say. Fields are only ever added.
//
// What it costs. A string of some hundred bytes; nothing is shared between threads and nothing written anywhere: that is the caller's.
#pragma once

#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace timerbench {

/// One downstream, or one part of the work, that a request passed through.
struct hop_record {
    std::string hop; ///< Its name.
    std::optional<duration>
        left_at_entry{}; ///< What was left of the deadline; empty: there was none. As `deadline::to_remaining`.
    duration spent{};    ///< By itself, the hops below it not included.
    int attempts = 1;    ///< Attempts at this hop.
};

/// Filled in by whoever handles the request; a value like any other.
struct request_record {
    std::string request; ///< What tells it from others, the same in every process that it passes.
    std::string route;
    std::optional<duration> left_at_entry{}; ///< Empty: no deadline.
    duration took{};                         ///< Until the answer, or until the caller left.
    int attempts = 1;                        ///< Of the request as a whole.
    std::string ended = "ok";                ///< "ok", or to_string of a stop_cause or a retry_end.
    std::vector<hop_record> hops{};          ///< In the order of their entry.
    std::vector<std::string> cancelled{};    ///< What was asked to stop and has.
    std::vector<std::string> kept_running{}; ///< What had not ended when the request had.

    /// The hop that spent most by itself, the first of equals; empty without hops.
    [[nodiscard]] std::string_view spent_by() const noexcept {
        const auto most =
            std::max_element(hops.begin(), hops.end(),
                             [](const hop_record& a, const hop_record& b) { return a.spent < b.spent; });
        return most == hops.end() ? std::string_view{} : std::string_view{most->hop};
    }
};

namespace detail {

/// Length of the UTF-8 sequence at the start of `s`, which is not empty; 0 if there is none.
[[nodiscard]] constexpr std::size_t utf8_length(std::string_view s) noexcept {
    const auto byte = [&s](std::size_t i) { return static_cast<unsigned char>(s[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) {
        return 1;
    }
    const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || s.size() < length) {
        return 0;
    }
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xC0U) != 0x80) {
            return 0;
        }
    }
    // Longer than needed, halves of surrogate pairs, beyond the last character.
    const unsigned char second = byte(1);
    const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
    return wrong ? 0 : length;
}

/// Puts one JSON object after another together. The caller balances the brackets.
class json_writer {
  public:
    void open(char bracket) {
        separate();
        line_ += bracket;
        first_ = true;
    }
    void close(char bracket) {
        line_ += bracket;
        first_ = false;
    }
    void key(std::string_view name) {
        separate();
        quote(name);
        line_ += ':';
        first_ = true;
    }
    void text(std::string_view s) {
        separate();
        quote(s);
    }
    void number(std::int64_t n) {
        separate();
        line_ += std::to_string(n);
    }
    void microseconds(duration d) { number(std::chrono::floor<std::chrono::microseconds>(d).count()); }
    void microseconds(const std::optional<duration>& d) {
        if (d) {
            microseconds(*d);
        } else {
            separate();
            line_ += "null";
        }
    }
    void texts(const std::vector<std::string>& all) {
        open('[');
        for (const std::string& s : all) {
            text(s);
        }
        close(']');
    }
    [[nodiscard]] std::string take() { return std::move(line_); }

  private:
    void separate() {
        if (!first_) {
            line_ += ',';
        }
        first_ = false;
    }

    void quote(std::string_view s) {
        line_ += '"';
        while (!s.empty()) {
            const std::size_t length = utf8_length(s);
            if (length == 1) {
                escape(s.front());
            } else if (length == 0) {
                line_ += "\xEF\xBF\xBD";
            } else {
                line_ += s.substr(0, length);
            }
            s.remove_prefix(std::max<std::size_t>(length, 1));
        }
        line_ += '"';
    }

    void escape(char c) {
        switch (c) {
        case '"':
            line_ += "\\\"";
            return;
        case '\\':
            line_ += "\\\\";
            return;
        case '\n':
            line_ += "\\n";
            return;
        case '\r':
            line_ += "\\r";
            return;
        case '\t':
            line_ += "\\t";
            return;
        default:
            break;
        }
        constexpr std::string_view digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7F) {
            line_ += "\\u00";
            line_ += digits[byte >> 4U];
            line_ += digits[byte & 0xFU];
        } else {
            line_ += c;
        }
    }

    std::string line_;
    bool first_ = true; // nothing stands before in this bracket or after this key
};

} // namespace detail

/// The record as one line of JSON, without the line's end and without line ends inside.
[[nodiscard]] inline std::string json_line(const request_record& r) {
    detail::json_writer to;
    to.open('{');
    to.key("request");
    to.text(r.request);
    to.key("route");
    to.text(r.route);
    to.key("left_us");
    to.microseconds(r.left_at_entry);
    to.key("took_us");
    to.microseconds(r.took);
    to.key("ended");
    to.text(r.ended);
    to.key("attempts");
    to.number(r.attempts);
    to.key("spent_by");
    to.text(r.spent_by());
    to.key("hops");
    to.open('[');
    for (const hop_record& h : r.hops) {
        to.open('{');
        to.key("hop");
        to.text(h.hop);
        to.key("left_us");
        to.microseconds(h.left_at_entry);
        to.key("spent_us");
        to.microseconds(h.spent);
        to.key("attempts");
        to.number(h.attempts);
        to.close('}');
    }
    to.close(']');
    to.key("cancelled");
    to.texts(r.cancelled);
    to.key("kept_running");
    to.texts(r.kept_running);
    to.close('}');
    return to.take();
}

} // namespace timerbench
