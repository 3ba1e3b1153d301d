"""judging/verdicts.py: which verdict follows from which two sides."""

import math
import unittest
from dataclasses import replace
from unittest import mock

import judging_reports as made
import numpy as np
from judging_reports import FolderTest, WINDOW, counted, document, row, steady, timed

from judging import rules, statistics, verdicts
from judging.reports import Report, Row, Unusable


class VerdictTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.rules = rules.load()

    def side(self, content, folder):
        return [self.load(one, one["experiment"], f"{folder}{number}")
                for number, one in enumerate(content if isinstance(content, list) else [content])]

    def judge(self, base, head, chosen=None, **options):
        return verdicts.judge(self.side(base, "base"), self.side(head, "head"), chosen or self.rules, **options)

    def times(self, base, head, case=WINDOW, **options):
        """The outcome of one time row of each side, given as ratios or as a row."""
        rows = [timed("coarse_slot", side, case) if isinstance(side, np.ndarray) else side for side in (base, head)]
        return self.judge(*(document("arm_cancel", [entry]) for entry in rows), **options)

    def counts(self, base, head, metric="allocations"):
        outcome = self.judge(*(document("exact", [counted("coarse_slot", side, metric)]) for side in (base, head)))
        self.assertEqual(len(outcome.judgements), 1)
        return outcome.judgements[0], outcome.exit_code

    def with_metric(self, **rule):
        """Rules with one made-up metric in arm_cancel."""
        defaults = {"minimum_effect": dict.fromkeys(rules.UNITS, 0.1)} if rule["kind"] == "time" else {}
        self.rules.metrics["arm_cancel"]["made_up"] = rules.Rule(**(defaults | rule))
        return self.rules


class Counts(VerdictTest):
    def test_equal(self):
        self.assertEqual(self.counts(1, 1)[0].verdict, "pass")
        self.assertEqual(self.counts(0, 0)[1], 0)

    def test_one_more_is_a_regression_from_0_and_from_anything(self):
        for base, head in ((0, 1), (0, 0.0001), (1, 2), (1000000, 1000001), (0, [0, 1]), ([3, 3], [3, 4])):
            judgement, code = self.counts(base, head)
            self.assertEqual((judgement.verdict, code), ("regression", 1), (base, head))
        self.assertEqual(self.counts(0, 2)[0].change, math.inf)

    def test_improvements_that_are_plausible_and_not(self):
        self.assertEqual((self.counts(4, 2)[0].verdict, self.counts(4, 2)[1]), ("improvement", 0))
        for base, head in ((4, 1), (1, 0), (100, 0)):
            self.assertEqual((self.counts(base, head)[0].verdict, self.counts(base, head)[1]), ("review", 3))

    def test_counts_that_did_not_repeat_in_the_baseline(self):
        self.assertEqual(self.counts([4, 6], [5, 6])[0].verdict, "pass")
        self.assertEqual(self.counts([4, 6], [7, 8])[0].verdict, "regression")
        self.assertEqual(self.counts([4, 6], [5, 7])[0].verdict, "undecided")

    def test_a_negative_count_is_unusable(self):
        with self.assertRaisesRegex(Unusable, "exact.json.*coarse_slot.*-1"):
            self.counts(0, -1)

    def test_other_units_cannot_be_compared(self):
        base, head = counted("a", 1), counted("a", 1) | {"unit": "1/op"}
        self.assertEqual(self.judge(document("exact", [base]), document("exact", [head])).exit_code, 3)

    def test_judged_in_any_context_but_a_build_that_cannot_be_compared(self):
        rows = [counted("a", 0)], [counted("a", 1)]
        elsewhere = made.environment(cpu="another", compiler="clang")
        outcome = self.judge(document("exact", rows[0]), document("exact", rows[1], environment=elsewhere))
        self.assertEqual(outcome.exit_code, 1)
        self.assertIn("another", " ".join(outcome.remarks))
        for fields in ({"marks": ["DEBUG BUILD"]}, {"environment": made.environment(sanitizer="address")}):
            for side in (0, 1):
                documents = [document("exact", rows[0], **(fields if side == number else {})) for number in (0, 1)]
                self.assertEqual(self.judge(*documents).exit_code, 3, (fields, side))


class Missing(VerdictTest):
    def test_rows(self):
        base = document("exact", [counted("a", 0), counted("b", 0)])
        for lost in ([], [row("b", "allocations", error="x", case=counted("b", 0)["case"])],
                     [row("b", "allocations", skipped="x", case=counted("b", 0)["case"])]):
            outcome = self.judge(base, document("exact", [counted("a", 0), *lost]))
            self.assertEqual(([judgement.service for judgement in outcome.of("regression")], outcome.exit_code), (["b"], 1))

    def test_a_row_that_was_skipped_all_along_is_no_row(self):
        skipped = row("b", "allocations", skipped="x")
        outcome = self.judge(*(document("exact", [counted("a", 0), skipped]) for _ in range(2)))
        self.assertEqual((len(outcome.judgements), outcome.exit_code), (1, 0))

    def test_a_whole_report(self):
        both = [document("exact", [counted("a", 0)]), document("arm_cancel", [timed("coarse_slot", steady(1.5))])]
        outcome = self.judge(both, both[:1])
        self.assertEqual((outcome.exit_code, outcome.of("regression")[0].experiment), (1, "arm_cancel"))
        self.assertEqual(self.judge(both, both[:1], kinds=["count"]).exit_code, 0)
        elsewhere = document("exact", [counted("a", 0)], environment=made.environment(cpu="another"))
        self.assertEqual(self.judge(both, elsewhere).exit_code, 3)

    def test_new_rows_pass(self):
        outcome = self.judge(document("exact", [counted("a", 0)]), document("exact", [counted("a", 0), counted("b", 9)]))
        self.assertEqual((outcome.exit_code, outcome.new_rows, len(outcome.judgements)), (0, 1, 1))

    def test_nothing_judged_is_never_a_pass(self):
        empty = document("exact", [])
        for base, head in ((empty, empty), (document("scaling", []), document("scaling", []))):
            self.assertEqual(self.judge(base, head).exit_code, 3)
        ratio = steady(1.5)
        self.assertEqual(self.times(ratio, ratio, kinds=["count"]).exit_code, 3)

    def test_different_experiments(self):
        with self.assertRaisesRegex(Unusable, "different experiments"):
            self.judge(document("exact", [counted("a", 0)]), document("allocs", [counted("a", 0)]))


class Times(VerdictTest):
    def test_like_and_like(self):
        outcome = self.times(steady(1.5, seed=1), steady(1.5, seed=2))
        self.assertEqual((outcome.exit_code, outcome.tested), (0, 1))
        judgement = outcome.judgements[0]
        self.assertLess(judgement.interval[0], 1)
        self.assertGreater(judgement.interval[1], 1)
        self.assertLess(judgement.smallest_change, 0.16)

    def test_a_planted_slowdown(self):
        outcome = self.times(steady(1.5, seed=1), steady(1.8, seed=2))
        judgement = outcome.judgements[0]
        self.assertEqual((judgement.verdict, outcome.exit_code), ("regression", 1))
        self.assertAlmostEqual(judgement.change, 0.2, delta=0.005)
        self.assertLess(judgement.p, 0.001)

    def test_below_the_minimum_effect_nothing_is_said_however_sure_it_is(self):
        self.assertEqual(self.times(steady(1.5, seed=1), steady(1.5 * 1.1, seed=2)).exit_code, 0)

    def test_a_large_effect_in_large_noise_is_undecided(self):
        outcome = self.times(steady(1.5, noise=0.5, seed=3), steady(1.8, noise=0.5, seed=4))
        self.assertEqual((outcome.judgements[0].verdict, outcome.exit_code), ("undecided", 3))
        self.assertGreater(outcome.judgements[0].smallest_change, 0.2)

    def test_absolute_times_do_not_count(self):
        """Twice the time beside a clock that takes twice the time is no change."""
        slow = timed("coarse_slot", steady(1.5), clock=50.0)
        self.assertEqual(self.times(steady(1.5), slow).exit_code, 0)

    def test_single_wild_samples_do_no_harm(self):
        head = steady(1.5, seed=2)
        head[3], head[17] = 0.3, 7.5
        self.assertEqual(self.times(steady(1.5, seed=1), head).exit_code, 0)

    def test_improvements(self):
        outcome = self.times(steady(1.5), steady(1.0))
        self.assertEqual((outcome.judgements[0].verdict, outcome.exit_code), ("improvement", 0))
        outcome = self.times(steady(1.5), steady(1.5 * 0.05))
        self.assertEqual((outcome.judgements[0].verdict, outcome.exit_code), ("review", 3))

    def test_direction(self):
        for worse_up, factor, verdict in ((True, 1.25, "regression"), (False, 0.8, "regression"), (True, 0.8, "improvement"),
                                          (False, 1.25, "improvement"), (False, 20, "review")):
            chosen = self.with_metric(kind="time", worse_up=worse_up)
            base, head = (document("arm_cancel", [timed("a", steady(ratio, seed=seed), metric="made_up")])
                          for seed, ratio in enumerate((1.5, 1.5 * factor)))
            judgement = self.judge(base, head, chosen).judgements[0]
            self.assertEqual(judgement.verdict, verdict, (worse_up, factor))
            self.assertLessEqual(judgement.interval[0], factor)
            self.assertGreaterEqual(judgement.interval[1], factor * 0.99)

    def test_too_few_samples(self):
        for visits, per_visit in ((1, 1), (1, 4), (3, 4), (7, 4)):
            few = timed("coarse_slot", steady(1.5, visits, per_visit), per_visit=per_visit)
            outcome = self.times(few, few)
            self.assertEqual((outcome.judgements[0].verdict, outcome.exit_code), ("undecided", 3))
            self.assertIn("too few", outcome.judgements[0].reason)

    def test_negative_and_zero_durations(self):
        for bad in (0.0, -1.5):
            ratios = steady(1.5)
            ratios[7] = bad
            for sides in ((ratios, steady(1.5)), (steady(1.5), ratios)):
                with self.assertRaisesRegex(Unusable, "arm_cancel.json.*coarse_slot arm_cancel.*sample 7"):
                    self.times(*sides)

    def test_contexts_that_cannot_be_compared(self):
        rows = [timed("coarse_slot", steady(1.5))]
        for fields, word in (({"environment": made.environment(cpu="another")}, "CPU model"),
                             ({"environment": made.environment(libc="musl")}, "libc"),
                             ({"environment": made.environment(compiler="clang")}, "compiler"),
                             ({"environment": made.environment(flags="-O2")}, "flags"), ({"quick": True}, "quick"),
                             ({"parameters": {"window": 7}}, "window"), ({"marks": ["DEBUG BUILD"]}, "DEBUG BUILD"),
                             ({"environment": made.environment(optimised=False)}, "DEBUG BUILD")):
            for fields_of in ((fields, {}), ({}, fields)):
                outcome = self.judge(*(document("arm_cancel", rows, **own) for own in fields_of))
                self.assertEqual((outcome.exit_code, len(outcome.of("undecided"))), (3, 1), fields)
                self.assertIn(word, outcome.judgements[0].reason)

    def test_a_noisy_machine(self):
        rough = timed("floor/steady_clock", np.tile([0.7] * 4 + [1.3] * 4, 7), case={})
        rows = [timed("coarse_slot", steady(1.5)), timed("floor/steady_clock", steady(1.0), case={})]
        self.assertEqual(self.judge(*(document("arm_cancel", rows) for _ in range(2))).exit_code, 0)
        outcome = self.judge(document("arm_cancel", rows), document("arm_cancel", [rows[0], rough]))
        self.assertEqual(outcome.exit_code, 3)
        self.assertIn("too noisy", outcome.judgements[0].reason)

    def test_a_service_as_reference(self):
        chosen = replace(self.rules, reference="locked_heap")
        base = [timed("coarse_slot", steady(1.5, seed=1)), timed("locked_heap", steady(3, seed=2))]
        both_slower = [timed("coarse_slot", steady(3, seed=3)), timed("locked_heap", steady(6, seed=4))]
        one_slower = [timed("coarse_slot", steady(3, seed=3)), timed("locked_heap", steady(3, seed=4))]
        self.assertEqual(self.judge(document("arm_cancel", base), document("arm_cancel", both_slower), chosen).exit_code, 0)
        outcome = self.judge(document("arm_cancel", base), document("arm_cancel", one_slower), chosen)
        self.assertEqual([judgement.service for judgement in outcome.of("regression")], ["coarse_slot"])
        outcome = self.judge(document("arm_cancel", base[:1]), document("arm_cancel", base[:1]), chosen)
        self.assertIn("no row of the reference", outcome.judgements[0].reason)

    def test_the_share_of_undecided_rows_is_capped(self):
        def rows(seed):
            return [timed(f"s{number}", steady(1.5, noise=0.8 if number == 0 else 0.002, seed=seed + number)) for number in range(10)]
        documents = document("arm_cancel", rows(1)), document("arm_cancel", rows(50))
        self.assertEqual(self.judge(*documents).exit_code, 3)
        self.assertEqual(self.judge(*documents, max_undecided=0.1).exit_code, 0)
        self.assertEqual(self.judge(*documents).shares(), {"time": (1, 10)})


class Rounds(VerdictTest):
    def rounds(self, factor, drift=0.2, noise=0.01, count=10):
        """Two sides of `count` rounds; both drift alike, as rounds that alternate do."""
        generator = np.random.default_rng(11)
        shared = generator.normal(0, drift, count)
        return [[document("arm_cancel", [timed("coarse_slot", value * np.exp(shared[number] + generator.normal(0, noise))
                                               * steady(1, 4, seed=number), WINDOW)]) for number in range(count)]
                for value in (1.5, 1.5 * factor)]

    def test_pairs_take_a_shared_drift_out(self):
        outcome = self.judge(*self.rounds(1.0))
        self.assertEqual((outcome.unit, outcome.exit_code), ("rounds", 0))
        outcome = self.judge(*self.rounds(1.1))
        self.assertEqual(outcome.exit_code, 1)
        self.assertAlmostEqual(outcome.judgements[0].p, 2 / 1024)

    def test_numbers_of_rounds_have_to_agree(self):
        base, head = self.rounds(1.0)
        with self.assertRaisesRegex(Unusable, "10 rounds .* 9"):
            self.judge(base, head[:9])

    def test_a_row_missing_in_one_round(self):
        base, head = self.rounds(1.0)
        head[4]["rows"] = []
        outcome = self.judge(base, head)
        self.assertEqual(outcome.exit_code, 1)
        self.assertIn("run 5 of 10", outcome.judgements[0].reason)

    def test_a_few_runs_are_resampled_by_visit(self):
        base, head = self.rounds(1.0, drift=0.0, count=3)
        self.assertEqual(self.judge(base, head).unit, "visits")


class Instructions(VerdictTest):
    def verdict(self, base, head, **fields):
        documents = [document("instructions", [row("a", "instructions", side)]) for side in (base, head)]
        documents[1] |= fields
        outcome = self.judge(*documents)
        return outcome.judgements[0].verdict, outcome.exit_code

    def test_threshold(self):
        self.assertEqual(self.verdict([100.0], [100.9]), ("pass", 0))
        self.assertEqual(self.verdict([100.0], [102.0]), ("regression", 1))
        self.assertEqual(self.verdict([100.0], [90.0]), ("improvement", 0))
        self.assertEqual(self.verdict([100.0], [5.0]), ("review", 3))
        self.assertEqual(self.verdict([100.0, 110.0, 100.0], [100.0]), ("undecided", 3))

    def test_refused_in_another_context(self):
        for fields in ({"cpu": "another"}, {"libc": "musl"}, {"compiler": "clang"}, {"flags": "-O2"}):
            self.assertEqual(self.verdict([100.0], [150.0], environment=made.environment(**fields)), ("undecided", 3))


class WholeRuns(VerdictTest):
    """Many rows at once, twice the same code: how often a run raises an alarm. The intervals alone decide."""

    ROWS = 10

    def run_of(self, generator, name, symmetric=0.02, added=0.3):
        rows = []
        for number in range(self.ROWS):
            noise = generator.normal(0, symmetric, 14) + (generator.random(14) < 0.3) * generator.exponential(added, 14)
            rows.append(Row(f"s{number}", WINDOW, "arm_cancel", "ns/op", 37.5 * np.exp(noise), np.full(14, 25.0), np.arange(14.0)))
        return [Report(name, "arm_cancel", False, (), made.environment(), {}, {entry.key: entry for entry in rows})]

    def alarms(self, runs, alpha, added):
        generator = np.random.default_rng(12)
        self.rules.metrics["arm_cancel"]["arm_cancel"] = rules.Rule("time", minimum_effect=dict.fromkeys(rules.UNITS, 0.0))
        with mock.patch.object(statistics, "median_shift", return_value=math.inf), \
                mock.patch.object(statistics, "rank_test", return_value=0.0):
            return sum(verdicts.judge(self.run_of(generator, "base", added=added), self.run_of(generator, "head", added=added),
                                      self.rules, alpha=alpha).exit_code == 1 for _ in range(runs))

    def test_rate_of_whole_runs(self):
        self.assertLessEqual(self.alarms(100, 0.01, 0.3) + self.alarms(100, 0.01, 0.0), 2)

    def test_a_quieter_machine_is_no_slower_code(self):
        """One row at a time, the rules as they are: their minimum effect is part of what keeps the rate."""
        generator = np.random.default_rng(13)
        with mock.patch.object(self, "ROWS", 1):
            sides = [(self.run_of(generator, "base", 0.25, 0.0), self.run_of(generator, "head", 0.01, 0.0)) for _ in range(150)]

        def alarms():
            return sum(len(verdicts.judge(*pair, self.rules).of("regression")) for pair in sides)

        self.assertLessEqual(alarms(), 3)
        with mock.patch.object(statistics, "median_shift", return_value=math.inf), \
                mock.patch.object(statistics, "rank_test", return_value=0.0):
            self.assertGreater(alarms(), 10)

    def test_the_interval_of_a_row_is_wider_beside_many(self):
        generator = np.random.default_rng(14)
        sides = [self.run_of(generator, name)[0] for name in ("base", "head")]
        first = next(iter(sides[0].rows))
        alone = [[replace(side, rows={first: side.rows[first]})] for side in sides]
        among = verdicts.judge([sides[0]], [sides[1]], self.rules, alpha=0.01).judgements[0].interval
        one = verdicts.judge(*alone, self.rules, alpha=0.01).judgements[0].interval
        corrected = verdicts.judge(*alone, self.rules, alpha=0.01 / self.ROWS).judgements[0].interval
        self.assertEqual(among, corrected)
        self.assertLess(among[0], one[0])
        self.assertGreater(among[1], one[1])

    def test_without_the_correction_there_would_be_many(self):
        self.assertGreater(self.alarms(20, 0.5, 0.0), 2)


if __name__ == "__main__":
    unittest.main()
