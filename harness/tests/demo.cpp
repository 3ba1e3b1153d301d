// A small experiment over imaginary services, with both ways of looping. The process tests run it; it is also the
// shortest complete example of an experiment. bench_demo --loop benchmark uses Google Benchmark's loop.
#include "harness/environment.hpp"
#include "harness/floor_costs.hpp"
#include "harness/gbench.hpp"
#include "harness/interrupt.hpp"
#include "harness/optimiser.hpp"
#include "harness/options.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

using namespace timerbench::harness;

namespace {

void mix(std::uint64_t operations, std::uint64_t seed) {
    random_source random(seed);
    for (std::uint64_t i = 0; i < operations; ++i)
        do_not_optimize(random.next());
}

} // namespace

int main(int argc, char** argv) {
    const std::vector<std::string> names = {"plain", "slow/twice", "slow/thrice", "unable"};
    options opts;
    std::string loop = "sampler";
    std::uint64_t rounds = 3;
    bool break_count = false;
    bool break_check = false;
    bool wait = false;
    options_parser parser("bench_demo", "What does it cost to mix a number?", names);
    parser.add_choice("--loop", loop, {"sampler", "benchmark"}, "whose loop");
    parser.add_number("--rounds", rounds, 1, 100'000, "visits per cell");
    parser.add_switch("--break-count", break_count, "one service miscounts");
    parser.add_switch("--break-check", break_check, "a check fails");
    parser.add_switch("--wait", wait, "never end by itself");
    parser.allow_benchmark_flags();
    if (const auto code = parser.parse(argc, argv, opts))
        return *code;

    const interrupt_guard interrupts;
    sampler samples({.seed = opts.seed, .warm_up_batches = 1, .batches_per_visit = 2});
    const json point = {{"kind", "mix"}, {"length", 20'000}};
    std::vector<cell> cells = floor_cells("mix");
    for (const auto& name : names) {
        if (!opts.wants(name))
            continue;
        cell one;
        one.service = name;
        one.case_point = point;
        one.metrics = {"mix"};
        one.run = [=](visit& v) {
            if (name == "unable")
                return v.skip("mixes nothing, \"by\tdesign\"");
            const std::uint64_t times = name == "slow/twice" ? 2 : name == "slow/thrice" ? 3 : 1;
            while (v.next()) {
                if (wait) {
                    std::fputs("waiting\n", stderr);
                    while (!interrupted())
                        std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                v.sample(metrics("mix"), 100'000, [&] { mix(100'000 * times, v.seed()); });
                if (break_count && name == "slow/twice")
                    return v.fail("cancelled 9 of 10");
                v.value("backlog", "entries", 0);
            }
            v.check("armed = cancelled + fired + dropped + pending", !break_check, "1 = 1 + 0 + 0 + 0");
        };
        cells.push_back(std::move(one));
    }

    std::optional<gbench_runner> bench;
    if (loop == "benchmark") {
        bench.emplace("bench_demo", opts, samples,
                      gbench_settings{.repetitions = static_cast<std::uint32_t>(rounds)});
        if (const auto code = bench->prepare(cells))
            return *code;
    }
    report out("demo", opts, environment::capture());
    if (const auto code = out.begin())
        return *code;
    if (bench)
        bench->run();
    else
        samples.run(cells, static_cast<std::uint32_t>(rounds));

    out.parameter("length", 20'000);
    out.parameter("not_finite", std::nan(""));
    out.parameter("sampler", samples.parameters());
    if (bench)
        out.parameter("benchmark", bench->parameters());
    out.add(samples);
    row own;
    own.service = "plain";
    own.case_point = point;
    own.metric = "latenesses";
    own.unit = "ms";
    own.single_events = true;
    for (int i = 0; i < 150; ++i)
        own.samples.push_back(0.1 * i - 1);
    out.add(std::move(own));
    row single;
    single.service = "plain";
    single.case_point = point;
    single.metric = "once";
    single.samples = {1};
    out.add(std::move(single));

    text_table table("mix one number",
                     {{"service", "", align::left}, {"caller", "ns/op"}, {"", "x clock"}, {"rest", "ns/op"}});
    for (const auto& one : cells)
        table.add_row({text(one.service), figure(out.find(one.service, one.case_point, "mix")),
                       figure(out.find(one.service, one.case_point, "mix"), statistic::clock_p50, 2),
                       figure(out.find(one.service, one.case_point, "mix_rest_cpu"), statistic::mean)});
    out.print(table);
    return out.finish();
}
