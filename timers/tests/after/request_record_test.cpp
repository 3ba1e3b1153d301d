// One line for one request.
#include "timers/request_record.hpp"

#include "timers/tests/after/support.hpp"

namespace timerbench::testing {
namespace {

TEST(records, are_one_line_of_json) {
    const request_record r{
        .request = "8f3a",
        .route = "/orders/42",
        .left_at_entry = 300ms,
        .took = 301'250us,
        .attempts = 2,
        .ended = "deadline",
        .hops = {{.hop = "A", .left_at_entry = 300ms, .spent = 1'200us},
                 {.hop = "store", .left_at_entry = 298ms, .spent = 290ms, .attempts = 2},
                 {.hop = "log", .left_at_entry = std::nullopt, .spent = 999ns, .attempts = 0}},
        .cancelled = {"A"},
        .kept_running = {"store", "log"}};
    EXPECT_EQ(
        json_line(r),
        R"({"request":"8f3a","route":"/orders/42","left_us":300000,"took_us":301250,"ended":"deadline","attempts":2,)"
        R"("spent_by":"store","hops":[{"hop":"A","left_us":300000,"spent_us":1200,"attempts":1},)"
        R"({"hop":"store","left_us":298000,"spent_us":290000,"attempts":2},)"
        R"({"hop":"log","left_us":null,"spent_us":0,"attempts":0}],"cancelled":["A"],"kept_running":["store","log"]})");
}

TEST(records, may_be_empty) {
    EXPECT_EQ(
        json_line({}),
        R"({"request":"","route":"","left_us":null,"took_us":0,"ended":"ok","attempts":1,"spent_by":"","hops":[],"cancelled":[],"kept_running":[]})");
}

TEST(records, name_the_hop_that_spent_most) {
    request_record r;
    EXPECT_EQ(r.spent_by(), "");
    r.hops = {{.hop = "a", .spent = 3ms}, {.hop = "b", .spent = 5ms}, {.hop = "c", .spent = 5ms}};
    EXPECT_EQ(r.spent_by(), "b");
}

std::string route_of(std::string route) {
    request_record r;
    r.route = std::move(route);
    const std::string line = json_line(r);
    const std::size_t from = line.find("\"route\":") + 8;
    return line.substr(from, line.find(",\"left_us\"") - from);
}

TEST(records, escape_what_json_does_not_take) {
    EXPECT_EQ(route_of("a\"b\\c"), R"("a\"b\\c")");
    EXPECT_EQ(route_of("\n\r\t"), R"("\n\r\t")");
    EXPECT_EQ(route_of(std::string{"\0\x01\x1f\x7f", 4}), R"("\u0000\u0001\u001f\u007f")");
    EXPECT_EQ(route_of("/"), R"("/")");
    EXPECT_EQ(route_of("\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"), "\"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\"");
}

TEST(records, replace_what_is_no_utf8) {
    const std::string bad = "\xEF\xBF\xBD";
    const auto quoted = [](const std::string& s) { return "\"" + s + "\""; };
    EXPECT_EQ(route_of("\xFFx"), quoted(bad + "x"));
    EXPECT_EQ(route_of("x\xC3"), quoted("x" + bad));
    EXPECT_EQ(route_of("\x80"), quoted(bad));
    EXPECT_EQ(route_of("\xC0\xAF"), quoted(bad + bad));                     // longer than needed
    EXPECT_EQ(route_of("\xE0\x80\x80"), quoted(bad + bad + bad));           // the same
    EXPECT_EQ(route_of("\xED\xA0\x80"), quoted(bad + bad + bad));           // half of a surrogate pair
    EXPECT_EQ(route_of("\xF4\x90\x80\x80"), quoted(bad + bad + bad + bad)); // beyond the last character
    EXPECT_EQ(route_of("\xE4\xB8"
                       "A"),
              quoted(bad + bad + "A"));
}

TEST(records, round_spans_down) {
    request_record r;
    r.took = 1'999ns;
    EXPECT_NE(json_line(r).find("\"took_us\":1,"), std::string::npos);
    r.took = -1ns;
    EXPECT_NE(json_line(r).find("\"took_us\":-1,"), std::string::npos);
}

} // namespace
} // namespace timerbench::testing
