#include "harness/interrupt.hpp"
#include "harness/sampler.hpp"
#include "harness/sampler_state.hpp"
#include "harness/text_table.hpp"

#include <algorithm>
#include <cmath>

namespace timerbench::harness {

namespace {

double as_double(std::int64_t value) {
    return static_cast<double>(value);
}

void add_note(std::string& notes, const std::string& text) {
    if (notes.find(text) == std::string::npos)
        notes += (notes.empty() ? "" : "; ") + text;
}

} // namespace

sampler_cell_state::metric& sampler_cell_state::at(const std::string& name) {
    for (auto& one : metrics)
        if (one.figures.metric == name)
            return one;
    auto& added = metrics.emplace_back();
    added.figures.service = service;
    added.figures.case_point = case_point;
    added.figures.metric = name;
    return added;
}

std::vector<row> sampler_cell_state::rows(const sampler_options& settings, double empty_loop_ns) const {
    std::vector<row> result;
    for (const auto& one : metrics) {
        row figures = one.figures;
        if (!error.empty())
            figures.error = error;
        else if (!skipped.empty() && figures.error.empty())
            figures.skipped = skipped;
        if (figures.error.empty() && figures.skipped.empty()) {
            if (figures.samples.empty())
                figures.error = "took no sample outside the warm-up";
            else if (const auto best = minimum(figures.samples); one.wall && best && !floor) {
                if (*best < settings.cycle_ns)
                    figures.error = "optimised away: " + format_number(*best, 3) +
                                    " ns is less than a processor cycle (" +
                                    format_number(settings.cycle_ns, 2) + " ns)";
                else if (empty_loop_ns > 0 && std::fabs(*best - empty_loop_ns) <= 0.1 * empty_loop_ns)
                    figures.error = "optimised away: " + format_number(*best, 3) +
                                    " ns is the cost of an empty loop (" + format_number(empty_loop_ns, 3) +
                                    " ns)";
            }
        }
        if (!figures.error.empty() || !figures.skipped.empty()) {
            figures.samples.clear();
            figures.clock_ns.clear();
            figures.visit_index.clear();
            figures.visit_order.clear();
            figures.first_pass.reset();
        } else if (one.shortest_batch_ns > 0 && one.shortest_batch_ns < settings.short_batch_ns) {
            add_note(figures.note, "batches shorter than " +
                                       format_number(settings.short_batch_ns / 1000, 0) + " us (shortest " +
                                       format_number(one.shortest_batch_ns / 1000, 1) +
                                       " us): the clock's own cost shows");
        }
        result.push_back(std::move(figures));
    }
    // Declared metrics that never came, and cells that recorded nothing at all.
    std::vector<std::string> missing;
    if (closed() || result.empty()) {
        for (const auto& name :
             declared.empty() && result.empty() ? std::vector<std::string>{"all"} : declared)
            if (std::none_of(result.begin(), result.end(), [&](const row& r) { return r.metric == name; }))
                missing.push_back(name);
    }
    for (const auto& name : missing) {
        row figures;
        figures.service = service;
        figures.case_point = case_point;
        figures.metric = name;
        if (!error.empty())
            figures.error = error;
        else if (!skipped.empty())
            figures.skipped = skipped;
        else
            figures.error = "took no sample";
        result.push_back(std::move(figures));
    }
    return result;
}

// Sums over one batch, or over all bursts or threads of one.
struct visit::sums {
    double ops = 0;      // operations of one caller
    double callers = 1;  // threads that did as many each
    double wall_ns = 0;  // per caller: mean of their durations
    double cpu_ns = 0;   // all callers
    double rest_ns = 0;  // the rest of the process
    double rate = 0;     // operations of all per second, 0: unknown
    double clock_ns = 0; // neighbouring clock cost
};

visit::visit(sampler& owner, sampler_cell_state& state, std::uint32_t index, std::uint32_t order,
             bool warm_up, batch_driver* driver)
    : owner_(owner),
      state_(state),
      index_(index),
      order_(order),
      warm_up_(warm_up),
      driver_(driver) {}

bool visit::warming() const {
    return warm_up_ || (uses_next_ && batch_ <= owner_.settings_.warm_up_batches);
}

std::uint64_t visit::seed() const {
    return random_source(owner_.settings_.seed ^ (std::uint64_t{index_} * 0x9e3779b97f4a7c15U)).next();
}

void visit::finish_batch() {
    if (!measured_batch_open_)
        return;
    measured_batch_open_ = false;
    if (!driver_)
        return;
    double seconds = batch_seconds_;
    if (!(seconds > 0)) // nothing was timed in it: the driver still needs to know how long it took
        seconds = as_double(owner_.times_->wall_ns() - batch_begin_ns_) * 1e-9;
    driver_->done(std::max(seconds, 1e-9));
}

bool visit::next() {
    uses_next_ = true;
    finish_batch();
    if (interrupted() || state_.closed())
        return false;
    const std::uint32_t warm = owner_.settings_.warm_up_batches;
    if (warm_up_) {
        if (batch_ >= std::max(warm, std::uint32_t{1}))
            return false;
    } else if (batch_ >= warm) {
        if (driver_ ? !driver_->more() : batch_ - warm >= owner_.settings_.batches_per_visit)
            return false;
        measured_batch_open_ = true;
        batch_seconds_ = 0;
        batch_begin_ns_ = owner_.times_->wall_ns();
    }
    ++batch_;
    return true;
}

void visit::put(const std::string& metric, const std::string& unit, double amount, double clock_ns,
                double batch_ns, bool wall) {
    auto& place = state_.at(metric);
    row& figures = place.figures;
    figures.unit = unit;
    place.wall |= wall;
    if (warming()) {
        if (figures.samples.empty() && !figures.first_pass)
            figures.first_pass = amount;
        return;
    }
    if (batch_ns > 0 && (place.shortest_batch_ns == 0 || batch_ns < place.shortest_batch_ns))
        place.shortest_batch_ns = batch_ns;
    figures.samples.push_back(amount);
    if (clock_ns > 0)
        figures.clock_ns.push_back(clock_ns);
    figures.visit_index.push_back(index_);
    figures.visit_order.push_back(order_);
}

batch_result visit::refuse(const std::string& what) {
    fail(what);
    return {};
}

batch_result visit::record(const metric_set& names, const sums& batch) {
    const auto nanoseconds = [](double value) { return format_number(value, 0) + " ns"; };
    if (!(batch.ops > 0))
        return refuse("a batch of 0 operations");
    if (!std::isfinite(batch.wall_ns) || !(batch.wall_ns > 0))
        return refuse("a batch took " + nanoseconds(batch.wall_ns) +
                      " of wall time: the clock went backwards or stood");
    if (!(batch.clock_ns > 0))
        return refuse("reading the clock took " + nanoseconds(batch.clock_ns) + " beside a batch");
    if (!names.cpu.empty() && !(batch.cpu_ns > 0))
        return refuse("a batch took " + nanoseconds(batch.cpu_ns) +
                      " of CPU time: the clock went backwards or stood");
    if (!names.rest.empty() && batch.rest_ns < -owner_.rest_overhead_ns_ - 1000)
        return refuse("the rest of the process took " + nanoseconds(batch.rest_ns) +
                      " of CPU time in a batch");

    // Reading the CPU clocks is not the service's cost. What is left may be less than nothing by a few nanoseconds.
    const double cpu_ns = std::max(batch.cpu_ns - batch.callers * owner_.cpu_overhead_ns_, 0.0);
    const double rest_ns = std::max(batch.rest_ns - owner_.rest_overhead_ns_, 0.0);
    const double all_ops = batch.ops * batch.callers;
    batch_result result{batch.wall_ns / batch.ops, cpu_ns / all_ops, rest_ns / all_ops, true};
    if (!names.wall.empty())
        put(names.wall, "ns/op", result.wall_ns, batch.clock_ns, batch.wall_ns, true);
    if (!names.cpu.empty())
        put(names.cpu, "ns/op", result.cpu_ns, batch.clock_ns, 0, false);
    if (!names.rest.empty())
        put(names.rest, "ns/op", result.rest_ns, batch.clock_ns, 0, false);
    if (!names.rate.empty() && batch.rate > 0)
        put(names.rate, "op/s", batch.rate, 0, 0, false);
    batch_seconds_ += batch.wall_ns * 1e-9;
    return result;
}

batch_result visit::time_one(const metric_set& names, std::uint64_t ops, function_ref<void()> body,
                             const function_ref<void()>* drain) {
    if (state_.closed())
        return {};
    time_source& times = *owner_.times_;
    const double clock_before = times.clock_cost_ns();
    const auto process_begin = times.process_cpu_ns();
    const auto thread_begin = times.thread_cpu_ns();
    const auto wall_begin = times.wall_ns();
    body();
    const auto wall_end = times.wall_ns();
    const auto thread_end = times.thread_cpu_ns();
    if (drain)
        (*drain)();
    const auto process_end = times.process_cpu_ns();
    const double clock_after = times.clock_cost_ns();

    sums batch;
    batch.ops = static_cast<double>(ops);
    batch.wall_ns = as_double(wall_end - wall_begin);
    batch.cpu_ns = as_double(thread_end - thread_begin);
    batch.rest_ns = as_double(process_end - process_begin) - batch.cpu_ns;
    batch.clock_ns = (clock_before + clock_after) / 2;
    return record(names, batch);
}

batch_result visit::sample(const metric_set& names, std::uint64_t ops, function_ref<void()> body) {
    return time_one(names, ops, body, nullptr);
}

batch_result visit::sample(const metric_set& names, std::uint64_t ops, function_ref<void()> body,
                           function_ref<void()> drain) {
    return time_one(names, ops, body, &drain);
}

batch_result visit::sample_bursts(const metric_set& names, std::uint32_t bursts, std::uint64_t ops_per_burst,
                                  function_ref<void()> body, function_ref<void()> drain,
                                  function_ref<void()> pause) {
    if (state_.closed())
        return {};
    time_source& times = *owner_.times_;
    const double clock_before = times.clock_cost_ns();
    const auto process_begin = times.process_cpu_ns();
    const auto thread_begin = times.thread_cpu_ns();
    sums batch;
    double drain_ns = 0;
    for (std::uint32_t burst = 0; burst < bursts && !interrupted(); ++burst) {
        const auto body_cpu_begin = times.thread_cpu_ns();
        const auto wall_begin = times.wall_ns();
        body();
        const auto wall_end = times.wall_ns();
        const auto body_cpu_end = times.thread_cpu_ns();
        drain();
        const auto drain_cpu_end = times.thread_cpu_ns();
        pause();
        if (wall_end <= wall_begin)
            return refuse("a burst took " + format_number(as_double(wall_end - wall_begin), 0) +
                          " ns of wall time: the clock went backwards or stood");
        batch.ops += static_cast<double>(ops_per_burst);
        batch.wall_ns += as_double(wall_end - wall_begin);
        // Reading the clocks costs once a burst; record() takes off one more for the batch as a whole.
        batch.cpu_ns += std::max(as_double(body_cpu_end - body_cpu_begin) - owner_.cpu_overhead_ns_, 0.0);
        drain_ns += std::max(as_double(drain_cpu_end - body_cpu_end) - owner_.cpu_overhead_ns_, 0.0);
    }
    const auto thread_end = times.thread_cpu_ns();
    const auto process_end = times.process_cpu_ns();
    const double clock_after = times.clock_cost_ns();
    if (interrupted())
        return {};
    batch.cpu_ns += owner_.cpu_overhead_ns_;
    batch.rest_ns = as_double(process_end - process_begin) - as_double(thread_end - thread_begin) + drain_ns;
    batch.clock_ns = (clock_before + clock_after) / 2;
    return record(names, batch);
}

batch_result visit::time_team(const metric_set& names, thread_team& team, std::uint64_t ops_per_thread,
                              function_ref<void(unsigned)> body, const function_ref<void()>* drain) {
    if (state_.closed())
        return {};
    time_source& times = *owner_.times_;
    const double clock_before = times.clock_cost_ns();
    const auto process_begin = times.process_cpu_ns();
    const auto threads = team.run(body);
    if (drain)
        (*drain)();
    const auto process_end = times.process_cpu_ns();
    const double clock_after = times.clock_cost_ns();

    const auto figures = combine_threads(threads, ops_per_thread);
    if (!figures)
        return refuse("a thread's batch took no time or went back in time, or had 0 operations");
    sums batch;
    batch.ops = static_cast<double>(ops_per_thread);
    batch.callers = static_cast<double>(threads.size());
    batch.wall_ns = figures->wall_ns_per_op_per_thread * batch.ops;
    batch.cpu_ns = figures->cpu_ns_per_op * batch.ops * batch.callers;
    batch.rest_ns = as_double(process_end - process_begin) - batch.cpu_ns;
    batch.rate = figures->operations_per_second;
    batch.clock_ns = (clock_before + clock_after) / 2;
    return record(names, batch);
}

batch_result visit::sample_threads(const metric_set& names, thread_team& team, std::uint64_t ops_per_thread,
                                   function_ref<void(unsigned)> body) {
    return time_team(names, team, ops_per_thread, body, nullptr);
}

batch_result visit::sample_threads(const metric_set& names, thread_team& team, std::uint64_t ops_per_thread,
                                   function_ref<void(unsigned)> body, function_ref<void()> drain) {
    return time_team(names, team, ops_per_thread, body, &drain);
}

void visit::value(const std::string& metric, const std::string& unit, double amount) {
    if (state_.closed())
        return;
    if (!std::isfinite(amount))
        fail_metric(metric, "a value that is not finite");
    else
        put(metric, unit, amount, 0, 0, false);
}

void visit::events(const std::string& metric, const std::string& unit, std::span<const double> amounts) {
    if (state_.closed())
        return;
    state_.at(metric).figures.single_events = true;
    for (const double amount : amounts)
        value(metric, unit, amount);
}

void visit::note(const std::string& metric, const std::string& text) {
    add_note(state_.at(metric).figures.note, text);
}

void visit::check(const std::string& name, bool ok, const std::string& detail) {
    for (auto& one : state_.checks) {
        if (one.name != name)
            continue;
        if (one.ok) {
            one.ok = ok;
            one.detail = detail;
        }
        return;
    }
    state_.checks.push_back({name, ok, detail});
}

void visit::fail(const std::string& reason) {
    if (state_.error.empty())
        state_.error = reason.empty() ? "failed without a reason" : reason;
}

void visit::fail_metric(const std::string& metric, const std::string& reason) {
    auto& figures = state_.at(metric).figures;
    if (figures.error.empty())
        figures.error = reason.empty() ? "failed without a reason" : reason;
}

void visit::skip(const std::string& reason) {
    if (!state_.closed())
        state_.skipped = reason.empty() ? "skipped without a reason" : reason;
}

void visit::skip_metric(const std::string& metric, const std::string& reason) {
    auto& figures = state_.at(metric).figures;
    if (figures.skipped.empty() && figures.error.empty())
        figures.skipped = reason.empty() ? "skipped without a reason" : reason;
}

} // namespace timerbench::harness
