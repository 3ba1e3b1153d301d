// The frame of a program of this folder: its arguments, the order of its cells, its exit code. What it offers is said in
// docs/originals.md; the same arguments and lines are spoken by the programs in other languages.
#pragma once

#include "experiments/originals/common/lines.hpp"
#include "harness/statistics.hpp"

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace timerbench::originals {

inline constexpr std::string_view experiments[] = {"ready_path", "arm_cancel", "allocs", "scaling",
                                                   "accuracy",   "memory",     "soak"};

enum class action { measure, verify, list };

struct arguments {
    action what = action::measure;
    std::string experiment{};
    std::uint64_t round = 0;
    std::uint64_t seed = 1;
    bool quick = false;
    std::vector<std::string> systems{}; ///< Empty: all that are run by default.
    bool environment = false;           ///< Only where the program knows its environment.

    /// Whether a system is asked for. A word that is a whole name means that system alone, any other word all that contain it.
    [[nodiscard]] bool wants(std::string_view name, const std::vector<std::string>& names) const {
        for (const std::string& word : systems) {
            bool exact = false;
            for (const std::string& known : names) {
                exact = exact || known == word;
            }
            if (exact ? name == word : name.find(word) != std::string_view::npos) {
                return true;
            }
        }
        return false;
    }

    template <class Quick, class Full>
    [[nodiscard]] auto pick(Quick when_quick, Full when_full) const {
        return quick ? when_quick : when_full;
    }
};

/// Part of a visit: one system in one case, or in all cases of an experiment.
using cell = std::function<void()>;

/// A mistake of the user: one line, exit code 2.
struct usage_error {
    std::string message;
};

[[nodiscard]] inline std::uint64_t parse_number(std::string_view option, std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || end != text.data() + text.size()) {
        throw usage_error{std::string{option} + " '" + std::string{text} + "' is not a whole number"};
    }
    return value;
}

/// names: every system that may be asked for. Throws usage_error.
[[nodiscard]] inline arguments parse(int argc, const char* const* argv, const std::vector<std::string>& names,
                                     bool knows_environment) {
    arguments result;
    bool length_given = false;
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view word = words[i];
        const auto value = [&]() -> std::string_view {
            if (i + 1 == words.size()) {
                throw usage_error{std::string{word} + " needs a value"};
            }
            return words[++i];
        };
        if (word == "--experiment") {
            result.experiment = value();
        } else if (word == "--round") {
            result.round = parse_number(word, value());
        } else if (word == "--seed") {
            result.seed = parse_number(word, value());
        } else if (word == "--quick" || word == "--full") {
            length_given = true;
            result.quick = word == "--quick";
        } else if (word == "--system") {
            result.systems.emplace_back(value());
        } else if (word == "--verify") {
            result.what = action::verify;
        } else if (word == "--list") {
            result.what = action::list;
        } else if (word == "--environment" && knows_environment) {
            result.environment = true;
        } else {
            throw usage_error{"unknown argument '" + std::string{word} +
                              "'; accepted are --experiment NAME --round N --seed S --quick --full "
                              "--system SUBSTRING, --verify, --list" +
                              (knows_environment ? ", --environment" : "")};
        }
    }
    for (const std::string& word : result.systems) {
        bool found = false;
        for (const std::string& name : names) {
            found = found || name.find(word) != std::string::npos;
        }
        if (!found) {
            throw usage_error{"--system '" + word + "' is in no name; --list prints them"};
        }
    }
    if (result.what == action::measure && !result.environment) {
        std::string known;
        bool found = false;
        for (const std::string_view name : experiments) {
            found = found || name == result.experiment;
            known += (known.empty() ? "" : ", ") + std::string{name};
        }
        if (!found) {
            throw usage_error{"--experiment '" + result.experiment + "' is not there; there are " + known};
        }
        if (!length_given) {
            throw usage_error{"one of --quick and --full is needed"};
        }
    }
    return result;
}

/// Runs the cells in an order that is the round's own, so that none always follows the same other.
inline void run_shuffled(std::vector<cell>& cells, const arguments& given) {
    harness::random_source random{given.seed * 1'000'003 + given.round};
    random.shuffle(cells);
    for (const cell& one : cells) {
        one();
    }
}

/// main() of a program: `body` returns the exit code and may throw usage_error.
template <class Body>
int run_program(const char* name, Body&& body) {
    try {
        return body();
    } catch (const usage_error& wrong) {
        std::fprintf(stderr, "%s: %s\n", name, wrong.message.c_str());
        return 2;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s: %s\n", name, problem.what());
        return 1;
    }
}

} // namespace timerbench::originals
