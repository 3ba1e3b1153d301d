// Experiment ready_path: this project's timeout (timers/timeout.hpp) around an operation that is done at its first poll, minus the bare
// poll of the same operation before and after it. The operation is a call that the compiler cannot see through, as in
// bench_ready_path.
#include "experiments/originals/common/timing.hpp"
#include "experiments/originals/ours/systems.hpp"
#include "timers/timeout.hpp"

#include <optional>

namespace timerbench::originals {
namespace {

constexpr std::uint64_t operations = 65'536; // about 0.2 ms a batch; a sample is `batches` of them
constexpr std::uint64_t batches = 10;
constexpr duration guarded_for = std::chrono::seconds{1};

/// Too large for two registers, as a count with an error code is: see bench_ready_path.
struct answer {
    std::uint64_t value = 0;
    std::uint64_t error = 0;
};

class finished_operation {
  public:
    explicit finished_operation(std::uint64_t value) : value_{value} {}

    [[gnu::noinline]] std::optional<answer> poll(const waker&) {
        asm volatile("" : "+r"(value_) : : "memory");
        return answer{.value = value_};
    }

  private:
    std::uint64_t value_;
};

[[gnu::noinline]] std::uint64_t sum_bare(std::uint64_t n) {
    const waker nobody{};
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < n; ++k) {
        finished_operation operation{k};
        sum += operation.poll(nobody).value_or(answer{}).value;
    }
    return sum;
}

template <class Service>
[[gnu::noinline]] std::uint64_t sum_guarded(Service& service, std::uint64_t n) {
    const waker nobody{};
    std::uint64_t sum = 0;
    for (std::uint64_t k = 0; k < n; ++k) {
        timeout<Service, finished_operation> guarded{service, guarded_for, finished_operation{k}};
        if (const auto result = guarded.poll(nobody)) {
            sum += result->value.value_or(answer{}).value;
        }
    }
    return sum;
}

template <class Entry>
void measure(const arguments& given) {
    const std::string point = json_object{}
                                  .text("kind", "ready")
                                  .integer("duration_ms", guarded_for / std::chrono::milliseconds{1})
                                  .str();
    row poll{.service = std::string{Entry::name}, .case_point = point, .metric = "poll", .unit = "ns/op"};
    row above{
        .service = std::string{Entry::name}, .case_point = point, .metric = "above_bare", .unit = "ns/op"};
    const auto service = Entry::make();
    const counters before = service->counters();
    std::uint64_t sum = 0;
    const auto nanoseconds = [&](auto&& batch) {
        const auto took = time_batch(
            [&] {
                for (std::uint64_t b = 0; b < batches; ++b) {
                    sum += batch();
                }
            },
            [] {});
        return took.wall_ns / static_cast<double>(batches * operations);
    };
    const auto bare = [&] { return sum_bare(operations); };
    const auto guarded = [&] { return sum_guarded(*service, operations); };
    static_cast<void>(nanoseconds(bare));
    static_cast<void>(nanoseconds(guarded));
    const int samples = given.pick(5, 10);
    sum = 0;
    for (int i = 0; i < samples; ++i) {
        const double first = nanoseconds(bare);
        const double whole = nanoseconds(guarded);
        const double second = nanoseconds(bare);
        poll.samples.push_back(whole);
        above.samples.push_back(whole - (first + second) / 2);
        poll.clock_ns.push_back(clock_cost_ns());
        above.clock_ns.push_back(poll.clock_ns.back());
    }
    const std::uint64_t expected =
        3 * static_cast<std::uint64_t>(samples) * batches * (operations * (operations - 1) / 2);
    if (sum != expected) {
        poll.error = above.error =
            "wrong work: the values add up to " + std::to_string(sum) + ", not " + std::to_string(expected);
    } else if (service->counters().armed != before.armed) {
        poll.error = above.error = "wrong work: the service was asked to arm";
    }
    print_line(line_of(poll));
    print_line(line_of(above));
    service->stop();
}

} // namespace

void add_ready_path_cells(std::vector<cell>& cells, const arguments& given) {
    for_each_system(given, [&]<class Entry>() { cells.push_back([&given] { measure<Entry>(given); }); });
}

} // namespace timerbench::originals
