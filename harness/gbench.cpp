#include "harness/gbench.hpp"

#include "harness/build_facts.hpp"
#include "harness/interrupt.hpp"
#include "harness/progress.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <regex.h>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace timerbench::harness {

namespace {

// Prints nothing: tables come from the sampler's rows.
class quiet_reporter final : public benchmark::BenchmarkReporter {
  public:
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
};

// Hands the library's loop to a visit.
class loop_driver final : public batch_driver {
  public:
    explicit loop_driver(benchmark::State& loop) : loop_(loop) {}

    bool more() override {
        begun_ = true;
        ended_ = !loop_.KeepRunning();
        return !ended_;
    }
    void done(double seconds) override { loop_.SetIterationTime(seconds); }
    void stopped(const std::string& why) override {
        if (!ended_ && !loop_.error_occurred()) {
            // A loop that never began reports 0 iterations; the library aborts the process when repetitions disagree.
            if (!begun_)
                (void)loop_.KeepRunning();
            loop_.SkipWithError(why.c_str());
        }
        ended_ = true;
    }

  private:
    benchmark::State& loop_;
    bool begun_ = false;
    bool ended_ = false;
};

std::string value_of(const std::vector<std::string>& flags, const std::string& name) {
    std::string value;
    for (const auto& flag : flags)
        if (flag.starts_with(name + "="))
            value = flag.substr(name.size() + 1);
    return value;
}

bool given(const std::vector<std::string>& flags, const std::string& name) {
    return std::any_of(flags.begin(), flags.end(),
                       [&](const std::string& flag) { return flag == name || flag.starts_with(name + "="); });
}

// The C library's expressions: gcc 12 takes its own std::regex for uninitialised when the sanitizers are on.
class posix_pattern {
  public:
    explicit posix_pattern(const std::string& text)
        : ok_(regcomp(&compiled_, text.c_str(), REG_EXTENDED | REG_NOSUB) == 0) {}
    ~posix_pattern() {
        if (ok_)
            regfree(&compiled_);
    }
    posix_pattern(const posix_pattern&) = delete;
    posix_pattern& operator=(const posix_pattern&) = delete;

    [[nodiscard]] bool ok() const { return ok_; }
    [[nodiscard]] bool found_in(const std::string& text) const {
        return regexec(&compiled_, text.c_str(), 0, nullptr, 0) == 0;
    }

  private:
    regex_t compiled_{};
    bool ok_;
};

} // namespace

struct gbench_runner::state {
    std::string program;
    std::vector<std::string> user_flags;
    sampler* samples = nullptr;
    std::uint32_t repetitions = 1;
    std::vector<std::string> words; // what the library's command line points into
    std::vector<char*> argv;
    std::vector<cell> cells;
    std::vector<const cell*> selected;
    std::unique_ptr<progress> line;
    bool initialised = false;

    [[nodiscard]] std::string library_name(const cell& what) const {
        return what.service + "/" + case_label(what.case_point);
    }
    // As the library builds it, for the filter.
    [[nodiscard]] std::string full_name(const cell& what, bool fixed) const {
        return library_name(what) +
               (fixed ? "/iterations:" + std::to_string(samples->settings().batches_per_visit)
                      : std::string()) +
               "/manual_time";
    }
};

gbench_runner::gbench_runner(std::string program, const options& opts, sampler& samples,
                             gbench_settings settings)
    : state_(std::make_unique<state>()) {
    state_->program = std::move(program);
    state_->user_flags = opts.benchmark_flags;
    state_->samples = &samples;
    state_->repetitions = std::max(settings.repetitions, std::uint32_t{1});
    if (const auto own = parse_whole_number(value_of(state_->user_flags, "--benchmark_repetitions")))
        state_->repetitions = static_cast<std::uint32_t>(*own);
}

gbench_runner::~gbench_runner() {
    if (state_->initialised) {
        benchmark::ClearRegisteredBenchmarks();
        benchmark::Shutdown();
    }
}

std::optional<int> gbench_runner::prepare(std::vector<cell> cells) {
    state& self = *state_;
    const auto refuse = [&](const std::string& problem) {
        std::cerr << self.program << ": " << problem << std::endl;
        return exit_unusable_input;
    };
    self.cells = std::move(cells);

    for (char** variable = environ; *variable != nullptr; ++variable) {
        // The library would take its flags from there unchecked.
        if (const std::string_view text{*variable}; text.starts_with("BENCHMARK_")) {
            const std::string name{text.substr(0, text.find('='))};
            return refuse(name +
                          " is set in the environment; unset it and give the flag of that name instead");
        }
    }

    const bool library_chooses = given(self.user_flags, "--benchmark_min_time");
    std::string filter = value_of(self.user_flags, "--benchmark_filter");
    const std::string shown_filter = filter;
    if (filter.empty() || filter == "all")
        filter = ".";
    const bool negative = filter.front() == '-';
    if (negative)
        filter.erase(0, 1);
    const posix_pattern pattern(filter);
    if (!pattern.ok())
        return refuse("--benchmark_filter: '" + shown_filter +
                      "' is not a pattern; give a POSIX extended regular expression");
    for (const auto& what : self.cells)
        if (pattern.found_in(self.full_name(what, !library_chooses)) != negative)
            self.selected.push_back(&what);
    if (self.selected.empty())
        return refuse("--benchmark_filter: '" + shown_filter +
                      "' matches nothing; give a part of a name that --benchmark_list_tests prints");
    if (const auto file = value_of(self.user_flags, "--benchmark_out"); !file.empty()) {
        std::error_code ignored;
        if (std::filesystem::exists(file, ignored) && std::filesystem::file_size(file, ignored) != 0)
            return refuse("--benchmark_out: '" + file + "' exists and is not empty; give a new file");
        const int probe = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (probe < 0)
            return refuse("--benchmark_out: '" + file + "' cannot be written: " + std::strerror(errno) +
                          "; give a file that can be written");
        close(probe);
    }

    self.words = {self.program, "--benchmark_enable_random_interleaving=true",
                  "--benchmark_repetitions=" + std::to_string(self.repetitions)};
    self.words.insert(self.words.end(), self.user_flags.begin(), self.user_flags.end());
    for (auto& word : self.words)
        self.argv.push_back(word.data());
    self.argv.push_back(nullptr);
    int argc = static_cast<int>(self.words.size());
    benchmark::Initialize(&argc, self.argv.data());
    self.initialised = true;
    if (argc > 1) // a flag this release of the library does not know after all
        return refuse(std::string("'") + self.argv[1] +
                      "' is not an option of this Google Benchmark; see --help");

    benchmark::ClearRegisteredBenchmarks();
    for (const auto& what : self.cells) {
        auto* registered = benchmark::RegisterBenchmark(
            self.library_name(what).c_str(), [&self, &what](benchmark::State& loop) {
                if (self.line)
                    self.line->step(what.service + " " + case_label(what.case_point));
                loop_driver driver(loop);
                self.samples->visit_once(what, false, &driver);
                driver.stopped("the visit ended before its last batch"); // nothing if the loop has ended
            });
        registered->UseManualTime()->Unit(benchmark::kMicrosecond);
        if (!library_chooses)
            registered->Iterations(self.samples->settings().batches_per_visit);
    }

    const auto listing = value_of(self.user_flags, "--benchmark_list_tests");
    const bool off = listing == "false" || listing == "no" || listing == "off" || listing == "0";
    if (given(self.user_flags, "--benchmark_list_tests") && !off) {
        quiet_reporter quiet;
        benchmark::RunSpecifiedBenchmarks(&quiet);
        std::cout << std::flush;
        return exit_fine;
    }
    return std::nullopt;
}

bool gbench_runner::run() {
    state& self = *state_;
    const auto& settings = self.samples->settings();
    for (std::uint32_t round = 0; round < settings.warm_up_rounds; ++round)
        for (const cell* what : self.selected)
            if (!self.samples->visit_once(*what, true))
                return false;

    self.line =
        std::make_unique<progress>(std::uint64_t{self.repetitions} * self.selected.size(), settings.progress);
    std::unique_ptr<benchmark::BenchmarkReporter> display;
    if (given(self.user_flags, "--benchmark_format")) {
        display.reset(benchmark::CreateDefaultDisplayReporter());
        display->SetOutputStream(&std::cerr);
        display->SetErrorStream(&std::cerr);
    } else {
        display = std::make_unique<quiet_reporter>();
    }
    benchmark::RunSpecifiedBenchmarks(display.get());
    self.line.reset();
    return !interrupted();
}

std::size_t gbench_runner::cells_left_out() const {
    return state_->cells.size() - state_->selected.size();
}

json gbench_runner::parameters() const {
    const auto& flags = state_->user_flags;
    return {{"library", std::string("Google Benchmark ") + build_facts::benchmark_version},
            {"repetitions", state_->repetitions},
            {"iterations", given(flags, "--benchmark_min_time")
                               ? json("chosen by the library")
                               : json(state_->samples->settings().batches_per_visit)},
            {"flags", flags},
            {"cells_left_out", cells_left_out()}};
}

} // namespace timerbench::harness
