// How a service in a forked child gets rid of what its driver thread was using when the process forked.
//
// The child has a copy of the driver's objects but not the driver. Destroying them there would hang or crash: a condition
// variable waits for its waiters to leave, a std::thread must be joined first, a list of parkers may be locked.
#pragma once

#include <memory>
#include <new>

namespace timerbench::detail {

/// Ends the life of `object` without destroying it and puts a fresh one in its place. What the old one owned on the
/// heap is leaked. Only while no other thread of this process can touch the object.
template <class T>
void abandon(T& object) {
    ::new (static_cast<void*>(std::addressof(object))) T{};
}

} // namespace timerbench::detail
