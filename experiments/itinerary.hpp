// What a run visits: planned in full, then gone through in random order with progress and time left.
#pragma once

#include "harness/interrupt.hpp"
#include "harness/progress.hpp"
#include "harness/sampler.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace timerbench::experiments {

class itinerary {
  public:
    /// `label` is shown while `go` runs.
    void add(std::string label, std::function<void()> go) {
        visits_.push_back({std::move(label), std::move(go)});
    }

    /// Runs each once, on this thread. Leaves the rest out after an interrupt.
    void run(std::uint64_t seed) {
        harness::random_source random{seed};
        random.shuffle(visits_);
        harness::progress progress{visits_.size(), isatty(STDERR_FILENO) == 1};
        for (const visit& next : visits_) {
            if (harness::interrupted()) {
                return;
            }
            progress.step(next.label);
            next.go();
        }
    }

  private:
    struct visit {
        std::string label;
        std::function<void()> go;
    };

    std::vector<visit> visits_;
};

} // namespace timerbench::experiments
