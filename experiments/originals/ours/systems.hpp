// The services of services.hpp as systems of this program, and which of them stand beside the originals unless others are asked for.
#pragma once

#include "experiments/originals/common/program.hpp"
#include "timers/services.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace timerbench::originals {

/// Each has the design of an original, or is what this project offers in its place.
inline constexpr std::string_view compared_by_default[] = {"coarse_slot",
                                                           "coarse_slot_faithful",
                                                           "per_thread_wheel",
                                                           "per_thread_wheel/tsc",
                                                           "per_thread_wheel/steady",
                                                           "per_thread_wheel_loop",
                                                           "locked_wheel",
                                                           "hashed_wheel/10ms",
                                                           "hashed_wheel/30ms",
                                                           "hashed_wheel/100ms",
                                                           "locked_heap",
                                                           "locked_heap/lazy",
                                                           "asio",
                                                           "libevent"};

[[nodiscard]] inline std::vector<std::string> system_names() {
    return {all_services::names.begin(), all_services::names.end()};
}

[[nodiscard]] inline bool chosen(const arguments& given, std::string_view name) {
    if (given.systems.empty()) {
        return std::find(std::begin(compared_by_default), std::end(compared_by_default), name) !=
               std::end(compared_by_default);
    }
    return given.wants(name, system_names());
}

/// Calls `f.template operator()<Entry>()` for each system of this run. One that cannot be made on this machine gets a row that
/// says why.
template <class F>
void for_each_system(const arguments& given, F&& f) {
    all_services::for_each([&]<class Entry>() {
        if (!chosen(given, Entry::name)) {
            return;
        }
        if (const std::string_view why = why_unavailable<typename Entry::service>(); !why.empty()) {
            print_line(line_of(row{.service = std::string{Entry::name},
                                   .metric = "available",
                                   .unit = "1",
                                   .skipped = std::string{why}}));
            return;
        }
        f.template operator()<Entry>();
    });
}

// One source file each: every experiment instantiates every service.
void add_ready_path_cells(std::vector<cell>& cells, const arguments& given);
void add_arm_cancel_cells(std::vector<cell>& cells, const arguments& given);
void add_allocs_cells(std::vector<cell>& cells, const arguments& given);
void add_scaling_cells(std::vector<cell>& cells, const arguments& given);
void add_accuracy_cells(std::vector<cell>& cells, const arguments& given);
void add_memory_cells(std::vector<cell>& cells, const arguments& given);
void add_soak_cells(std::vector<cell>& cells, const arguments& given);
[[nodiscard]] std::vector<check> verify_all(const arguments& given);

} // namespace timerbench::originals
