// What the sampler keeps of one cell while it runs. Included by the sampler's own source files only.
#pragma once

#include "harness/json.hpp"
#include "harness/row.hpp"
#include "harness/sampler.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace timerbench::harness {

struct sampler_cell_state {
    struct metric {
        row figures;
        bool wall = false;            // verified against the cycle and the empty loop
        double shortest_batch_ns = 0; // 0: not timed
    };
    struct check {
        std::string name;
        bool ok = true;
        std::string detail;
    };

    std::string service;
    json case_point;
    bool floor = false;
    std::vector<std::string> declared;
    std::uint32_t measured_visits = 0;
    std::vector<metric> metrics; // in order of first use
    std::vector<check> checks;
    std::string error;   // closes the cell
    std::string skipped; // closes the cell

    [[nodiscard]] bool closed() const { return !error.empty() || !skipped.empty(); }
    metric& at(const std::string& name);
    [[nodiscard]] std::vector<row> rows(const sampler_options& settings, double empty_loop_ns) const;
};

} // namespace timerbench::harness
