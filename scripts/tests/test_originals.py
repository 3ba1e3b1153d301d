"""scripts/originals with stand-ins for the programs of the originals: no toolchain is needed, nothing is measured."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import judging_reports as made
import numpy as np

from judging import reports
from originals_lib import lines, merging, published, reaching, systems, tables

# Prints what its files hold. NAME.sh is run instead where it is there.
RUN = r"""#!/bin/bash
here=$(cd "$(dirname "$0")" && pwd)
echo "${*:2}" >>"$here/calls"
shift
case $1 in
--experiment) name=$2 ;;
*) name=${1#--} ;;
esac
if [[ -f $here/$name.sh ]]; then . "$here/$name.sh"; exit; fi
[[ $1 == --list ]] || echo '{"versions": {"'"$(basename "$here")"'": "1.2.3"}}'
if [[ -f $here/$name.out ]]; then cat "$here/$name.out"; fi
exit "$(cat "$here/$name.code" 2>/dev/null || echo 0)"
"""
ARTICLE = {"kind": "article", "population": 0, "duration_ms": 1000, "regime": "saturating"}
OURS = ["coarse_slot", "coarse_slot_faithful", "per_thread_wheel", "asio"]


def row(service, samples=None, metric="arm_cancel", case=None, unit="ns/op", **fields):
    whole = {"service": service, "case": ARTICLE if case is None else case, "metric": metric, "unit": unit}
    if samples is not None:
        whole |= {"samples": samples}
    return whole | fields


def text_of(*rows):
    return "".join(json.dumps({"row": entry}) + "\n" for entry in rows)


def checks_of(names, bad=()):
    return "".join(json.dumps({"check": {"name": "a timeout fires", "service": name, "ok": name not in bad,
                                         "detail": "it did not" if name in bad else "20 ms"}}) + "\n" for name in names)


class Stubs(unittest.TestCase):
    """A checkout with the scripts, and a folder of programs that a test fills."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench originals ")
        self.addCleanup(holder.cleanup)
        self.top = pathlib.Path(holder.name).resolve()
        self.checkout = self.top / "a checkout"
        for name in ("judging", "originals_lib"):
            shutil.copytree(made.SCRIPTS / name, self.checkout / "scripts" / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(made.SCRIPTS / "originals", self.checkout / "scripts" / "originals")
        (self.checkout / "harness").mkdir()
        shutil.copy(reports.SCHEMA_PATH, self.checkout / "harness" / "report.schema.json")
        self.programs = self.top / "programs"
        self.out = self.top / "out"
        (self.top / "tmp").mkdir()
        self.program("ours", OURS, [20.0, 21.0, 22.0])
        self.write("ours", "environment.out", json.dumps({"environment": made.environment()}) + "\n")

    def program(self, name, names, samples=(600.0, 610.0), build="exit 0"):
        """A program that gives these samples in every experiment."""
        folder = self.programs / name
        folder.mkdir(parents=True)
        for experiment in systems.EXPERIMENTS:
            self.write(name, f"{experiment}.out", text_of(*(row(one, list(samples), clock_ns=[25.0] * len(samples)) for one in names)))
        self.write(name, "list.out", "".join(f"{one}\n" for one in names))
        self.write(name, "verify.out", checks_of(names))
        for command, text in (("build", f"#!/bin/bash\n{build}\n"), ("run", RUN)):
            self.write(name, command, text)
            (folder / command).chmod(0o755)

    def write(self, program, name, text):
        (self.programs / program / name).write_text(text, encoding="utf-8")

    def calls(self, program):
        path = self.programs / program / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def command(self, *arguments):
        return [sys.executable, str(self.checkout / "scripts" / "originals"), "--programs", str(self.programs), "--out", str(self.out),
                "--no-setup", *arguments]

    def environment(self):
        return os.environ | {"TMPDIR": str(self.top / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run_originals(self, *arguments, code=0):
        result = subprocess.run(self.command("--rounds", "1", *arguments), check=False, capture_output=True, text=True, timeout=120,
                                env=self.environment())
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def report(self, name="arm_cancel"):
        """A report that was written, valid as every report has to be."""
        path = self.out / "originals" / f"{name}.json"
        reports.load(path)
        return json.loads(path.read_text(encoding="utf-8"))

    def rows(self, name="arm_cancel"):
        return {entry["service"]: entry for entry in self.report(name)["rows"]}

    def assert_gone(self, process):
        """The process has ended; whoever inherits it may not have taken note yet."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                state = pathlib.Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            except OSError:
                return
            if state in "ZX":
                return
            time.sleep(0.02)
        self.fail(f"process {process} is still there")

    def assert_nothing_written(self):
        folder = self.out / "originals"
        self.assertEqual(os.listdir(folder) if folder.exists() else [], [])


class Toolchains(Stubs):
    def test_none_is_exit_2_and_says_how_to_get_them(self):
        self.program("rust", ["original/tokio/time_only"], build="echo 'cargo: install rustup' >&2; exit 3")
        self.program("go", ["original/go/context"], build="echo 'go: apt install golang' >&2; exit 3")
        result = self.run_originals(code=2)
        for words in ("no toolchain", "cargo: install rustup", "go: apt install golang"):
            self.assertIn(words, result.stderr)
        self.assert_nothing_written()
        self.assertEqual(self.calls("ours"), [])

    def test_a_missing_one_is_a_row_with_the_reason(self):
        self.program("rust", [], build="echo 'cargo: install rustup' >&2; exit 3")
        self.program("go", ["original/go/context"])
        self.run_originals()
        rows = self.rows()
        for name in systems.SYSTEMS["rust"]:
            self.assertEqual(rows[name]["skipped"], "cargo: install rustup")
        self.assertEqual(rows["original/go/context"]["samples"], [600.0, 610.0])
        self.assertIn("cargo: install rustup", (self.out / "originals" / "arm_cancel.txt").read_text(encoding="utf-8"))
        self.assertIn("cargo: install rustup", (self.out / "originals" / "summary.txt").read_text(encoding="utf-8"))

    def test_a_broken_build_is_an_error_and_the_rest_is_run(self):
        self.program("rust", [], build="echo 'noise'; echo 'error: no such crate' >&2; exit 1")
        self.program("go", ["original/go/context"])
        self.run_originals(code=1)
        rows = self.rows()
        self.assertIn("error: no such crate", rows["original/tokio/time_only"]["error"])
        self.assertIn("samples", rows["original/go/context"])

    def test_ours_broken_is_exit_2(self):
        self.program("go", ["original/go/context"])
        self.write("ours", "build", "#!/bin/bash\nexit 1\n")
        self.assertIn("our own program", self.run_originals(code=2).stderr)
        self.assert_nothing_written()

    def test_only(self):
        self.program("rust", ["original/tokio/time_only"])
        self.program("go", ["original/go/context"])
        self.run_originals("--only", "go")
        self.assertEqual(self.calls("rust"), [])
        self.assertTrue(self.calls("go"))
        result = self.run_originals("--only", "cobol", code=2)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn("'cobol'", result.stderr)
        self.assertIn("go, rust", result.stderr)


class Visits(Stubs):
    def setUp(self):
        super().setUp()
        self.name = "original/go/context"
        self.program("go", [self.name, "original/go/after_func"])

    def test_all_is_well(self):
        result = self.run_originals("--seed", "7")
        report = self.report()
        self.assertEqual((report["seed"], report["quick"], report["marks"]), (7, True, ["QUICK RUN"]))
        self.assertEqual(report["environment"]["libraries"], {"ours": "1.2.3", "go": "1.2.3"})
        self.assertTrue(all(check["ok"] for check in report["checks"]))
        self.assertIn("Numbers to reach", result.stdout)
        self.assertEqual(result.stdout, (self.out / "originals" / "summary.txt").read_text(encoding="utf-8"))
        # Measured beside the original and once with all others; the soak is not one of Go's experiments.
        self.assertEqual(len(self.rows()["coarse_slot"]["samples"]), 6)
        self.assertEqual(self.rows()["coarse_slot"]["visits"], [0] * 3 + [1] * 3)
        self.assertEqual(len(self.rows()["asio"]["samples"]), 3)
        self.assertEqual(len(self.rows("memory")["coarse_slot"]["samples"]), 3)
        self.assertFalse(any("soak" in call for call in self.calls("go")))
        self.assertTrue(all("--seed 7" in call and "--quick" in call for call in self.calls("go") if "--experiment" in call))

    def test_a_failed_verification_is_not_timed(self):
        self.write("go", "verify.out", checks_of([self.name, "original/go/after_func"], bad=[self.name]))
        self.write("go", "verify.code", "1")
        self.run_originals(code=1)
        rows = self.rows()
        self.assertEqual([entry for entry in self.report()["rows"] if entry["service"] == self.name], [rows[self.name]])
        self.assertIn("a timeout fires: it did not", rows[self.name]["error"])
        self.assertIn("samples", rows["original/go/after_func"])
        for call in self.calls("go"):
            if "--experiment" in call:
                self.assertIn("--system original/go/after_func", call)
                self.assertNotIn("--system original/go/context", call)

    def test_a_verification_that_crashes_times_nothing(self):
        self.write("go", "verify.sh", "echo 'panic: no' >&2; exit 2")
        self.run_originals(code=1)
        self.assertIn("panic: no", self.rows()[self.name]["error"])
        self.assertFalse(any("--experiment" in call for call in self.calls("go")))

    def test_a_system_that_verify_leaves_out_is_not_timed(self):
        self.write("go", "verify.out", checks_of([self.name]))
        self.run_originals(code=1)
        self.assertIn("says nothing", self.rows()["original/go/after_func"]["error"])

    def test_bad_lines(self):
        good = text_of(row(self.name, [600.0]))
        for bad, words in (("panic!\n", "line 3"), ('{"row": {"service": "x"}}\n', "line 3"),
                           (text_of(row(self.name, [float("nan")])), "NaN"), (text_of(row(self.name, [])), "no samples"),
                           (text_of(row(self.name, [1.0], skipped="why")), "it needs one"),
                           (text_of(row(self.name, [1.0], clock_ns=[1.0, 2.0])), "clock_ns"), ('{"rows": 1}\n', "'rows'")):
            with self.subTest(bad=bad):
                self.write("go", "arm_cancel.out", good + bad)
                self.run_originals(code=1)
                self.assertIn("no visit gave figures", self.rows()[self.name]["error"])
                failed = [check for check in self.report()["checks"] if not check["ok"]]
                self.assertEqual([check["service"] for check in failed], ["go"])
                self.assertIn(words, failed[0]["detail"])
                self.assertIn("samples", self.rows("memory")[self.name])

    def test_a_program_that_hangs_is_ended(self):
        self.write("go", "arm_cancel.sh", f"sleep 600 & echo $! >'{self.top}/sleeper'; wait")
        begun = time.monotonic()
        self.run_originals("--limit", "1", code=1)
        self.assertLess(time.monotonic() - begun, 90)
        self.assertIn("did not end within 1 s", json.dumps(self.report()["checks"]))
        self.assert_gone(int((self.top / "sleeper").read_text()))

    def test_a_crash_is_no_failed_check(self):
        for code in (1, 3, 134):
            with self.subTest(code=code):
                self.write("go", "arm_cancel.sh", f"echo 'Exception in thread main' >&2; exit {code}")
                self.run_originals(code=1)
                failed = [check["detail"] for check in self.report()["checks"] if not check["ok"]]
                self.assertEqual(len(failed), 1, failed)
                self.assertIn("Exception in thread main", failed[0])

    def test_error_rows_make_the_exit_code_1(self):
        self.write("go", "arm_cancel.out", text_of(row(self.name, error="wrong work"), row("original/go/after_func", [180.0, 182.0])))
        self.write("go", "arm_cancel.code", "1")
        self.run_originals(code=1)
        self.assertEqual(self.rows()[self.name]["error"], "wrong work")

    def test_rounds_are_joined(self):
        self.run_originals("--rounds", "3")
        found = self.rows()[self.name]
        self.assertEqual(found["samples"], [600.0, 610.0] * 3)
        self.assertEqual(found["clock_ns"], [25.0] * 6)
        self.assertEqual(found["visits"], [0, 0, 1, 1, 2, 2])
        self.assertEqual(sorted(set(found["visit_order"])), sorted(found["visit_order"])[::2])
        self.assertEqual((found["n"], found["p50"], found["min"]), (6, 605.0, 600.0))
        rounds = [call.split("--round ")[1].split()[0] for call in self.calls("go") if "arm_cancel" in call]
        self.assertEqual(rounds, ["0", "1", "2"])

    def test_what_gives_no_figures_is_an_error(self):
        self.write("go", "arm_cancel.out", text_of(row(self.name, [600.0])))
        self.run_originals(code=1)
        self.assertEqual(self.rows()["original/go/after_func"]["error"], "no visit gave figures of it")

    def test_what_an_earlier_run_left_is_replaced_whole(self):
        folder = self.out / "originals"
        folder.mkdir(parents=True)
        (folder / "soak.json").write_text("old", encoding="utf-8")
        (folder / "mine.txt").write_text("mine", encoding="utf-8")
        for program in ("ours", "go"):
            (self.programs / program / "soak.out").unlink()
        self.run_originals()
        self.assertNotIn("soak.json", os.listdir(folder))
        self.assertEqual((folder / "mine.txt").read_text(encoding="utf-8"), "mine")
        self.assertFalse([name for name in os.listdir(folder) if name.startswith(".")])
        self.assertEqual(os.listdir(self.top / "tmp"), [])

    def test_a_folder_that_cannot_be_written(self):
        self.out.write_text("a file", encoding="utf-8")
        result = self.run_originals(code=2)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertEqual(self.calls("go"), [])

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number=number):
                marker = self.top / "sleeper"
                marker.unlink(missing_ok=True)
                self.write("go", "arm_cancel.sh", f"sleep 600 & echo $! >'{marker}.new'; mv '{marker}.new' '{marker}'; wait")
                child = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())
                deadline = time.monotonic() + 60
                while not marker.exists() and time.monotonic() < deadline:
                    time.sleep(0.02)
                child.send_signal(number)
                output, errors = child.communicate(timeout=60)
                self.assertEqual((child.returncode, output), (130, ""), errors)
                self.assertIn("nothing was written", errors)
                self.assertNotIn("Traceback", errors)
                self.assert_nothing_written()
                self.assert_gone(int(marker.read_text()))

    def test_the_table(self):
        self.run_originals()
        result = subprocess.run([*self.command(), "--table", str(self.out / "originals")], check=True, capture_output=True, text=True, timeout=60)
        self.assertTrue(result.stdout.startswith("| | original | published |"))
        self.assertIn("| `libev/timer` |", result.stdout)
        self.assertIn("144", result.stdout)
        result = subprocess.run([*self.command(), "--table", str(self.top / "nowhere")], check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)


class Lines(unittest.TestCase):
    def test_what_is_read(self):
        output = lines.parse('{"versions": {"go": "1.19"}}\n\n' + text_of(row("s", [1, 2.5], clock_ns=[20.0, 21.0], note="n"))
                             + checks_of(["s"]) + '{"environment": {"cpu": {}}}\n')
        self.assertEqual(output.versions, {"go": "1.19"})
        self.assertEqual(output.rows[0]["samples"], [1, 2.5])
        self.assertEqual(output.environment, {"cpu": {}})
        self.assertTrue(output.checks[0]["ok"])

    def test_what_is_refused(self):
        for text in ("[]", "{}", "1", '{"row": 1}', text_of(row("", [1.0])), text_of(row("s", [True])), text_of(row("s", [1.0], clock_ns=[0.0])),
                     text_of(row("s", skipped="")), text_of(row("s")), '{"row": {"samples": [1e999]}}', '{"check": {"name": "x"}}',
                     '{"versions": {"go": 1}}', '{"environment": 1}', text_of(row("s", [1.0], note=1))):
            with self.subTest(text=text), self.assertRaises(lines.BadOutput):
                lines.parse(text)


class Merging(unittest.TestCase):
    def joined(self, *visits):
        rows = merging.Rows()
        for number, visit in enumerate(visits):
            rows.add_visit("go", number, list(visit))
        return rows.to_json()

    def test_figures(self):
        found, = self.joined([row("s", [10.0, 30.0], clock_ns=[10.0, 10.0])], [row("s", [20.0, 40.0], clock_ns=[10.0, 20.0])])
        self.assertEqual((found["n"], found["p50"], found["min"], found["max"], found["mean"]), (4, 25.0, 10.0, 40.0, 25.0))
        self.assertEqual(found["clock_ratio"]["p50"], 2.0)
        self.assertEqual(found["visits"], [0, 0, 1, 1])
        self.assertAlmostEqual(found["aa_gap"], 10.0 / 25.0)

    def test_cases_are_equal_whatever_their_order(self):
        found = self.joined([row("s", [1.0], case={"a": 1, "b": 2.0})], [row("s", [2.0], case={"b": 2, "a": 1})])
        self.assertEqual([entry["samples"] for entry in found], [[1.0, 2.0]])

    def test_an_error_in_one_visit_is_one_of_the_row(self):
        found, = self.joined([row("s", [1.0])], [row("s", error="lost count")])
        self.assertEqual(found["error"], "lost count")
        self.assertNotIn("samples", found)

    def test_samples_outweigh_a_skip(self):
        found, = self.joined([row("s", skipped="not now")], [row("s", [1.0])])
        self.assertEqual(found["samples"], [1.0])

    def test_what_does_not_fit_together(self):
        self.assertIn("unit", self.joined([row("s", [1.0])], [row("s", [1.0], unit="ms")])[0]["error"])
        self.assertIn("clock_ns", self.joined([row("s", [1.0])], [row("s", [1.0], clock_ns=[2.0])])[0]["error"])
        self.assertIn("twice", self.joined([row("s", [1.0]), row("s", [2.0])])[0]["error"])

    def test_events_have_high_percentiles(self):
        found, = self.joined([row("s", list(map(float, range(101))), single_events=True)])
        self.assertEqual((found["p90"], found["p99"]), (90.0, 99.0))
        few, = self.joined([row("s", [1.0, 2.0], single_events=True)])
        self.assertIsNone(few["p99"])

    def test_the_interval_covers_the_median(self):
        random = np.random.default_rng(5)
        for size, visits in ((10, 5), (30, 3), (1000, 5)):
            misses = 0
            for _ in range(200):
                samples = random.normal(100, 5, size)
                low, high = merging.median_interval(samples, np.arange(size) // (size // visits))
                misses += not low <= 100 <= high
            self.assertLess(misses, 40, (size, visits))
        self.assertIsNone(merging.median_interval(np.array([1.0]), np.array([0])))


class Reaching(unittest.TestCase):
    def documents(self, ours, original, **more):
        rows = merging.Rows()
        for number in range(5):
            noise = 1 + 0.01 * (number % 3)
            rows.add_visit("x", number, [row(name, [value * noise] * 3, metric=metric, clock_ns=[25.0] * 3)
                                         for name, value in {**ours, **original}.items() for metric in ("arm_cancel", "process_cpu")])
        return {"arm_cancel": {"rows": rows.to_json()}} | more

    def finding(self, documents, words):
        return next(found for found in reaching.judge(documents) if words in found.what)

    def test_a_ratio_is_reached_or_missed(self):
        for value, verdict in ((30.0, reaching.REACHED), (90.0, reaching.MISSED), (80.0, reaching.UNDECIDED)):
            documents = self.documents({"coarse_slot": value}, {"original/pingora/fast_timeout": 200.0})
            self.assertEqual(self.finding(documents, "fast_timeout, arm + cancel, 0 others").verdict, verdict, value)

    def test_the_cheapest_for_any_thread_is_no_loop(self):
        documents = self.documents({"per_thread_wheel": 20.0}, {"original/libev/timer": 17.0, "original/tokio/time_only": 100.0,
                                                                "original/go/context": 600.0})
        found = self.finding(documents, "cheapest original for any thread, CPU of the process, 0 others")
        self.assertEqual(found.verdict, reaching.REACHED)
        self.assertIn("tokio", found.detail)

    def ready(self, ours, theirs):
        rows = merging.Rows()
        rows.add_visit("x", 0, [row(name, list(samples), metric="above_bare", case={"kind": "ready", "duration_ms": 1000})
                                for name, samples in (("per_thread_wheel", ours), ("original/tokio/time_only", theirs))])
        return next(one.verdict for one in reaching.judge({"ready_path": {"rows": rows.to_json()}}) if "ready path" in one.what)

    def test_the_ready_path_may_cost_nothing(self):
        self.assertEqual(self.ready([1.9, 1.91, 1.92], [20.0, 20.1, 20.2]), reaching.REACHED)
        self.assertEqual(self.ready([1.9, 1.91, 1.92], [0.5, 0.51, 0.52]), reaching.MISSED)
        self.assertEqual(self.ready([-2.0, 1.9, 4.0], [-3.0, 0.5, 4.0]), reaching.UNDECIDED)
        self.assertEqual(self.ready([1.9], [0.5]), reaching.UNMEASURED)

    def test_what_is_not_there_is_not_measured(self):
        found = self.finding(self.documents({"coarse_slot": 30.0}, {}), "fast_timeout, arm + cancel, 0 others")
        self.assertEqual((found.verdict, "no row" in found.detail), (reaching.UNMEASURED, True))
        self.assertTrue(all(one.verdict == reaching.UNMEASURED for one in reaching.judge({})))

    def accuracy(self, ours, theirs, visits=4):
        rows = merging.Rows()
        for visit in range(visits):
            rows.add_visit("x", visit, [row(name, samples, metric="callback_start", case={"duration_ms": duration}, unit="ms", single_events=True)
                                        for duration in reaching.DURATIONS_MS
                                        for name, samples in (("coarse_slot_faithful", ours), ("original/pingora/fast_timeout", theirs))])
        return [one.verdict for one in reaching.judge({"accuracy": {"rows": rows.to_json()}}) if "lateness" in one.what]

    def test_the_shape_of_the_lateness(self):
        self.assertEqual(self.accuracy([-0.5, 9.0, 12.0], [-0.2, 10.0, 15.0]), [reaching.REACHED] * 6)
        self.assertEqual(self.accuracy([-0.5, 6.0, 12.0], [0.2, 10.0, 15.0]), [reaching.MISSED] * 5 + [reaching.UNDECIDED])
        # Few visits have seen few phases of the clocks.
        self.assertEqual(self.accuracy([-0.5, 6.0, 12.0], [0.2, 10.0, 15.0], visits=3), [reaching.UNDECIDED] * 6)
        self.assertEqual(self.accuracy([-0.5, 9.0, 12.0], [-0.2, 10.0, 15.0], visits=1), [reaching.REACHED] * 6)

    def test_the_time_it_took(self):
        self.assertEqual(reaching.judge_time(299, quick=True).verdict, reaching.REACHED)
        self.assertEqual(reaching.judge_time(301, quick=True).verdict, reaching.MISSED)
        self.assertEqual(reaching.judge_time(301, quick=False).verdict, reaching.REACHED)


class Published(unittest.TestCase):
    def test_every_figure_names_known_systems_and_its_source(self):
        known = {name for names in systems.SYSTEMS.values() for name in names}
        for entry in published.read()["figures"]:
            self.assertIn(entry["experiment"], systems.EXPERIMENTS)
            for pair in entry["of"]:
                self.assertIn(pair["original"], known)
                self.assertEqual(pair["published"] is None, pair["source"] == "", pair)

    def test_the_text_of_a_table(self):
        rows = merging.Rows()
        rows.add_visit("x", 0, [row("coarse_slot", [40.0, 41.0], clock_ns=[20.0, 20.0]), row("original/go/context", [600.0, 610.0], note="warm"),
                                row("original/node/abort_signal", skipped="cannot be cancelled")])
        for population in (10_000, 1_000_000):
            rows.add_visit("x", 1, [row("coarse_slot", [1.0], case=ARTICLE | {"population": population})])
        rows.add_visit("x", 2, [row("coarse_slot", [3.0], metric="allocations", unit="1/op", clock_ns=[20.0])])
        document = made.document("arm_cancel", rows.to_json()) | {"parameters": {"rounds": 1, "versions": {"go": "1.19"}}}
        text = tables.experiment_text(document)
        self.assertLess(text.index("coarse_slot"), text.index("original/go/context"))
        for words in ("cannot be cancelled", "warm", "2.02", "14.94", "go 1.19"):
            self.assertIn(words, text)
        places = [text.index(words) for words in ("population 0,", "population 10000,", "population 1000000,", "allocations,")]
        self.assertEqual(places, sorted(places))
        self.assertNotIn("x clock", text[places[-1]:])


if __name__ == "__main__":
    unittest.main()
