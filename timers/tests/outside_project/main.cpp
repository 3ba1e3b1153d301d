// Arms a timer and waits for it, with nothing but the installed headers.
#include <timers/locked_heap.hpp>

#include <chrono>
#include <cstdio>
#include <future>

int main() {
    timerbench::locked_heap<timerbench::steady_time> service{timerbench::steady()};
    timerbench::locked_heap<timerbench::steady_time>::timer timer{service};
    std::promise<void> fired;
    const auto run = [](void* context) { static_cast<std::promise<void>*>(context)->set_value(); };
    if (!service.arm(timer, std::chrono::milliseconds{5}, {run, &fired})) {
        std::puts("not armed");
        return 1;
    }
    if (fired.get_future().wait_for(std::chrono::seconds{20}) != std::future_status::ready) {
        std::puts("not fired");
        return 1;
    }
    service.cancel(timer);
    std::puts("fired");
    return 0;
}
