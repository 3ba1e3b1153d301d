// Experiment memory: timeouts of 60 s, each made, armed, cancelled and destroyed, one after the other. What is held of each
// afterwards, when deferred work is done: held is the heap in use, rss the growth of the process's resident memory, in which is
// what the allocator keeps. A second wave of this process would find that memory again, so rss is taken in the first only.
#pragma once

#include "experiments/originals/common/arm_cancel.hpp"
#include "harness/process_status.hpp"

namespace timerbench::originals {

/// Gives the driver the time it needs to clean up what it may: a tick of the coarsest.
inline constexpr duration settling = std::chrono::milliseconds{120};

template <class System>
void measure_memory(const arguments& given) {
    using service_type = typename System::service;
    const std::size_t timers = given.pick(200'000, 1'000'000);
    const duration armed_for = std::chrono::seconds{60};
    const std::string point = json_object{}
                                  .text("kind", "cancelled")
                                  .integer("timers", static_cast<std::int64_t>(timers))
                                  .integer("duration_ms", armed_for / std::chrono::milliseconds{1})
                                  .str();
    row held{.service = std::string{System::name}, .case_point = point, .metric = "held", .unit = "B"};
    row rss{.service = std::string{System::name}, .case_point = point, .metric = "rss", .unit = "B"};
    const auto service = System::make();
    std::uint64_t good = 0;
    const auto cancel_many = [&](std::size_t n) {
        experiments::in_polled_groups(*service, n, [&](std::size_t) {
            typename service_type::timer timer{*service};
            good += service->arm(timer, armed_for, experiments::no_callback) ? 1 : 0;
            good += service->cancel(timer) ? 1 : 0;
        });
        catch_up(*service);
    };
    cancel_many(1'000);
    const auto counting = harness::alloc_counting();
    const auto resident = harness::read_resident_memory();
    harness::alloc_counts grown;
    {
        const harness::alloc_window window;
        cancel_many(timers);
        experiments::sleep_until(steady_time::now() + settling);
        catch_up(*service);
        grown = window.counts();
    }
    const auto resident_after = harness::read_resident_memory();
    const auto per_timer = [timers](double bytes) { return bytes / static_cast<double>(timers); };
    held.samples = {per_timer(static_cast<double>(grown.live_bytes))};
    if (!counting.available) {
        held.skipped = counting.reason;
    }
    if (resident && resident_after) {
        rss.samples = {
            per_timer(static_cast<double>(resident_after->bytes) - static_cast<double>(resident->bytes))};
    } else {
        rss.skipped = "resident memory cannot be read here";
    }
    if (good != 2 * (timers + 1'000)) {
        held.error = rss.error = wrong_calls(good, 2 * (timers + 1'000));
    }
    print_line(line_of(held));
    print_line(line_of(rss));
    service->stop();
}

template <class System>
void add_memory(std::vector<cell>& cells, const arguments& given) {
    cells.push_back([&given] { measure_memory<System>(given); });
}

} // namespace timerbench::originals
