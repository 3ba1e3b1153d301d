// What the kernel says about this process: resident memory, threads, and how often threads gave up the processor.
//
// Memory is read from /proc/self/smaps_rollup, which walks the page tables and is exact, or where that is missing from
// /proc/self/statm, whose counters may lag by some dozens of pages per thread. Reading takes tens of microseconds, more with
// gigabytes in use, and allocates. Context switches come from getrusage: threads that have ended are in the sum.
// Not meant for a timed region.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace timerbench::harness {

// The number behind "name:" at the beginning of a line, in the unit that stands in the file (kB in /proc). Empty if there is no
// such line or no whole number behind it.
[[nodiscard]] std::optional<std::uint64_t> status_field(std::string_view text, std::string_view name);

// Resident pages: the second number of /proc/self/statm. Empty if the text is not of that form.
[[nodiscard]] std::optional<std::uint64_t> resident_pages(std::string_view statm);

struct resident_memory {
    std::uint64_t bytes = 0;
    std::string source; // the file it was read from
};
// Empty where neither file can be read.
[[nodiscard]] std::optional<resident_memory> read_resident_memory();

// Threads of this process that exist now; empty where /proc cannot be read.
[[nodiscard]] std::optional<std::uint64_t> read_thread_count();

// Voluntary context switches: how often a thread went to sleep.
struct sleep_counts {
    std::uint64_t caller = 0; // the calling thread
    std::uint64_t others = 0; // all other threads of the process, ended ones included

    friend bool operator==(const sleep_counts&, const sleep_counts&) = default;
};
[[nodiscard]] sleep_counts read_sleep_counts();

} // namespace timerbench::harness
