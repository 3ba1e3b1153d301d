// What the Asio service and the direct use of Asio beside it share: the options, the kind of timer, and the block that
// makes one allocation of what would be two.
#pragma once

#include "timers/service.hpp"

// Boost 1.81 uses std::exchange without including it.
#include <utility>

#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
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

/// Room for Asio's operation inside a block of ours.
class operation_room {
  public:
    operation_room() noexcept = default;
    operation_room(const operation_room&) = delete;
    operation_room& operator=(const operation_room&) = delete;

    /// Takes the room, or the heap if the operation of some later Asio is too large for it.
    void* take(std::size_t bytes) { return bytes <= sizeof room_ ? room_ : ::operator new(bytes); }
    void give_back(void* p) noexcept {
        if (p != room_) {
            ::operator delete(p);
        }
    }

  private:
    // The operation is 72 bytes in Boost 1.74 and 80 in 1.81, with a handler of one pointer.
    alignas(std::max_align_t) std::byte room_[80];
};

/// The associated allocator of a handler that owns the block in which `room` lies. Asio allocates one operation per wait,
/// and gives it back before it runs or drops the handler.
template <class T>
struct room_allocator {
    using value_type = T;

    explicit room_allocator(operation_room& r) noexcept : room{&r} {}
    template <class U>
    room_allocator(const room_allocator<U>& other) noexcept
        : room{other.room} {} // NOLINT: allocators convert

    [[nodiscard]] T* allocate(std::size_t n) { return static_cast<T*>(room->take(n * sizeof(T))); }
    void deallocate(T* p, std::size_t) noexcept { room->give_back(p); }

    template <class U>
    bool operator==(const room_allocator<U>& other) const noexcept {
        return room == other.room;
    }

    operation_room* room;
};

} // namespace detail
} // namespace timerbench
