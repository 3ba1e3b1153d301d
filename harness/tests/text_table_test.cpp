#include "harness/progress.hpp"
#include "harness/text_table.hpp"

#include <gtest/gtest.h>
#include <limits>
#include <stdexcept>

using namespace timerbench::harness;

namespace {

TEST(TextTable, AlignsAndKeepsNotesBelow) {
    row measured;
    measured.service = "asio";
    measured.metric = "arm_cancel";
    measured.samples = {10, 12, 14};
    row skipped = measured;
    skipped.skipped = "takes no injected clock";
    row broken = measured;
    broken.error = "cancelled 9 of 10";

    text_table table("arm + cancel", {{"service", "", align::left}, {"caller", "ns/op"}, {"rest", "ns/op"}});
    table.add_row({text("asio"), figure(&measured), number(3.14159, 2)});
    table.add_row({text("libevent"), figure(&skipped), absent("takes no injected clock")});
    table.add_row({text("wheel"), figure(&broken), figure(nullptr)});
    table.add_row({text("twin")});
    table.add_note("One visit each.");
    EXPECT_EQ(table.str(), "arm + cancel\n"
                           "service      caller   rest\n"
                           "              ns/op  ns/op\n"
                           "--------  ---------  -----\n"
                           "asio           12.0   3.14\n"
                           "libevent      - (a)  - (a)\n"
                           "wheel     error (b)  - (c)\n"
                           "twin\n"
                           "  (a) takes no injected clock\n"
                           "  (b) error: cancelled 9 of 10\n"
                           "  (c) not measured in this run\n"
                           "  One visit each.\n");
    EXPECT_THROW(table.add_row({text("a"), text("b"), text("c"), text("d")}), std::invalid_argument);
}

TEST(TextTable, StaysAscii) {
    text_table table("µ", {{"name", ""}});
    table.add_row({text("\xff\n\t")});
    for (const char c : table.str())
        EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

TEST(TextTable, Numbers) {
    EXPECT_EQ(format_number(1234567.891, 2), "1234567.89");
    EXPECT_EQ(format_number(-0.001, 1), "0.0");
    EXPECT_EQ(format_number(-0.4, 1), "-0.4");
    EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN(), 1), "-");
    const auto infinite = number(std::numeric_limits<double>::infinity(), 1);
    EXPECT_EQ(infinite.text, "-");
    EXPECT_EQ(infinite.notes, std::vector<std::string>{"not a finite number"});
    EXPECT_EQ(number(std::uint64_t{18446744073709551615U}).text, "18446744073709551615");
}

TEST(TextTable, MoreNotesThanLetters) {
    text_table table("", {{"x", ""}});
    for (int i = 0; i < 28; ++i)
        table.add_row({absent("reason " + std::to_string(i))});
    const auto shown = table.str();
    EXPECT_NE(shown.find("(z) reason 25"), std::string::npos) << shown;
    EXPECT_NE(shown.find("(aa) reason 26"), std::string::npos) << shown;
    EXPECT_NE(shown.find("(ab) reason 27"), std::string::npos) << shown;
}

TEST(TextTable, FiguresOfARow) {
    row measured;
    measured.samples = {20, 22, 24, 26};
    measured.clock_ns = {10, 11, 12, 13};
    measured.note = "saturated";
    EXPECT_EQ(figure(&measured, statistic::clock_p50, 2).text, "2.00");
    EXPECT_EQ(figure(&measured, statistic::min).text, "20.0");
    EXPECT_EQ(figure(&measured, statistic::max, 0).text, "26");
    EXPECT_EQ(figure(&measured, statistic::min).notes, std::vector<std::string>{"saturated"});
    EXPECT_EQ(figure(&measured, statistic::p99).text, "-") << "batches have no 99th percentile";
    row single = measured;
    single.samples = {5};
    single.clock_ns.clear();
    EXPECT_EQ(figure_with_interval(&single, 0).text, "5");
    EXPECT_EQ(figure(&single, statistic::clock_p50).text, "-");
    row events;
    events.single_events = true;
    for (int i = 0; i <= 1000; ++i)
        events.samples.push_back(i);
    EXPECT_EQ(figure(&events, statistic::p90, 0).text, "900");
    EXPECT_EQ(figure(&events, statistic::p99, 0).text, "990");
    EXPECT_EQ(figure(&events, statistic::p999, 0).text, "-") << "too few events";
}

TEST(Progress, SaysWhatIsLeft) {
    EXPECT_EQ(progress::line(0, 60, 0, "asio default"), "[0/60] asio default");
    EXPECT_EQ(progress::line(12, 60, 20, "asio default"), "[12/60] asio default, 1 min 20 s left");
    EXPECT_EQ(progress::line(30, 60, 20, "x"), "[30/60] x, 20 s left");
    EXPECT_EQ(progress::line(3, 0, 20, "x"), "[3] x");
}

} // namespace
