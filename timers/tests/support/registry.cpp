#include "timers/tests/support/registry.hpp"

#include "timers/services.hpp"
#include "timers/tests/support/specimen.hpp"

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace timerbench::testing {
namespace {

template <timer_service S>
class erased final : public erased_service {
  public:
    explicit erased(std::unique_ptr<S> service) : service_{std::move(service)} {}

    void stop() override { service_->stop(); }
    timerbench::counters counters() const override { return std::as_const(*service_).counters(); }
    service_traits traits() const override { return std::as_const(*service_).traits(); }

    bool has_loop() const override { return loop_service<S>; }
    std::size_t poll() override {
        if constexpr (loop_service<S>) {
            return service_->poll();
        } else {
            throw std::logic_error{"this service has no poll"};
        }
    }
    std::size_t poll_until(time_point t) override {
        if constexpr (loop_service<S>) {
            return service_->poll_until(t);
        } else {
            throw std::logic_error{"this service has no poll_until"};
        }
    }
    std::optional<time_point> next_expiry() override {
        if constexpr (requires { service_->next_expiry(); }) {
            return service_->next_expiry();
        } else {
            return std::nullopt;
        }
    }

    bool has_backlog() const override { return deferring_service<S>; }
    std::size_t backlog() const override {
        if constexpr (deferring_service<S>) {
            return std::as_const(*service_).backlog();
        } else {
            throw std::logic_error{"this service has no backlog"};
        }
    }
    void drain() override {
        if constexpr (deferring_service<S>) {
            service_->drain();
        } else {
            throw std::logic_error{"this service has no drain"};
        }
    }

    bool has_window() const override { return seamed_service<S>; }
    void hold_window(duration d) override {
        if constexpr (seamed_service<S>) {
            service_->hold_window(d);
        } else {
            throw std::logic_error{"this service has no hold_window"};
        }
    }

    bool is_forkable() const override { return forkable_service<S>; }
    void pause_for_fork() override {
        if constexpr (forkable_service<S>) {
            service_->pause_for_fork();
        } else {
            throw std::logic_error{"this service has no pause_for_fork"};
        }
    }
    void resume() override {
        if constexpr (forkable_service<S>) {
            service_->resume();
        } else {
            throw std::logic_error{"this service has no resume"};
        }
    }

  private:
    struct body final : timer_body {
        explicit body(S& service) : timer{service} {}
        typename S::timer timer;
    };

    std::unique_ptr<timer_body> make_timer() override { return std::make_unique<body>(*service_); }
    bool arm_body(timer_body& t, duration d, callback c) override {
        return service_->arm(static_cast<body&>(t).timer, d, c);
    }
    bool cancel_body(timer_body& t) override { return service_->cancel(static_cast<body&>(t).timer); }

    std::unique_ptr<S> service_;
};

template <class S>
std::unique_ptr<erased_service> erase(std::unique_ptr<S> service) {
    return std::make_unique<erased<S>>(std::move(service));
}

template <class Entry>
kind kind_of_entry() {
    kind k{Entry::name, [] { return erase(Entry::make()); }, nullptr,
           why_unavailable<typename Entry::service>()};
    if constexpr (Entry::takes_clock) {
        k.make_on = [](manual_time& clock) { return erase(Entry::make_on(clock)); };
    }
    return k;
}

template <defect What, int Drivers>
kind specimen_kind(std::string_view name) {
    return {name,
            [] { return erase(std::make_unique<specimen<steady_time>>(steady(), What, Drivers)); },
            [](manual_time& clock) {
                return erase(std::make_unique<specimen<manual_time>>(clock, What, Drivers));
            },
            {}};
}

template <defect... What>
void add_defects(std::vector<kind>& to, std::integer_sequence<defect, What...>) {
    (to.push_back(specimen_kind<What, drivers_of(What)>(name_of(What))), ...);
}

std::vector<kind> make_kinds() {
    std::vector<kind> all;
    all_services::for_each([&all]<class Entry>() { all.push_back(kind_of_entry<Entry>()); });
    all.push_back(specimen_kind<defect::none, 1>("specimen"));
    all.push_back(specimen_kind<defect::none, 2>("specimen/two_drivers"));
    if (std::getenv(show_defects_variable) != nullptr) {
        add_defects(all, every_defect{});
    }
    return all;
}

} // namespace

const std::vector<kind>& kinds() {
    static const std::vector<kind> all = make_kinds();
    return all;
}

const kind& kind_named(std::string_view name) {
    for (const kind& k : kinds()) {
        if (k.name == name) {
            return k;
        }
    }
    throw std::out_of_range{"no service is named " + std::string{name}};
}

std::vector<std::string_view> kind_names() {
    std::vector<std::string_view> names;
    for (const kind& k : kinds()) {
        names.push_back(k.name);
    }
    return names;
}

std::string test_name_of(std::string_view name) {
    std::string safe{name};
    for (char& c : safe) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        c = plain ? c : '_';
    }
    return safe;
}

} // namespace timerbench::testing
