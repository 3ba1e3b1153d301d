// coarse_slot with a flaw that can be chosen: the proof that exact counts see what they are for.
#pragma once

#include "timers/coarse_slot.hpp"
#include "timers/listing.hpp"
#include "timers/locked_heap.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace timerbench::testing {

enum class flaw {
    none,
    allocates,    // one block more in every 100th arm
    executes,     // as many turns of a loop more in every arm as EXACT_TEST_TURNS says
    early,        // by 3 ms
    loses,        // every 10th arm
    refuses,      // every 10th arm
    throws,       // every 10th arm
    unsteady,     // each object allocates one block more than the one before
    few_timers,   // at most ten at once
    unavailable,  // on any machine
    mute_callback // a callback may not call the service
};

template <class Clock, flaw What>
class flawed : public coarse_slot<Clock> {
    using base = coarse_slot<Clock>;

  public:
    explicit flawed(Clock& clock) : base{clock} {
        if constexpr (What == flaw::executes) {
            const char* text = std::getenv("EXACT_TEST_TURNS");
            turns_ = text == nullptr ? 0 : std::stoi(text);
        }
        if constexpr (What == flaw::unsteady) {
            // Objects come one after the other.
            static std::uint64_t made = 0;
            extra_ = made++;
        }
    }

    [[nodiscard]] static std::string_view unavailable() {
        return What == flaw::unavailable ? "is made to be unavailable" : "";
    }

    [[nodiscard]] service_traits traits() const noexcept {
        service_traits t = base::traits();
        t.most_timers = What == flaw::few_timers ? 10 : 0;
        t.callback_may_call = What != flaw::mute_callback;
        return t;
    }

    bool arm(typename base::timer& t, duration d, callback c) {
        ++arms_;
        if constexpr (What == flaw::allocates) {
            if (arms_ % 100 == 0) {
                allocate();
            }
        } else if constexpr (What == flaw::unsteady) {
            if (arms_ % 100 == 0 && extra_ > 0) {
                --extra_;
                allocate();
            }
        } else if constexpr (What == flaw::executes) {
            for (int i = 0; i < turns_; ++i) {
                asm volatile("");
            }
        } else if constexpr (What == flaw::early) {
            d -= std::chrono::milliseconds{3} + base::traits().resolution;
        } else if constexpr (What == flaw::loses) {
            d = arms_ % 10 == 0 ? std::chrono::minutes{10} : d;
        } else if constexpr (What == flaw::refuses) {
            if (arms_ % 10 == 0) {
                return false;
            }
        } else if constexpr (What == flaw::throws) {
            if (arms_ % 10 == 0) {
                throw std::runtime_error{"every tenth"};
            }
        }
        return base::arm(t, d, c);
    }

  private:
    static void allocate() {
        auto* block = new int;
        asm volatile("" : "+r"(block));
        delete block;
    }

    // Touched by the thread that arms; a callback's own arm is another thread's, and none of the cases has one.
    std::uint64_t arms_ = 0;
    std::uint64_t extra_ = 0;
    int turns_ = 0;
};

/// Takes no clock.
struct in_real_time : locked_heap<steady_time> {};

template <class Clock>
using plain = flawed<Clock, flaw::none>;
template <class Clock>
using allocates = flawed<Clock, flaw::allocates>;
template <class Clock>
using executes = flawed<Clock, flaw::executes>;
template <class Clock>
using early = flawed<Clock, flaw::early>;
template <class Clock>
using loses = flawed<Clock, flaw::loses>;
template <class Clock>
using refuses = flawed<Clock, flaw::refuses>;
template <class Clock>
using throws = flawed<Clock, flaw::throws>;
template <class Clock>
using unsteady = flawed<Clock, flaw::unsteady>;
template <class Clock>
using few_timers = flawed<Clock, flaw::few_timers>;
template <class Clock>
using unavailable = flawed<Clock, flaw::unavailable>;
template <class Clock>
using mute_callback = flawed<Clock, flaw::mute_callback>;

// clang-format off
using flawed_services = service_list<
    clocked<"flawed/none", plain>,
    clocked<"flawed/allocates", allocates>,
    clocked<"flawed/executes", executes>,
    clocked<"flawed/early", early>,
    clocked<"flawed/loses", loses>,
    clocked<"flawed/refuses", refuses>,
    clocked<"flawed/throws", throws>,
    clocked<"flawed/unsteady", unsteady>,
    clocked<"flawed/few_timers", few_timers>,
    clocked<"flawed/unavailable", unavailable>,
    clocked<"flawed/mute_callback", mute_callback>,
    real_time<"flawed/in_real_time", in_real_time>
>;
// clang-format on

} // namespace timerbench::testing
