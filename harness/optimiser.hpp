// Two fences against the optimiser. They cost no instruction of their own, but force a value to exist (in a register
// if it fits one, else in memory) and memory to be written. They do not order anything between threads.
#pragma once

#include <type_traits>

namespace timerbench::harness {

namespace detail {
template <class T>
inline constexpr bool fits_register = std::is_trivially_copyable_v<T> && !std::is_floating_point_v<T> &&
                                      sizeof(T) <= sizeof(void*) && (sizeof(T) & (sizeof(T) - 1)) == 0;
}

// The value must have been computed. If it is not const, it may have been changed.
template <class T>
inline void do_not_optimize(T& value) {
    if constexpr (std::is_const_v<T> && detail::fits_register<T>)
        asm volatile("" : : "r"(value) : "memory");
    else if constexpr (std::is_const_v<T>)
        asm volatile("" : : "m"(value) : "memory");
    else if constexpr (detail::fits_register<T>)
        asm volatile("" : "+r"(value) : : "memory");
    else
        asm volatile("" : "+m"(value) : : "memory");
}

template <class T>
requires(!std::is_lvalue_reference_v<T>) inline void do_not_optimize(T&& value) {
    const T& kept = value;
    do_not_optimize(kept);
}

// All memory must have been written and must be read anew.
inline void clobber_memory() {
    asm volatile("" : : : "memory");
}

} // namespace timerbench::harness
