// What is verified of a system before it is timed has to find systems that are wrong.
#include "experiments/originals/common/program.hpp"
#include "experiments/originals/common/verify.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace timerbench::originals {
namespace {

using namespace std::chrono_literals;

enum class wrong { nothing, early, never_fires, cancel_forgets, fires_twice };

/// A loop with a list of timers, with a fault to choose.
template <wrong Fault>
class faulty_timers {
  public:
    class timer {
      public:
        explicit timer(faulty_timers& service) : service_{service} {}
        timer(const timer&) = delete;
        timer& operator=(const timer&) = delete;
        ~timer() { std::erase(service_.armed_, this); }

      private:
        friend class faulty_timers;
        faulty_timers& service_;
        time_point due_{};
        callback callback_{};
    };

    bool arm(timer& t, duration d, callback c) {
        t.due_ = steady_time::now() + d - (Fault == wrong::early ? 900us : 0us);
        t.callback_ = c;
        armed_.push_back(&t);
        return true;
    }
    bool cancel(timer& t) {
        if (Fault == wrong::cancel_forgets) {
            return true;
        }
        return std::erase(armed_, &t) > 0;
    }
    std::size_t poll_until(time_point t) {
        time_point next = t;
        for (const timer* one : armed_) {
            next = std::min(next, one->due_);
        }
        experiments::sleep_until(next);
        std::size_t ran = 0;
        while (timer* due = take_due()) {
            const int times = Fault == wrong::fires_twice ? 2 : 1;
            for (int i = 0; i < times && Fault != wrong::never_fires; ++i) {
                due->callback_.run(due->callback_.context);
            }
            ++ran;
        }
        return ran;
    }
    void stop() {}
    [[nodiscard]] service_traits traits() const { return {.driver = driven_by::caller_loop}; }

  private:
    timer* take_due() {
        const auto found = std::find_if(armed_.begin(), armed_.end(),
                                        [](const timer* t) { return t->due_ <= steady_time::now(); });
        if (found == armed_.end()) {
            return nullptr;
        }
        timer* const due = *found;
        armed_.erase(found);
        return due;
    }

    std::vector<timer*> armed_;
};

template <wrong Fault>
struct faulty {
    static constexpr std::string_view name = "faulty";
    using service = faulty_timers<Fault>;
    static std::unique_ptr<service> make() { return std::make_unique<service>(); }
};

template <wrong Fault>
std::vector<bool> verdicts() {
    std::vector<bool> result;
    const duration patience = Fault == wrong::never_fires ? 200ms : 20s;
    for (const check& one : verify<faulty<Fault>>(patience)) {
        EXPECT_FALSE(one.detail.empty());
        result.push_back(one.ok);
    }
    return result;
}

TEST(OriginalsVerify, ASoundSystemPasses) {
    EXPECT_EQ(verdicts<wrong::nothing>(), (std::vector<bool>{true, true, true}));
}

TEST(OriginalsVerify, EarlyFiresAreFound) {
    const auto found = verdicts<wrong::early>();
    EXPECT_TRUE(found.at(1));
    EXPECT_FALSE(found.at(2));
}

TEST(OriginalsVerify, WhatNeverFiresIsFound) {
    EXPECT_EQ(verdicts<wrong::never_fires>(), (std::vector<bool>{false, false, false}));
}

TEST(OriginalsVerify, ACancelThatForgetsIsFound) {
    EXPECT_EQ(verdicts<wrong::cancel_forgets>(), (std::vector<bool>{true, false, true}));
}

TEST(OriginalsVerify, FiringTwiceIsFound) {
    EXPECT_FALSE(verdicts<wrong::fires_twice>().at(2));
}

TEST(OriginalsLines, AreStrictJson) {
    EXPECT_EQ(quoted("a\"b\\c\nd"), R"("a\"b\\c\u000ad")");
    EXPECT_EQ(
        line_of(row{.service = "s", .metric = "m", .unit = "ns/op", .samples = {1.5, 2}}),
        R"({"row":{"service":"s","case":{},"metric":"m","unit":"ns/op","samples":[1.5,2],"single_events":false}})");
    const std::string bad = line_of(row{.service = "s", .metric = "m", .unit = "", .samples = {1.0 / 0.0}});
    EXPECT_NE(bad.find(R"("error":"a sample is not finite")"), std::string::npos);
    EXPECT_EQ(bad.find("samples\":"), std::string::npos);
    EXPECT_NE(line_of(row{.service = "s", .metric = "m", .unit = ""}).find(R"("error":"no samples")"),
              std::string::npos);
}

arguments parsed(std::vector<const char*> words) {
    words.insert(words.begin(), "program");
    return parse(static_cast<int>(words.size()), words.data(), {"a", "a/b", "c"}, false);
}

TEST(OriginalsProgram, AWholeNameMeansThatSystemAlone) {
    const arguments exact = parsed({"--list", "--system", "a"});
    EXPECT_TRUE(exact.wants("a", {"a", "a/b", "c"}));
    EXPECT_FALSE(exact.wants("a/b", {"a", "a/b", "c"}));
    const arguments part = parsed({"--list", "--system", "/"});
    EXPECT_TRUE(part.wants("a/b", {"a", "a/b", "c"}));
    EXPECT_FALSE(part.wants("c", {"a", "a/b", "c"}));
}

TEST(OriginalsProgram, MistakesAreNamed) {
    EXPECT_THROW(parsed({"--experiment", "nonsense", "--quick"}), usage_error);
    EXPECT_THROW(parsed({"--experiment", "allocs"}), usage_error);
    EXPECT_THROW(parsed({"--list", "--system", "z"}), usage_error);
    EXPECT_THROW(parsed({"--experiment", "allocs", "--quick", "--round", "-1"}), usage_error);
    EXPECT_THROW(parsed({"--round"}), usage_error);
    EXPECT_THROW(parsed({"--environment"}), usage_error);
    EXPECT_EQ(parsed({"--experiment", "allocs", "--full", "--round", "3", "--seed", "9"}).round, 3U);
}

} // namespace
} // namespace timerbench::originals
