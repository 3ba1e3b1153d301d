// What a visit of the herd experiment is asked for and what it gives, and how the arms of the other thread are told apart, without any
// service.
#pragma once

#include "timers/service.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace timerbench::experiments {

using namespace std::chrono_literals;

struct herd_case {
    const char* name = "";
    std::size_t timers = 0;
    duration slow{};   ///< how long one callback, a quarter into the herd, keeps the driver; zero: none does
    duration budget{}; ///< of one visit: waves begin until it is spent
};

struct herd_plan {
    duration quiet = 25ms;
    duration margin = 1ms;  ///< before the first callback, from which on an arm counts as one beside the herd
    duration settled = 2ms; ///< after the last arm of the herd, from which on an arm counts as quiet
    duration spacing = 2us; ///< between the probe's arms, on average at least
    duration patience = 3s; ///< beyond the deadline and the service's `latest`
    std::uint64_t least_waves = 2;
};

struct herd_result {
    std::vector<double> late_ms;   ///< callback start minus deadline
    std::vector<double> lasts_ms;  ///< of each wave: first callback to last
    std::vector<double> spread_ms; ///< of each wave: first deadline to last
    std::vector<double> quiet_ns;  ///< arms of the probe, from the intended time
    std::vector<double> herd_ns;
    std::vector<double> quiet_alone_ns;
    std::vector<double> herd_alone_ns;
    std::uint64_t missing = 0;
    std::uint64_t waves = 0;
    std::uint64_t too_late = 0; ///< waves thrown away
    double spacing_us = 0;      ///< of the probe
    std::string wrong;
};

struct probe_arm {
    std::int64_t intended_ns = 0;
    float from_intended_ns = 0;
    float alone_ns = 0;
};

/// The times that decide what an arm of the probe belongs to.
struct wave_times {
    time_point quiet_from{}, quiet_to{}, herd_from{}, herd_to{};
};

/// Adds each arm of the probe to the quiet ones, to those beside the herd, or to neither. Both are sorted by time.
inline void sort_out(herd_result& result, std::span<const probe_arm> arms,
                     const std::vector<wave_times>& waves) {
    std::size_t w = 0;
    for (const probe_arm& a : arms) {
        const time_point intended{duration{a.intended_ns}};
        const time_point end = intended + duration{static_cast<duration::rep>(a.from_intended_ns)};
        while (w < waves.size() && intended > waves[w].herd_to) {
            ++w;
        }
        if (w == waves.size()) {
            break;
        }
        if (end >= waves[w].herd_from) {
            result.herd_ns.push_back(a.from_intended_ns);
            result.herd_alone_ns.push_back(a.alone_ns);
        } else if (intended >= waves[w].quiet_from && intended <= waves[w].quiet_to) {
            result.quiet_ns.push_back(a.from_intended_ns);
            result.quiet_alone_ns.push_back(a.alone_ns);
        }
    }
}

} // namespace timerbench::experiments
