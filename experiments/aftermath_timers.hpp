// The timeouts of the calls of bench_aftermath, armed on one of the services: one timer for each record, and what has fired since one last looked.
//
// A callback only notes that it ran. Whoever drives the chain takes the notes in between, in the order of the times that were asked for, so that a
// service whose thread fires in an order of its own gives the same run.
#pragma once

#include "experiments/aftermath_calls.hpp"
#include "experiments/service_cells.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace timerbench::experiments::aftermath {

template <class Service>
class timer_shelf {
  public:
    struct fired_timer {
        time_point due;
        call_id who;
    };

    explicit timer_shelf(Service& service) : maker_{service, *this} {}
    timer_shelf(const timer_shelf&) = delete;
    timer_shelf& operator=(const timer_shelf&) = delete;

    /// Fires at `due` at the earliest; `now` is a reading of the service's clock. The record's timer must be idle.
    [[nodiscard]] bool arm(call_id who, time_point due, time_point now) {
        timer& t = at(who.index);
        t.who = who;
        t.due = due;
        const bool taken = maker_.service.arm(t.inner, due - now, {&timer::fire, &t});
        armed_ += taken ? 1 : 0;
        return taken;
    }
    void disarm(call_id who) { armed_ -= maker_.service.cancel(at(who.index).inner) ? 1 : 0; }

    /// How many are armed or have fired and not been taken.
    [[nodiscard]] std::uint64_t outstanding() const noexcept { return armed_; }

    /// What has fired since the last call. Valid until the next one.
    [[nodiscard]] const std::vector<fired_timer>& take_fired() {
        taken_.clear();
        {
            const std::lock_guard lock{mutex_};
            taken_.swap(fired_);
        }
        std::sort(taken_.begin(), taken_.end(), [](const fired_timer& a, const fired_timer& b) {
            return a.due != b.due ? a.due < b.due : a.who.index < b.who.index;
        });
        armed_ -= taken_.size();
        return taken_;
    }

    /// Memory beside each record.
    [[nodiscard]] static constexpr std::size_t bytes() noexcept { return sizeof(timer); }

  private:
    struct maker;
    struct timer {
        explicit timer(maker& m) : inner{m.service}, shelf{m.shelf} {}
        static void fire(void* context) {
            timer& t = *static_cast<timer*>(context);
            const std::lock_guard lock{t.shelf.mutex_};
            t.shelf.fired_.push_back({t.due, t.who});
        }
        typename Service::timer inner;
        timer_shelf& shelf;
        time_point due{};
        call_id who{};
    };
    // What a block of timers is made from.
    struct maker {
        using timer = timer_shelf::timer;
        Service& service;
        timer_shelf& shelf;
        maker(Service& of, timer_shelf& on) : service{of}, shelf{on} {}
    };
    static constexpr std::uint32_t block = 1024;

    timer& at(std::uint32_t i) {
        while (i / block >= blocks_.size()) {
            blocks_.push_back(std::make_unique<timer_block<maker>>(maker_, block));
        }
        return (*blocks_[i / block])[i % block];
    }

    maker maker_;
    std::uint64_t armed_ = 0;
    std::vector<fired_timer> taken_;
    std::mutex mutex_;
    std::vector<fired_timer> fired_; // guarded by mutex_
    std::vector<std::unique_ptr<timer_block<maker>>> blocks_;
};

} // namespace timerbench::experiments::aftermath
