// Marks the part of a program whose instructions callgrind is to count.
//
// The functions are named in C, defined in a file of their own and never inlined, so that callgrind finds them by name:
//   --toggle-collect=timerbench_counted_region   counts inside the calls of the first only, and only on the thread that makes them
//   --dump-after=timerbench_region_ended         writes what was counted since the last dump into a file of its own
// Nothing of valgrind is needed to build this. Without callgrind a region costs two calls and counts nothing.
#pragma once

#include <memory>
#include <type_traits>

extern "C" {
/// Calls `body(context)`.
void timerbench_counted_region(void (*body)(void* context), void* context);
/// Ends what was counted so far: what follows belongs to the next dump.
void timerbench_region_ended();
}

namespace timerbench::harness {

/// Calls `body()` on the calling thread, as a region that is counted. May be called several times before the region ends.
template <class Body>
void counted_region(Body&& body) {
    using plain = std::remove_reference_t<Body>;
    timerbench_counted_region([](void* context) { (*static_cast<plain*>(context))(); },
                              const_cast<std::remove_const_t<plain>*>(std::addressof(body)));
}

} // namespace timerbench::harness
