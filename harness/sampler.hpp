// One sampler for all experiments: it decides the order of visits, times batches, and turns them into rows.
//
// A cell is one service at one case. run() visits every cell once a round, each round in a fresh random order from the
// seed, so that a slow spell of the machine hits all services alike. A visit builds its service, samples a few batches
// and destroys the service: only one is alive at a time. The same visit code can be driven from outside, batch by
// batch (Google Benchmark's loop: harness/gbench.hpp).
//
// One timed batch: 200 clock readings are timed, then process CPU, thread CPU and steady clock are read, the body runs
// once (it performs all `ops` operations), steady clock and thread CPU are read, the drain runs, process CPU is read,
// and 200 clock readings are timed again. Per operation this gives
//   wall      nanoseconds of the steady clock in the body
//   cpu       CPU nanoseconds of the calling thread in the body
//   rest      CPU nanoseconds of everything else the process did: other threads, and the drain wherever it ran
// The mean of the two clock costs is the sample's neighbouring `clock`, from which the row's clock_ratio is formed.
//
// Costs: about 15 us of clock readings a batch, outside the timed region; one clock reading (about 30 ns) inside it.
// What reading the CPU clocks itself adds to `cpu` and `rest` is measured before the first visit and subtracted.
// Bad at: bodies under 100 us (the row gets a note). The kernel books the CPU of a thread that runs on another
// processor at that processor's next tick or switch, so a single `rest` sample is coarse (up to a few ms over the whole
// batch) while the mean over samples is right: print the mean of rest rows, not the median.
#pragma once

#include "harness/function_ref.hpp"
#include "harness/json.hpp"
#include "harness/row.hpp"
#include "harness/statistics.hpp"
#include "harness/thread_team.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace timerbench::harness {

class sampler;
class visit;
struct check_result;
struct sampler_cell_state;

// One point of the run. `run` is called once per visit.
struct cell {
    std::string service;
    json case_point = json::object();
    std::function<void(visit&)> run;
    // A floor row: may cost less than a processor cycle or as much as the empty loop without being called an error.
    bool floor = false;
    // Metric names that get a row with the reason when the visit skips or fails before its first sample. Empty: "all".
    std::vector<std::string> metrics = {};
};

// Names of the rows one timed batch feeds; an empty name leaves that row out.
struct metric_set {
    std::string wall; // "ns/op"; with sample_threads: per thread
    std::string cpu;  // "ns/op"
    std::string rest; // "ns/op"
    std::string rate; // "op/s", sample_threads only
};
// {name, name_cpu, name_rest_cpu, name_rate}
[[nodiscard]] metric_set metrics(const std::string& name);
// {name, "", "", ""}
[[nodiscard]] metric_set wall_only(const std::string& name);

// Where a batch's times come from. Tests put in one of their own; everybody else uses the real one.
class time_source {
  public:
    virtual ~time_source() = default;
    virtual std::int64_t wall_ns() = 0;        // steady clock
    virtual std::int64_t thread_cpu_ns() = 0;  // CPU of the calling thread
    virtual std::int64_t process_cpu_ns() = 0; // CPU of the whole process
    virtual double clock_cost_ns() = 0;        // mean of a short batch of steady_clock::now() calls
    virtual double empty_loop_ns() = 0;        // best cost of one iteration of an empty loop
};
[[nodiscard]] std::unique_ptr<time_source> real_time_source();

struct sampler_options {
    std::uint64_t seed = 1;
    std::uint32_t warm_up_rounds = 1;    // first visits of every cell, whose samples are thrown away
    std::uint32_t warm_up_batches = 1;   // first batches of every visit that uses next(), thrown away
    std::uint32_t batches_per_visit = 1; // measured batches of every visit that uses next(), at least 1
    bool progress = true;                // on standard error, if it is a terminal
    double cycle_ns = 0.2;               // a result below this is taken for optimised away
    double short_batch_ns = 100'000;     // a shorter batch earns its row a note
};

// Drives a visit from outside: asked before each measured batch, told after it.
class batch_driver {
  public:
    virtual ~batch_driver() = default;
    virtual bool more() = 0;               // another measured batch?
    virtual void done(double seconds) = 0; // one measured batch took this long (timed parts; never 0)
    virtual void stopped(const std::string& why) = 0; // the visit failed, skipped, or was interrupted
};

// What one batch cost, per operation.
struct batch_result {
    double wall_ns = 0;
    double cpu_ns = 0;
    double rest_ns = 0;
    bool ok = false; // false: a duration was not positive; the cell has failed
};

// Handed to cell::run. Not thread-safe; the thread that runs the cell calls it.
class visit {
  public:
    // Loop header: `while (v.next()) { v.sample(...); }` runs warm-up batches, then measured ones. False also when
    // the cell has failed or skipped and when the run is interrupted: then clean up and return. Visits that never
    // call next() make one batch per visit.
    [[nodiscard]] bool next();

    // The current batch is thrown away. Checks and fail() count all the same.
    [[nodiscard]] bool warming() const;
    // 0-based number of this visit to this cell among the measured ones; warm-up visits give 0.
    [[nodiscard]] std::uint32_t index() const { return index_; }
    // Seed of operation scripts: the same for every service and case in the same visit index.
    [[nodiscard]] std::uint64_t seed() const;

    // Times body(), which performs ops operations. The drain, if any, completes deferred work.
    batch_result sample(const metric_set& names, std::uint64_t ops, function_ref<void()> body);
    batch_result sample(const metric_set& names, std::uint64_t ops, function_ref<void()> body,
                        function_ref<void()> drain);

    // Paced work: `bursts` times body() (timed; ops_per_burst operations each), drain() (its CPU counts as rest),
    // pause() (counted nowhere; sleeps until an absolute time). One sample from the sum of all bursts. Each burst
    // carries one clock reading inside its timed part.
    batch_result sample_bursts(const metric_set& names, std::uint32_t bursts, std::uint64_t ops_per_burst,
                               function_ref<void()> body, function_ref<void()> drain,
                               function_ref<void()> pause);

    // Every thread of the team runs body(thread index), ops_per_thread operations each. wall: mean over threads of a
    // thread's own time per own operation (not divided by threads); cpu: CPU of all team threads per operation of
    // all; rest: CPU of the process outside the team, drain included; rate: all operations / (last end - first begin).
    batch_result sample_threads(const metric_set& names, thread_team& team, std::uint64_t ops_per_thread,
                                function_ref<void(unsigned)> body);
    batch_result sample_threads(const metric_set& names, thread_team& team, std::uint64_t ops_per_thread,
                                function_ref<void(unsigned)> body, function_ref<void()> drain);

    // One plain value of this batch (backlog, allocations per operation). Must be finite.
    void value(const std::string& metric, const std::string& unit, double amount);
    // Single events (latenesses): percentiles will be reported.
    void events(const std::string& metric, const std::string& unit, std::span<const double> amounts);

    // A footnote on the row of this metric. Equal notes are kept once.
    void note(const std::string& metric, const std::string& text);
    // A check of the whole cell, for example the sum of the counters. One line per name and service in the report:
    // failed if it failed in any visit, with the first failing detail.
    void check(const std::string& name, bool ok, const std::string& detail = "");

    // The counts of this batch are wrong: every row of this cell becomes an error without a figure, and the cell is
    // not visited again. The first reason stands.
    void fail(const std::string& reason);
    void fail_metric(const std::string& metric,
                     const std::string& reason); // this row only; the visit goes on
    // The cell (or one metric of it) cannot be measured here.
    void skip(const std::string& reason);
    void skip_metric(const std::string& metric, const std::string& reason);

  private:
    friend class sampler;
    struct sums; // of one batch
    visit(sampler& owner, sampler_cell_state& state, std::uint32_t index, std::uint32_t order, bool warm_up,
          batch_driver* driver);
    batch_result time_one(const metric_set& names, std::uint64_t ops, function_ref<void()> body,
                          const function_ref<void()>* drain);
    batch_result time_team(const metric_set& names, thread_team& team, std::uint64_t ops_per_thread,
                           function_ref<void(unsigned)> body, const function_ref<void()>* drain);
    batch_result record(const metric_set& names, const sums& batch);
    batch_result refuse(const std::string& what);
    void finish_batch();
    void put(const std::string& metric, const std::string& unit, double amount, double clock_ns,
             double batch_ns, bool wall);

    sampler& owner_;
    sampler_cell_state& state_;
    std::uint32_t index_;
    std::uint32_t order_;
    bool warm_up_;
    batch_driver* driver_;
    std::uint32_t batch_ = 0; // batches begun with next()
    bool uses_next_ = false;
    bool measured_batch_open_ = false;
    double batch_seconds_ = 0;
    std::int64_t batch_begin_ns_ = 0;
};

class sampler {
  public:
    explicit sampler(sampler_options settings = {}, std::unique_ptr<time_source> times = nullptr);
    ~sampler();
    sampler(const sampler&) = delete;
    sampler& operator=(const sampler&) = delete;

    // Warm-up rounds, then `rounds` measured ones. False if interrupted. May be called again with other cells; a cell
    // equal in service and case to an earlier one continues its rows.
    bool run(const std::vector<cell>& cells, std::uint32_t rounds);

    // One visit outside run(): warm-up visits take no driver. False if interrupted.
    bool visit_once(const cell& what, bool warm_up, batch_driver* driver = nullptr);

    // Everything sampled, in the order of cells and of first use of each metric; verified against the cycle and the
    // empty loop. A cell without any row gives one in error ("took no sample").
    [[nodiscard]] std::vector<row> rows() const;
    [[nodiscard]] std::vector<check_result> checks() const;

    // "seed", "rounds", "warm_up_rounds", ... for report::parameter.
    [[nodiscard]] json parameters() const;
    [[nodiscard]] const sampler_options& settings() const { return settings_; }
    // Best cost so far of an empty loop's iteration; it is measured again every few visits.
    [[nodiscard]] double empty_loop_ns();

  private:
    friend class visit;
    sampler_cell_state& state_of(const cell& what);
    void visit_state(sampler_cell_state& state, const cell& what, bool warm_up, batch_driver* driver);

    sampler_options settings_;
    std::unique_ptr<time_source> times_;
    std::vector<std::unique_ptr<sampler_cell_state>> cells_;
    random_source order_;
    void calibrate();

    std::uint32_t visits_ = 0;
    std::uint32_t rounds_ = 0;
    bool calibrated_ = false;
    double empty_loop_ns_ = 0;          // smallest seen so far
    double cpu_overhead_ns_ = 0;        // what reading the clocks adds to a thread CPU difference
    double rest_overhead_ns_ = 0;       // and to process CPU minus thread CPU
    std::vector<std::string> problems_; // of the cell lists given to run()
};

} // namespace timerbench::harness
