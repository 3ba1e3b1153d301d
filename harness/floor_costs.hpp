// Cells for the floor of a table: what the smallest things cost on this machine in this run, sampled like any service.
// floor/empty_loop, floor/steady_clock (one steady_clock::now()), floor/coarse_clock (one CLOCK_MONOTONIC_COARSE
// reading), floor/mutex (uncontended std::mutex lock + unlock), floor/malloc (malloc + free of 64 B).
// While mutex and malloc are timed a second thread exists (asleep): glibc leaves out the atomic operations in a
// process of one thread, which no timer service with a driver is.
#pragma once

#include "harness/optimiser.hpp"
#include "harness/sampler.hpp"

#include <string>
#include <vector>

namespace timerbench::harness {

// metric: the name of their rows (wall, ns/op). Batches are sized once, to last 200 us or more each.
[[nodiscard]] std::vector<cell> floor_cells(const std::string& metric = "cost");

// The single operations, `iterations` times; for tests and for sizing.
void empty_loop(std::uint64_t iterations);
void read_steady_clock(std::uint64_t iterations);
void read_coarse_clock(std::uint64_t iterations);
void lock_and_unlock(std::uint64_t iterations);
void allocate_and_free(std::uint64_t iterations);

} // namespace timerbench::harness
