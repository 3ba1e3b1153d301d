// coarse_slot once more, as a distinct type, to show what placement alone does.
//
// The compiler emits the same code a second time at other addresses. Whatever difference a table shows between the
// two comes from placement and noise, so no smaller difference between any two services is called one.
#pragma once

#include "timers/coarse_slot.hpp"

namespace timerbench {

struct twin_identity;

template <class Clock>
using twin = basic_coarse_slot<Clock, twin_identity>;

} // namespace timerbench
