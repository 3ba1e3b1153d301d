// One object per thread and owner, made at a thread's first use and kept when the thread exits.
//
// Threads have small dense indices; an exiting thread gives its index back, and the next new thread takes it over together
// with the objects found there. So what an exited thread left behind stays reachable, and the number of objects is the
// largest number of threads that were alive at once, not the number that ever lived.
//
// Each thread remembers the object that it used last, for all owners of one type together: `local` and `is_mine` cost a thread-local
// read and a comparison as long as a thread stays with one owner, and two dependent loads more when it changes.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <vector>

namespace timerbench::detail {

class thread_index {
  public:
    [[nodiscard]] static std::size_t mine() {
        thread_local const thread_index held;
        return held.value_;
    }

  private:
    struct pool {
        std::mutex mutex;
        std::size_t next = 0; // guarded by mutex, as is `free`
        std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> free;
    };

    // Never destroyed: threads may exit after the statics of the process are gone.
    static pool& shared() {
        static pool* const p = new pool;
        return *p;
    }

    thread_index() {
        pool& p = shared();
        const std::lock_guard lock{p.mutex};
        if (p.free.empty()) {
            value_ = p.next++;
        } else {
            value_ = p.free.top();
            p.free.pop();
        }
    }
    ~thread_index() {
        pool& p = shared();
        const std::lock_guard lock{p.mutex};
        p.free.push(value_);
    }

    std::size_t value_;
};

template <class T>
class per_thread {
  public:
    per_thread() noexcept : id_{next_id()} {}
    per_thread(const per_thread&) = delete;
    per_thread& operator=(const per_thread&) = delete;
    ~per_thread() {
        for (std::size_t b = 0; b < chunks_.size(); ++b) {
            cell* chunk = chunks_[b].load(std::memory_order_relaxed);
            if (chunk == nullptr) {
                continue;
            }
            for (std::size_t i = 0; i < (std::size_t{1} << b); ++i) {
                delete chunk[i].load(std::memory_order_relaxed);
            }
            delete[] chunk;
        }
    }

    /// The calling thread's object; `make` returns a std::unique_ptr<T> and runs at the first use, with a lock held.
    template <class Make>
    [[nodiscard]] T& local(Make&& make) {
        if (last_used_.owner == id_) [[likely]] {
            return *last_used_.object;
        }
        T* object = look_up();
        if (object == nullptr) {
            object = &create(make);
        }
        last_used_ = {id_, object};
        return *object;
    }

    /// Whether `object`, one of these, is the calling thread's.
    [[nodiscard]] bool is_mine(const T* object) const {
        if (last_used_.owner == id_) [[likely]] {
            return last_used_.object == object;
        }
        T* const mine = look_up();
        if (mine != nullptr) {
            last_used_ = {id_, mine};
        }
        return mine == object;
    }

    /// Calls `f(T&)` for every object, in the order of making. Objects are never removed, so no lock is held in `f`.
    template <class F>
    void for_each(F&& f) {
        for (std::size_t i = 0;; ++i) {
            T* object = nullptr;
            {
                const std::lock_guard lock{mutex_};
                if (i >= all_.size()) {
                    return;
                }
                object = all_[i];
            }
            f(*object);
        }
    }

  private:
    using cell = std::atomic<T*>;

    struct use {
        std::uint64_t owner; // an id, which outlives its owner and is never given twice; 0: none yet
        T* object;
    };

    struct place {
        std::size_t level;
        std::size_t offset;
    };

    static std::uint64_t next_id() noexcept {
        // Any thread; only the uniqueness of the value matters.
        static std::atomic<std::uint64_t> last{0};
        return last.fetch_add(1, std::memory_order_relaxed) + 1;
    }

    static place place_of_mine() {
        const std::size_t n = thread_index::mine() + 1;
        const auto level = static_cast<std::size_t>(std::bit_width(n) - 1);
        return {level, n - (std::size_t{1} << level)};
    }

    // The calling thread's object, or null if it has none yet.
    [[gnu::noinline]] T* look_up() const {
        const auto [level, offset] = place_of_mine();
        const cell* const chunk = chunks_[level].load(std::memory_order_acquire);
        return chunk == nullptr ? nullptr : chunk[offset].load(std::memory_order_acquire);
    }

    template <class Make>
    [[gnu::noinline]] T& create(Make& make) {
        const auto [level, offset] = place_of_mine();
        // `make` runs under the lock: an owner that raises a flag and then calls `for_each` either finds the new object
        // or has the flag seen by `make`.
        const std::lock_guard lock{mutex_};
        std::unique_ptr<T> made = make();
        cell* chunk = chunks_[level].load(std::memory_order_relaxed);
        if (chunk == nullptr) {
            chunk = new cell[std::size_t{1} << level]{};
            chunks_[level].store(chunk, std::memory_order_release);
        }
        all_.push_back(made.get());
        T* object = made.release();
        chunk[offset].store(object, std::memory_order_release);
        return *object;
    }

    static inline constinit thread_local use last_used_{0, nullptr};

    const std::uint64_t id_;
    // Chunk b holds the 2^b places from 2^b - 1 on. Both levels go from null to their value once, under mutex_, with
    // release; `look_up` reads them with acquire. A place is written by the thread that holds its index.
    std::array<std::atomic<cell*>, 32> chunks_{};
    std::mutex mutex_;
    std::vector<T*> all_; // guarded by mutex_
};

} // namespace timerbench::detail
