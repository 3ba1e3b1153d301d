// A table of plain ASCII text: titles, units, aligned columns, and footnotes for cells that have no figure. Equal notes
// share a letter. Figures are formatted without the locale.
#pragma once

#include "harness/row.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace timerbench::harness {

enum class align { left, right };

struct column {
    std::string title;
    std::string unit; // second head line; may be empty
    align side = align::right;
};

// One cell: text and, below the table, why.
struct table_cell {
    std::string text;
    std::vector<std::string> notes; // each becomes a footnote
};

// Which figure of a row a cell shows. clock_* are those of the ratio to one steady_clock::now().
enum class statistic {
    min,
    p10,
    p50,
    p90,
    p99,
    p999,
    max,
    mean,
    clock_p50,
    clock_min,
    clock_p10,
    aa_percent
};

[[nodiscard]] table_cell text(std::string value);
// Fixed decimals, no exponent below 1e15. Not finite: "-" with a note.
[[nodiscard]] table_cell number(double value, int decimals);
[[nodiscard]] table_cell number(std::uint64_t value);
// "-" with the reason as a note.
[[nodiscard]] table_cell absent(std::string reason);
// The figure of a row: "-" with its reason if it is skipped, "error" with its reason if it is in error, "-" with
// "not measured in this run" for a null pointer. The row's own note becomes a footnote.
[[nodiscard]] table_cell figure(const row* value, statistic what = statistic::p50, int decimals = 1,
                                std::uint64_t seed = 1);
// "12.3 [11.9 12.8]": median and 95 % interval.
[[nodiscard]] table_cell figure_with_interval(const row* value, int decimals = 1, std::uint64_t seed = 1);

[[nodiscard]] std::string format_number(double value, int decimals);

class text_table {
  public:
    text_table(std::string title, std::vector<column> columns);

    // Cells beyond the columns are refused (std::invalid_argument); missing ones are blank.
    void add_row(std::vector<table_cell> cells);
    // A line under the table, without a letter.
    void add_note(std::string note);

    // Lines end with '\n'; no trailing blanks. Characters that are not printable ASCII become '?'.
    [[nodiscard]] std::string str() const;

  private:
    std::string title_;
    std::vector<column> columns_;
    std::vector<std::vector<table_cell>> rows_;
    std::vector<std::string> notes_;
};

} // namespace timerbench::harness
