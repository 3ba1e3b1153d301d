// This project's services beside the originals: same cases, same loops, same lines of output (docs/originals.md).
//
// How it measures. The loops are those of the bench binaries: arm and cancel of one timer that lives as long as the loop, 64 pairs
// between two polls of a service that the caller's loop drives, driver threads as they are. A batch runs for at least 2 ms;
// the smallest batch size that does is looked for first, which is the warm-up. Counts of calls that did not do what they should turn
// a row into an error.
//
// What is not comparable. A timer here is storage of the caller with a callback; an original may make an object or a
// future for each timeout, which is part of its cost because its users pay it. No collector, no compiler at run time.
// per_thread_wheel_loop counts from the clock reading of its last poll, every other service reads a clock in each arm.
#include "experiments/originals/ours/systems.hpp"
#include "harness/environment.hpp"
#include "harness/json.hpp"

#include <cstdlib>

namespace timerbench::originals {
namespace {

struct experiment {
    std::string_view name;
    void (*add)(std::vector<cell>&, const arguments&);
};

constexpr experiment table[] = {{"ready_path", add_ready_path_cells},
                                {"arm_cancel", add_arm_cancel_cells},
                                {"allocs", add_allocs_cells},
                                {"scaling", add_scaling_cells},
                                {"accuracy", add_accuracy_cells},
                                {"memory", add_memory_cells},
                                {"soak", add_soak_cells}};

std::vector<std::pair<std::string, std::string>> versions() {
    std::string line = harness::version_line();
    if (const std::string prefix = "timerbench "; line.starts_with(prefix)) {
        line.erase(0, prefix.size());
    }
    return {{"timerbench", line}};
}

int run(int argc, char** argv) {
    const arguments given = parse(argc, argv, system_names(), true);
    if (given.what == action::list) {
        for (const std::string& name : system_names()) {
            if (chosen(given, name)) {
                std::puts(name.c_str());
            }
        }
        return EXIT_SUCCESS;
    }
    print_line(versions_line(versions()));
    if (given.environment) {
        const auto facts = harness::environment::capture();
        print_line(json_object{}.raw("environment", harness::write_strict(facts.to_json())).str());
        return EXIT_SUCCESS;
    }
    if (given.what == action::verify) {
        bool fine = true;
        for (const check& one : verify_all(given)) {
            print_line(line_of(one));
            fine = fine && one.ok;
        }
        return fine ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    std::vector<cell> cells;
    for (const experiment& one : table) {
        if (one.name == given.experiment) {
            one.add(cells, given);
        }
    }
    run_shuffled(cells, given);
    return EXIT_SUCCESS;
}

} // namespace
} // namespace timerbench::originals

int main(int argc, char** argv) {
    return timerbench::originals::run_program("originals_ours",
                                              [&] { return timerbench::originals::run(argc, argv); });
}
