// The list of services. Conformance tests, experiments, reports and plots take theirs from here: a line in this list
// is all that a new header needs to be tested and measured.
#pragma once

#include "timers/asio.hpp"
#include "timers/coarse_slot.hpp"
#include "timers/coarse_slot_faithful.hpp"
#include "timers/hashed_wheel.hpp"
#include "timers/libevent.hpp"
#include "timers/listing.hpp"
#include "timers/locked_heap.hpp"
#include "timers/locked_wheel.hpp"
#include "timers/per_thread_wheel.hpp"
#include "timers/per_thread_wheel_loop.hpp"
#include "timers/thread_per_timeout.hpp"
#include "timers/timerfd.hpp"
#include "timers/twin.hpp"

namespace timerbench {

// clang-format off
using all_services = service_list<
    clocked<"coarse_slot", coarse_slot>,
    clocked<"coarse_slot_faithful", coarse_slot_faithful>,
    clocked<"twin", twin>,
    real_time<"asio", basic_asio<asio_options{}>>,
    real_time<"asio_per_thread", basic_asio<asio_options{.driver = driven_by::caller_loop, .locked = false}>>,
    real_time<"asio_per_thread/locked", basic_asio<asio_options{.driver = driven_by::caller_loop, .locked = true}>>,
    real_time<"libevent", basic_libevent<libevent_options{}>>,
    real_time<"libevent/common", basic_libevent<libevent_options{.common_queues = true}>>,
    real_time<"libevent/default", basic_libevent<libevent_options{.library_defaults = true}>>,
    real_time<"libevent_per_thread", basic_libevent<libevent_options{.driver = driven_by::caller_loop}>>,
    real_time<"libevent_per_thread/common", basic_libevent<libevent_options{.driver = driven_by::caller_loop, .common_queues = true}>>,
    real_time<"libevent_per_thread/default", basic_libevent<libevent_options{.driver = driven_by::caller_loop, .library_defaults = true}>>,
    clocked<"hashed_wheel/10ms", hashed_wheel, hashed_wheel_options{.tick_ns = 10'000'000}>,
    clocked<"hashed_wheel/30ms", hashed_wheel, hashed_wheel_options{.tick_ns = 30'000'000}>,
    clocked<"hashed_wheel/100ms", hashed_wheel, hashed_wheel_options{.tick_ns = 100'000'000}>,
    clocked<"hashed_wheel/10ms_mark", hashed_wheel, hashed_wheel_options{.tick_ns = 10'000'000, .mark = true}>,
    clocked<"locked_heap", locked_heap>,
    clocked<"locked_heap/lazy", lazy_locked_heap>,
    clocked<"locked_wheel", locked_wheel>,
    real_time<"timerfd", timerfd_service>,
    clocked<"thread_per_timeout", thread_per_timeout>,
    clocked<"per_thread_wheel", per_thread_wheel>,
    clocked<"per_thread_wheel/tsc", per_thread_wheel_tsc>,
    clocked<"per_thread_wheel/steady", per_thread_wheel_steady>,
    clocked<"per_thread_wheel_loop", per_thread_wheel_loop>
>;
// clang-format on

} // namespace timerbench
