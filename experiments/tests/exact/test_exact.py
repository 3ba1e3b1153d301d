"""bench_exact and scripts/instructions over services with planted flaws. EXACT_SPECIMEN_DIR holds the binary."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ["EXACT_SPECIMEN_DIR"])
SPECIMEN = BIN / "bench_exact"
SANITIZED = re.search(rb"__[at]san_init\b", SPECIMEN.read_bytes()) is not None


def case_name(row):
    return " ".join(str(row["case"][name]) for name in ("kind", "cancel", "state") if name in row["case"])


class Folders(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench exact ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def read(self, path):
        """The rows {(service, case, metric): row} and the whole report, which must be valid."""
        checked = subprocess.run([sys.executable, "-B", ROOT / "scripts" / "check_reports.py", "--schema",
                                  ROOT / "harness" / "report.schema.json", path], check=False, capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        report = json.loads(path.read_text(encoding="utf-8"))
        return {(row["service"], case_name(row), row["metric"]): row for row in report["rows"]}, report


class Exact(Folders):
    def run_exact(self, *services, name="a", code=0, options=()):
        arguments = [word for service in services for word in ("--service", service)]
        result = subprocess.run([SPECIMEN, "--out", self.folder / name, *arguments, *options], check=False, capture_output=True,
                                text=True, timeout=250)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return self.read(self.folder / name / "exact.json")

    def value(self, rows, *key):
        self.assertIn("samples", rows[key], rows[key])
        self.assertEqual(len(rows[key]["samples"]), 1)
        self.assertEqual(rows[key]["samples"][0] % 1, 0)
        return int(rows[key]["samples"][0])

    def test_runs_of_any_length_and_company_give_the_same_rows(self):
        alone, report = self.run_exact("flawed/none", name="a")
        among, quick_report = self.run_exact("flawed/allocates", "flawed/none", "flawed/few_timers", name="b", options=["--quick"])
        self.assertEqual(alone, {key: row for key, row in among.items() if key[0] == "flawed/none"})
        self.assertEqual((quick_report["quick"], "QUICK RUN" in quick_report["marks"]), (False, False))
        self.assertEqual({check["ok"] for check in report["checks"]}, {True})
        self.assertEqual({metric for _, _, metric in alone},
                         {"allocations", "bytes", "fires_lost", "early_fires", "timer_size"})
        self.assertEqual({row["unit"] for row in alone.values() if row["metric"] in ("bytes", "timer_size")}, {"B"})
        self.assertEqual({row["unit"] for row in alone.values() if row["metric"] not in ("bytes", "timer_size")}, {"1"})
        for metric in ("fires_lost", "early_fires"):
            self.assertEqual(self.value(alone, "flawed/none", "random_durations", metric), 0)
        self.assertGreater(self.value(alone, "flawed/none", "timer", "timer_size"), 0)

    @unittest.skipIf(SANITIZED, "the sanitizer owns malloc")
    def test_an_allocation_in_a_hundred_arms_is_seen(self):
        rows, _ = self.run_exact("flawed/none", "flawed/allocates")
        for case, more in (("arm_cancel fresh", 20), ("arm_cancel steady", 20), ("window oldest fresh", 20),
                           ("window random steady", 20), ("arm_fire steady", 5), ("late_cancel", 0), ("cancel_in_callback", 4)):
            for metric, each in (("allocations", 1), ("bytes", 4)):
                with self.subTest(case=case, metric=metric):
                    self.assertEqual(self.value(rows, "flawed/allocates", case, metric) -
                                     self.value(rows, "flawed/none", case, metric), more * each)
        self.assertEqual(self.value(rows, "flawed/none", "arm_cancel steady", "allocations"), 0)

    def test_early_and_lost_fires_are_seen(self):
        for _ in range(5):
            rows, _ = self.run_exact("flawed/early", "flawed/loses", code=0 if SANITIZED else 1)
            # How many are early depends on when its driver looks; on a busy machine two passes may differ.
            if "samples" in rows["flawed/early", "random_durations", "early_fires"]:
                break
        self.assertGreater(self.value(rows, "flawed/early", "random_durations", "early_fires"), 100)
        self.assertEqual(self.value(rows, "flawed/early", "random_durations", "fires_lost"), 0)
        self.assertEqual(self.value(rows, "flawed/loses", "random_durations", "fires_lost"), 100)
        self.assertEqual(self.value(rows, "flawed/loses", "random_durations", "early_fires"), 0)
        if not SANITIZED:
            self.assertIn("450 of 500 timers fired", rows["flawed/loses", "arm_fire steady", "allocations"]["error"])

    def test_wrong_work_is_no_figure(self):
        rows, _ = self.run_exact("flawed/refuses", "flawed/throws", code=1)
        for (service, case, metric), row in rows.items():
            if case == "timer" or (SANITIZED and row["metric"] in ("allocations", "bytes")):
                continue
            with self.subTest(service=service, case=case, metric=metric):
                self.assertRegex(row.get("error", "no error"), r"every tenth" if service == "flawed/throws" else
                                 r"wrong work|only 450 of 500 timers fired|160 callbacks ran and withdrew 160 timers; 200 expected")

    def test_reasons(self):
        services = ["flawed/few_timers", "flawed/unavailable", "flawed/in_real_time"]
        rows, _ = self.run_exact(*services, "flawed/mute_callback")
        for service, reason in zip(services, ("at most 10 of its timers", "is made to be unavailable", "takes no manual clock")):
            reasons = [row.get("skipped", "") for key, row in rows.items() if key[0] == service and key[1] != "timer"]
            self.assertEqual(len(reasons), 22)
            self.assertTrue(all(reason in text for text in reasons), reasons)
            self.assertGreater(self.value(rows, service, "timer", "timer_size"), 0)
        self.assertIn("may not call", rows["flawed/mute_callback", "cancel_in_callback", "bytes"]["skipped"])
        if SANITIZED:
            self.assertIn("owns malloc", rows["flawed/mute_callback", "arm_cancel fresh", "bytes"]["skipped"])

    @unittest.skipIf(SANITIZED, "the sanitizer owns malloc")
    def test_what_does_not_repeat_is_no_figure(self):
        rows, _ = self.run_exact("flawed/unsteady")
        self.assertRegex(rows["flawed/unsteady", "arm_cancel fresh", "allocations"]["skipped"],
                         r"does not repeat: two passes gave \d+ and \d+")
        self.assertIn("samples", rows["flawed/unsteady", "random_durations", "fires_lost"])


class Instructions(Folders):
    def run_script(self, *arguments, script_bin=BIN, **environment):
        return subprocess.run([sys.executable, "-B", ROOT / "scripts" / "instructions", "--bin", script_bin, "--out",
                               self.folder / "out", *arguments], check=False, env=os.environ | environment, capture_output=True,
                              text=True, timeout=280)

    def assert_one_line_exit_2(self, result, *words):
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def counted(self, services, turns):
        arguments = [word for service in services for word in ("--service", service)]
        result = self.run_script(*arguments, EXACT_TEST_TURNS=str(turns))
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        rows, report = self.read(self.folder / "out" / "instructions.json")
        self.assertEqual({row["metric"] for row in report["rows"]}, {"instructions"})
        self.assertEqual({row["unit"] for row in report["rows"]}, {"instr/op"})
        self.assertEqual(result.stdout, (self.folder / "out" / "instructions.txt").read_text(encoding="utf-8"))
        return rows

    def figure(self, rows, service, case="arm_cancel steady"):
        self.assertIn("samples", rows[service, case, "instructions"], rows[service, case, "instructions"])
        return rows[service, case, "instructions"]["samples"][0]

    @unittest.skipIf(SANITIZED, "valgrind cannot run sanitized binaries")
    @unittest.skipIf(shutil.which("valgrind") is None, "valgrind is not installed")
    def test_two_percent_more_are_seen_and_the_rest_repeats(self):
        service = "flawed/executes"
        # With no turn at all the compiler's code skips more than the loop.
        base = self.counted([service, "flawed/none"], 1)
        turn = (self.figure(self.counted([service], 101), service) - self.figure(base, service)) / 100
        turns = round(0.02 * self.figure(base, service) / turn)
        self.assertGreaterEqual(turns, 1)
        rows = self.counted([service, "flawed/none", "flawed/allocates", "flawed/few_timers", "flawed/in_real_time"], 1 + turns)
        for case in ("arm_cancel steady", "window oldest steady", "window random steady"):
            with self.subTest(case=case):
                self.assertAlmostEqual(self.figure(rows, "flawed/none", case) / self.figure(base, "flawed/none", case), 1, delta=1e-3)
                share = self.figure(rows, service, case) / self.figure(base, service, case) - 1
                # The gate's threshold is 1 %. A turn of the loop is up to 1 % itself.
                self.assertTrue(0.012 < share < 0.028, share)
        self.assertGreater(self.figure(rows, "flawed/allocates"), self.figure(rows, "flawed/none"))
        self.assertIn("at most 10", rows["flawed/few_timers", "arm_cancel steady", "instructions"]["skipped"])
        self.assertIn("takes no manual clock", rows["flawed/in_real_time", "window oldest steady", "instructions"]["skipped"])

    def test_without_valgrind(self):
        if SANITIZED:
            self.assert_one_line_exit_2(self.run_script(), "sanitizer", str(SPECIMEN))
        else:
            self.assert_one_line_exit_2(self.run_script(PATH=str(self.folder)), "valgrind is not installed", "apt-get install")
        self.assertFalse((self.folder / "out" / "instructions.json").exists())

    def test_what_the_user_got_wrong(self):
        self.assert_one_line_exit_2(self.run_script(script_bin=self.folder), str(self.folder), "bench_exact")
        self.assert_one_line_exit_2(self.run_script("--services", "x"), "--services")
        if shutil.which("valgrind") and not SANITIZED:
            self.assert_one_line_exit_2(self.run_script("--service", "nonsense"), "nonsense")
            (self.folder / "file").write_text("", encoding="utf-8")
            self.assert_one_line_exit_2(self.run_script("--out", self.folder / "file"), str(self.folder / "file"))
            self.assertEqual(sorted(os.listdir(self.folder)), ["file", "out"])

    @contextlib.contextmanager
    def stand_in(self, body):
        """A valgrind that does as `body` says; DUMPS is the prefix of the dumps, OUT the folder of the report."""
        folder = self.folder / "stand in"
        folder.mkdir()
        path = folder / "valgrind"
        path.write_text('#!/bin/bash\n[[ $1 != --version ]] || { echo valgrind-9; exit; }\n'
                        'for word; do [[ $word != --callgrind-out-file=* ]] || DUMPS=${word#*=}; done\nOUT=${DUMPS%/*}\n' + body,
                        encoding="utf-8")
        path.chmod(0o755)
        yield {"PATH": f"{folder}:{os.environ['PATH']}"}
        shutil.rmtree(folder)

    @unittest.skipIf(SANITIZED, "refused before valgrind is started")
    def test_results_that_are_none(self):
        binary = f"'{SPECIMEN}' --instructions --out \"$OUT\" --service flawed/none >/dev/null\n"
        dumps = 'for n in {1..12}; do echo "totals: %s" >"$DUMPS.$n"; done\n'
        for body, words in (("echo boom >&2; exit 9\n", ["exit code 9", "boom"]), ("kill -SEGV $$\n", ["signal 11"]),
                            ("exit 0\n", ["no usable report"]), (binary, ["no dump 'callgrind.1'"]),
                            (binary + dumps % "x", ["is no dump"]),
                            (binary + dumps % "5" + 'echo "totals: 7" >"$DUMPS.13"\n', ["more than the 12 regions"])):
            with self.subTest(body=body), self.stand_in(body) as environment:
                self.assert_one_line_exit_2(self.run_script(**environment), *words)
        for body, reason in ((binary + dumps % "0", "nothing was counted"),
                             (binary + dumps % "$((200000 + n % 2 * 1000))", "does not repeat")):
            with self.subTest(body=body), self.stand_in(body) as environment:
                self.assertEqual(self.run_script(**environment).returncode, 0)
                rows, _ = self.read(self.folder / "out" / "instructions.json")
                self.assertIn(reason, rows["floor/empty", "arm_cancel steady", "instructions"]["skipped"])


if __name__ == "__main__":
    unittest.main()
