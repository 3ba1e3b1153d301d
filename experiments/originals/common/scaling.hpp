// Experiment scaling: 1, 2, 4, 8 threads arm and cancel a timer of 1 s of their own each, all started at once. One service
// for all threads where any thread may arm, else one loop per thread, polled by it after every 64 pairs.
//
// arm_cancel: mean over the threads of own time per own pair. process_cpu: CPU of the whole process per pair of all threads,
// deferred work included. Every thread does the same number of pairs, so many that each is preempted in the middle of its work
// where threads outnumber cores.
#pragma once

#include "experiments/originals/common/arm_cancel.hpp"
#include "harness/thread_team.hpp"

#include <algorithm>
#include <array>

namespace timerbench::originals {

inline constexpr std::array<unsigned, 4> worker_counts{1, 2, 4, 8};

template <class System>
void measure_scaling(const arguments& given, unsigned workers, unsigned cores) {
    using service_type = typename System::service;
    cost_rows rows{System::name, json_object{}.integer("workers", workers).str()};
    experiments::service_team<System> services{workers};
    {
        std::vector<std::unique_ptr<experiments::timer_block<service_type>>> timers;
        for (unsigned w = 0; w < workers; ++w) {
            timers.push_back(std::make_unique<experiments::timer_block<service_type>>(services.of(w), 1));
        }
        harness::thread_team team{workers};
        // Each worker writes its own element, between two runs of the team nobody does.
        std::vector<std::uint64_t> good(workers);
        std::optional<harness::thread_figures> figures;
        const auto run = [&](std::size_t pairs) {
            return time_batch(
                [&] {
                    const auto times = team.run([&](unsigned w) {
                        good[w] = experiments::run_article(services.of(w), (*timers[w])[0], article_duration,
                                                           pairs);
                    });
                    figures = harness::combine_threads(times, pairs);
                },
                [&] {
                    for (std::size_t i = 0; i < services.size(); ++i) {
                        catch_up(services[i]);
                    }
                });
        };
        const double least_ns = 5e6 * std::max(1.0, static_cast<double>(workers) / cores);
        const std::size_t pairs =
            batch_size(fewest_pairs, least_ns, [&](std::size_t n) { return run(n).wall_ns; });
        const std::size_t samples = given.pick(3, 6);
        for (std::size_t i = 0; i < samples && rows.wall.error.empty(); ++i) {
            const batch_time took = run(pairs);
            std::uint64_t all = 0;
            for (const std::uint64_t one : good) {
                all += one;
            }
            if (all != 2 * pairs * workers) {
                rows.fail(wrong_calls(all, 2 * pairs * workers));
            } else if (!figures) {
                rows.fail("a worker took no time");
            } else {
                rows.add(figures->wall_ns_per_op_per_thread,
                         took.cpu_ns / static_cast<double>(pairs * workers), 1);
            }
        }
        if (workers > cores) {
            rows.note("more workers than cores: read the CPU figure");
        }
    }
    rows.print();
    for (std::size_t i = 0; i < services.size(); ++i) {
        services[i].stop();
    }
}

template <class System>
void add_scaling(std::vector<cell>& cells, const arguments& given) {
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    for (const unsigned workers : worker_counts) {
        cells.push_back([&given, workers, cores] { measure_scaling<System>(given, workers, cores); });
    }
}

} // namespace timerbench::originals
