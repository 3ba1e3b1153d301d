// What a run of bench_aftermath says, worked out from what it left behind.
//
// What happened to the users is counted by the time at which they came. "Normal" is what they saw between a warm-up and the incident. Things are normal
// again at the first moment, not before the incident's end, from which on those who come during a third of the users' limit (a second, with 3 s) are
// answered in time in at least 0.9 of the normal share, and the 99th percentile of their latency is at most 1.1 of the normal one. Who leaves counts with
// the limit, so that a percentile cannot look normal while more than one in a hundred leaves.
#pragma once

#include "experiments/aftermath_calls.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::experiments::aftermath {

struct seen_by_users {
    std::uint64_t users = 0;
    std::uint64_t in_time = 0;
    std::uint64_t failed = 0;
    std::uint64_t left = 0;
    double p50_ms = 0;
    double p99_ms = 0;
    [[nodiscard]] double share() const {
        return users == 0 ? 0 : static_cast<double>(in_time) / static_cast<double>(users);
    }
};

/// Those who came in from .. to (not included), from the run's beginning.
[[nodiscard]] inline seen_by_users seen_between(const results& r, duration from, duration to) {
    const auto first = std::lower_bound(r.arrival.begin(), r.arrival.end(), from.count());
    const auto last = std::lower_bound(first, r.arrival.end(), to.count());
    const auto begin = first - r.arrival.begin();
    const auto end = last - r.arrival.begin();
    seen_by_users seen;
    seen.users = static_cast<std::uint64_t>(end - begin);
    std::vector<std::int64_t> latencies(r.latency.begin() + begin, r.latency.begin() + end);
    for (auto i = begin; i < end; ++i) {
        const outcome how = r.ended[static_cast<std::size_t>(i)];
        seen.in_time += how == outcome::in_time ? 1 : 0;
        seen.failed += how == outcome::failed ? 1 : 0;
        seen.left += how == outcome::left ? 1 : 0;
    }
    const auto rank = [&latencies](double share) {
        // The smallest value that is not exceeded by at least this share.
        const auto n = static_cast<double>(latencies.size());
        const auto k = static_cast<std::ptrdiff_t>(std::min(n - 1, std::max(0.0, std::ceil(share * n) - 1)));
        std::nth_element(latencies.begin(), latencies.begin() + k, latencies.end());
        return static_cast<double>(latencies[static_cast<std::size_t>(k)]) / 1e6;
    };
    if (!latencies.empty()) {
        seen.p50_ms = rank(0.50);
        seen.p99_ms = rank(0.99);
    }
    return seen;
}

struct figures {
    seen_by_users normal;   ///< Between a warm-up and the incident.
    seen_by_users incident; ///< Came during the incident.
    seen_by_users after;    ///< Came after it.
    seen_by_users affected; ///< Both: what the columns show.
    double goodput = 0;     ///< Of the affected: answers in time a second.
    double left_ms = 0;     ///< Work done for callers who had left, ms a request of the whole run.
    double lost_ms = 0;     ///< Other work that came to nothing.
    double left_share = 0;  ///< Of all work.
    double lost_share = 0;
    std::array<double, layers>
        occupancy{};        ///< Share of a pool's connections in use, from the incident's beginning on.
    double store_calls = 0; ///< Calls to the store a request, refused ones included.
    double all_calls = 0;   ///< Calls of all three layers a request.
    std::optional<double> recovery_s; ///< From the incident's end to normal.
    double watched_s = 0;             ///< For how long users came after the incident's end.

    // One value for each bin in which users came; of those who came in it, but for the work.
    std::vector<double> goodput_by_bin; ///< 1/s.
    std::vector<double> p99_ms_by_bin;
    std::vector<double> left_share_by_bin;  ///< Per cent of the work that was booked in it.
    std::vector<double> store_calls_by_bin; ///< A user who came in it; not only those users' calls.
};

/// When things were normal again, see above; empty: not while users came.
[[nodiscard]] inline std::optional<double> recovery_of(const results& r, const parameters& p,
                                                       const seen_by_users& normal) {
    const duration window = p.limit / 3;
    for (duration at = p.incident_end(); at + window <= p.span(); at += p.bin) {
        const seen_by_users seen = seen_between(r, at, at + window);
        if (seen.users > 0 && seen.share() >= 0.9 * normal.share() && seen.p99_ms <= 1.1 * normal.p99_ms) {
            return parameters::seconds_of(at - p.incident_end());
        }
    }
    return std::nullopt;
}

[[nodiscard]] inline figures figures_of(const results& r, const parameters& p) {
    figures f;
    const duration end = p.span();
    f.normal = seen_between(r, std::min<duration>(p.limit / 3, p.incident_at / 4), p.incident_at);
    f.incident = seen_between(r, p.incident_at, p.incident_end());
    f.after = seen_between(r, p.incident_end(), end);
    f.affected = seen_between(r, p.incident_at, end);
    f.goodput = static_cast<double>(f.affected.in_time) / parameters::seconds_of(end - p.incident_at);
    const auto n = static_cast<double>(std::max<std::size_t>(r.arrival.size(), 1));
    f.left_ms = static_cast<double>(r.left_ns) / 1e6 / n;
    f.lost_ms = static_cast<double>(r.lost_ns) / 1e6 / n;
    if (r.work_ns > 0) {
        f.left_share = static_cast<double>(r.left_ns) / static_cast<double>(r.work_ns);
        f.lost_share = static_cast<double>(r.lost_ns) / static_cast<double>(r.work_ns);
    }
    for (std::size_t layer = 1; layer < layers; ++layer) {
        f.occupancy[layer] =
            static_cast<double>(r.busy_ns[layer]) /
            (static_cast<double>((end - p.incident_at).count()) * static_cast<double>(p.connections[layer]));
        f.all_calls += static_cast<double>(r.calls[layer]) / n;
    }
    f.store_calls = static_cast<double>(r.calls[store]) / n;
    f.watched_s = parameters::seconds_of(end - p.incident_end());
    f.recovery_s = recovery_of(r, p, f.normal);

    for (std::size_t bin = 0; bin + 1 < p.bins(); ++bin) {
        const auto from = static_cast<std::int64_t>(bin) * p.bin;
        const seen_by_users seen = seen_between(r, from, from + p.bin);
        f.goodput_by_bin.push_back(static_cast<double>(seen.in_time) / parameters::seconds_of(p.bin));
        f.p99_ms_by_bin.push_back(seen.p99_ms);
        const std::int64_t work = r.work_by_bin[bin];
        f.left_share_by_bin.push_back(
            work > 0 ? 100.0 * static_cast<double>(r.left_by_bin[bin]) / static_cast<double>(work) : 0.0);
        f.store_calls_by_bin.push_back(static_cast<double>(r.store_calls_by_bin[bin]) /
                                       static_cast<double>(std::max<std::uint64_t>(seen.users, 1)));
    }
    return f;
}

/// What is wrong with the books of a run that has ended; empty if nothing is.
[[nodiscard]] inline std::string wrong_books(const results& r) {
    std::uint64_t not_once = 0;
    for (std::size_t i = 0; i < r.times_ended.size(); ++i) {
        not_once += r.times_ended[i] == 1 && r.ended[i] != outcome::none ? 0 : 1;
    }
    if (not_once != 0) {
        return std::to_string(not_once) + " requests did not end exactly once";
    }
    if (r.useful_ns + r.lost_ns + r.left_ns + r.useful_after_ns != r.work_ns) {
        return "useful " + std::to_string(r.useful_ns) + " + lost " + std::to_string(r.lost_ns) +
               " + for those who had left " + std::to_string(r.left_ns) + " ns is not the work of " +
               std::to_string(r.work_ns) + " ns";
    }
    if (r.useful_after_ns != 0) {
        return std::to_string(r.useful_after_ns) +
               " ns went into answers in time after their caller had left";
    }
    if (r.alive_at_end != 0) {
        return std::to_string(r.alive_at_end) + " calls never ended";
    }
    if (r.not_armed != 0) {
        return std::to_string(r.not_armed) + " timeouts were not armed";
    }
    if (!r.timers.balanced() || r.timers.pending != 0 || r.timers.threw != 0) {
        return "the service's counters: " + std::to_string(r.timers.armed) + " armed, " +
               std::to_string(r.timers.cancelled) + " cancelled, " + std::to_string(r.timers.fired) +
               " fired, " + std::to_string(r.timers.pending) + " pending, " +
               std::to_string(r.timers.dropped) + " dropped, " + std::to_string(r.timers.threw) + " threw";
    }
    return {};
}

} // namespace timerbench::experiments::aftermath
