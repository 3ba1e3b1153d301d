// What a run of the workload experiment is asked for and what it gives, and the arithmetic around it, without any service: how many
// requests a burst has, and from which rate on one service saves enough over another.
#pragma once

#include "harness/json.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::experiments {

using namespace std::chrono_literals;

struct workload {
    std::uint64_t rate = 20'000; ///< requests a second, of all threads
    duration timeout = 500ms;
    duration hold = 50ms;      ///< how long an answered request takes; below the timeout
    double cancel_share = 0.9; ///< of the requests that are answered
    std::uint64_t threads = 2;
    duration window = 550ms;
    std::uint64_t seed = 1;

    /// Requests that are outstanding at a time, on average, `late` being how long a timeout takes to fire beyond its time.
    [[nodiscard]] double outstanding(duration late = {}) const {
        const auto seconds = [](duration d) { return std::chrono::duration<double>(d).count(); };
        return static_cast<double>(rate) *
               (cancel_share * seconds(hold) + (1 - cancel_share) * seconds(timeout + late));
    }
};

/// Of a run: what its process has seen in the window.
struct workload_result {
    double cpu_percent = 0; ///< of one core, all threads of the process
    double memory_kb = 0;   ///< resident and no file's, grown since before the service was made
    double made_a_second = 0;
    std::uint64_t planned = 0; ///< requests in the window
    std::uint64_t made = 0;
    std::uint64_t missing = 0;       ///< timeouts due in the window that had not fired long afterwards
    std::uint64_t fired_instead = 0; ///< timeouts that fired although they were meant to be cancelled
    std::vector<float> late_ms;      ///< from the reading before the arm
    std::vector<float> from_intended_ms;
    std::vector<float> behind_ms; ///< of each burst: how late the generator came to it
    counters quiet;
    std::string wrong;

    /// Whether the generator made the requests, and for the most part when they were meant: else it was overloaded.
    [[nodiscard]] bool kept_up() const {
        std::vector<float> sorted = behind_ms;
        const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
        std::nth_element(sorted.begin(), middle, sorted.end());
        return static_cast<double>(made) >= 0.98 * static_cast<double>(planned) &&
               (sorted.empty() || *middle < 10);
    }

    [[nodiscard]] std::string pack() const {
        const harness::json all{
            {"cpu", cpu_percent},
            {"memory", memory_kb},
            {"rate", made_a_second},
            {"planned", planned},
            {"made", made},
            {"missing", missing},
            {"instead", fired_instead},
            {"late", late_ms},
            {"intended", from_intended_ms},
            {"behind", behind_ms},
            {"counters",
             {quiet.armed, quiet.fired, quiet.cancelled, quiet.dropped, quiet.pending, quiet.threw}},
            {"wrong", wrong}};
        const std::vector<std::uint8_t> bytes = harness::json::to_cbor(all);
        return {bytes.begin(), bytes.end()};
    }
    [[nodiscard]] static workload_result unpack(const std::string& bytes) {
        const harness::json all = harness::json::from_cbor(bytes);
        workload_result r;
        all.at("cpu").get_to(r.cpu_percent);
        all.at("memory").get_to(r.memory_kb);
        all.at("rate").get_to(r.made_a_second);
        all.at("planned").get_to(r.planned);
        all.at("made").get_to(r.made);
        all.at("missing").get_to(r.missing);
        all.at("instead").get_to(r.fired_instead);
        all.at("late").get_to(r.late_ms);
        all.at("intended").get_to(r.from_intended_ms);
        all.at("behind").get_to(r.behind_ms);
        all.at("wrong").get_to(r.wrong);
        const auto c = all.at("counters").get<std::vector<std::uint64_t>>();
        r.quiet = {c.at(0), c.at(1), c.at(2), c.at(3), c.at(4), c.at(5)};
        return r;
    }
};

/// How many of `requests` requests, counted from the first, are of a share: exact in the long run, evenly spread.
[[nodiscard]] inline std::uint64_t share_of(std::uint64_t requests, double share) {
    return static_cast<std::uint64_t>(static_cast<double>(requests) * share);
}

/// Requests in the k-th burst, so that `per_burst` is right on average.
[[nodiscard]] inline std::uint64_t requests_in(std::uint64_t k, double per_burst) {
    return share_of(k + 1, per_burst) - share_of(k, per_burst);
}

/// How often a thread looks at its requests: 1 ms apart, or as far as its requests are where that is more.
[[nodiscard]] inline double burst_gap_ns(const workload& w) {
    return std::max(1e6, 1e9 * static_cast<double>(w.threads) / static_cast<double>(w.rate));
}

/// What two services took at one rate, % of a core, requests included.
struct break_even_step {
    std::uint64_t rate = 0;
    double simplest = 0;
    double cheapest = 0;
    [[nodiscard]] double saved() const { return simplest - cheapest; }
};

struct break_even {
    std::optional<double>
        rate; ///< requests a second, below which less than `worth` is saved; between two steps by a straight line
    std::string why;    ///< if there is none
    bool rising = true; ///< whether savings grew with the rate from step to step, give or take the noise
};

/// Runs the two at rates four times as high, or as low, as the one before, until what is saved crosses `worth` (% of a core). `steps`
/// begins with what was measured already and receives every further one. `may_try` tells whether a rate is allowed. `measure` takes a
/// rate and gives the step, or nothing and what is wrong.
[[nodiscard]] inline break_even
find_break_even(std::vector<break_even_step>& steps, double worth, double noise,
                const std::function<bool(std::uint64_t)>& may_try,
                const std::function<std::optional<break_even_step>(std::uint64_t, std::string&)>& measure) {
    constexpr std::uint64_t factor = 4;
    constexpr std::uint64_t least_rate = 10;
    const bool up = steps.front().saved() < worth;
    break_even result;
    while (true) {
        const break_even_step last = steps.back();
        const std::uint64_t rate = up ? last.rate * factor : last.rate / factor;
        if (!up && rate < least_rate) {
            result.why = "it saves at least that at any rate";
            return result;
        }
        if (!may_try(rate)) {
            result.why = "not reached up to " + std::to_string(last.rate) + " requests a second";
            return result;
        }
        std::string problem;
        const auto next = measure(rate, problem);
        if (!next) {
            result.why = "not decided beyond " + std::to_string(last.rate) + " requests a second: at " +
                         std::to_string(rate) + " " + problem;
            return result;
        }
        steps.push_back(*next);
        const double grown = up ? next->saved() - last.saved() : last.saved() - next->saved();
        result.rising = result.rising && grown >= -noise;
        if ((next->saved() >= worth) == up) {
            const double part = (worth - last.saved()) / (next->saved() - last.saved());
            result.rate = static_cast<double>(last.rate) +
                          part * (static_cast<double>(rate) - static_cast<double>(last.rate));
            return result;
        }
    }
}

} // namespace timerbench::experiments
