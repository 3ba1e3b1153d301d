// What a figure depends on besides the code: machine, kernel, compiler, libraries, revision, and the load before and
// after the run. Facts only, gathered from /proc, /sys, the C library, the compiler's macros and a header that the
// build writes (flags, build type, revision). A fact that cannot be had is the string "unknown" or carries its reason.
// The name of the host is not recorded. Costs a few file reads; not meant for a timed region.
#pragma once

#include "harness/json.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace timerbench::harness {

// Load of the whole machine at one moment. Jiffies are those of /proc/stat, summed over processors.
struct load_snapshot {
    bool known = false;
    double load1 = 0, load5 = 0, load15 = 0;
    std::uint64_t user = 0, system = 0, idle = 0, iowait = 0,
                  steal = 0; // jiffies since boot; user includes nice
};

class environment {
  public:
    // Facts of this machine and build, the load now, the time now (UTC).
    [[nodiscard]] static environment capture();

    // The load at the end of the run; report::finish() calls it.
    void capture_after();

    // Everything, in a fixed order. "load" has "before", "after" (null until captured) and "between" (shares of the
    // jiffies between the two, 0..1, null when none passed).
    [[nodiscard]] json to_json() const;

    // The same as short lines for the head of a text report.
    [[nodiscard]] std::vector<std::string> header_lines() const;

    // Lines about the load, for the end of a text report (after capture_after()).
    [[nodiscard]] std::vector<std::string> load_lines() const;

    // What must be read beside the title: "DEBUG BUILD", "ADDRESS SANITIZER". Empty for a plain optimised build.
    [[nodiscard]] std::vector<std::string> marks() const;

    // "before" load at or above this many running tasks per processor earns a warning line.
    static constexpr double busy_load_per_cpu = 0.5;

  private:
    json facts_;
    load_snapshot before_;
    load_snapshot after_;
    unsigned cpus_ = 1;
};

// Name of the sanitizer this file was compiled with ("address", "thread") or an empty string.
[[nodiscard]] std::string sanitizer_name();
// Compiled with optimisation and NDEBUG.
[[nodiscard]] bool optimised_build();
// Version of the project and revision of its sources, for --version.
[[nodiscard]] std::string version_line();
// Processors this process may run on, at least 1. A case with more workers than this must say so.
[[nodiscard]] unsigned usable_cpus();

} // namespace timerbench::harness
