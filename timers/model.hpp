// The oracle: what a timer service with no slots, no threads and no delays would do. A std::multimap from deadline to id,
// slow and obvious, on one thread, and told the time. Tests run random operation scripts on a service and on this.
//
// Timers are small integers chosen by the caller rather than embedded objects. Entries with one and the same deadline keep
// the order of their arms.
#pragma once

#include "timers/service.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

namespace timerbench {

/// Not thread-safe.
class model {
  public:
    using id = std::size_t;

    explicit model(time_point start) : now_{start} {}

    /// False after `stop`, or if the timer is armed already. The deadline is `now() + d`, saturated.
    bool arm(id timer, duration d) {
        if (stopped_ || armed(timer)) {
            return false;
        }
        by_id_[timer] = by_deadline_.emplace(saturating_add(now_, d), timer);
        ++totals_.armed;
        return true;
    }

    /// Whether the timer was armed. Destroying a timer is the same.
    bool cancel(id timer) {
        if (!remove(timer)) {
            return false;
        }
        ++totals_.cancelled;
        return true;
    }

    void stop() {
        stopped_ = true;
        totals_.dropped += by_deadline_.size();
        by_deadline_.clear();
        by_id_.clear();
    }

    /// Moves time to `t` (not back) and fires everything due by then: deadline by deadline, equal ones in the order of
    /// their arms. A deadline at the end of the time line never comes.
    std::vector<id> advance_to(time_point t) {
        now_ = t;
        std::vector<id> fired;
        while (!by_deadline_.empty() && is_due(by_deadline_.begin()->first)) {
            const id first = by_deadline_.begin()->second;
            fire(first);
            fired.push_back(first);
        }
        return fired;
    }

    /// Moves time to `t` (not back) without firing: for services that fire later than they could. Then `fire` and
    /// `overdue` say whether what they did fits.
    void set_time(time_point t) { now_ = t; }

    /// Records that a service fired this timer now. False, and nothing recorded: it was idle or its deadline is to come.
    bool fire(id timer) {
        const auto found = by_id_.find(timer);
        if (found == by_id_.end() || !is_due(found->second->first)) {
            return false;
        }
        remove(timer);
        ++totals_.fired;
        return true;
    }

    /// Armed timers that a service which fires at most `latest` after a deadline should have fired by now, in order.
    [[nodiscard]] std::vector<id> overdue(duration latest) const {
        std::vector<id> late;
        for (const auto& [deadline, timer] : by_deadline_) {
            if (is_due(deadline) && saturating_add(deadline, latest) <= now_) {
                late.push_back(timer);
            }
        }
        return late;
    }

    [[nodiscard]] bool armed(id timer) const { return by_id_.contains(timer); }
    [[nodiscard]] time_point now() const { return now_; }

    /// The earliest deadline; empty if nothing is armed.
    [[nodiscard]] std::optional<time_point> next() const {
        return by_deadline_.empty() ? std::nullopt : std::optional{by_deadline_.begin()->first};
    }

    [[nodiscard]] timerbench::counters counters() const {
        timerbench::counters c = totals_;
        c.pending = by_deadline_.size();
        return c;
    }

  private:
    using queue = std::multimap<time_point, id>;

    [[nodiscard]] bool is_due(time_point deadline) const {
        return deadline <= now_ && deadline != time_point::max();
    }

    bool remove(id timer) {
        const auto found = by_id_.find(timer);
        if (found == by_id_.end()) {
            return false;
        }
        by_deadline_.erase(found->second);
        by_id_.erase(found);
        return true;
    }

    time_point now_;
    queue by_deadline_;
    std::map<id, queue::iterator> by_id_;
    timerbench::counters totals_;
    bool stopped_ = false;
};

} // namespace timerbench
