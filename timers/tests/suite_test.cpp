// The conformance tests themselves: each planted defect is seen by the test that is named here, and the sound specimen
// passes the same test under the same circumstances.
#include "timers/tests/support/process.hpp"
#include "timers/tests/support/rig.hpp"
#include "timers/tests/support/specimen.hpp"

#include <ostream>
#include <string>

namespace timerbench::testing {
namespace {

struct sighting {
    std::string_view defect; ///< Name of the specimen behind "specimen/".
    std::string_view seen_by;
};

void PrintTo(const sighting& s, std::ostream* to) {
    *to << s.defect << " by " << s.seen_by;
}

constexpr sighting sightings[]{
    {"cuts_to_milliseconds", "firing.never_early_on_the_machines_clock"},
    {"cuts_to_milliseconds", "firing.within_the_bounds_of_the_traits"},
    {"cuts_to_milliseconds", "scripts.agree_with_the_model"},
    {"always_one_step_more", "firing.exact_multiples_stay"},
    {"span_wraps", "firing.far_beyond_one_turn"},
    {"old_age", "firing.after_a_long_life"},
    {"period_grows", "firing.period_of_a_self_rearm_does_not_grow"},
    {"overflows", "durations.huge_ones_saturate"},
    {"overflows", "durations.huge_ones_from_every_entry_point"},
    {"overflows", "timeouts.for_ever"},
    {"negative_late", "durations.zero_and_negative_fire_at_the_next_opportunity"},
    {"negative_late", "durations.negative_before_a_later_timer"},
    {"fires_inline", "durations.zero_and_negative_fire_at_the_next_opportunity"},
    {"fires_twice", "firing.once_per_arm"},
    {"fires_twice", "durations.zero_then_a_period_fires_once_at_first"},
    {"missed_wakeup", "races.short_timers_beside_a_long_one"},
    {"missed_wakeup", "scripts.agree_with_the_model"},
    {"overdue_lost", "firing.jump_over_many_slots"},
    {"zero_starves", "durations.zero_rearm_lets_others_through"},
    {"newest_first", "firing.equal_deadlines_in_order_of_arms"},
    {"batch_ignores_cancel", "cancelling.siblings_of_the_same_slot"},
    {"batch_ignores_cancel", "cancelling.expired_but_not_begun_is_withdrawn"},
    {"cancel_leaves_wakeup", "cancelling.the_earliest_takes_its_wakeup_along"},
    {"cancel_leaves_entry", "cancelling.truth_in_every_state"},
    {"cancel_leaves_entry", "cancelling.no_old_expiry_for_the_next_arm"},
    {"cancel_leaves_entry", "races.cancel_in_the_turn_of_the_expiry"},
    {"cancel_does_not_wait", "cancelling.from_outside_waits_for_the_running_callback"},
    {"cancel_does_not_wait", "cancelling.destroying_from_outside_waits_as_well"},
    {"cancel_waits_in_callback", "cancelling.inside_a_callback_never_waits"},
    {"cancel_keeps_memory", "lifetime.cancelled_timers_hold_no_memory"},
    {"rearm_beats_cancel", "cancelling.wins_over_the_rearm_of_a_running_callback"},
    {"rearm_beats_cancel", "races.foreign_cancel_against_own_rearm"},
    {"pending_miscounted", "cancelling.expired_but_not_begun_is_withdrawn"},
    {"destroy_keeps_entry", "lifetime.destroying_an_armed_timer_cancels_it"},
    {"touches_destroyed", "lifetime.destroyed_timers_are_not_touched"},
    {"callback_under_lock", "callbacks.arm_cancel_and_destroy_others"},
    {"callback_under_lock", "callbacks.run_without_a_lock_of_the_service"},
    {"throw_loses_batch", "callbacks.that_throw_are_swallowed_and_counted"},
    {"throw_not_counted", "callbacks.that_throw_are_swallowed_and_counted"},
    {"stop_fires", "lifetime.stop_drops_what_is_pending"},
    {"stop_does_not_wait", "lifetime.stop_waits_for_the_running_callback"},
    {"arms_after_stop", "lifetime.stop_drops_what_is_pending"},
    {"arms_after_stop", "timeouts.elapses_at_once_after_stop"},
    {"arms_in_child", "forking.child_arms_or_is_refused_and_leaves"},
    {"hides_a_driver", "callbacks.of_two_timers_overlap_exactly_where_the_traits_say_so"},
    {"forgets_exited_threads", "lifetime.timers_of_an_exited_thread_fire"},
};

const std::vector<std::string>& shown() {
    static const std::vector<std::string> environment{std::string{show_defects_variable} + "=1"};
    return environment;
}

class suite : public ::testing::TestWithParam<sighting> {};
INSTANTIATE_TEST_SUITE_P(sees, suite, ::testing::ValuesIn(sightings), [](const auto& info) {
    return test_name_of(std::string{info.param.defect} + "_by_" + std::string{info.param.seen_by});
});

TEST_P(suite, a_planted_defect) {
    const auto& [defect, seen_by] = GetParam();
    TIMERBENCH_SKIP_IF(under_asan || under_tsan,
                       "a sanitizer's own report would pass for a sighting; plain builds look");
    const outcome run =
        run_tests("every/" + std::string{seen_by} + "/specimen_" + std::string{defect}, shown(), 30s);
    EXPECT_FALSE(run.passed()) << run.text();
    EXPECT_NE(run.output.find("Running 1 test "), std::string::npos) << "no such test\n" << run.text();
}

TEST(suite_control, the_sound_specimen_passes_where_defects_are_seen) {
    TIMERBENCH_SKIP_IF(under_asan || under_tsan,
                       "it goes with the planted defects, which plain builds look for");
    std::string filter;
    for (const sighting& s : sightings) {
        for (const char* sound : {"/specimen:", "/specimen_two_drivers:"}) {
            filter += "every/" + std::string{s.seen_by} + sound;
        }
    }
    const outcome run = run_tests(filter, shown(), 100s);
    EXPECT_TRUE(run.passed()) << run.text();
}

// Every defect of the specimen is in the table, or is tried elsewhere.
TEST(suite_control, no_defect_is_left_out) {
    for (int d = 1; d < static_cast<int>(defect::count_); ++d) {
        std::string_view name = name_of(static_cast<defect>(d));
        name.remove_prefix(std::string_view{"specimen/"}.size());
        const bool elsewhere = name == "waits_on_wall_clock";
        bool listed = elsewhere;
        for (const sighting& s : sightings) {
            listed = listed || s.defect == name;
        }
        EXPECT_TRUE(listed) << name;
    }
}

} // namespace
} // namespace timerbench::testing
