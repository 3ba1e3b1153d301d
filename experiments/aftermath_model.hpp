// The model of bench_aftermath: a chain gateway -> A -> B -> store, what is done at each layer, an incident, and the policies.
//
// How it works. Users come to the gateway at a fixed rate, at random moments that no answer moves (open loop), and leave after their limit. A
// layer does its own work and then calls the next one; the store only works. A call takes one of the connections to the layer that it goes to,
// for as long as the callee is busy with it, or waits in line for one. During the incident work that begins at the store takes `slowdown` times
// as long. What a call takes and whether it fails is drawn from its place in the request's tree of calls alone, so that two
// policies, and the simulated and the real form, meet the same luck.
//
// Where the figures come from: 10 000 requests a second with 3 s of timeout, hence 30 000 outstanding, and 3 s at every layer, are the
// articles'. Work of 1 ms at a layer and 10 ms at the store, and a store with twice the connections that this needs, are choices made here.
//
// What it is bad at. Connections cost nothing to make, messages take no time, a layer's work slows nobody else's down, and nobody sheds load
// but a full line. No layer has a circuit breaker.
#pragma once

#include "harness/json.hpp"
#include "harness/statistics.hpp"
#include "harness/text_table.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace timerbench::experiments::aftermath {

inline constexpr std::size_t layers = 4;
inline constexpr std::size_t gateway = 0;
inline constexpr std::size_t store = layers - 1;
inline constexpr std::array<const char*, layers> layer_names{"gateway", "A", "B", "store"};

/// What happens to a call whose caller has waited long enough.
enum class cancelling : std::uint8_t {
    no_timeout, ///< Nobody ever stops waiting, but the user.
    detach,     ///< Each layer waits for its own span; the call is left running, in line or at work.
    abort,      ///< The same, and the connection is closed: the callee and all below it stop at once.
    cooperative, ///< The same, and the callee is told; it stops at its next look at the token, or at once while it waits.
    deadline, ///< One deadline, the user's, is handed down; cooperative, and what cannot finish in time is not begun.
};

enum class retrying : std::uint8_t {
    none,
    naive,  ///< Three more attempts, at once, each with a fresh span, whoever still waits.
    inside, ///< Up to three more, backing off with full jitter, all inside one deadline: the layer's span, or the one handed down.
    budget, ///< The same, each paid with a token that successes earn.
};

struct policy {
    cancelling cancel = cancelling::no_timeout;
    duration look{}; ///< Work between two looks at the token; cooperative and deadline.
    retrying retry = retrying::none;
    friend bool operator==(const policy&, const policy&) = default;
};

/// Retries beside the first attempt, by every policy that has them.
inline constexpr int most_retries = 3;

[[nodiscard]] inline std::string cancel_name(const policy& p) {
    switch (p.cancel) {
    case cancelling::no_timeout:
        return "no_timeout";
    case cancelling::detach:
        return "detach";
    case cancelling::abort:
        return "abort";
    case cancelling::cooperative:
        return "coop_" + std::to_string(p.look / std::chrono::milliseconds{1}) + "ms";
    case cancelling::deadline:
        return "deadline";
    }
    return "?";
}

[[nodiscard]] inline std::string retry_name(const policy& p) {
    switch (p.retry) {
    case retrying::none:
        return "no_retry";
    case retrying::naive:
        return "naive";
    case retrying::inside:
        return "inside";
    case retrying::budget:
        return "budget";
    }
    return "?";
}

[[nodiscard]] inline std::string name_of(const policy& p) {
    return cancel_name(p) + "/" + retry_name(p);
}

/// Every way to cancel with every way to retry, the ways to cancel first.
[[nodiscard]] inline std::vector<policy> all_policies() {
    using std::chrono::milliseconds;
    const policy ways[] = {{cancelling::no_timeout, {}, {}},
                           {cancelling::detach, {}, {}},
                           {cancelling::abort, {}, {}},
                           {cancelling::cooperative, milliseconds{1}, {}},
                           {cancelling::cooperative, milliseconds{10}, {}},
                           {cancelling::cooperative, milliseconds{100}, {}},
                           {cancelling::deadline, milliseconds{10}, {}}};
    std::vector<policy> result;
    for (policy p : ways) {
        for (const retrying r : {retrying::none, retrying::naive, retrying::inside, retrying::budget}) {
            p.retry = r;
            result.push_back(p);
        }
    }
    return result;
}

/// The policy that the articles warn of and the one that they recommend.
inline constexpr policy worst_policy{cancelling::detach, {}, retrying::naive};
inline constexpr policy best_policy{cancelling::deadline, std::chrono::milliseconds{10}, retrying::budget};

/// The finaliser of SplitMix64: a number that looks random from any number.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}
/// Uniform over [0, 1).
[[nodiscard]] constexpr double unit_of(std::uint64_t x) noexcept {
    return static_cast<double>(mixed(x) >> 11) * 0x1p-53;
}

struct parameters {
    std::uint64_t requests = 1'000'000;
    double rate = 10'000; ///< Users a second.
    duration limit = std::chrono::seconds{3};
    duration timeout = std::chrono::seconds{3}; ///< A layer's own span, where it has one.
    std::array<duration, layers> work{std::chrono::milliseconds{1}, std::chrono::milliseconds{1},
                                      std::chrono::milliseconds{1}, std::chrono::milliseconds{10}};
    double spread = 0.5; ///< Work takes its mean times a number uniform over 1 - spread .. 1 + spread.
    double slowdown = 10;
    duration incident_at = std::chrono::seconds{20}; ///< From the beginning of the run.
    duration incident_for = std::chrono::seconds{10};
    /// Connections to a layer; the gateway takes every user until `line` and the connections to A are full.
    std::array<std::uint32_t, layers> connections{};
    std::uint32_t line = 0; ///< How many calls may wait in line for a connection to one layer.
    double error_rate =
        0.001; ///< Share of the store's calls that fail, at their end, with an error worth a retry.
    bool random_arrivals = true; ///< Exponential gaps; else equal ones.
    duration bin = std::chrono::milliseconds{100};
    duration first_backoff = std::chrono::milliseconds{50};
    duration longest_backoff = std::chrono::seconds{1};
    double tokens_per_success = 0.1;
    double most_tokens = 100;
    std::uint64_t seed = 1;

    /// Mean work of a layer and all below it, without incident: for how long a call holds its connection.
    [[nodiscard]] duration hold(std::size_t layer) const {
        duration sum{};
        for (std::size_t i = layer; i < layers; ++i) {
            sum += work[i];
        }
        return sum;
    }

    /// Sizes what follows from the rate: twice the store's connections that its mean work needs, as many to A and to B as can be
    /// outstanding, and lines ten times as long.
    void size_for_rate() {
        const double outstanding = std::max(1.0, std::ceil(rate * seconds_of(timeout)));
        connections = {0, whole(outstanding), whole(outstanding),
                       whole(std::ceil(2 * rate * seconds_of(work[store])))};
        line = whole(10 * outstanding);
        most_tokens = std::max(10.0, rate / 100);
    }

    [[nodiscard]] static double seconds_of(duration d) { return std::chrono::duration<double>{d}.count(); }

    /// When the last user comes, at the mean.
    [[nodiscard]] duration span() const {
        return duration{static_cast<duration::rep>(static_cast<double>(requests) / rate * 1e9)};
    }
    [[nodiscard]] duration incident_end() const { return incident_at + incident_for; }
    [[nodiscard]] std::size_t bins() const { return static_cast<std::size_t>(span() / bin) + 1; }
    [[nodiscard]] std::size_t bin_of(duration since) const {
        return std::min(bins() - 1, static_cast<std::size_t>(std::max<std::int64_t>(since / bin, 0)));
    }

    /// What the work of the call `key` at `layer` takes that begins `since` the beginning.
    [[nodiscard]] duration work_of(std::size_t layer, std::uint64_t key, duration since) const {
        double factor = 1 - spread + 2 * spread * unit_of(key);
        if (layer == store && since >= incident_at && since < incident_end()) {
            factor *= slowdown;
        }
        return duration{static_cast<duration::rep>(static_cast<double>(work[layer].count()) * factor)};
    }
    [[nodiscard]] bool fails(std::uint64_t key) const {
        return unit_of(key ^ 0x5bf0363559c2ab11ULL) < error_rate;
    }

    /// When each user comes, from the beginning of the run, ascending.
    [[nodiscard]] std::vector<std::int64_t> arrivals() const {
        harness::random_source random{seed};
        std::vector<std::int64_t> result;
        result.reserve(requests);
        const double gap = 1e9 / rate;
        double at = 0;
        for (std::uint64_t i = 0; i < requests; ++i) {
            at += random_arrivals ? -std::log(1 - random.unit()) * gap : gap;
            result.push_back(static_cast<std::int64_t>(at));
        }
        return result;
    }

    [[nodiscard]] harness::json to_json() const {
        const auto ms = [](duration d) { return std::chrono::duration<double, std::milli>{d}.count(); };
        return {{"requests", requests},
                {"rate", rate},
                {"limit_ms", ms(limit)},
                {"timeout_ms", ms(timeout)},
                {"work_ms", {ms(work[0]), ms(work[1]), ms(work[2]), ms(work[3])}},
                {"spread", spread},
                {"slowdown", slowdown},
                {"incident_at_ms", ms(incident_at)},
                {"incident_ms", ms(incident_for)},
                {"connections", {connections[1], connections[2], connections[3]}},
                {"line", line},
                {"error_rate", error_rate},
                {"bin_ms", ms(bin)},
                {"retries", most_retries},
                {"first_backoff_ms", ms(first_backoff)},
                {"longest_backoff_ms", ms(longest_backoff)},
                {"tokens_per_success", tokens_per_success},
                {"most_tokens", most_tokens}};
    }

  private:
    [[nodiscard]] static std::uint32_t whole(double x) {
        return static_cast<std::uint32_t>(std::clamp(x, 1.0, 4e9));
    }
};

/// For how long users may come: figures are kept for every bin of it.
inline constexpr duration longest_span = std::chrono::hours{1};

/// Why these parameters make no sense together, one line with the value and what would be right; empty if they do.
[[nodiscard]] inline std::string refuse(const parameters& p) {
    const auto ms = [](duration d) { return std::to_string(d / std::chrono::milliseconds{1}) + " ms"; };
    const double needed = p.rate * parameters::seconds_of(p.work[store]);
    if (static_cast<double>(p.connections[store]) <= needed) {
        return "--connections " + std::to_string(p.connections[store]) + " cannot carry " +
               harness::format_number(p.rate, 0) + " requests a second of " + ms(p.work[store]) +
               " even without an incident; give more than " + harness::format_number(std::ceil(needed), 0);
    }
    if (p.span() > longest_span) {
        return "--requests " + std::to_string(p.requests) + " at --rate " +
               harness::format_number(p.rate, 0) + " come for " +
               harness::format_number(parameters::seconds_of(p.span()), 0) +
               " s; give a higher --rate or fewer --requests, for at most " +
               harness::format_number(parameters::seconds_of(longest_span), 0) + " s";
    }
    if (p.incident_at + p.incident_for + p.limit > p.span()) {
        return "--incident-ms " + std::to_string(p.incident_for / std::chrono::milliseconds{1}) +
               " does not fit: the run takes " + ms(p.span()) + ", the incident begins after " +
               ms(p.incident_at) + ", and users wait for " + ms(p.limit) +
               "; give a shorter incident, or more --requests";
    }
    return {};
}

/// The most records of calls that can be alive at the same time.
[[nodiscard]] inline std::uint64_t most_calls(const parameters& p, const policy& how) {
    const std::uint64_t at_gateway = std::min(p.requests, std::uint64_t{p.connections[gateway + 1]} + p.line);
    const std::uint64_t attempts = how.retry == retrying::none ? 1 : 1 + most_retries;
    std::uint64_t sum = at_gateway;
    std::uint64_t made = p.requests;
    for (std::size_t layer = 1; layer < layers; ++layer) {
        made *= attempts;
        // Only a detached call outlives its caller.
        const std::uint64_t alive =
            how.cancel == cancelling::detach ? made : std::min<std::uint64_t>(made, at_gateway);
        sum += std::min(alive, std::uint64_t{p.connections[layer]} + p.line);
    }
    return sum;
}

} // namespace timerbench::experiments::aftermath
