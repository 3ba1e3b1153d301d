#include "harness/options.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <sstream>

using namespace timerbench::harness;

namespace {

const std::vector<std::string> known = {
    "coarse_slot", "asio", "libevent", "libevent/common", "hashed_wheel/10ms", "hashed_wheel/30ms", "twin"};

struct outcome {
    std::optional<int> code;
    options opts;
    std::string output;
    std::string error;
    std::uint64_t rounds = 20;
    std::vector<std::uint64_t> populations = {0, 64};
    double scale = 1.5;
    std::string order = "oldest";
    bool paced = false;
};

outcome parse(std::vector<const char*> words, bool benchmark = true) {
    outcome result;
    options_parser parser("bench_x", "What does it cost?", known);
    parser.add_number("--rounds", result.rounds, 1, 1000, "rounds");
    parser.add_numbers("--population", result.populations, 0, 1'000'000, "others");
    parser.add_real("--scale", result.scale, 0.5, 2, "scale");
    parser.add_choice("--order", result.order, {"oldest", "random"}, "which to cancel");
    parser.add_switch("--paced", result.paced, "bursts");
    if (benchmark)
        parser.allow_benchmark_flags();
    words.insert(words.begin(), "bench_x");
    std::ostringstream output;
    std::ostringstream error;
    result.code = parser.parse(static_cast<int>(words.size()), words.data(), result.opts, output, error);
    result.output = output.str();
    result.error = error.str();
    return result;
}

// Exit code 2 and exactly this line.
void expect_refused(std::vector<const char*> words, const std::string& line) {
    const auto result = parse(std::move(words));
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.error, "bench_x: " + line + "\n");
    EXPECT_EQ(result.output, "");
}

TEST(Options, Defaults) {
    const auto result = parse({});
    EXPECT_FALSE(result.code) << result.error;
    EXPECT_EQ(result.opts.services, known);
    EXPECT_FALSE(result.opts.services_given);
    EXPECT_FALSE(result.opts.quick);
    EXPECT_EQ(result.opts.out, "out");
    EXPECT_EQ(result.opts.seed, 1U);
    EXPECT_EQ(result.rounds, 20U);
}

TEST(Options, EverythingGiven) {
    const auto result =
        parse({"--quick", "--out", "/tmp/x", "--seed=18446744073709551615", "--rounds", "7", "--population",
               "1,2", "--population=3", "--scale", "0.75", "--order", "random", "--paced"});
    ASSERT_FALSE(result.code) << result.error;
    EXPECT_TRUE(result.opts.quick);
    EXPECT_EQ(result.opts.pick(60U, 6U), 6U);
    EXPECT_EQ(result.opts.out, "/tmp/x");
    EXPECT_EQ(result.opts.seed, 18446744073709551615U);
    EXPECT_EQ(result.rounds, 7U);
    EXPECT_EQ(result.populations, (std::vector<std::uint64_t>{1, 2, 3}));
    EXPECT_EQ(result.scale, 0.75);
    EXPECT_EQ(result.order, "random");
    EXPECT_TRUE(result.paced);
    EXPECT_EQ(parse({"--seed", "3", "--seed", "4"}).opts.seed, 4U) << "the last one counts";
}

TEST(Options, NumbersOfAListAreASet) {
    using numbers = std::vector<std::uint64_t>;
    EXPECT_EQ(parse({"--population", "5,5"}).populations, numbers{5});
    EXPECT_EQ(parse({"--population", "7,5,7,05", "--population=5,1"}).populations, (numbers{7, 5, 1}))
        << "the first of each stays, in order";
    expect_refused({"--population", "5,5,x"}, "--population: 'x' is not a whole number; give 0 to 1000000");
}

TEST(Options, ServicesAndFamilies) {
    using names = std::vector<std::string>;
    EXPECT_EQ(parse({"--service", "libevent"}).opts.services, names{"libevent"}) << "a name means itself";
    EXPECT_EQ(parse({"--service", "hashed_wheel"}).opts.services,
              (names{"hashed_wheel/10ms", "hashed_wheel/30ms"}));
    EXPECT_EQ(parse({"--service", "twin", "--service=asio", "--service", "asio"}).opts.services,
              (names{"asio", "twin"}));
    const auto result = parse({"--service", "asio"});
    EXPECT_TRUE(result.opts.services_given);
    EXPECT_TRUE(result.opts.wants("asio"));
    EXPECT_FALSE(result.opts.wants("twin"));
    const std::string all =
        "coarse_slot, asio, libevent, libevent/common, hashed_wheel/10ms, hashed_wheel/30ms, twin";
    expect_refused({"--service", "asi"}, "--service: 'asi' is not a service; give one of " + all);
    expect_refused({"--service", ""}, "--service: '' is not a service; give one of " + all);
    expect_refused({"--service", "asio", "--service", "x\ny"},
                   "--service: 'x?y' is not a service; give one of " + all);
    expect_refused({"--service"}, "--service: a value is missing; give one of " + all);
}

TEST(Options, NumbersThatAreNone) {
    const std::string range = "give 0 to 18446744073709551615";
    for (const char* bad : {"abc", "-1", "+1", "1.5", "1e3", "0x10", " 1", "1 ", ""})
        expect_refused({"--seed", bad}, std::string("--seed: '") + bad + "' is not a whole number; " + range);
    expect_refused({"--seed", "18446744073709551616"},
                   "--seed: '18446744073709551616' is out of range; " + range);
    expect_refused({"--rounds", "0"}, "--rounds: '0' is out of range; give 1 to 1000");
    expect_refused({"--rounds", "1001"}, "--rounds: '1001' is out of range; give 1 to 1000");
    expect_refused({"--rounds", "999999999999999999999999"},
                   "--rounds: '999999999999999999999999' is out of range; give 1 to 1000");
    expect_refused({"--population", "1,x"}, "--population: 'x' is not a whole number; give 0 to 1000000");
    expect_refused({"--population", "1,,2"}, "--population: '' is not a whole number; give 0 to 1000000");
    for (const char* bad : {"abc", "nan", "inf", "1,5", ""})
        expect_refused({"--scale", bad},
                       std::string("--scale: '") + bad + "' is not a number; give 0.5 to 2");
    expect_refused({"--scale", "3"}, "--scale: '3' is out of range; give 0.5 to 2");
    expect_refused({"--order", "newest"}, "--order: 'newest' is not accepted; give one of oldest, random");
    expect_refused({"--out", ""}, "--out: the value is empty; give a folder");
    expect_refused({"--seed"}, "--seed: a value is missing; give 0 to 18446744073709551615");
    expect_refused({"--quick=maybe"}, "--quick: 'maybe' is not accepted; give --quick alone");
    expect_refused({"--quick=0"}, "--quick: '0' is not accepted; give --quick alone");
    expect_refused({"--help=false"}, "--help: 'false' is not accepted; give --help alone");
}

TEST(Options, UnknownWordsGiveOneLine) {
    for (const char* bad : {"--sevice", "-q", "extra", "--", "--seed5"}) {
        const auto result = parse({bad, "more"});
        EXPECT_EQ(result.code, 2) << bad;
        EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1) << result.error;
        EXPECT_NE(result.error.find("is not an option; give one of"), std::string::npos) << result.error;
    }
    EXPECT_EQ(
        parse({"--sevice"}).error.find("bench_x: '--sevice' is not an option; give one of --help, --service"),
        0U);
    EXPECT_EQ(parse({"--benchmark_filter=x"}, false).code, 2)
        << "only binaries that loop with Google Benchmark take them";
}

TEST(Options, HelpListVersion) {
    const auto help = parse({"--help"});
    EXPECT_EQ(help.code, 0);
    for (const char* word : {"--service", "--list", "--quick", "--out", "--seed", "--version", "--rounds",
                             "What does it cost?", "--benchmark_filter", "20"})
        EXPECT_NE(help.output.find(word), std::string::npos) << word << "\n" << help.output;
    EXPECT_EQ(help.error, "");
    const auto list = parse({"--list"});
    EXPECT_EQ(list.code, 0);
    EXPECT_EQ(list.output,
              "coarse_slot\nasio\nlibevent\nlibevent/common\nhashed_wheel/10ms\nhashed_wheel/30ms\ntwin\n");
    const auto version = parse({"--version"});
    EXPECT_EQ(version.code, 0);
    EXPECT_EQ(version.output.find("bench_x: timerbench "), 0U);
    EXPECT_NE(version.output.find("revision "), std::string::npos);
}

TEST(Options, BenchmarkFlags) {
    const auto result =
        parse({"--benchmark_filter=asio", "--quick", "--benchmark_list_tests", "--benchmark_repetitions=3"});
    ASSERT_FALSE(result.code) << result.error;
    EXPECT_EQ(result.opts.benchmark_flags,
              (std::vector<std::string>{"--benchmark_filter=asio", "--benchmark_list_tests",
                                        "--benchmark_repetitions=3"}));
    EXPECT_TRUE(result.opts.quick);
    for (const char* good :
         {"--benchmark_min_time=0.5", "--benchmark_out=/tmp/x.json", "--benchmark_out_format=csv",
          "--benchmark_enable_random_interleaving=false", "--benchmark_min_warmup_time=0",
          "--benchmark_time_unit=us", "--benchmark_context=a=b", "--benchmark_color=auto"})
        EXPECT_EQ(refuse_benchmark_flag(good), "") << good;
    expect_refused({"--benchmark_repetitions=abc"},
                   "--benchmark_repetitions: 'abc' is not a whole number; give 1 to 100000");
    expect_refused({"--benchmark_repetitions=0"},
                   "--benchmark_repetitions: '0' is out of range; give 1 to 100000");
    expect_refused({"--benchmark_min_time=-1"},
                   "--benchmark_min_time: '-1' is not accepted; give seconds above 0, at most 3600");
    expect_refused({"--benchmark_min_time=0"},
                   "--benchmark_min_time: '0' is not accepted; give seconds above 0, at most 3600");
    expect_refused({"--benchmark_filter"},
                   "--benchmark_filter: a value is missing; give --benchmark_filter=VALUE");
    expect_refused({"--benchmark_format=xml"},
                   "--benchmark_format: 'xml' is not accepted; give one of console, json, csv");
    for (const char* bad : {"--benchmark_repetition=3", "--benchmark_", "--benchmark_out_format=x",
                            "--benchmark_out=", "--benchmark_list_tests=perhaps", "--benchmark_time_unit=h",
                            "--benchmark_context=x"}) {
        const auto refused = parse({bad});
        EXPECT_EQ(refused.code, 2) << bad;
        EXPECT_EQ(std::count(refused.error.begin(), refused.error.end(), '\n'), 1) << refused.error;
    }
}

} // namespace
