#include "harness/alloc_counter.hpp"
#include "harness/report.hpp"
#include "harness/sampler.hpp"

#include <cctype>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <locale>
#include <sstream>
#include <unistd.h>

using namespace timerbench::harness;
namespace fs = std::filesystem;

namespace {

const double nan = std::numeric_limits<double>::quiet_NaN();
const double inf = std::numeric_limits<double>::infinity();

std::string slurp(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

class Report : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "harness_report_XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        opts.out = fs::path(pattern) / "a" / "b";
        folder = pattern;
    }
    void TearDown() override { fs::remove_all(folder); }

    fs::path folder;
    options opts;
    std::ostringstream output;
    std::ostringstream error;
};

row measured(const std::string& service, std::vector<double> samples) {
    row result;
    result.service = service;
    result.case_point = {{"kind", "article"}, {"population", 64}};
    result.metric = "arm_cancel";
    result.unit = "ns/op";
    result.samples = std::move(samples);
    return result;
}

// numpy 1.24 over [31.4, 28.7, 29.9, 35.2, 28.1, 30.0, 44.8, 29.3, 12.5, 30.6]; the interval as in statistics_test.cpp.
TEST_F(Report, RowsHaveTheirFigures) {
    report out("x", opts, environment::capture(), output, error);
    auto one = measured("asio", {31.4, 28.7, 29.9, 35.2, 28.1, 30.0, 44.8, 29.3, 12.5, 30.6});
    one.clock_ns.assign(10, 10.0);
    one.note = "saturated";
    EXPECT_TRUE(out.add(one));
    const json whole = out.to_json();
    const json& found = whole.at("rows").at(0);
    EXPECT_EQ(found.at("case"), (json{{"kind", "article"}, {"population", 64}}));
    EXPECT_EQ(found.at("unit"), "ns/op");
    EXPECT_EQ(found.at("n"), 10);
    EXPECT_EQ(found.at("min"), 12.5);
    EXPECT_NEAR(found.at("p10").get<double>(), 26.54, 1e-9);
    EXPECT_NEAR(found.at("p50").get<double>(), 29.95, 1e-9);
    EXPECT_EQ(found.at("max"), 44.8);
    EXPECT_NEAR(found.at("mean").get<double>(), 30.05, 1e-9);
    EXPECT_NEAR(found.at("ci95").at(1).get<double>(), 32.55125, 1e-9);
    EXPECT_EQ(found.at("outliers"), (json{{"low", 1}, {"high", 2}}));
    EXPECT_NEAR(found.at("clock_ratio").at("p50").get<double>(), 2.995, 1e-9);
    EXPECT_NEAR(found.at("clock_ratio").at("min").get<double>(), 1.25, 1e-9);
    EXPECT_NEAR(found.at("clock_ratio").at("p10").get<double>(), 2.654, 1e-9);
    EXPECT_EQ(found.at("samples").size(), 10U);
    EXPECT_EQ(found.at("note"), "saturated");
    EXPECT_FALSE(found.contains("skipped"));
    ASSERT_NE(out.find("asio", {{"kind", "article"}, {"population", 64}}, "arm_cancel"), nullptr);
    EXPECT_EQ(out.find("asio", {{"kind", "article"}}, "arm_cancel"), nullptr);
}

TEST_F(Report, OneSampleHasNoInterval) {
    report out("x", opts, environment::capture(), output, error);
    EXPECT_TRUE(out.add(measured("asio", {5})));
    const json whole = out.to_json();
    const json& found = whole.at("rows").at(0);
    EXPECT_EQ(found.at("ci95"), nullptr);
    EXPECT_EQ(found.at("ci95_reason"), "fewer than 2 samples");
    EXPECT_EQ(found.at("stddev"), nullptr);
    EXPECT_EQ(found.at("p50"), 5);
}

TEST_F(Report, SamplesThatCannotBeUsedBecomeErrors) {
    report out("x", opts, environment::capture(), output, error);
    ASSERT_FALSE(out.begin());
    out.add(measured("none", {}));
    out.add(measured("nan", {1, nan}));
    out.add(measured("inf", {inf}));
    out.add(measured("huge", {1e308, 1e308, 1e308}));
    const json rows = out.to_json().at("rows");
    EXPECT_EQ(rows.at(0).at("error"), "no samples");
    EXPECT_EQ(rows.at(1).at("error"), "sample 1 is not finite");
    EXPECT_EQ(rows.at(2).at("error"), "sample 0 is not finite");
    EXPECT_FALSE(rows.at(0).contains("samples"));
    EXPECT_FALSE(rows.at(1).contains("mean"));
    EXPECT_EQ(out.finish(), 1);
    EXPECT_NE(output.str().find("ERROR: nan kind=article/population=64 arm_cancel: sample 1 is not finite"),
              std::string::npos);
}

TEST_F(Report, SecondRowOfAPlaceIsRefused) {
    report out("x", opts, environment::capture(), output, error);
    ASSERT_FALSE(out.begin());
    EXPECT_TRUE(out.add(measured("asio", {1, 2})));
    EXPECT_FALSE(out.add(measured("asio", {3, 4})));
    EXPECT_EQ(out.rows().size(), 1U);
    EXPECT_EQ(out.finish(), 1);
    EXPECT_NE(output.str().find("a second row of asio kind=article/population=64 arm_cancel was refused"),
              std::string::npos);
}

TEST_F(Report, FailedCheckIsWrittenAndReturned) {
    report out("x", opts, environment::capture(), output, error);
    ASSERT_FALSE(out.begin());
    out.check("fine", "asio", true);
    out.check("sums agree", "asio", false, "3 = 2");
    EXPECT_EQ(out.finish(), 1);
    const json whole = json::parse(slurp(opts.out / "x.json"));
    EXPECT_EQ(whole.at("checks").at(1),
              (json{{"name", "sums agree"}, {"service", "asio"}, {"ok", false}, {"detail", "3 = 2"}}));
    EXPECT_NE(slurp(opts.out / "x.txt").find("CHECK FAILED: sums agree (asio): 3 = 2"), std::string::npos);
}

// No token but those of strict JSON outside strings.
TEST_F(Report, NothingButStrictJson) {
    report out("x", opts, environment::capture(), output, error);
    out.parameter("ratio", nan);
    out.parameter("list", json::array({1.0, inf, json::array({-inf})}));
    out.parameter("nested", {{"deep", nan}, {"deep_reason", "said already"}});
    auto one = measured("\xff\xfe\"\\\n\x01", {1, 2});
    one.note = "caf\xe9";
    out.add(one);
    const std::string text = out.to_json_text();
    const json whole = json::parse(text);
    EXPECT_EQ(whole.at("parameters").at("ratio"), nullptr);
    EXPECT_EQ(whole.at("parameters").at("ratio_reason"), "not a finite number");
    EXPECT_EQ(whole.at("parameters").at("list"), json::array({1.0, nullptr, json::array({nullptr})}));
    EXPECT_EQ(whole.at("parameters").at("list_reason"), "not a finite number");
    EXPECT_EQ(whole.at("parameters").at("nested").at("deep_reason"), "said already");
    std::string outside;
    bool inside = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (inside && text[i] == '\\')
            ++i;
        else if (text[i] == '"')
            inside = !inside;
        else if (!inside)
            outside += text[i];
    }
    EXPECT_EQ(outside.find("nan"), std::string::npos);
    EXPECT_EQ(outside.find("inf"), std::string::npos);
    EXPECT_NE(whole.at("rows").at(0).at("note").get<std::string>().find("caf"), std::string::npos);
}

class comma : public std::numpunct<char> {
  protected:
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
};

TEST_F(Report, SameBytesUnderEveryLocale) {
    const auto write = [&] {
        std::ostringstream text;
        report out("x", opts, environment::capture(), text, error);
        auto one = measured("asio", {31234.5, 28700.25, 1e-7, 1.5e300});
        one.clock_ns.assign(4, 1234.5);
        out.add(one);
        out.parameter("window", 30000);
        out.parameter("scale", 1234567.5);
        text_table table("t", {{"a", ""}, {"b", ""}});
        table.add_row({figure(&out.rows()[0]), number(1234567.25, 2)});
        const json whole = out.to_json();
        return write_strict(whole.at("rows")) + write_strict(whole.at("parameters")) + table.str();
    };
    const std::string plain = write();
    EXPECT_NE(plain.find("31234.5"), std::string::npos);
    EXPECT_NE(plain.find("1234567.25"), std::string::npos);
    const std::locale before = std::locale::global(std::locale(std::locale::classic(), new comma));
    const std::string under_facet = write();
    EXPECT_TRUE(environment::capture().to_json().is_object()) << "reads numbers from files";
    std::locale::global(before);
    EXPECT_EQ(plain, under_facet);
    if (std::setlocale(LC_ALL, "de_DE.UTF-8") || std::setlocale(LC_ALL, "de_DE.utf8")) {
        const std::string german = write();
        std::setlocale(LC_ALL, "C");
        EXPECT_EQ(plain, german);
    }
}

TEST_F(Report, TitleSaysWhatForbidsComparison) {
    EXPECT_EQ(report("x", opts, environment::capture(), output, error).title().find("QUICK"),
              std::string::npos);
    opts.quick = true;
    const auto title = report("x", opts, environment::capture(), output, error).title();
    EXPECT_EQ(title.find("timerbench: x [QUICK RUN]"), 0U);
    EXPECT_EQ(title.find("[DEBUG BUILD]") == std::string::npos, optimised_build());
    EXPECT_EQ(title.find("[THREAD SANITIZER]") != std::string::npos, sanitizer_name() == "thread");
}

TEST_F(Report, MakesTheFolderAndLeavesNothingElse) {
    report out("x", opts, environment::capture(), output, error);
    ASSERT_FALSE(out.begin()) << error.str();
    EXPECT_TRUE(fs::is_directory(opts.out));
    EXPECT_TRUE(fs::is_empty(opts.out)) << "the probe is gone";
    out.print("a paragraph");
    EXPECT_EQ(out.finish(), 0);
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(opts.out)) {
        ++files;
        EXPECT_EQ(entry.path().stem(), "x");
    }
    EXPECT_EQ(files, 2U);
    EXPECT_EQ(slurp(opts.out / "x.txt"), output.str());
}

TEST_F(Report, WholeFilesOrNone) {
    std::ofstream(folder / "one") << "old";
    fs::create_directory(folder / "two"); // a folder cannot be replaced by a file
    EXPECT_NE(write_whole_files({{folder / "one", "new"}, {folder / "missing" / "x", "new"}}), "");
    EXPECT_EQ(slurp(folder / "one"), "old");
    EXPECT_NE(write_whole_files({{folder / "two", "new"}}).find("cannot be replaced"), std::string::npos);
    EXPECT_EQ(write_whole_files({{folder / "one", "new"}}), "");
    EXPECT_EQ(slurp(folder / "one"), "new");
    std::size_t entries = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        static_cast<void>(entry);
        ++entries;
    }
    EXPECT_EQ(entries, 2U) << "no temporary file is left";
}

TEST_F(Report, TakesEverythingASamplerHas) {
    sampler samples({.warm_up_rounds = 0, .progress = false});
    cell one;
    one.service = "a";
    one.run = [](visit& v) {
        v.value("x", "B", 3);
        v.check("sums agree", true);
    };
    samples.run({one}, 2);
    report out("x", opts, environment::capture(), output, error);
    out.add(samples);
    EXPECT_EQ(out.rows().size(), 1U);
    EXPECT_EQ(out.checks().size(), 1U);
}

TEST(Environment, KnowsWhereItRuns) {
    auto here = environment::capture();
    here.capture_after();
    const json facts = here.to_json();
    EXPECT_FALSE(facts.at("kernel").get<std::string>().empty());
    EXPECT_EQ(facts.at("kernel").get<std::string>().find("Linux"), 0U);
    EXPECT_EQ(facts.at("libc").get<std::string>().find("glibc "), 0U);
    EXPECT_GE(facts.at("cpu").at("usable").get<int>(), 1);
    EXPECT_EQ(facts.at("cpu").at("usable"), usable_cpus());
    EXPECT_FALSE(facts.at("cpu").at("affinity").get<std::string>().empty());
    EXPECT_FALSE(facts.at("cpu").at("governor").get<std::string>().empty());
    const auto started = facts.at("started_utc").get<std::string>();
    ASSERT_EQ(started.size(), std::string("2026-01-31T12:00:00Z").size());
    EXPECT_EQ(started.substr(10, 1) + started.back(), "TZ");
    for (const char* library : {"boost", "libevent", "fmt", "cli11", "nlohmann_json", "benchmark"})
        EXPECT_TRUE(std::isdigit(facts.at("libraries").at(library).get<std::string>().front())) << library;
    EXPECT_EQ(facts.at("sanitizer") == "none", sanitizer_name().empty());
    EXPECT_FALSE(facts.at("git").at("revision").get<std::string>().empty());
    EXPECT_GE(facts.at("load").at("before").at("load1").get<double>(), 0);
    EXPECT_TRUE(facts.at("load").at("after").is_object());
    char name[256] = {};
    ASSERT_EQ(gethostname(name, sizeof name - 1), 0);
    for (const auto& [key, value] : facts.items())
        EXPECT_NE(value, name) << key;
    EXPECT_FALSE(here.header_lines().empty());
    EXPECT_FALSE(here.load_lines().empty());
}

TEST(AllocCounterAbsent, SaysSo) {
    const auto counting = alloc_counting();
    EXPECT_FALSE(counting.available);
    EXPECT_EQ(counting.reason == "the allocation counter is not linked into this binary",
              sanitizer_name().empty());
    const alloc_window window;
    delete new int;
    EXPECT_EQ(window.counts().allocations, 0U);
}

TEST(Json, LabelsComeFromTheCase) {
    EXPECT_EQ(case_label({{"kind", "article"}, {"population", 64}, {"earliest", true}, {"x y", 1.5}}),
              "kind=article/population=64/earliest=true/x_y=1.5");
    EXPECT_EQ(case_label(json::object()), "default");
}

} // namespace
