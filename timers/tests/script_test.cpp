// Random operation scripts against the oracle, step by step.
#include "timers/model.hpp"
#include "timers/tests/support/rig.hpp"

#include <memory>
#include <random>
#include <vector>

namespace timerbench::testing {
namespace {

class scripts : public service_test {};
TIMERBENCH_OVER_ALL_SERVICES(scripts);

// A service and the model side by side. A fire is allowed from the deadline plus the traits' earliest on and due at the
// deadline plus their latest; in between the model follows the service. So the model's deadlines are the earliest allowed
// starts.
class script {
  public:
    script(std::string_view name, std::uint64_t seed) : rig_{name}, random_{seed}, model_{rig_.now()} {
        for (std::size_t i = 0; i < timers; ++i) {
            probes_.push_back(std::make_unique<probe>(rig_));
            seen_.push_back(0);
        }
        const service_traits& t = rig_.traits();
        const duration step = std::max(t.resolution, duration{1ms});
        durations_ = {duration::zero(),
                      duration{-1ns},
                      -3 * step,
                      duration::min(),
                      duration::max(),
                      duration::max() - 1ns,
                      t.resolution,
                      step - 1ns,
                      step,
                      step + 1ns,
                      2 * step,
                      512 * step,
                      513 * step,
                      1536 * step - 1ns,
                      10min,
                      15min,
                      16min,
                      1h};
        while (durations_.size() < 64) {
            durations_.push_back(pick(step) * static_cast<int>(1 + random_() % 100));
        }
        advances_ = {1ns, step, step / 2 + 1ns, step - 1ns, 3 * step, 50 * step};
        longest_ = t.latest - t.earliest;
    }

    /// False after the first disagreement.
    [[nodiscard]] bool run(int operations) {
        for (int i = 0; i < operations && agreed_; ++i) {
            step();
            rig_.settle();
            account(i);
        }
        return agreed_;
    }

    [[nodiscard]] bool finish() {
        account(-1);
        const counters ours = rig_.service().counters();
        const counters theirs = model_.counters();
        check(ours.armed == theirs.armed && ours.fired == theirs.fired &&
                  ours.cancelled == theirs.cancelled && ours.pending == theirs.pending,
              "the totals differ", 0);
        rig_.stop();
        model_.stop();
        check(rig_.service().counters().dropped == model_.counters().dropped, "stop dropped another number",
              0);
        return agreed_;
    }

  private:
    static constexpr std::size_t timers = 40;

    duration pick(duration below) {
        return duration{std::uniform_int_distribution<duration::rep>{0, below.count()}(random_)};
    }

    void check(bool ok, const char* what, std::size_t id) {
        if (!ok && agreed_) {
            agreed_ = false;
            ADD_FAILURE() << what << ", timer " << id;
        }
    }

    void arm(std::size_t id) {
        const duration d = durations_[random_() % durations_.size()];
        // What is due before now still has to wait for the service's next opportunity.
        const time_point from_now{std::max(d, duration::zero())};
        const bool expected =
            model_.arm(id, saturating_add(from_now, rig_.traits().earliest).time_since_epoch());
        check(probes_[id]->arm(d) == expected, "arm said otherwise", id);
        last_ = d;
    }

    void cancel(std::size_t id) {
        check(probes_[id]->cancel() == model_.cancel(id), "cancel said otherwise", id);
    }

    void step() {
        const std::size_t id = random_() % timers;
        const auto dice = random_() % 100;
        if (dice < 40) {
            if (!model_.armed(id)) {
                arm(id);
            }
        } else if (dice < 55) {
            cancel(id);
        } else if (dice < 65) {
            cancel(id);
            arm(id);
        } else if (dice < 70) {
            model_.cancel(id);
            probes_[id] = std::make_unique<probe>(rig_);
            seen_[id] = 0;
        } else if (dice < 99) {
            rig_.pass(advances_[random_() % advances_.size()]);
        } else {
            rig_.pass(10min);
        }
    }

    void account(int operation) {
        SCOPED_TRACE("operation " + std::to_string(operation) + ", last duration " +
                     std::to_string(last_.count()));
        model_.set_time(rig_.now());
        for (std::size_t id = 0; id < timers; ++id) {
            for (const int fires = probes_[id]->fires(); seen_[id] < fires; ++seen_[id]) {
                check(model_.fire(id), "fired although idle or not due", id);
            }
        }
        for (const std::size_t id : model_.overdue(longest_)) {
            check(false, "not fired at its latest start", id);
        }
    }

    rig rig_;
    std::mt19937_64 random_;
    model model_;
    std::vector<std::unique_ptr<probe>> probes_;
    std::vector<int> seen_;
    std::vector<duration> durations_;
    std::vector<duration> advances_;
    duration longest_{};
    duration last_{};
    bool agreed_ = true;
};

TEST_P(scripts, agree_with_the_model) {
    TIMERBENCH_SKIP_IF(!rig{GetParam()}.manual(),
                       "takes no clock; races.random_work_keeps_account runs it in real time");
    for (std::uint64_t seed = 1; seed <= (under_tsan ? 2U : 5U); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        script s{GetParam(), seed};
        ASSERT_TRUE(s.run(repeat(4'000)));
        ASSERT_TRUE(s.finish());
    }
}

} // namespace
} // namespace timerbench::testing
