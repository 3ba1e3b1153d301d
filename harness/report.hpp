// The report of one experiment: DIR/<experiment>.txt for people and DIR/<experiment>.json (schema
// "timerbench.report/1", harness/report.schema.json) for programs.
//
// begin() finds out that DIR can be written before anything is measured. Text goes to standard output as it comes and
// into the .txt at the end. finish() writes both files under temporary names in DIR, syncs and renames them: whatever
// goes wrong (full disk, signal) leaves the files of an earlier run whole and no temporary file behind.
// Not thread-safe: one thread builds the report.
#pragma once

#include "harness/environment.hpp"
#include "harness/json.hpp"
#include "harness/options.hpp"
#include "harness/row.hpp"
#include "harness/text_table.hpp"

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace timerbench::harness {

class sampler;

struct check_result {
    std::string name;
    std::string service; // may be empty: concerns the whole run
    bool ok = false;
    std::string detail;
};

class report {
  public:
    // experiment: the part after bench_, also the files' stem. `output` and `error` default to std::cout and std::cerr.
    report(std::string experiment, options opts, environment env);
    report(std::string experiment, options opts, environment env, std::ostream& output, std::ostream& error);

    // Makes DIR, checks that the two files can be written there, prints title and environment. Empty: go on; a value:
    // return it from main (one line has been printed).
    [[nodiscard]] std::optional<int> begin();

    // A parameter of the run as a whole ("window": 30000). A second value for a key replaces the first.
    void parameter(const std::string& key, json value);

    // Adds a row. A row of the same service, case and metric is refused: false, and a failed check says so. A row
    // without usable samples and without a reason becomes an error row with the reason.
    bool add(row value);
    // All rows and checks of a sampler.
    void add(const sampler& source);

    // A check of the run. A failed one makes finish() return 1.
    void check(std::string name, std::string service, bool ok, std::string detail = "");

    // Prints text to standard output and keeps it for the .txt.
    void print(const text_table& table);
    void print(std::string_view paragraph); // a '\n' is added at the end if missing

    // The row of this place, or null. Valid until the next add().
    [[nodiscard]] const row* find(std::string_view service, const json& case_point,
                                  std::string_view metric) const;
    [[nodiscard]] const std::vector<row>& rows() const { return rows_; }
    [[nodiscard]] const std::vector<check_result>& checks() const { return checks_; }

    // Prints checks and load, writes the files. The exit code: 0; 1 if a check failed or a row is in error; 2 if
    // something could not be written (one line); 130 if the run was interrupted (one line, nothing written).
    [[nodiscard]] int finish();

    // The report as JSON, as finish() writes it. Strict: see harness/json.hpp.
    [[nodiscard]] json to_json() const;
    [[nodiscard]] std::string to_json_text() const;

    [[nodiscard]] const options& opts() const { return options_; }
    [[nodiscard]] std::string title() const;

  private:
    int fail(const std::string& message);
    void say(std::string_view text);

    std::string experiment_;
    options options_;
    environment environment_;
    std::ostream& output_;
    std::ostream& error_;
    json parameters_ = json::object();
    std::vector<row> rows_;
    std::vector<check_result> checks_;
    std::string text_;
};

// A file that must be written whole: its final path and its bytes.
struct whole_file {
    std::filesystem::path path;
    std::string bytes;
};

// Writes each under a temporary name in its own folder, syncs, then renames all. Empty string: done. Otherwise what
// went wrong, with every temporary file removed; no rename has happened unless the failure was in a later rename.
[[nodiscard]] std::string write_whole_files(const std::vector<whole_file>& files);

} // namespace timerbench::harness
