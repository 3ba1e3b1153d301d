// What the Asio service and the direct use of Asio beside it share: the options, the kind of timer, and the block that
// makes one allocation of what would be two.
#pragma once

#include "timers/service.hpp"

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <cstddef>
#include <new>

namespace timerbench {

struct asio_options {
    driven_by driver = driven_by::own_thread;
    bool locked = true; ///< Without: one thread calls and runs everything, and Asio leaves its locks out.

    [[nodiscard]] constexpr bool own_thread() const noexcept { return driver == driven_by::own_thread; }
};

namespace detail {

/// The steady_timer, but on the io_context's own executor instead of the type-erased one: cheaper to copy into each
/// operation, and 48 bytes less of it.
using asio_timer = boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                                     boost::asio::wait_traits<std::chrono::steady_clock>,
                                                     boost::asio::io_context::executor_type>;
using asio_guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

/// One thread runs the context in every variant; 1 tells Asio so and keeps its locks.
template <asio_options Options>
inline constexpr int asio_hint = Options.locked ? 1 : BOOST_ASIO_CONCURRENCY_HINT_UNSAFE;

/// Room for Asio's operation inside a block of ours: 56 bytes in Boost 1.74 and 72 in 1.81, with a handler of one pointer.
struct operation_room {
    static constexpr std::size_t size = 72;
    alignas(void*) std::byte bytes[size];
};

/// The associated allocator of a handler that owns the block in which `room` lies. Asio allocates one operation per wait,
/// and gives it back before it runs or drops the handler. The operation of some later Asio that is too large for the room
/// goes to the heap.
template <class T>
class room_allocator {
  public:
    using value_type = T;

    explicit room_allocator(operation_room& r) noexcept : room_{&r} {}
    template <class U>
    room_allocator(const room_allocator<U>& other) noexcept
        : room_{other.room_} {} // NOLINT: allocators convert

    /// `n` is 1: the room holds one operation.
    [[nodiscard]] T* allocate([[maybe_unused]] std::size_t n) {
        if constexpr (fits()) {
            return static_cast<T*>(static_cast<void*>(room_->bytes));
        } else {
            return static_cast<T*>(::operator new(n * sizeof(T)));
        }
    }
    void deallocate([[maybe_unused]] T* p, std::size_t) noexcept {
        if constexpr (!fits()) {
            ::operator delete(p);
        }
    }

    template <class U>
    bool operator==(const room_allocator<U>& other) const noexcept {
        return room_ == other.room_;
    }

  private:
    template <class U>
    friend class room_allocator;

    static constexpr bool fits() noexcept {
        return sizeof(T) <= operation_room::size && alignof(T) <= alignof(operation_room);
    }

    operation_room* room_;
};

} // namespace detail
} // namespace timerbench
