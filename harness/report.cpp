#include "harness/report.hpp"

#include "harness/interrupt.hpp"
#include "harness/sampler.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <iostream>
#include <sys/stat.h>
#include <unistd.h>

namespace timerbench::harness {

namespace {

json interval_json(const interval& value) {
    return json::array({value.low, value.high});
}

void put_optional(json& into, const char* key, const std::optional<double>& value, const char* reason) {
    if (value) {
        into[key] = *value;
    } else {
        into[key] = nullptr;
        into[std::string(key) + "_reason"] = reason;
    }
}

json ratio_json(const ratio_summary& ratio) {
    return {{"n", ratio.n},
            {"p50", ratio.p50},
            {"ci95", interval_json(ratio.ci95)},
            {"min", ratio.min},
            {"p10", ratio.p10}};
}

json row_json(const row& value, std::uint64_t seed) {
    json result = {{"service", value.service}, {"case", value.case_point}, {"metric", value.metric}};
    if (!value.unit.empty())
        result["unit"] = value.unit;
    const auto summary = summarise(value, seed);
    if (!value.skipped.empty()) {
        result["skipped"] = value.skipped;
    } else if (!summary) {
        result["error"] = value.error;
    } else {
        result["n"] = summary->n;
        result["min"] = summary->min;
        result["p10"] = summary->p10;
        result["p50"] = summary->p50;
        if (value.single_events) {
            put_optional(result, "p90", summary->p90, "fewer than 100 events");
            put_optional(result, "p99", summary->p99, "fewer than 1000 events");
            put_optional(result, "p999", summary->p999, "fewer than 10000 events");
        }
        result["max"] = summary->max;
        result["mean"] = summary->mean;
        if (summary->ci95) {
            result["ci95"] = interval_json(*summary->ci95);
        } else {
            result["ci95"] = nullptr;
            result["ci95_reason"] = "fewer than 2 samples";
        }
        put_optional(result, "stddev", summary->stddev, "fewer than 2 samples");
        result["outliers"] = {{"low", summary->outliers.low}, {"high", summary->outliers.high}};
        put_optional(result, "aa_gap", summary->aa_gap, "too few samples, or a median that is not positive");
        if (summary->clock_ratio)
            result["clock_ratio"] = ratio_json(*summary->clock_ratio);
        if (value.first_pass)
            result["first_pass"] = *value.first_pass;
        result["samples"] = value.samples;
        if (!value.clock_ns.empty())
            result["clock_ns"] = value.clock_ns;
        if (!value.visit_index.empty())
            result["visits"] = value.visit_index;
    }
    if (!value.note.empty())
        result["note"] = value.note;
    return result;
}

std::string place_text(const row& value) {
    return value.service + " " + case_label(value.case_point) + " " + value.metric;
}

std::string reason_of(int number) {
    return std::strerror(number);
}

// A name in the same folder that no other run uses.
std::filesystem::path temporary_name(const std::filesystem::path& path) {
    return path.parent_path() / ("." + path.filename().string() + "." + std::to_string(getpid()) + ".tmp");
}

// Writes past the file size limit must come back as an error, not kill the process.
class file_limit_signal_ignored {
  public:
    file_limit_signal_ignored() {
        struct sigaction ignore {};
        ignore.sa_handler = SIG_IGN;
        sigemptyset(&ignore.sa_mask);
        sigaction(SIGXFSZ, &ignore, &old_);
    }
    ~file_limit_signal_ignored() { sigaction(SIGXFSZ, &old_, nullptr); }
    file_limit_signal_ignored(const file_limit_signal_ignored&) = delete;
    file_limit_signal_ignored& operator=(const file_limit_signal_ignored&) = delete;

  private:
    struct sigaction old_ {};
};

// Empty string: written and synced.
std::string write_and_sync(const std::filesystem::path& path, std::string_view bytes) {
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return reason_of(errno);
    std::string problem;
    while (!bytes.empty() && problem.empty()) {
        const ssize_t written = write(file, bytes.data(), bytes.size());
        if (written >= 0)
            bytes.remove_prefix(static_cast<std::size_t>(written));
        else if (errno != EINTR)
            problem = reason_of(errno);
    }
    if (problem.empty() && fsync(file) != 0)
        problem = reason_of(errno);
    if (close(file) != 0 && problem.empty())
        problem = reason_of(errno);
    return problem;
}

} // namespace

std::string write_whole_files(const std::vector<whole_file>& files) {
    const file_limit_signal_ignored guard;
    std::string problem;
    for (const auto& file : files) {
        problem = write_and_sync(temporary_name(file.path), file.bytes);
        if (!problem.empty()) {
            problem = fmt::format("'{}' cannot be written: {}", file.path.string(), problem);
            break;
        }
    }
    for (const auto& file : files) {
        if (!problem.empty())
            break;
        if (std::rename(temporary_name(file.path).c_str(), file.path.c_str()) != 0)
            problem = fmt::format("'{}' cannot be replaced: {}", file.path.string(), reason_of(errno));
    }
    if (!problem.empty()) {
        for (const auto& file : files)
            unlink(temporary_name(file.path).c_str()); // those already renamed are no longer there
        return problem;
    }
    for (const auto& file : files) {
        const auto folder = file.path.parent_path();
        const int directory = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory >= 0) {
            fsync(directory); // the files are whole either way; some file systems refuse this
            close(directory);
        }
    }
    return {};
}

report::report(std::string experiment, options opts, environment env)
    : report(std::move(experiment), std::move(opts), std::move(env), std::cout, std::cerr) {}

report::report(std::string experiment, options opts, environment env, std::ostream& output,
               std::ostream& error)
    : experiment_(std::move(experiment)),
      options_(std::move(opts)),
      environment_(std::move(env)),
      output_(output),
      error_(error) {}

int report::fail(const std::string& message) {
    error_ << "bench_" << experiment_ << ": " << message << std::endl;
    return exit_unusable_input;
}

void report::say(std::string_view text) {
    text_ += text;
    output_ << text << std::flush;
}

std::string report::title() const {
    std::string text = "timerbench: " + experiment_;
    auto marks = environment_.marks();
    if (options_.quick)
        marks.insert(marks.begin(), "QUICK RUN");
    for (const auto& mark : marks)
        text += " [" + mark + "]";
    if (!marks.empty())
        text += " figures are not for comparison";
    return text;
}

std::optional<int> report::begin() {
    namespace fs = std::filesystem;
    std::error_code error;
    const std::string shown = "--out: '" + options_.out.string() + "'";
    if (options_.out.empty())
        return fail("--out: the value is empty; give a folder");
    if (fs::exists(options_.out, error) && !fs::is_directory(options_.out, error))
        return fail(shown + " is not a folder; give a folder");
    error.clear();
    fs::create_directories(options_.out, error);
    if (error)
        return fail(shown + " cannot be made: " + error.message() + "; give a folder that can be written");
    for (const char* extension : {".json", ".txt"}) {
        const auto path = options_.out / (experiment_ + extension);
        if (fs::is_directory(path, error))
            return fail(shown + ": '" + path.string() + "' is a folder; give another folder");
    }
    const auto probe = temporary_name(options_.out / (experiment_ + ".probe"));
    const auto problem = [&] {
        const file_limit_signal_ignored guard;
        return write_and_sync(probe, "probe\n");
    }();
    unlink(probe.c_str());
    if (!problem.empty())
        return fail(shown + " cannot be written: " + problem + "; give a folder that can be written");

    say(title() + "\n");
    std::string head;
    for (const auto& line : environment_.header_lines())
        head += "  " + line + "\n";
    head += "  seed       " + std::to_string(options_.seed) + "\n";
    say(head);
    // Found now rather than after all has been measured.
    if (!output_.flush())
        return fail("standard output cannot be written; give it a place with room");
    return std::nullopt;
}

void report::parameter(const std::string& key, json value) {
    parameters_[key] = std::move(value);
}

bool report::add(row value) {
    const auto same = [&](const row& other) { return same_place(other, value); };
    if (std::any_of(rows_.begin(), rows_.end(), same)) {
        check("rows are unique", value.service, false,
              "a second row of " + place_text(value) + " was refused");
        return false;
    }
    if (value.skipped.empty() && value.error.empty() && !summarise(value, options_.seed)) {
        value.error = refuse_samples(value.samples);
        if (value.error.empty())
            value.error = "the mean of the samples is not finite";
    }
    rows_.push_back(std::move(value));
    return true;
}

void report::add(const sampler& source) {
    for (auto& value : source.rows())
        add(std::move(value));
    for (auto& result : source.checks())
        checks_.push_back(std::move(result));
}

void report::check(std::string name, std::string service, bool ok, std::string detail) {
    checks_.push_back({std::move(name), std::move(service), ok, std::move(detail)});
}

void report::print(const text_table& table) {
    say("\n" + table.str());
}

void report::print(std::string_view paragraph) {
    say(paragraph);
    if (paragraph.empty() || paragraph.back() != '\n')
        say("\n");
}

const row* report::find(std::string_view service, const json& case_point, std::string_view metric) const {
    for (const auto& one : rows_)
        if (one.service == service && one.metric == metric && one.case_point == case_point)
            return &one;
    return nullptr;
}

json report::to_json() const {
    json marks = environment_.marks();
    if (options_.quick)
        marks.insert(marks.begin(), "QUICK RUN");
    json result = {{"schema", "timerbench.report/1"}, {"experiment", experiment_},
                   {"quick", options_.quick},         {"seed", options_.seed},
                   {"marks", std::move(marks)},       {"environment", environment_.to_json()},
                   {"parameters", parameters_}};
    result["rows"] = json::array();
    for (const auto& one : rows_)
        result["rows"].push_back(row_json(one, options_.seed));
    result["checks"] = json::array();
    for (const auto& one : checks_)
        result["checks"].push_back(
            {{"name", one.name}, {"service", one.service}, {"ok", one.ok}, {"detail", one.detail}});
    return finite_only(result);
}

std::string report::to_json_text() const {
    // Members one per line, rows and checks one per line each: short enough to read, and diffs stay local.
    const json whole = to_json();
    std::string text = "{";
    const char* separator = "\n";
    for (const auto& [key, member] : whole.items()) {
        text += separator + write_strict(json(key)) + ": ";
        separator = ",\n";
        if (member.is_array() && !member.empty() && member.front().is_object()) {
            text += "[";
            for (std::size_t i = 0; i < member.size(); ++i)
                text += (i == 0 ? "\n  " : ",\n  ") + write_strict(member[i]);
            text += "\n]";
        } else {
            text += write_strict(member);
        }
    }
    return text + "\n}\n";
}

int report::finish() {
    const auto stopped = [&] {
        error_ << "bench_" << experiment_ << ": interrupted by "
               << (interrupting_signal() == SIGTERM ? "SIGTERM" : "SIGINT") << "; no report was written"
               << std::endl;
        return exit_interrupted;
    };
    if (interrupted())
        return stopped();
    environment_.capture_after();

    std::string closing = "\n";
    std::size_t failed = 0;
    for (const auto& one : checks_) {
        if (one.ok)
            continue;
        ++failed;
        closing += "CHECK FAILED: " + one.name + (one.service.empty() ? "" : " (" + one.service + ")") +
                   (one.detail.empty() ? "" : ": " + one.detail) + "\n";
    }
    std::size_t errors = 0;
    std::size_t skipped = 0;
    for (const auto& one : rows_) {
        skipped += one.skipped.empty() ? 0 : 1;
        if (one.error.empty() || !one.skipped.empty())
            continue;
        ++errors;
        closing += "ERROR: " + place_text(one) + ": " + one.error + "\n";
    }
    closing += fmt::format("checks: {} passed, {} failed; rows: {} measured, {} skipped, {} in error\n",
                           checks_.size() - failed, failed, rows_.size() - skipped - errors, skipped, errors);
    for (const auto& line : environment_.load_lines())
        closing += line + "\n";
    say(closing);
    if (!output_.flush())
        return fail("standard output cannot be written; give it a place with room");

    const std::string bytes = to_json_text();
    {
        const signals_held held;
        if (interrupted())
            return stopped();
        const auto problem = write_whole_files({{options_.out / (experiment_ + ".txt"), text_},
                                                {options_.out / (experiment_ + ".json"), bytes}});
        if (!problem.empty())
            return fail(problem + "; the reports that were there are unchanged");
    }
    return failed > 0 || errors > 0 ? exit_check_failed : exit_fine;
}

} // namespace timerbench::harness
