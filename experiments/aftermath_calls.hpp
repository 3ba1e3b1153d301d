// What bench_aftermath keeps while it runs: calls, connections and lines, what is to be done when, and the books.
#pragma once

#include "experiments/aftermath_model.hpp"
#include "timers/deadline.hpp"
#include "timers/retry.hpp"
#include "timers/service.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

namespace timerbench::experiments::aftermath {

inline constexpr std::uint32_t nobody = ~std::uint32_t{0};

/// A record and which of its uses is meant.
struct call_id {
    std::uint32_t index = nobody;
    std::uint32_t generation = 0;
};

/// How a call ended, as its caller hears of it.
enum class status : std::uint8_t {
    ok,
    error,     ///< The store's own error.
    busy,      ///< The line was full.
    failed,    ///< The callee's own calls came to nothing.
    timed_out, ///< The caller had waited long enough.
    expired,   ///< The deadline that was handed down left no time for it.
    cancelled, ///< It was told to stop.
};

/// Where a call stands.
enum class stand : std::uint8_t {
    lined,   ///< In line for a connection.
    posted,  ///< Refused without a connection; its caller is about to hear.
    sent,    ///< Under way to the callee.
    working, ///< The callee works itself.
    below,   ///< The callee waits for its own call.
    pausing, ///< The callee backs off before another attempt.
    ended,   ///< The callee is done; its answer is under way.
};

/// One attempt: the caller's side of it and the callee's.
struct call {
    std::uint32_t generation = 1;
    std::uint32_t parent =
        nobody; ///< The call whose handler waits for this one; nobody once it has gone on without.
    std::uint32_t child = nobody; ///< The attempt that the handler waits for.
    std::uint32_t line_before = nobody;
    std::uint32_t line_after = nobody;
    std::uint32_t slot = nobody; ///< The connection.
    std::uint32_t epoch = 0;     ///< Number of the step to be done that still counts.
    std::uint32_t user = 0;
    std::uint8_t layer = 0;
    std::uint8_t tries = 0; ///< Attempts of the handler so far.
    stand where = stand::lined;
    bool armed = false;
    bool given_up = false; ///< The caller still waits, but for the end only.
    bool stopping = false; ///< The callee was told to stop.
    std::uint64_t key = 0; ///< Its luck.
    time_point begun{};    ///< Of the present work.
    time_point work_end{};
    time_point left_at{};              ///< From when on nobody wants the answer.
    std::int64_t before_ns = 0;        ///< Work in it until `left_at`, and of its good attempts.
    std::int64_t after_ns = 0;         ///< Work in it from `left_at` on.
    deadline until = deadline::none(); ///< What was handed down.
    deadline attempts_until = deadline::none();
    std::optional<retry_run> run; ///< Of the handler's own calls, but for naive retries.
};

/// Elements that stay where they are, made in blocks when they are first needed.
template <class T>
class in_blocks {
  public:
    [[nodiscard]] T& operator[](std::uint32_t i) noexcept { return blocks_[i / block][i % block]; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    std::uint32_t add_one() {
        if (size_ % block == 0) {
            blocks_.push_back(std::make_unique<T[]>(block));
        }
        return size_++;
    }

  private:
    static constexpr std::uint32_t block = 4096;
    std::vector<std::unique_ptr<T[]>> blocks_;
    std::uint32_t size_ = 0;
};

/// The records of calls, used again and again.
class call_records {
  public:
    [[nodiscard]] call& operator[](std::uint32_t i) noexcept { return records_[i]; }
    [[nodiscard]] call* find(call_id id) noexcept {
        if (id.index >= records_.size()) {
            return nullptr;
        }
        call& c = records_[id.index];
        return c.generation == id.generation ? &c : nullptr;
    }
    [[nodiscard]] std::uint32_t take() {
        ++alive_;
        most_ = std::max(most_, alive_);
        if (free_.empty()) {
            return records_.add_one();
        }
        const std::uint32_t i = free_.back();
        free_.pop_back();
        return i;
    }
    void give_back(std::uint32_t i) {
        call& c = records_[i];
        const std::uint32_t generation = c.generation + 1;
        const std::uint32_t epoch = c.epoch + 1;
        c.run.reset();
        std::destroy_at(&c);
        std::construct_at(&c);
        c.generation = generation;
        c.epoch = epoch;
        free_.push_back(i);
        --alive_;
    }
    [[nodiscard]] std::uint64_t alive() const noexcept { return alive_; }
    [[nodiscard]] std::uint64_t most_alive() const noexcept { return most_; }

  private:
    in_blocks<call> records_;
    std::vector<std::uint32_t> free_;
    std::uint64_t alive_ = 0;
    std::uint64_t most_ = 0;
};

/// The connections to one layer and the line of those who wait for one. First come, first served.
class connection_pool {
  public:
    /// What was in use is counted between two points of time.
    void open(std::uint32_t size, time_point from, time_point to) {
        free_.clear();
        for (std::uint32_t i = size; i > 0; --i) {
            free_.push_back(i - 1);
        }
        size_ = size;
        from_ = changed_ = from;
        to_ = to;
    }
    [[nodiscard]] bool available() const noexcept { return !free_.empty(); }
    [[nodiscard]] std::uint32_t take(time_point now) {
        count(now);
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        return slot;
    }
    void release(std::uint32_t slot, time_point now) {
        count(now);
        free_.push_back(slot);
    }
    /// Connections in use, added up over time.
    [[nodiscard]] std::int64_t busy_ns(time_point now) {
        count(now);
        return busy_ns_;
    }
    [[nodiscard]] std::uint32_t busy() const noexcept {
        return size_ - static_cast<std::uint32_t>(free_.size());
    }

    [[nodiscard]] std::uint32_t waiting() const noexcept { return waiting_; }
    void push(call_records& all, std::uint32_t i) {
        all[i].line_before = last_;
        all[i].line_after = nobody;
        (last_ == nobody ? first_ : all[last_].line_after) = i;
        last_ = i;
        ++waiting_;
    }
    void remove(call_records& all, std::uint32_t i) {
        call& c = all[i];
        (c.line_before == nobody ? first_ : all[c.line_before].line_after) = c.line_after;
        (c.line_after == nobody ? last_ : all[c.line_after].line_before) = c.line_before;
        c.line_before = c.line_after = nobody;
        --waiting_;
    }
    [[nodiscard]] std::uint32_t first() const noexcept { return first_; }

  private:
    void count(time_point now) noexcept {
        const time_point at = std::clamp(now, from_, to_);
        if (at > changed_) {
            busy_ns_ += (at - changed_).count() * busy();
            changed_ = at;
        }
    }

    std::vector<std::uint32_t> free_;
    std::uint32_t size_ = 0;
    std::uint32_t first_ = nobody;
    std::uint32_t last_ = nobody;
    std::uint32_t waiting_ = 0;
    time_point from_{};
    time_point to_{};
    time_point changed_{};
    std::int64_t busy_ns_ = 0;
};

/// Something to be done with a call at its time.
struct step {
    enum class kind : std::uint8_t { work_end, pause_end };
    time_point at;
    std::uint64_t order; ///< Among those of the same time: as they were noted.
    call_id who;
    std::uint32_t epoch;
    kind what;
};

/// What is to be done, earliest first.
class agenda {
  public:
    void add(time_point at, call_id who, std::uint32_t epoch, step::kind what) {
        steps_.push({at, order_++, who, epoch, what});
    }
    [[nodiscard]] bool empty() const noexcept { return steps_.empty(); }
    [[nodiscard]] time_point next() const { return steps_.empty() ? time_point::max() : steps_.top().at; }
    [[nodiscard]] step pop() {
        const step s = steps_.top();
        steps_.pop();
        return s;
    }

  private:
    struct later {
        bool operator()(const step& a, const step& b) const noexcept {
            return a.at != b.at ? a.at > b.at : a.order > b.order;
        }
    };
    std::priority_queue<step, std::vector<step>, later> steps_;
    std::uint64_t order_ = 0;
};

enum class outcome : std::uint8_t {
    none,
    in_time, ///< Answered within the limit.
    failed,  ///< Told within the limit that there will be no answer.
    left,    ///< Left at the limit.
};

/// What a run gave. Times in ns from its beginning.
struct results {
    // One for each user, in the order of their coming.
    std::vector<std::int64_t> arrival;
    std::vector<std::int64_t> latency; ///< Until the answer or the failure; the limit for those who left.
    std::vector<outcome> ended;
    std::vector<std::uint8_t> times_ended;

    std::array<std::uint64_t, layers> calls{};                     ///< Begun, refused ones included.
    std::optional<std::array<std::uint64_t, layers>> calls_at_cut; ///< When the last user's limit was over.
    std::int64_t left_ns_at_cut = 0; ///< Work booked by then that was done for those who had left.
    std::uint64_t refused = 0;       ///< By a full line.
    std::uint64_t not_begun = 0;     ///< Dropped because the deadline left no time, before any work.
    std::uint64_t not_armed = 0;     ///< Timeouts that the service did not take.
    std::uint64_t timed_out = 0;

    // Work, in ns. All of it is in exactly one of useful, lost and left.
    std::int64_t work_ns = 0;
    std::int64_t useful_ns = 0;       ///< Went into an answer in time.
    std::int64_t lost_ns = 0;         ///< Done while somebody waited, and for nothing.
    std::int64_t left_ns = 0;         ///< Done when the caller, or somebody above, had left.
    std::int64_t useful_after_ns = 0; ///< Part of an answer in time, done for somebody who had left: none.

    // By the time at which it was booked, one for each bin.
    std::vector<std::int64_t> work_by_bin;
    std::vector<std::int64_t> left_by_bin;
    std::vector<std::uint32_t> store_calls_by_bin;

    std::array<std::int64_t, layers>
        busy_ns{};                ///< From the incident's beginning to the mean time of the last user.
    std::uint64_t most_alive = 0; ///< Records at the same time.
    std::uint64_t alive_at_end = 0;
    counters timers{};
    std::int64_t cpu_ns = 0;
    /// Of the real form: how late its own steps were done, in ms, sorted.
    std::vector<double> lateness_ms;
    std::string trouble; ///< Why the run cannot be used; empty if it can.

    void open(const parameters& p) {
        arrival = p.arrivals();
        latency.assign(arrival.size(), 0);
        ended.assign(arrival.size(), outcome::none);
        times_ended.assign(arrival.size(), 0);
        work_by_bin.assign(p.bins(), 0);
        left_by_bin.assign(p.bins(), 0);
        store_calls_by_bin.assign(p.bins(), 0);
    }

    /// Lets go of what is kept for each user and each bin, once the figures have been worked out.
    void forget_details() {
        arrival = {};
        latency = {};
        ended = {};
        times_ended = {};
        work_by_bin = {};
        left_by_bin = {};
        store_calls_by_bin = {};
    }

    /// A number over all that a simulation decides: equal for equal runs.
    [[nodiscard]] std::uint64_t digest() const {
        std::uint64_t sum = 0;
        const auto take = [&sum](std::uint64_t x) { sum = mixed(sum ^ x); };
        for (std::size_t i = 0; i < arrival.size(); ++i) {
            take(static_cast<std::uint64_t>(arrival[i]));
            take(static_cast<std::uint64_t>(latency[i]));
            take(static_cast<std::uint64_t>(ended[i]) << 8 | times_ended[i]);
        }
        for (std::size_t i = 0; i < layers; ++i) {
            take(calls[i]);
            take(static_cast<std::uint64_t>(busy_ns[i]));
        }
        for (std::size_t i = 0; i < work_by_bin.size(); ++i) {
            take(static_cast<std::uint64_t>(work_by_bin[i]));
            take(static_cast<std::uint64_t>(left_by_bin[i]));
            take(store_calls_by_bin[i]);
        }
        for (const std::int64_t ns : {work_ns, useful_ns, lost_ns, left_ns}) {
            take(static_cast<std::uint64_t>(ns));
        }
        take(refused);
        take(not_begun);
        take(timed_out);
        take(most_alive);
        return sum;
    }
};

/// Memory that a simulation can need at most: `timer_bytes` beside each record.
[[nodiscard]] inline std::uint64_t most_bytes(const parameters& p, const policy& how,
                                              std::size_t timer_bytes) {
    constexpr std::uint64_t per_user = 2 * sizeof(std::int64_t) + sizeof(outcome) + 1;
    // Beside the record: its place in the list of free ones, and a step on the agenda, which may hold an old one too.
    const std::uint64_t per_call = sizeof(call) + timer_bytes + sizeof(std::uint32_t) + 2 * sizeof(step);
    constexpr std::uint64_t per_bin = 2 * sizeof(std::int64_t) + sizeof(std::uint32_t);
    return p.requests * per_user + p.bins() * per_bin + most_calls(p, how) * per_call;
}

} // namespace timerbench::experiments::aftermath
