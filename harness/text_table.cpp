#include "harness/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <stdexcept>

namespace timerbench::harness {

namespace {

std::string printable(std::string value) {
    for (char& c : value)
        if (c < ' ' || c > '~')
            c = '?';
    return value;
}

void pad(std::string& line, const std::string& value, std::size_t width, align side) {
    const std::string blanks(width > value.size() ? width - value.size() : 0, ' ');
    line += side == align::left ? value + blanks : blanks + value;
}

std::string without_trailing_blanks(std::string line) {
    const auto last = line.find_last_not_of(' ');
    line.resize(last == std::string::npos ? 0 : last + 1);
    return line;
}

// a, b, ..., z, aa, ab, ...
std::string letter(std::size_t index) {
    std::string name;
    for (++index; index > 0; index = (index - 1) / 26)
        name.insert(name.begin(), static_cast<char>('a' + (index - 1) % 26));
    return name;
}

std::optional<double> pick(const row_summary& summary, statistic what) {
    const auto of_ratio = [&](double ratio_summary::*member) -> std::optional<double> {
        if (!summary.clock_ratio)
            return std::nullopt;
        return (*summary.clock_ratio).*member;
    };
    switch (what) {
    case statistic::min:
        return summary.min;
    case statistic::p10:
        return summary.p10;
    case statistic::p50:
        return summary.p50;
    case statistic::p90:
        return summary.p90;
    case statistic::p99:
        return summary.p99;
    case statistic::p999:
        return summary.p999;
    case statistic::max:
        return summary.max;
    case statistic::mean:
        return summary.mean;
    case statistic::clock_p50:
        return of_ratio(&ratio_summary::p50);
    case statistic::clock_min:
        return of_ratio(&ratio_summary::min);
    case statistic::clock_p10:
        return of_ratio(&ratio_summary::p10);
    case statistic::aa_percent:
        if (!summary.aa_gap)
            return std::nullopt;
        return 100 * *summary.aa_gap;
    }
    return std::nullopt;
}

std::string why_no(statistic what) {
    switch (what) {
    case statistic::p90:
        return "a 90th percentile needs 100 single events";
    case statistic::p99:
        return "a 99th percentile needs 1000 single events";
    case statistic::p999:
        return "a 99.9th percentile needs 10000 single events";
    case statistic::aa_percent:
        return "too few samples for an A/A comparison";
    default:
        return "no ratio to the clock: too few samples or no clock reading beside them";
    }
}

// The cell of a row without figures, if it is one.
std::optional<table_cell> without_figure(const row* value) {
    if (!value)
        return absent("not measured in this run");
    if (!value->skipped.empty())
        return absent(value->skipped);
    if (!value->error.empty())
        return table_cell{"error", {"error: " + value->error}};
    return std::nullopt;
}

} // namespace

std::string format_number(double value, int decimals) {
    if (!std::isfinite(value))
        return "-";
    if (std::fabs(value) >= 1e15)
        return fmt::format("{:.{}e}", value, decimals);
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.find_first_not_of("-0.") == std::string::npos && text.front() == '-')
        text.erase(0, 1);
    return text;
}

table_cell text(std::string value) {
    return {std::move(value), {}};
}

table_cell number(double value, int decimals) {
    if (!std::isfinite(value))
        return absent("not a finite number");
    return {format_number(value, decimals), {}};
}

table_cell number(std::uint64_t value) {
    return {std::to_string(value), {}};
}

table_cell absent(std::string reason) {
    return {"-", {std::move(reason)}};
}

table_cell figure(const row* value, statistic what, int decimals, std::uint64_t seed) {
    if (auto cell = without_figure(value))
        return *cell;
    const auto summary = summarise(*value, seed);
    if (!summary)
        return absent(refuse_samples(value->samples));
    const auto amount = pick(*summary, what);
    if (!amount)
        return absent(why_no(what));
    table_cell cell{format_number(*amount, decimals), {}};
    if (!value->note.empty())
        cell.notes.push_back(value->note);
    return cell;
}

table_cell figure_with_interval(const row* value, int decimals, std::uint64_t seed) {
    if (auto cell = without_figure(value))
        return *cell;
    const auto summary = summarise(*value, seed);
    if (!summary)
        return absent(refuse_samples(value->samples));
    table_cell cell{format_number(summary->p50, decimals), {}};
    if (summary->ci95)
        cell.text += " [" + format_number(summary->ci95->low, decimals) + " " +
                     format_number(summary->ci95->high, decimals) + "]";
    else
        cell.notes.emplace_back("one sample: no interval");
    if (!value->note.empty())
        cell.notes.push_back(value->note);
    return cell;
}

text_table::text_table(std::string title, std::vector<column> columns)
    : title_(std::move(title)),
      columns_(std::move(columns)) {}

void text_table::add_row(std::vector<table_cell> cells) {
    if (cells.size() > columns_.size())
        throw std::invalid_argument(
            fmt::format("table '{}': {} cells for {} columns", title_, cells.size(), columns_.size()));
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
}

void text_table::add_note(std::string note) {
    notes_.push_back(std::move(note));
}

std::string text_table::str() const {
    std::vector<std::string> footnotes;
    const auto reference = [&](const std::vector<std::string>& notes) {
        std::string letters;
        for (const auto& note : notes) {
            auto found = std::find(footnotes.begin(), footnotes.end(), note);
            if (found == footnotes.end())
                found = footnotes.insert(footnotes.end(), note);
            const auto name = letter(static_cast<std::size_t>(found - footnotes.begin()));
            if (!letters.empty())
                letters += ',';
            letters += name;
        }
        return letters.empty() ? letters : " (" + letters + ")";
    };

    std::vector<std::size_t> widths(columns_.size());
    bool units = false;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        widths[c] = std::max(columns_[c].title.size(), columns_[c].unit.size());
        units |= !columns_[c].unit.empty();
    }
    std::vector<std::vector<std::string>> shown;
    for (const auto& cells : rows_) {
        auto& line = shown.emplace_back();
        for (std::size_t c = 0; c < cells.size(); ++c) {
            line.push_back(printable(cells[c].text) + reference(cells[c].notes));
            widths[c] = std::max(widths[c], line.back().size());
        }
    }

    std::string result;
    const auto add_line = [&](const std::string& line) { result += without_trailing_blanks(line) + '\n'; };
    const auto add_cells = [&](const auto& text_of) {
        std::string line;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            if (c > 0)
                line += "  ";
            pad(line, text_of(c), widths[c], columns_[c].side);
        }
        add_line(line);
    };
    if (!title_.empty())
        add_line(printable(title_));
    add_cells([&](std::size_t c) { return printable(columns_[c].title); });
    if (units)
        add_cells([&](std::size_t c) { return printable(columns_[c].unit); });
    add_cells([&](std::size_t c) { return std::string(widths[c], '-'); });
    for (const auto& line : shown)
        add_cells([&](std::size_t c) { return line[c]; });
    for (std::size_t i = 0; i < footnotes.size(); ++i)
        add_line("  (" + letter(i) + ") " + printable(footnotes[i]));
    for (const auto& note : notes_)
        add_line("  " + printable(note));
    return result;
}

} // namespace timerbench::harness
