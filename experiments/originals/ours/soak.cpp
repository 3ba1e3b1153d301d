// Experiment soak, for the service whose original has one: 8 workers, 50 000 tasks, each looping a zero timeout
// around an operation that never finishes. Counted, not timed. A task that neither ends nor is woken, for as long as the service may
// need and two seconds more, has lost its timeout. bench_lost_wakeup is the larger experiment of the same kind, with a control.
#include "experiments/originals/ours/systems.hpp"
#include "harness/executor.hpp"
#include "timers/timeout.hpp"

#include <atomic>
#include <deque>
#include <optional>
#include <thread>

namespace timerbench::originals {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t tasks_in_all = 50'000;
constexpr std::size_t workers = 8;
constexpr duration grace = 2s;
constexpr std::string_view soaked = "coarse_slot";

struct alignas(64) tally {
    // Raised by the home's worker alone, read by the main thread to see whether anything moves; publishes nothing.
    std::atomic<std::uint64_t> completions{0};
    std::atomic<std::uint64_t> ended{0};
    std::atomic<std::uint64_t> refused{0};

    static void raise(std::atomic<std::uint64_t>& n) noexcept {
        n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
};

template <class Service>
class looping_task : public harness::task {
  public:
    looping_task(Service& service, tally& count, const std::atomic<bool>& enough) noexcept
        : task{&looping_task::turn},
          service_{service},
          count_{count},
          enough_{enough} {}

  private:
    static harness::outcome turn(harness::task& self, const waker& w) noexcept {
        auto& me = static_cast<looping_task&>(self);
        if (me.waiting_) {
            if (!me.waiting_->poll(w)) {
                return harness::outcome::pending;
            }
            me.waiting_.reset();
            tally::raise(me.count_.completions);
        }
        if (!me.enough_.load(std::memory_order_relaxed)) {
            me.waiting_.emplace(me.service_, duration::zero());
            if (!me.waiting_->poll(w)) {
                return harness::outcome::pending;
            }
            // Elapsed at once: the service did not arm.
            me.waiting_.reset();
            tally::raise(me.count_.refused);
        }
        tally::raise(me.count_.ended);
        return harness::outcome::done;
    }

    Service& service_;
    tally& count_;
    const std::atomic<bool>& enough_; // set once by the main thread; a turn may see it late
    std::optional<sleep<Service>> waiting_;
};

template <class Entry>
void measure(const arguments& given) {
    using service_type = typename Entry::service;
    const std::string point = json_object{}
                                  .integer("tasks", static_cast<std::int64_t>(tasks_in_all))
                                  .integer("workers", static_cast<std::int64_t>(workers))
                                  .str();
    row completions{
        .service = std::string{Entry::name}, .case_point = point, .metric = "completions", .unit = "1"};
    row stopped{
        .service = std::string{Entry::name}, .case_point = point, .metric = "stopped_tasks", .unit = "1"};
    const auto service = Entry::make();
    {
        std::deque<tally> tallies(workers);
        std::atomic<bool> enough{false};
        // Before the tasks: an armed timer may wake its task until that is gone.
        harness::executor executor{workers};
        std::deque<looping_task<service_type>> tasks;
        const auto sum = [&](std::atomic<std::uint64_t> tally::*which) {
            std::uint64_t all = 0;
            for (const tally& one : tallies) {
                all += (one.*which).load(std::memory_order_relaxed);
            }
            return all;
        };
        for (std::size_t i = 0; i < tasks_in_all; ++i) {
            const std::size_t home = i % workers;
            tasks.emplace_back(*service, tallies[home], enough);
            executor.spawn(tasks.back(), home);
        }
        std::this_thread::sleep_for(given.pick(3s, 20s));
        enough.store(true, std::memory_order_relaxed);
        const duration patience = service->traits().latest + grace;
        std::uint64_t moved = 0;
        for (auto last_move = steady_time::now(); sum(&tally::ended) < tasks_in_all;) {
            const std::uint64_t at = sum(&tally::completions) + sum(&tally::ended);
            if (at != moved) {
                moved = at;
                last_move = steady_time::now();
            } else if (steady_time::now() - last_move > patience) {
                break;
            }
            std::this_thread::sleep_for(1ms);
        }
        double standing = 0;
        double queued = 0;
        for (const auto& task : tasks) {
            standing += task.idle() ? 1 : 0;
            queued += !task.idle() && !task.finished() ? 1 : 0;
        }
        executor.stop();
        completions.samples = {static_cast<double>(sum(&tally::completions))};
        stopped.samples = {standing};
        if (const std::uint64_t refused = sum(&tally::refused); refused > 0) {
            completions.error = stopped.error = std::to_string(refused) + " arms were refused";
        } else if (queued > 0) {
            completions.error = stopped.error = number_text(queued) + " tasks still waited for a worker";
        }
    }
    print_line(line_of(completions));
    print_line(line_of(stopped));
    service->stop();
}

} // namespace

void add_soak_cells(std::vector<cell>& cells, const arguments& given) {
    for_each_system(given, [&]<class Entry>() {
        if constexpr (Entry::name == soaked) {
            cells.push_back([&given] { measure<Entry>(given); });
        }
    });
}

} // namespace timerbench::originals
