// What a program of this folder prints: one JSON object a line on standard output, see docs/originals.md.
//
// Written by hand and not with a JSON library, because the programs over C libraries are built without one. Numbers are
// written by std::to_chars: shortest form that reads back the same, no locale. Nothing here belongs in a timed region.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace timerbench::originals {

/// A JSON string with its quotes. Bytes beyond ASCII are passed on: names and notes are UTF-8.
[[nodiscard]] inline std::string quoted(std::string_view text) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            result += "\\u00";
            result += digits[static_cast<unsigned char>(c) >> 4];
            result += digits[static_cast<unsigned char>(c) & 15];
        } else {
            result += c;
        }
    }
    return result + '"';
}

/// A number that is finite; JSON has no other.
[[nodiscard]] inline std::string number_text(double value) {
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
    return std::string{buffer, end};
}

/// The text of a JSON object, made member by member in order.
class json_object {
  public:
    json_object& raw(std::string_view key, std::string_view value) {
        text_ += text_.size() > 1 ? "," : "";
        text_ += quoted(key);
        text_ += ':';
        text_ += value;
        return *this;
    }
    json_object& text(std::string_view key, std::string_view value) { return raw(key, quoted(value)); }
    json_object& integer(std::string_view key, std::int64_t value) { return raw(key, std::to_string(value)); }
    json_object& boolean(std::string_view key, bool value) { return raw(key, value ? "true" : "false"); }
    json_object& numbers(std::string_view key, const std::vector<double>& values) {
        std::string list = "[";
        for (std::size_t i = 0; i < values.size(); ++i) {
            list += i > 0 ? "," : "";
            list += number_text(values[i]);
        }
        return raw(key, list + "]");
    }
    [[nodiscard]] std::string str() const { return text_ + "}"; }

  private:
    std::string text_ = "{";
};

/// One service x case x metric. `skipped` and `error` say why there are no samples.
struct row {
    std::string service;
    std::string case_point = "{}"; ///< JSON text
    std::string metric;
    std::string unit;
    std::vector<double> samples{};
    std::vector<double> clock_ns{}; ///< parallel to the samples, or empty
    bool single_events = false;
    std::string note{};
    std::string skipped{};
    std::string error{};
};

struct check {
    std::string name;
    std::string service;
    bool ok = false;
    std::string detail{};
};

[[nodiscard]] inline std::string line_of(row r) {
    for (const double value : r.samples) {
        if (r.error.empty() && !std::isfinite(value)) {
            r.error = "a sample is not finite";
        }
    }
    if (r.samples.empty() && r.skipped.empty() && r.error.empty()) {
        r.error = "no samples";
    }
    json_object inner;
    inner.text("service", r.service).raw("case", r.case_point).text("metric", r.metric).text("unit", r.unit);
    if (!r.error.empty()) {
        inner.text("error", r.error);
    } else if (!r.skipped.empty()) {
        inner.text("skipped", r.skipped);
    } else {
        inner.numbers("samples", r.samples).boolean("single_events", r.single_events);
        if (!r.clock_ns.empty()) {
            inner.numbers("clock_ns", r.clock_ns);
        }
    }
    if (!r.note.empty()) {
        inner.text("note", r.note);
    }
    return json_object{}.raw("row", inner.str()).str();
}

[[nodiscard]] inline std::string line_of(const check& c) {
    return json_object{}
        .raw("check", json_object{}
                          .text("name", c.name)
                          .text("service", c.service)
                          .boolean("ok", c.ok)
                          .text("detail", c.detail)
                          .str())
        .str();
}

[[nodiscard]] inline std::string
versions_line(const std::vector<std::pair<std::string, std::string>>& versions) {
    json_object inner;
    for (const auto& [name, version] : versions) {
        inner.text(name, version);
    }
    return json_object{}.raw("versions", inner.str()).str();
}

/// Flushed at once: whoever reads knows how far things are, and keeps what came before a crash.
inline void print_line(const std::string& line) {
    std::fputs(line.c_str(), stdout);
    std::fputc('\n', stdout);
    std::fflush(stdout);
}

} // namespace timerbench::originals
