#include "harness/sampler.hpp"

#include "harness/floor_costs.hpp"
#include "harness/interrupt.hpp"
#include "harness/progress.hpp"
#include "harness/report.hpp"
#include "harness/sampler_state.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>

namespace timerbench::harness {

namespace {

class real_times final : public time_source {
  public:
    std::int64_t wall_ns() override { return steady_ns(); }
    std::int64_t thread_cpu_ns() override { return harness::thread_cpu_ns(); }
    std::int64_t process_cpu_ns() override { return harness::process_cpu_ns(); }

    double clock_cost_ns() override {
        constexpr int readings = 200;
        const std::int64_t begin = steady_ns();
        read_steady_clock(readings);
        const std::int64_t end = steady_ns();
        return static_cast<double>(end - begin) / (readings + 1);
    }

    double empty_loop_ns() override {
        constexpr std::uint64_t iterations = 50'000;
        double best = 0;
        for (int i = 0; i < 8; ++i) {
            const std::int64_t begin = steady_ns();
            empty_loop(iterations);
            const double cost = static_cast<double>(steady_ns() - begin) / iterations;
            if (cost > 0 && (best == 0 || cost < best))
                best = cost;
        }
        return best;
    }
};

} // namespace

std::unique_ptr<time_source> real_time_source() {
    return std::make_unique<real_times>();
}

metric_set metrics(const std::string& name) {
    return {name, name + "_cpu", name + "_rest_cpu", name + "_rate"};
}

metric_set wall_only(const std::string& name) {
    return {name, "", "", ""};
}

sampler::sampler(sampler_options settings, std::unique_ptr<time_source> times)
    : settings_(settings),
      times_(times ? std::move(times) : real_time_source()),
      order_(settings.seed) {
    settings_.batches_per_visit = std::max(settings_.batches_per_visit, std::uint32_t{1});
}

sampler::~sampler() = default;

double sampler::empty_loop_ns() {
    const double now = times_->empty_loop_ns();
    if (now > 0 && (empty_loop_ns_ == 0 || now < empty_loop_ns_))
        empty_loop_ns_ = now;
    return empty_loop_ns_;
}

// The same sequence of readings as around a batch, with nothing between: the smallest difference is what reading costs.
void sampler::calibrate() {
    if (calibrated_)
        return;
    calibrated_ = true;
    double cpu = -1;
    double rest = -1;
    for (int i = 0; i < 64; ++i) {
        const auto process_begin = times_->process_cpu_ns();
        const auto thread_begin = times_->thread_cpu_ns();
        const auto wall_begin = times_->wall_ns();
        do_not_optimize(wall_begin);
        const auto wall_end = times_->wall_ns();
        do_not_optimize(wall_end);
        const auto thread_end = times_->thread_cpu_ns();
        const auto process_end = times_->process_cpu_ns();
        const auto thread_spent = static_cast<double>(thread_end - thread_begin);
        const auto rest_spent = static_cast<double>(process_end - process_begin) - thread_spent;
        cpu = cpu < 0 ? thread_spent : std::min(cpu, thread_spent);
        rest = rest < 0 ? rest_spent : std::min(rest, rest_spent);
    }
    cpu_overhead_ns_ = std::max(cpu, 0.0);
    rest_overhead_ns_ = std::max(rest, 0.0);
}

sampler_cell_state& sampler::state_of(const cell& what) {
    for (auto& state : cells_)
        if (state->service == what.service && state->case_point == what.case_point)
            return *state;
    auto& state = *cells_.emplace_back(std::make_unique<sampler_cell_state>());
    state.service = what.service;
    state.case_point = what.case_point;
    state.floor = what.floor;
    state.declared = what.metrics;
    return state;
}

void sampler::visit_state(sampler_cell_state& state, const cell& what, bool warm_up, batch_driver* driver) {
    calibrate();
    if (visits_ % 16 == 0)
        static_cast<void>(empty_loop_ns());
    const std::uint32_t index = warm_up ? 0 : state.measured_visits++;
    visit current(*this, state, index, visits_++, warm_up, driver);
    if (!what.run) {
        current.fail("the cell has nothing to run");
    } else {
        try {
            what.run(current);
        } catch (const std::exception& problem) {
            current.fail(std::string("exception: ") + problem.what());
        } catch (...) {
            current.fail("an exception that is no std::exception");
        }
    }
    current.finish_batch();
    if (driver && state.closed())
        driver->stopped(state.error.empty() ? state.skipped : state.error);
    else if (driver && interrupted())
        driver->stopped("interrupted");
}

bool sampler::run(const std::vector<cell>& cells, std::uint32_t rounds) {
    struct place {
        const cell* what;
        sampler_cell_state* state;
    };
    std::vector<place> places;
    for (const auto& what : cells) {
        auto& state = state_of(what);
        const bool twice =
            std::any_of(places.begin(), places.end(), [&](const place& p) { return p.state == &state; });
        if (twice)
            problems_.push_back("two cells of " + what.service + " at " + case_label(what.case_point));
        else
            places.push_back({&what, &state});
    }
    rounds_ += rounds;
    const std::uint64_t all_rounds = std::uint64_t{settings_.warm_up_rounds} + rounds;
    progress line(all_rounds * places.size(), settings_.progress);
    for (std::uint64_t round = 0; round < all_rounds; ++round) {
        order_.shuffle(places);
        for (const auto& [what, state] : places) {
            if (interrupted())
                return false;
            line.step(what->service + " " + case_label(what->case_point));
            if (!state->closed())
                visit_state(*state, *what, round < settings_.warm_up_rounds, nullptr);
        }
    }
    return !interrupted();
}

bool sampler::visit_once(const cell& what, bool warm_up, batch_driver* driver) {
    auto& state = state_of(what);
    if (state.closed()) {
        if (driver)
            driver->stopped(state.error.empty() ? state.skipped : state.error);
    } else if (!interrupted()) {
        visit_state(state, what, warm_up, driver);
    } else if (driver) {
        driver->stopped("interrupted");
    }
    return !interrupted();
}

std::vector<row> sampler::rows() const {
    std::vector<row> result;
    for (const auto& state : cells_)
        for (auto& one : state->rows(settings_, empty_loop_ns_))
            result.push_back(std::move(one));
    return result;
}

std::vector<check_result> sampler::checks() const {
    std::vector<check_result> result;
    for (const auto& problem : problems_)
        result.push_back({"cells are unique", "", false, problem});
    for (const auto& state : cells_) {
        for (const auto& one : state->checks) {
            // Cases of a service share a line; a failure keeps the line of the case it happened in.
            const auto same = std::find_if(result.begin(), result.end(), [&](const check_result& r) {
                return r.name == one.name && r.service == state->service;
            });
            const std::string detail =
                one.ok ? one.detail
                       : case_label(state->case_point) + (one.detail.empty() ? "" : ": " + one.detail);
            if (same == result.end())
                result.push_back({one.name, state->service, one.ok, detail});
            else if (same->ok && !one.ok)
                *same = {one.name, state->service, false, detail};
        }
    }
    return result;
}

json sampler::parameters() const {
    return {{"seed", settings_.seed},
            {"rounds", rounds_},
            {"warm_up_rounds", settings_.warm_up_rounds},
            {"warm_up_batches", settings_.warm_up_batches},
            {"batches_per_visit", settings_.batches_per_visit},
            {"short_batch_ns", settings_.short_batch_ns},
            {"cycle_ns", settings_.cycle_ns},
            {"empty_loop_ns", empty_loop_ns_ > 0 ? json(empty_loop_ns_) : json(nullptr)},
            {"cpu_overhead_ns", cpu_overhead_ns_},
            {"rest_overhead_ns", rest_overhead_ns_}};
}

} // namespace timerbench::harness
