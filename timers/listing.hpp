// How the list of services names them: an entry joins a name, a type and its options, and knows how to make the service.
//
//   clocked<"hashed_wheel/30ms", hashed_wheel, hashed_wheel_options{.tick_ns = 30'000'000}>
//       a template over the clock: runs on the machine's steady clock and on a manual one
//   real_time<"asio", asio_service>
//       a plain type that takes no clock
//
// Names are stable public keys, built like family/variant.
#pragma once

#include "timers/clock.hpp"
#include "timers/service.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

namespace timerbench {

/// A string literal as a template argument.
template <std::size_t N>
struct name_literal {
    char text[N];
    constexpr name_literal(const char (&literal)[N]) {
        std::copy_n(literal, N, text);
    } // NOLINT: implicit by purpose
    [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, N - 1}; }
};

struct no_options {};

/// Why a service cannot be made on this machine, by its static `unavailable()`; empty where it can, and where it has none.
template <class Service>
[[nodiscard]] std::string_view why_unavailable() {
    if constexpr (requires { Service::unavailable(); }) {
        return Service::unavailable();
    } else {
        return {};
    }
}

/// An entry for a service that is a template over its clock.
template <name_literal Name, template <class> class Service, auto Options = no_options{}>
struct clocked {
    static constexpr std::string_view name = Name.view();
    static constexpr bool takes_clock = true;
    using service = Service<steady_time>;
    template <class Clock>
    using service_on = Service<Clock>;

    [[nodiscard]] static std::unique_ptr<service> make() { return make_on(steady()); }

    template <class Clock>
    [[nodiscard]] static std::unique_ptr<Service<Clock>> make_on(Clock& clock) {
        if constexpr (std::is_same_v<std::remove_const_t<decltype(Options)>, no_options>) {
            return std::make_unique<Service<Clock>>(clock);
        } else {
            return std::make_unique<Service<Clock>>(clock, Options);
        }
    }
};

/// An entry for a service that only runs in real time.
template <name_literal Name, class Service, auto Options = no_options{}>
struct real_time {
    static constexpr std::string_view name = Name.view();
    static constexpr bool takes_clock = false;
    using service = Service;

    [[nodiscard]] static std::unique_ptr<service> make() {
        if constexpr (std::is_same_v<std::remove_const_t<decltype(Options)>, no_options>) {
            return std::make_unique<Service>();
        } else {
            return std::make_unique<Service>(Options);
        }
    }
};

/// A list of entries.
template <class... Entries>
struct service_list {
    static constexpr std::size_t size = sizeof...(Entries);
    static constexpr std::array<std::string_view, size> names{Entries::name...};

    /// Calls `f.template operator()<Entry>()` for each entry, in order.
    template <class F>
    static void for_each(F&& f) {
        (f.template operator()<Entries>(), ...);
    }
};

} // namespace timerbench
