// The small experiment of demo.cpp as a process: exit codes, one-line errors, signals, full disks, both loops.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

class Process : public ::testing::Test {
  protected:
    struct outcome {
        int code = -1; // -signal when killed
        std::string output;
        std::string error;
    };

    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "harness_process_XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
    }
    void TearDown() override { fs::remove_all(folder_); }

    [[nodiscard]] fs::path out() const { return folder_ / "out"; }

    pid_t start(std::vector<std::string> words, const std::function<void()>& in_child = {},
                const std::string& output_file = {}) {
        const std::string output = output_file.empty() ? (folder_ / "stdout").string() : output_file;
        const std::string error = (folder_ / "stderr").string();
        fs::remove(error); // nobody must read what an earlier process said
        const pid_t child = fork();
        if (child != 0)
            return child;
        const int to = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        const int errors = open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(to, STDOUT_FILENO);
        dup2(errors, STDERR_FILENO);
        if (in_child)
            in_child();
        std::vector<char*> argv;
        for (auto& word : words)
            argv.push_back(word.data());
        argv.push_back(nullptr);
        execv(argv[0], argv.data());
        _exit(127);
    }

    outcome finish(pid_t child) {
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        outcome result;
        result.code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
        result.output = slurp(folder_ / "stdout");
        result.error = slurp(folder_ / "stderr");
        return result;
    }

    outcome demo(std::vector<std::string> words, const std::function<void()>& in_child = {},
                 const std::string& output_file = {}) {
        words.insert(words.begin(), {HARNESS_DEMO, "--out", out().string()});
        return finish(start(std::move(words), in_child, output_file));
    }

    [[nodiscard]] nlohmann::json read_report() const {
        return nlohmann::json::parse(slurp(out() / "demo.json"));
    }

    void expect_only_reports() const {
        for (const auto& entry : fs::directory_iterator(out()))
            EXPECT_TRUE(entry.path().filename() == "demo.json" || entry.path().filename() == "demo.txt")
                << entry.path();
    }

    void expect_valid(const fs::path& file) {
        const auto result =
            finish(start({"/usr/bin/python3", HARNESS_VALIDATE, HARNESS_SCHEMA, file.string()}));
        if (result.code == 77 || result.code == 127)
            GTEST_SKIP() << "python3-jsonschema is missing: " << result.error;
        EXPECT_EQ(result.code, 0) << result.error;
    }

    fs::path folder_;
};

std::size_t lines(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(Process, WritesBothReports) {
    const auto result = demo({"--quick", "--rounds", "2"});
    EXPECT_EQ(result.code, 0) << result.error << result.output;
    EXPECT_EQ(result.error, "") << "progress goes to terminals only";
    expect_only_reports();
    EXPECT_EQ(slurp(out() / "demo.txt"), result.output);
    EXPECT_EQ(result.output.find("timerbench: demo [QUICK RUN]"), 0U) << result.output;
    const auto report = read_report();
    EXPECT_EQ(report.at("schema"), "timerbench.report/1");
    EXPECT_EQ(report.at("quick"), true);
    EXPECT_EQ(report.at("parameters").at("not_finite"), nullptr);
    EXPECT_EQ(report.at("parameters").at("not_finite_reason"), "not a finite number");
    bool skipped = false;
    for (const auto& one : report.at("rows"))
        skipped |= one.at("service") == "unable" && one.contains("skipped") && !one.contains("samples");
    EXPECT_TRUE(skipped);
}

TEST_F(Process, ReportFitsTheSchema) {
    EXPECT_EQ(demo({"--rounds", "2", "--break-count"}).code, 1);
    expect_valid(out() / "demo.json");
}

TEST_F(Process, SchemaRefusesWhatItShould) {
    ASSERT_EQ(demo({"--rounds", "1", "--service", "plain"}).code, 0);
    auto report = read_report();
    report["rows"][0]["error"] = "a time and an error";
    std::ofstream(folder_ / "bad.json") << report;
    const auto result = finish(
        start({"/usr/bin/python3", HARNESS_VALIDATE, HARNESS_SCHEMA, (folder_ / "bad.json").string()}));
    if (result.code == 77 || result.code == 127)
        GTEST_SKIP() << "python3-jsonschema is missing";
    EXPECT_EQ(result.code, 1);
    std::ofstream(folder_ / "bad.json") << "{\"a\": NaN}";
    EXPECT_EQ(
        finish(start({"/usr/bin/python3", HARNESS_VALIDATE, HARNESS_SCHEMA, (folder_ / "bad.json").string()}))
            .code,
        1);
}

TEST_F(Process, BothLoopsFillTheSameRows) {
    ASSERT_EQ(demo({"--rounds", "2"}).code, 0);
    const auto own = read_report();
    const auto result = demo({"--rounds", "2", "--loop", "benchmark"});
    ASSERT_EQ(result.code, 0) << result.error << result.output;
    const auto theirs = read_report();
    ASSERT_EQ(own.at("rows").size(), theirs.at("rows").size());
    for (std::size_t i = 0; i < own.at("rows").size(); ++i)
        for (const char* key : {"service", "metric", "n", "case", "unit"})
            EXPECT_EQ(own["rows"][i].value(key, nlohmann::json()),
                      theirs["rows"][i].value(key, nlohmann::json()))
                << i << key;
    EXPECT_EQ(theirs.at("parameters").at("benchmark").at("repetitions"), 2);
}

TEST_F(Process, BenchmarkFlagsWork) {
    const auto list = demo({"--loop", "benchmark", "--benchmark_list_tests"});
    EXPECT_EQ(list.code, 0);
    EXPECT_EQ(list.error, "");
    EXPECT_NE(list.output.find("slow/twice/kind=mix/length=20000/iterations:2/manual_time\n"),
              std::string::npos)
        << list.output;
    EXPECT_FALSE(fs::exists(out())) << "listing writes nothing";

    const std::string file = (folder_ / "theirs.json").string();
    const auto filtered =
        demo({"--loop", "benchmark", "--benchmark_filter=slow/", "--benchmark_repetitions=3",
              "--benchmark_out=" + file, "--benchmark_out_format=json"});
    EXPECT_EQ(filtered.code, 0) << filtered.error;
    std::size_t rows = 0;
    const auto filtered_report = read_report();
    for (const auto& one : filtered_report.at("rows"))
        if (one.at("metric") == "mix") {
            EXPECT_EQ(one.at("service").get<std::string>().substr(0, 5), "slow/");
            EXPECT_EQ(one.at("n"), 6) << "3 repetitions of 2 batches";
            ++rows;
        }
    EXPECT_EQ(rows, 2U);
    const auto again = demo({"--loop", "benchmark", "--benchmark_out=" + file});
    EXPECT_EQ(again.code, 2) << "a file with something in it is not written over";
    EXPECT_NE(again.error.find("exists and is not empty"), std::string::npos) << again.error;
    EXPECT_NE(filtered.output.find("not measured in this run"), std::string::npos);
    const auto theirs = nlohmann::json::parse(slurp(file));
    ASSERT_FALSE(theirs.at("benchmarks").empty());
    EXPECT_NEAR(theirs["benchmarks"][0].at("real_time").get<double>(), 0, 1e9);
    EXPECT_GT(theirs["benchmarks"][0].at("real_time").get<double>(), 1)
        << "microseconds per batch, by our clock";

    const auto min_time = demo({"--loop", "benchmark", "--benchmark_filter=plain",
                                "--benchmark_min_time=0.02", "--benchmark_repetitions=1"});
    EXPECT_EQ(min_time.code, 0) << min_time.error;
    const auto min_time_report = read_report();
    for (const auto& one : min_time_report.at("rows"))
        if (one.at("metric") == "mix") {
            EXPECT_GT(one.at("n").get<int>(), 2) << "as many batches as the library wants, not our two";
        }
}

TEST_F(Process, BenchmarkFlagsThatAreWrong) {
    for (const std::string bad :
         {"--benchmark_filter=[", "--benchmark_filter=nobody", "--benchmark_out=/nonexistent/x",
          "--benchmark_repetitions=x", "--benchmark_foo=1"}) {
        const auto result = demo({"--loop", "benchmark", bad});
        EXPECT_EQ(result.code, 2) << bad;
        EXPECT_EQ(lines(result.error), 1U) << result.error;
        EXPECT_EQ(result.error.find("bench_demo: "), 0U) << result.error;
        EXPECT_EQ(result.output, "") << bad;
        EXPECT_FALSE(fs::exists(out())) << bad;
    }
}

TEST_F(Process, FailuresAfterTheReportIsWritten) {
    const auto count = demo({"--rounds", "2", "--break-count"});
    EXPECT_EQ(count.code, 1);
    EXPECT_NE(count.output.find("ERROR: slow/twice kind=mix/length=20000 mix: cancelled 9 of 10"),
              std::string::npos);
    const auto count_report = read_report();
    for (const auto& one : count_report.at("rows"))
        if (one.at("service") == "slow/twice") {
            EXPECT_EQ(one.at("error"), "cancelled 9 of 10");
            EXPECT_FALSE(one.contains("samples"));
        }
    const auto check = demo({"--rounds", "2", "--break-check"});
    EXPECT_EQ(check.code, 1);
    EXPECT_NE(check.output.find("CHECK FAILED: armed = cancelled + fired + dropped + pending (plain)"),
              std::string::npos);
    EXPECT_EQ(read_report().at("checks")[0].at("ok"), false);
}

TEST_F(Process, UnusableOutputFolder) {
    std::ofstream(folder_ / "file") << "x";
    for (const std::string& bad : {(folder_ / "file").string(), (folder_ / "file/inside").string(),
                                   std::string("/proc/none"), std::string("")}) {
        const auto result = finish(start({HARNESS_DEMO, "--out", bad}));
        EXPECT_EQ(result.code, 2) << bad;
        EXPECT_EQ(lines(result.error), 1U) << result.error;
        EXPECT_EQ(result.error.find("bench_demo: --out: "), 0U) << result.error;
        EXPECT_EQ(result.output, "") << "found out before anything is measured";
    }
    fs::create_directories(out() / "demo.json");
    EXPECT_EQ(demo({}).code, 2) << "a folder stands where the report goes";
}

TEST_F(Process, FullDiskLeavesOldReportsWhole) {
    ASSERT_EQ(demo({"--rounds", "1"}).code, 0);
    const auto text = slurp(out() / "demo.txt");
    const auto json = slurp(out() / "demo.json");
    // Room for the text, not for the JSON; the error stream and standard output are files too, and far below the limit.
    const auto limit = static_cast<rlim_t>(text.size() + 2000);
    ASSERT_GT(json.size(), limit);
    const auto result = demo({"--rounds", "1", "--seed", "2"}, [limit] {
        const rlimit small{limit, limit};
        setrlimit(RLIMIT_FSIZE, &small);
    });
    EXPECT_EQ(result.code, 2) << result.error;
    EXPECT_EQ(lines(result.error), 1U) << result.error;
    EXPECT_NE(result.error.find("demo.json' cannot be written: File too large"), std::string::npos)
        << result.error;
    EXPECT_EQ(slurp(out() / "demo.txt"), text);
    EXPECT_EQ(slurp(out() / "demo.json"), json);
    expect_only_reports();
}

TEST_F(Process, FullStandardOutput) {
    const auto result = demo({"--rounds", "1"}, {}, "/dev/full");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(lines(result.error), 1U) << result.error;
    EXPECT_FALSE(fs::exists(out() / "demo.json"));
}

TEST_F(Process, SignalsLeaveOldReportsWhole) {
    for (const std::string loop : {"sampler", "benchmark"}) {
        ASSERT_EQ(demo({"--rounds", "1"}).code, 0);
        const auto text = slurp(out() / "demo.txt");
        const auto json = slurp(out() / "demo.json");
        for (const int number : {SIGINT, SIGTERM}) {
            const pid_t child = start(
                {HARNESS_DEMO, "--out", out().string(), "--wait", "--loop", loop, "--rounds", "100000"});
            const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
            while (slurp(folder_ / "stderr").find("waiting") == std::string::npos &&
                   std::chrono::steady_clock::now() < give_up)
                std::this_thread::sleep_for(std::chrono::milliseconds(2));
            kill(child, number);
            const auto result = finish(child);
            EXPECT_EQ(result.code, 130);
            const std::string name = number == SIGINT ? "SIGINT" : "SIGTERM";
            EXPECT_EQ(result.error,
                      "waiting\nbench_demo: interrupted by " + name + "; no report was written\n");
            EXPECT_EQ(slurp(out() / "demo.txt"), text);
            EXPECT_EQ(slurp(out() / "demo.json"), json);
            expect_only_reports();
        }
    }
}

TEST_F(Process, SameWordsAsEverywhere) {
    EXPECT_EQ(demo({"--list"}).output, "plain\nslow/twice\nslow/thrice\nunable\n");
    EXPECT_EQ(demo({"--help"}).code, 0);
    EXPECT_EQ(demo({"--version"}).code, 0);
    EXPECT_FALSE(fs::exists(out()));
    const auto unknown = demo({"--service", "quick"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_EQ(unknown.error, "bench_demo: --service: 'quick' is not a service; give one of plain, "
                             "slow/twice, slow/thrice, unable\n");
}

} // namespace
