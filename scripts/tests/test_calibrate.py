#!/usr/bin/env python3
"""scripts/calibrate: decisions formed from made-up runs, whose truth is known, and the command with a stand-in for the build."""

import json
import math
import os
import signal
import subprocess
import sys
import time
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import synthetic  # noqa: E402
import test_compare  # noqa: E402
from judging import calibrating, calibration, campaign, pool, rules, verdicts  # noqa: E402
from judging.reports import Unusable  # noqa: E402

SERVICES = {"coarse_slot": 37.0, "locked_heap": 60.0}
RULES = rules.load()
EFFORT = calibration.Effort(compare_like=16, compare_planted=12, smallest=8)


def settings(**changes):
    values = {"runs": 60, "builds": 20, "rounds": 10, "none_runs": 10, "planted_runs": 7, "planted": ("percent:10", "percent:20"),
              "service": "coarse_slot", "services": tuple(SERVICES), "visits": 16, "quick": False, "seed": 1}
    return campaign.Settings(**(values | changes))


def made_up(chosen, build_deviation=0.01, seed=5):
    """The runs of a campaign: correlated noise within a run, and builds that differ by so much for no reason."""
    rng = np.random.default_rng(seed)
    builds = {build: {(service, case): math.exp(rng.normal(0, build_deviation)) for service in SERVICES for case in (0, 1)}
              for build in range(1, chosen.builds + 1)}
    found = []
    for planned in campaign.plan(chosen):
        slower = {"coarse_slot": 1 + float(planned.kind[8:]) / 100} if planned.kind.startswith("percent:") else None
        report = synthetic.report(rng, slower, builds[planned.build], services=SERVICES)
        found.append(pool.run_of(planned.when, planned.block, planned.build, planned.kind, report, RULES))
    return found


class Rates(unittest.TestCase):
    def test_against_known_values(self):
        # Clopper-Pearson: 5 of 100 as tables have it, and what the rule of three comes from.
        low, high = pool.Rate(5, 100).interval
        self.assertAlmostEqual(low, 0.0164319, places=6)
        self.assertAlmostEqual(high, 0.1128349, places=6)
        self.assertAlmostEqual(pool.Rate(0, 300).upper, 1 - 0.05 ** (1 / 300), places=12)
        self.assertLess(pool.Rate(0, 300).upper, 0.01)
        self.assertEqual(pool.Rate(0, 300).interval[0], 0)
        self.assertEqual(pool.Rate(7, 7).interval[1], 1)
        self.assertAlmostEqual(pool.Rate(7, 7).lower, 0.05 ** (1 / 7), places=12)
        nothing = json.dumps(pool.Rate(0, 0).document(), allow_nan=False)
        self.assertIn('"rate": null', nothing)


class Plans(unittest.TestCase):
    def test_each_block_has_each_build_once_and_each_kind_as_often_as_asked(self):
        chosen = settings(runs=300, none_runs=8, planted_runs=4, planted=campaign.PLANTED)
        plan = campaign.plan(chosen)
        self.assertEqual(plan, campaign.plan(chosen))
        self.assertEqual([run.when for run in plan], list(range(len(plan))))
        self.assertEqual(len({run.name for run in plan}), len(plan))
        self.assertEqual({run.block for run in plan}, set(range(15)))
        for block in range(15):
            here = [run for run in plan if run.block == block]
            self.assertEqual(sorted(run.build for run in here if run.kind == pool.PLAIN), list(range(1, 21)))
            for kind in campaign.PLANTED:
                self.assertEqual(sum(run.kind == kind for run in here), 4)
            self.assertEqual(sum(run.kind == pool.NONE for run in here), 8)
        for kind in (*campaign.PLANTED, pool.NONE):
            often = [sum(run.kind == kind and run.build == build for run in plan) for build in range(1, 21)]
            self.assertLessEqual(max(often) - min(often), 1)
        kinds = [run.kind for run in plan if run.block == 0]
        changes = sum(one != other for one, other in zip(kinds, kinds[1:]))
        self.assertGreater(changes, 2 * len(set(kinds)), "a block is in random order")

    def test_runs_that_do_not_fill_the_last_block(self):
        plan = campaign.plan(settings(runs=50))
        self.assertEqual(sum(run.kind == pool.PLAIN for run in plan), 50)

    def test_quick_takes_no_ordinary_build(self):
        self.assertNotIn(pool.PLAIN, {run.kind for run in campaign.plan(settings(quick=True))})


class Pools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.settings = settings()
        cls.runs = made_up(cls.settings)

    def setUp(self):
        self.pool = pool.Pool(self.runs, np.random.default_rng(2))

    def test_gate_decisions_take_each_run_once_against_another_build(self):
        pairs = self.pool.gate_pairs(pool.PLAIN, pool.PLAIN)
        self.assertEqual(sorted(head.when for _, (head,) in pairs), sorted(run.when for run in self.runs if run.kind == pool.PLAIN))
        for _ in range(10):
            for (base,), (head,) in self.pool.gate_pairs(pool.PLAIN, pool.PLAIN):
                self.assertNotEqual(base.build, head.build)
                self.assertNotEqual(base.block, head.block)

    def test_compare_decisions_share_no_build_between_sides_and_use_no_run_twice(self):
        for base_kind, head_kind in ((pool.PLAIN, pool.PLAIN), (pool.NONE, "percent:10")):
            for base, head in self.pool.many_compare_pairs(base_kind, head_kind, 10, 10):
                self.assertEqual({run.kind for run in base}, {base_kind})
                self.assertEqual({run.kind for run in head}, {head_kind})
                self.assertFalse({run.build for run in base} & {run.build for run in head})
                self.assertEqual(len({run.when for run in base + head}), 20)
                self.assertEqual([run.block for run in base], [run.block for run in head])
                self.assertEqual([run.when for run in head], sorted(run.when for run in head))
                if head_kind == pool.PLAIN:
                    self.assertEqual(len({run.build for run in head}), 10)

    def test_too_few_runs_form_no_decision(self):
        few = pool.Pool(self.runs[:12], np.random.default_rng(2))
        self.assertIsNone(few.compare_pairs(pool.PLAIN, pool.PLAIN, 10))
        self.assertEqual(few.many_compare_pairs(pool.PLAIN, pool.PLAIN, 10, 3), [])

    def test_disjoint_decisions_have_no_run_in_common(self):
        pairs = self.pool.disjoint_compare_pairs(pool.PLAIN, 10)
        self.assertEqual(len(pairs), 3)
        used = [run.when for base, head in pairs for run in base + head]
        self.assertEqual(len(used), len(set(used)))

    def test_one_number_for_a_round_changes_no_verdict(self):
        base, head = self.pool.compare_pairs(pool.NONE, "percent:20", 10)
        short = pool.decide((base, head), RULES, "coarse_slot").outcome.judgements
        whole = verdicts.judge([run.report for run in base], [run.report for run in head], RULES).judgements
        self.assertEqual([row.verdict for row in short], [row.verdict for row in whole])
        for one, other in zip(short, whole):
            self.assertAlmostEqual(one.change, other.change, places=9)
            self.assertAlmostEqual(one.interval[0], other.interval[0], places=9)

    def test_scaling_touches_one_service(self):
        report = self.runs[0].report
        slower = pool.scaled(report, "coarse_slot", 1.5)
        for key, row in report.rows.items():
            factor = 1.5 if row.service == "coarse_slot" else 1.0
            np.testing.assert_allclose(slower.rows[key].samples, row.samples * factor)

    def test_other_minimum_effects(self):
        changed = pool.with_effects(RULES, {"rounds": 0.3})
        rule = changed.metrics["arm_cancel"]["arm_cancel"]
        self.assertEqual(rule.minimum_effect["rounds"], 0.3)
        self.assertEqual(rule.minimum_effect["visits"], RULES.metrics["arm_cancel"]["arm_cancel"].minimum_effect["visits"])

    def test_noise_of_rows_tells_builds_from_runs(self):
        rng = np.random.default_rng(1)
        factors = {1: 1.0, 2: 1.0, 3: 1.2}
        runs = [pool.run_of(number, number, build, pool.PLAIN,
                            synthetic.report(rng, build_noise={("coarse_slot", 0): factors[build]}, services={"coarse_slot": 37.0}), RULES)
                for number, build in enumerate((1, 2, 3) * 6)]
        article, window = pool.noise_of_rows(runs, RULES)
        self.assertAlmostEqual(article.between, 0.2, delta=0.02)
        self.assertLess(window.between, 0.03)
        self.assertAlmostEqual(article.within, 0.008, delta=0.006)

    def test_effects_that_were_planted_are_found_and_like_is_called_like(self):
        formed = calibration.form(self.runs, pool.PLAIN, self.settings.planted, 10, EFFORT, 1)
        entries, like = calibration.decide_all(formed, pool.with_effects(RULES, {"visits": 0.12, "rounds": 0.05}), "coarse_slot")
        by_name = {(entry["tool"], entry["planted"]): entry for entry in entries}
        self.assertEqual(by_name["gate", "A/A"]["alarms"]["count"], 0)
        self.assertEqual(by_name["gate", "A/A"]["alarms"]["total"], 60)
        self.assertEqual(by_name["compare", "A/A"]["alarms"]["count"], 0)
        self.assertEqual(by_name["compare", "A/A"]["disjoint_alarms"]["total"], 3)
        self.assertEqual(by_name["compare", "percent:20"]["found"]["rate"], 1.0)
        self.assertGreaterEqual(by_name["compare", "percent:10"]["found"]["rate"], 0.9)
        self.assertGreaterEqual(by_name["gate", "percent:20"]["found"]["rate"], 0.7)
        self.assertLess(by_name["gate", "percent:10"]["found"]["rate"], 0.5)

        noise = pool.noise_of_rows([run for run in self.runs if run.kind == pool.PLAIN], RULES)
        proposed = calibration.thresholds(like, formed, RULES, "coarse_slot", noise, EFFORT)
        self.assertGreater(proposed["between_builds"], 0.02)
        self.assertGreaterEqual(proposed["minimum_effect"]["visits"], proposed["between_builds"])
        for tool, pairs, unit in (("gate", formed.gate["A/A"], "visits"), ("compare", formed.compare["A/A"], "rounds")):
            effect = max(calibration.up_to_whole_percent(proposed["no_alarm_above"][tool]), 0.001)
            again = [pool.decide(pair, pool.with_effects(RULES, {unit: effect}), "coarse_slot") for pair in pairs]
            self.assertFalse(any(decision.alarm for decision in again))
        smallest = calibration.smallest(formed, RULES, "coarse_slot", EFFORT)
        self.assertLessEqual(RULES.metrics["arm_cancel"]["arm_cancel"].minimum_effect["rounds"], smallest["compare"]["change"])
        self.assertLess(smallest["compare"]["change"], smallest["gate"]["change"] or math.inf)  # None: more than the largest tried

    def test_no_minimum_effect_would_cry_wolf(self):
        """Builds that differ make alarms of like sides; the minimum effect is what keeps them away."""
        runs = made_up(settings(), build_deviation=0.06)
        pairs = pool.Pool(runs, np.random.default_rng(3)).gate_pairs(pool.PLAIN, pool.PLAIN)
        alarms = {effect: pool.rate([pool.decide(pair, pool.with_effects(RULES, {"visits": effect}), "coarse_slot") for pair in pairs],
                                    lambda decision: decision.alarm).count for effect in (0.0, 0.4)}
        self.assertGreater(alarms[0.0], 15)
        self.assertEqual(alarms[0.4], 0)

    def test_not_decided_is_not_found(self):
        noisy = verdicts.Outcome(0.01, 0.05)
        row = verdicts.Judgement("arm_cancel", "coarse_slot", {}, "arm_cancel", "x", "time", "undecided", change=0.5)
        noisy.judgements = [row]
        self.assertEqual(calibration.rates_of("compare", "percent:20", [pool.Decision(noisy, False)])["found"]["count"], 0)
        other = verdicts.Outcome(0.01, 0.05, judgements=[verdicts.Judgement("arm_cancel", "twin", {}, "arm_cancel", "x", "time",
                                                                             "regression", change=0.5)])
        entry = calibration.rates_of("compare", "percent:20", [pool.Decision(other, False)])
        self.assertEqual((entry["found"]["count"], entry["alarms"]["count"]), (0, 1))

    def test_steps_for_two_percent(self):
        rng = np.random.default_rng(1)
        report = synthetic.report(rng, services={"coarse_slot": 150.0})
        steps = calibrating.steps_for_two_percent(report, "coarse_slot")
        self.assertAlmostEqual((calibrating.INSTRUCTIONS_A_VISIT + 3 * steps) / 16, 3.0, delta=0.4)
        with self.assertRaises(Unusable):
            calibrating.steps_for_two_percent(report, "nonsense")


class Command(test_compare.RepositoryTest):
    """The whole command, quick, with few runs."""

    def calibrate(self, *arguments):
        return self.inside(calibrating.main, calibrating, *arguments)

    def quick(self, *more):
        return ("--quick", "--no-exact", "--out", self.elsewhere / "results dir", *more)

    def test_interrupted_it_goes_on_and_the_table_is_printed_from_the_file(self):
        (self.checkout / "slow").touch()
        child = subprocess.Popen(self.command("calibrate", *self.quick()), cwd=self.elsewhere, env=self.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        bound = time.monotonic() + 60
        while not self.noted("bench-calls") and time.monotonic() < bound:
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130, errors)
        self.assertEqual(errors.rstrip().splitlines()[-1],
                         "calibrate: interrupted; start it again with the same options, and it goes on")
        out = self.elsewhere / "results dir"
        self.assertEqual(os.listdir(out), ["quick-work"])
        self.assertEqual(list(out.rglob("*.unfinished")), [])
        (self.checkout / "slow").unlink()

        # Some runs are there already: they are kept as they are.
        plan = campaign.plan(calibrating.settings_of(calibrating.parser().parse_args(["--quick"])))
        for slow in out.rglob("slow"):
            slow.unlink()
        for planned in plan[:5]:
            slower = {"coarse_slot": 1.2} if planned.kind == "percent:20" else None
            kept = synthetic.report(np.random.default_rng(planned.when), slower, services=SERVICES, visits=8)
            synthetic.write(kept, out / "quick-work" / "runs" / planned.name / "arm_cancel.json")
        (self.state / "bench-calls").unlink()
        done = self.calibrate(*self.quick())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(self.bench_calls()), len(plan) - 5)
        self.assertEqual({call[2] for call in self.bench_calls()}, {None, "coarse_slot:percent:20"})
        self.assertIn("QUICK", done.stdout)
        document = json.loads((out / "calibration.json").read_text(encoding="utf-8"))
        self.assertTrue(document["quick"])
        self.assertEqual(document["schema"], "timerbench.calibration/1")
        self.assertEqual((out / "calibration.txt").read_text(encoding="utf-8"), done.stdout)
        planted = next(entry for entry in document["rates"] if (entry["tool"], entry["planted"]) == ("compare", "percent:20"))
        self.assertEqual(planted["found"]["rate"], 1.0)

        (self.state / "bench-calls").unlink()
        table = self.calibrate("--table", out)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertIn("20 % of arm + cancel", table.stdout)
        self.assertIn("upper 95 % bound", table.stdout)
        self.assertEqual(self.noted("bench-calls"), [])

        # Other binaries: their runs do not belong together.
        self.costs(SERVICES | {"coarse_slot": 38.0})
        with open(self.state / "bench", "a", encoding="utf-8") as file:
            file.write("\n# another build\n")
        done = self.calibrate(*self.quick())
        self.assertEqual(done.returncode, 2)
        self.assertIn("holds runs of another plan or of other binaries", done.stderr)

    def test_bad_input(self):
        broken, whole = self.elsewhere / "broken", self.elsewhere / "foreign"
        for folder, text in ((broken, '{"schema": "timerbench.calibration/1"}'), (whole, '{"schema": "x"}')):
            folder.mkdir()
            (folder / "calibration.json").write_text(text, encoding="utf-8")
        (self.elsewhere / "file").touch()
        for arguments, word in ((("--builds", "7"), "'7'"), (("--runs", "19"), "'19'"), (("--runs", "20"), "at least 40"),
                                (("--table", "/nowhere"), "/nowhere"), (("--table", broken), "no whole calibration"),
                                (("--table", whole), "no calibration"), (("--out", self.elsewhere / "file" / "x"), "cannot be made"),
                                (("--rules", "/nowhere"), "/nowhere"), (("more",), "more"), (("--jobs", "many"), "'many'")):
            with self.subTest(arguments=arguments):
                self.assert_one_line_exit_2(self.calibrate(*arguments), word)
        (self.checkout / "uncompilable").touch()
        done = self.calibrate(*self.quick())
        self.assertEqual(done.returncode, 2)
        self.assertIn("the checkout does not build (bench_arm_cancel)", done.stderr)
        self.assertFalse((self.elsewhere / "results dir" / "calibration.json").exists())


if __name__ == "__main__":
    unittest.main()
