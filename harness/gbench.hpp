// Google Benchmark as the loop: the one room that includes its header (gbench.cpp). It registers cells as benchmarks
// named service/case-label and picks their order and repetition; one of its iterations is one batch of ours, timed by
// the sampler and handed over as manual time. All samples end in the sampler's rows like any other experiment's.
//
// By default each repetition is one call with a fixed number of batches; with an explicit --benchmark_min_time the
// library chooses how many batches. It never chooses how many timers exist or how many operations a batch has. Random
// interleaving of all repetitions is on unless the flags say otherwise; its order comes from the library's own random
// device, not from --seed. Its threads are never used (before 1.9 it divides wall time by them).
//
// Its console reporter is replaced by one that prints nothing; an explicit --benchmark_format brings the library's own
// display back, on standard error. --benchmark_out works as documented there.
#pragma once

#include "harness/options.hpp"
#include "harness/sampler.hpp"

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::harness {

struct gbench_settings {
    std::uint32_t repetitions = 20; // --benchmark_repetitions overrides
};

class gbench_runner {
  public:
    // One per process (the library's registry is global). samples: where everything measured goes; its
    // batches_per_visit is the number of the library's iterations; it must outlive the runner.
    gbench_runner(std::string program, const options& opts, sampler& samples, gbench_settings settings = {});
    ~gbench_runner();
    gbench_runner(const gbench_runner&) = delete;
    gbench_runner& operator=(const gbench_runner&) = delete;

    // Registers the cells and looks at the flags, before report::begin(). Empty: go on. A value: return it from main
    // (0 after --benchmark_list_tests; 2 after one line: bad pattern, no benchmark matches, --benchmark_out cannot be
    // written).
    [[nodiscard]] std::optional<int> prepare(std::vector<cell> cells);

    // Runs what the filter selects: the sampler's warm-up visits first, then the library's loop. False if interrupted.
    bool run();

    // Cells the filter left out; they have no rows.
    [[nodiscard]] std::size_t cells_left_out() const;

    // Repetitions in force, filter, version of the library; for report::parameter.
    [[nodiscard]] json parameters() const;

  private:
    struct state;
    std::unique_ptr<state> state_;
};

} // namespace timerbench::harness
