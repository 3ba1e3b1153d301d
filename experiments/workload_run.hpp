// One run of the workload experiment: a service, a fixed rate of requests, each with a timeout, for a fixed time.
//
// Each thread meets its requests open-loop, in bursts with random gaps of 1 ms on average, whatever became of those before. At each burst it
//
//   looks after the timeouts that have fired since: notes when, and ends the request (a cancel that finds nothing)
//   cancels the timeouts of the requests that have been answered: those that are meant to be, `hold` after their arm
//   arms the timeouts of the new requests
//
// and then sleeps until the next one, in its service's loop where there is one. Which requests are never answered is decided by their
// number, not by chance. The run begins with one timeout's length, after which as many requests end as begin; then comes
// the window, in which CPU time, lateness and lag are measured, and at whose end memory is read. Afterwards the threads wait for the
// timeouts that were due in the window and withdraw the rest.
//
// Every run has a process of its own (harness/forked.hpp): CPU time and memory are those of one service and nothing else. The same
// run over the service that keeps nothing says what requests cost without timers.
#pragma once

#include "experiments/latency_rows.hpp"
#include "experiments/service_cells.hpp"
#include "experiments/workload_plan.hpp"
#include "harness/forked.hpp"
#include "harness/interrupt.hpp"
#include "harness/open_loop.hpp"
#include "harness/process_status.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <fstream>
#include <iterator>
#include <malloc.h>
#include <optional>
#include <string>
#include <sys/prctl.h>
#include <thread>
#include <vector>

namespace timerbench::experiments {

using harness::punctual_clock;
using namespace std::chrono_literals;

/// The requests of one thread.
template <class Service>
class requests {
  public:
    requests(Service& service, const workload& w, bool fires) : service_{service}, what_{w}, fires_{fires} {}
    requests(const requests&) = delete;
    requests& operator=(const requests&) = delete;

    struct totals {
        std::uint64_t armed = 0, refused = 0, cancelled = 0, fired = 0;
        std::uint64_t planned = 0, made = 0, missing = 0, fired_instead = 0; // of the window
    };

    /// The whole life of the thread: until `end`, then until what was due by then has fired or `patience` has passed, then until all
    /// is withdrawn. The window is what lies between `from` and `end`.
    void run(time_point start, time_point from, time_point end, duration patience, std::uint64_t seed) {
        from_ = from;
        end_ = end;
        const double gap = burst_gap_ns(what_);
        const double per_burst =
            gap * static_cast<double>(what_.rate) / static_cast<double>(what_.threads) / 1e9;
        harness::burst_times times{start.time_since_epoch().count(), gap, 0, seed};
        const time_point give_up = end + 200ms;
        std::uint64_t numbered = 0;
        for (std::uint64_t k = 0;; ++k) {
            const time_point intended{duration{times.next()}};
            if (intended >= end) {
                break;
            }
            const std::uint64_t count = requests_in(k, per_burst);
            const bool in_window = intended >= from;
            totals_.planned += in_window ? count : 0;
            pass_until(intended);
            const time_point now = steady_time::now();
            if (now > give_up || harness::interrupted()) {
                continue; // counted as planned, not made
            }
            if (in_window) {
                behind_ms_.push_back(ms(now - intended));
            }
            look_after(intended);
            for (std::uint64_t i = 0; i < count; ++i, ++numbered) {
                const double fired_share = 1 - what_.cancel_share;
                arm(intended, share_of(numbered + 1, fired_share) > share_of(numbered, fired_share));
            }
            totals_.made += in_window ? count : 0;
        }
        const time_point until = std::max(end, steady_time::now()) + patience;
        while (fires_ && !firing_.empty() && firing_.front()->deadline() <= end &&
               steady_time::now() < until && !harness::interrupted()) {
            pass_until(steady_time::now() + 1ms);
            look_after(end);
        }
        for (const request* r : firing_) {
            const bool fired = r->fired_ns.load(std::memory_order_acquire) != 0;
            totals_.missing += fires_ && !fired && r->deadline() > from && r->deadline() <= end ? 1 : 0;
        }
        for (std::deque<request*>* queue : {&firing_, &holding_}) {
            for (request* r : *queue) {
                finish(*r);
            }
            queue->clear();
        }
        poll_once(service_);
    }

    [[nodiscard]] const totals& sums() const noexcept { return totals_; }
    [[nodiscard]] const std::vector<float>& late_ms() const noexcept { return late_ms_; }
    [[nodiscard]] const std::vector<float>& from_intended_ms() const noexcept { return from_intended_ms_; }
    [[nodiscard]] const std::vector<float>& behind_ms() const noexcept { return behind_ms_; }

  private:
    struct request {
        explicit request(Service& service) : timer{service} {}
        typename Service::timer timer;
        time_point intended{};
        time_point armed_at{};
        duration timeout{};
        // When the callback began; 0: it has not. Written by the driver once an arm, read by the request's thread, which resets it
        // while the timer is idle.
        std::atomic<std::int64_t> fired_ns{0};

        [[nodiscard]] time_point deadline() const noexcept { return armed_at + timeout; }
    };

    [[nodiscard]] static float ms(duration d) { return std::chrono::duration<float, std::milli>(d).count(); }

    void pass_until(time_point t) {
        if constexpr (loop_service<Service>) {
            while (steady_time::now() < t && !harness::interrupted()) {
                service_.poll_until(t);
            }
            poll_once(service_);
        } else if (steady_time::now() < t) {
            harness::sleep_until_ns(t.time_since_epoch().count());
        }
    }

    void arm(time_point intended, bool is_to_fire) {
        request* r = nullptr;
        if (free_.empty()) {
            r = &all_.emplace_back(service_);
        } else {
            r = free_.back();
            free_.pop_back();
        }
        r->intended = intended;
        r->timeout = what_.timeout;
        r->fired_ns.store(0, std::memory_order_relaxed);
        r->armed_at = steady_time::now();
        if (!service_.arm(r->timer, what_.timeout, {&requests::on_fire, r})) {
            ++totals_.refused;
            free_.push_back(r);
            return;
        }
        ++totals_.armed;
        (is_to_fire ? firing_ : holding_).push_back(r);
    }

    static void on_fire(void* context) {
        static_cast<request*>(context)->fired_ns.store(punctual_clock::now(), std::memory_order_release);
    }

    /// What became of the requests until this intended time.
    void look_after(time_point present) {
        while (!firing_.empty()) {
            request& r = *firing_.front();
            const bool fired = r.fired_ns.load(std::memory_order_acquire) != 0;
            if (!fired && (fires_ || r.deadline() > present)) {
                break; // its queue is in order, give or take the service's
            }
            finish(r);
            firing_.pop_front();
            free_.push_back(&r);
        }
        while (!holding_.empty() && holding_.front()->intended + what_.hold <= present) {
            request& r = *holding_.front();
            totals_.fired_instead += finish(r) ? 0 : 1;
            holding_.pop_front();
            free_.push_back(&r);
        }
    }

    /// Ends a request. True if its timeout was withdrawn; else it has fired, and its callback has returned.
    bool finish(request& r) {
        if (service_.cancel(r.timer)) {
            ++totals_.cancelled;
            return true;
        }
        ++totals_.fired;
        const std::int64_t at = r.fired_ns.load(std::memory_order_acquire);
        if (r.deadline() > from_ && r.deadline() <= end_ && at != 0) {
            const duration late = time_point{duration{at}} - r.deadline();
            late_ms_.push_back(ms(late));
            from_intended_ms_.push_back(ms(late + (r.armed_at - r.intended)));
        }
        return false;
    }

    Service& service_;
    const workload& what_;
    bool fires_;
    time_point from_{};
    time_point end_{};
    std::deque<request> all_;    // stay where they are
    std::vector<request*> free_; // last in, first out, so that memory follows the number of outstanding ones
    std::deque<request*> firing_;
    std::deque<request*> holding_;
    totals totals_;
    std::vector<float> late_ms_;
    std::vector<float> from_intended_ms_;
    std::vector<float> behind_ms_;
};

/// Resident memory of this process that is no file's, in kB: heap, stacks, tables, without the pages of the program itself, which a
/// child maps anew as it touches them. Empty where the kernel does not say.
[[nodiscard]] inline std::optional<std::uint64_t> anonymous_kb() {
    std::ifstream file{"/proc/self/smaps_rollup"};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    return harness::status_field(text, "Anonymous");
}

/// In the process of its own.
template <class Entry>
[[nodiscard]] workload_result run_here(const workload& w) {
    using service = typename Entry::service;
    workload_result result;
    malloc_trim(0);
    const auto memory_before = anonymous_kb();
    service_team<Entry> team{w.threads};
    const service_traits traits = team[0].traits();
    const bool fires = !is_floor<Entry>;
    const time_point start = steady_time::now() + 5ms;
    const time_point from = start + w.timeout;
    const time_point end = from + w.window;
    const duration patience = (fires ? traits.latest : duration{}) + 1s;
    std::deque<requests<service>> all;
    for (std::uint64_t t = 0; t < w.threads; ++t) {
        all.emplace_back(team.of(t), w, fires);
    }
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < w.threads; ++t) {
        threads.emplace_back([&, t] {
            prctl(PR_SET_TIMERSLACK, 1UL);
            all[t].run(start, from, end, patience, w.seed * 1'000 + t);
        });
    }
    const auto sleep_to = [](time_point t) { harness::sleep_until_ns(t.time_since_epoch().count()); };
    sleep_to(from);
    const time_point began = steady_time::now();
    const std::int64_t cpu_before = read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    sleep_to(end);
    const time_point ended = steady_time::now();
    const std::int64_t cpu_after = read_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    const auto memory_after = anonymous_kb();
    for (auto& t : threads) {
        t.join();
    }

    result.cpu_percent =
        100.0 * static_cast<double>(cpu_after - cpu_before) / static_cast<double>((ended - began).count());
    if (memory_before && memory_after) {
        result.memory_kb = static_cast<double>(*memory_after) - static_cast<double>(*memory_before);
    } else {
        result.wrong = "/proc/self/smaps_rollup cannot be read, so there is no figure of memory";
    }
    typename requests<service>::totals sum;
    for (const auto& one : all) {
        const auto& t = one.sums();
        sum.armed += t.armed;
        sum.refused += t.refused;
        sum.cancelled += t.cancelled;
        sum.fired += t.fired;
        result.planned += t.planned;
        result.made += t.made;
        result.missing += t.missing;
        result.fired_instead += t.fired_instead;
        result.late_ms.insert(result.late_ms.end(), one.late_ms().begin(), one.late_ms().end());
        result.from_intended_ms.insert(result.from_intended_ms.end(), one.from_intended_ms().begin(),
                                       one.from_intended_ms().end());
        result.behind_ms.insert(result.behind_ms.end(), one.behind_ms().begin(), one.behind_ms().end());
    }
    // Also the time that it took beyond the window, if it fell behind.
    result.made_a_second = static_cast<double>(result.made) / std::chrono::duration<double>(w.window).count();
    if constexpr (!is_floor<Entry>) {
        for (std::size_t i = 0; i < team.size(); ++i) {
            catch_up(team[i]);
        }
        result.quiet = team.counters();
        if (sum.refused > 0) {
            result.wrong = std::to_string(sum.refused) + " arms were refused";
        } else if (result.wrong.empty()) {
            result.wrong = wrong_work({}, result.quiet,
                                      {.armed = sum.armed, .cancelled = sum.cancelled, .fired = sum.fired});
        }
    }
    return result;
}

/// In a child of this process, which must have no other thread.
template <class Entry>
[[nodiscard]] workload_result run_workload(const workload& w) {
    for (int i = 0; i < 1'000 && harness::read_thread_count().value_or(1) > 1; ++i) {
        std::this_thread::sleep_for(1ms); // a thread that was joined may stay listed for a moment
    }
    const auto limit = std::chrono::ceil<std::chrono::milliseconds>(w.timeout + w.window) * 3 + 60s;
    const harness::forked_result answer =
        harness::run_in_child([&] { return run_here<Entry>(w).pack(); }, limit);
    if (answer.error.empty()) {
        return workload_result::unpack(answer.output);
    }
    workload_result failed;
    failed.wrong = answer.error;
    return failed;
}

} // namespace timerbench::experiments
