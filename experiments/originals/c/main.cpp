// libuv and libev beside this project's services: same cases, same loops, same lines of output (docs/originals.md).
//
// How it measures. The loops are the ones this project's services run in (experiments/originals/common); both libraries are driven
// by the caller's loop, so that is run after every 64 pairs and at the end of a batch, inside the timed region. One loop per thread
// in the case of several threads. The smallest batch that lasts 2 ms is looked for first, which is the warm-up.
//
// What is not comparable. Both count from the clock reading of the loop's last pass, so an arm reads no clock: costs are taken with that
// reading up to 64 pairs old, as in a program whose loop has much to do. Lateness is measured with the reading brought up to
// date before each arm (uv_update_time, ev_now_update), else it would be the age of the reading. They are callbacks without an
// operation to be polled: there is no ready path. Nothing is collected or compiled at run time. They take no lock: what they give
// up for their price is being armed and cancelled from another thread.
#include "experiments/originals/c/libev.hpp"
#include "experiments/originals/c/libuv.hpp"
#include "experiments/originals/common/accuracy.hpp"
#include "experiments/originals/common/arm_cancel.hpp"
#include "experiments/originals/common/memory.hpp"
#include "experiments/originals/common/program.hpp"
#include "experiments/originals/common/scaling.hpp"
#include "experiments/originals/common/verify.hpp"

#include <cstdlib>

namespace timerbench::originals {
namespace {

using all_systems = service_list<libuv_timer, libev_timer>;

std::vector<std::string> names() {
    return {all_systems::names.begin(), all_systems::names.end()};
}

template <class F>
void for_each_system(const arguments& given, F&& f) {
    all_systems::for_each([&]<class System>() {
        if (given.systems.empty() || given.wants(System::name, names())) {
            f.template operator()<System>();
        }
    });
}

void no_ready_path(std::string_view name) {
    for (const char* const metric : {"poll", "above_bare"}) {
        print_line(
            line_of(row{.service = std::string{name},
                        .case_point = json_object{}.text("kind", "ready").integer("duration_ms", 1'000).str(),
                        .metric = metric,
                        .unit = "ns/op",
                        .skipped = "callbacks without an operation to be polled: no ready path"}));
    }
}

template <class System>
void add_cells(std::vector<cell>& cells, const arguments& given) {
    const std::string& experiment = given.experiment;
    if (experiment == "ready_path") {
        no_ready_path(System::name);
    } else if (experiment == "arm_cancel") {
        add_arm_cancel<System>(cells, given);
    } else if (experiment == "allocs") {
        add_allocs<System>(cells, given);
    } else if (experiment == "scaling") {
        add_scaling<System>(cells, given);
    } else if (experiment == "accuracy") {
        add_accuracy<System>(cells, given);
    } else if (experiment == "memory") {
        add_memory<System>(cells, given);
    }
}

int run(int argc, char** argv) {
    const arguments given = parse(argc, argv, names(), false);
    if (given.what == action::list) {
        for_each_system(given, []<class System>() { std::puts(std::string{System::name}.c_str()); });
        return EXIT_SUCCESS;
    }
    print_line(versions_line(
        {{"libuv", uv_version_string()},
         {"libev", std::to_string(ev_version_major()) + "." + std::to_string(ev_version_minor())}}));
    if (given.what == action::verify) {
        bool fine = true;
        for_each_system(given, [&]<class System>() {
            for (const check& one : verify<System>()) {
                print_line(line_of(one));
                fine = fine && one.ok;
            }
        });
        return fine ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    std::vector<cell> cells;
    for_each_system(given, [&]<class System>() { add_cells<System>(cells, given); });
    run_shuffled(cells, given);
    return EXIT_SUCCESS;
}

} // namespace
} // namespace timerbench::originals

int main(int argc, char** argv) {
    return timerbench::originals::run_program("originals_c",
                                              [&] { return timerbench::originals::run(argc, argv); });
}
