"""scripts/reproduce with bench binaries that do what a test asks of them."""

import json
import os
import signal
import subprocess
import time
import unittest

from sandbox import SandboxTest

EXPERIMENTS = ["ready_path", "arm_cancel", "allocs", "scaling", "accuracy", "lost_wakeup"]

# Notes its arguments, writes its report, ends with the code in state/exit-<name>; becomes state/sleep-<name> if there is one.
BENCH = r"""
name=${0##*/bench_}
echo "$name $*" >>"$STATE/bench-calls"
while (($#)); do [[ $1 != --out ]] || out=$2; shift; done
[[ ! -e $STATE/sleep-$name ]] || exec python3 "$STATE/sleep-$name"
echo "table of $name" | tee "$out/$name.txt"
cat >"$out/$name.json" <<JSON
{"schema": "timerbench.report/1", "experiment": "$name", "quick": true, "seed": 1, "environment": {}, "parameters": {},
 "rows": [{"service": "coarse_slot", "case": {}, "metric": "x", "unit": "ns/op", "skipped": "not measured"}],
 "checks": [{"name": "c", "service": "", "ok": true, "detail": ""}]}
JSON
[[ ! -e $STATE/exit-$name ]] || exit "$(cat "$STATE/exit-$name")"
"""

# Waits for a signal, counts how often it comes within half a second, notes that and ends like a bench binary.
SLEEPER = """
import os, signal, time
folder = os.environ["STATE"]
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, handler)
signal.signal(signal.SIGTERM, handler)
open(folder + "/sleeping", "w").write(str(os.getpid()))
while count == 0:
    time.sleep(0.01)
end = time.monotonic() + 0.5
while time.monotonic() < end:
    time.sleep(0.01)
open(folder + "/signals", "w").write(str(count))
os._exit(130)
"""


class Reproduce(SandboxTest):
    def setUp(self):
        super().setUp()
        self.stand_in("cmake", 'echo "$*" >>"$STATE/cmake-calls"; [[ ! -e $STATE/build-fails ]]')
        self.bench_folder = self.checkout / "build" / "release" / "bin"
        for name in EXPERIMENTS + ["zzz", "another"]:
            self.program(self.bench_folder / f"bench_{name}", BENCH)
        self.program(self.bench_folder / "timers_tests", "exit 9")

    def calls(self):
        return [call.split(" ", 1) for call in self.noted("bench-calls")]

    def names(self):
        return [name for name, _ in self.calls()]

    def test_runs_everything_in_order_and_leaves_reports(self):
        result = self.run_script("reproduce")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertEqual(self.names(), EXPERIMENTS + ["another", "zzz"])
        out = self.checkout / "out"
        for name in EXPERIMENTS:
            self.assertTrue((out / f"{name}.json").is_file())
            self.assertTrue((out / f"{name}.txt").is_file())
        self.assertIn("experiment", (out / "summary.txt").read_text(encoding="utf-8"))
        self.assertTrue(all(arguments == f"--quick --out {out}" for _, arguments in self.calls()), self.calls())
        self.assertIn("setup: nothing to do", result.stdout)
        self.assert_no_temporary_files()

    def test_can_be_run_again(self):
        self.run_script("reproduce")
        self.assertEqual(self.run_script("reproduce").returncode, 0)

    def test_full_is_not_quick(self):
        self.assertEqual(self.run_script("reproduce", "--full").returncode, 0)
        self.assertTrue(all("--quick" not in arguments for _, arguments in self.calls()))

    def test_out_is_relative_to_the_callers_folder(self):
        self.run_script("reproduce", "--out", "my reports/1")
        self.assertTrue((self.elsewhere / "my reports" / "1" / "allocs.json").is_file())
        self.assertFalse((self.checkout / "out").exists())

    def test_builds_release_with_the_jobs_asked_for(self):
        self.run_script("reproduce", "--jobs=3")
        configured, built = self.noted("cmake-calls")
        self.assertEqual(configured, "--preset release")
        self.assertIn("--build --preset release --parallel 3", built)

    def test_a_failing_experiment_stops_no_other_and_shows(self):
        self.flag("exit-arm_cancel", "1")
        result = self.run_script("reproduce")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(self.names()), 8)
        self.assertIn("a check failed", result.stdout)

    def test_the_worst_code_counts(self):
        for codes, expected in (({"allocs": 3, "scaling": 1}, 1), ({"allocs": 1, "zzz": 2}, 2),
                                ({"ready_path": 2, "accuracy": 3}, 2), ({"allocs": 3}, 3), ({"allocs": 77, "zzz": 1}, 77)):
            with self.subTest(codes=codes):
                for path in self.state.glob("exit-*"):
                    path.unlink()
                for name, code in codes.items():
                    self.flag(f"exit-{name}", str(code))
                self.assertEqual(self.run_script("reproduce").returncode, expected)

    def test_a_report_of_an_earlier_run_is_not_taken_for_a_new_one(self):
        self.run_script("reproduce")
        old = time.time() - 3600
        os.utime(self.checkout / "out" / "allocs.json", (old, old))
        self.program(self.bench_folder / "bench_allocs", "exit 2")
        result = self.run_script("reproduce")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stdout, r"(?m)^\s*allocs .*earlier run")

    def test_failed_build_runs_nothing(self):
        self.flag("build-fails")
        result = self.run_script("reproduce")
        self.assertEqual(result.returncode, 1)
        self.assertIn("failed", result.stderr)
        self.assertEqual(self.calls(), [])

    def test_no_experiments_is_a_failure(self):
        for path in self.bench_folder.glob("bench_*"):
            path.unlink()
        self.assertEqual(self.run_script("reproduce").returncode, 1)

    def test_failed_setup_ends_it(self):
        self.installed([])
        self.flag("apt-fails")
        self.assert_one_line_exit_2(self.run_script("reproduce"), "E: Unable")
        self.assertEqual(self.calls(), [])

    def test_bad_options(self):
        for arguments, word in ((["--fast"], "--fast"), (["--jobs", "0"], "'0'"), (["--jobs", "two"], "'two'"),
                                (["--jobs", "-1"], "'-1'"), (["--jobs", "99999999999999999999"], "9999"),
                                (["--jobs", ""], "''"), (["--jobs"], "--jobs"), (["--out"], "--out"),
                                (["--out", ""], "''"), (["--jobs=1.5"], "'1.5'"), (["stray"], "'stray'")):
            with self.subTest(arguments=arguments):
                result = self.run_script("reproduce", *arguments)
                self.assert_one_line_exit_2(result, word)
                self.assertEqual(self.calls(), [])

    def test_octal_looking_jobs_are_decimal(self):
        self.assertEqual(self.run_script("reproduce", "--jobs", "08").returncode, 0)
        self.assertIn("--parallel 8", self.noted("cmake-calls")[-1])

    def test_out_that_is_a_file_or_below_one(self):
        (self.elsewhere / "file").write_text("", encoding="utf-8")
        self.assert_one_line_exit_2(self.run_script("reproduce", "--out", "file"), "file", "not a folder")
        self.assert_one_line_exit_2(self.run_script("reproduce", "--out", "file/below"), "file/below")
        self.assert_one_line_exit_2(self.run_script("reproduce", "--out", "/proc/nothing"), "/proc/nothing")
        self.assertEqual(self.calls(), [])

    def test_interrupt_reaches_the_experiment_once_and_keeps_reports(self):
        self.run_script("reproduce")
        before = (self.checkout / "out" / "scaling.json").read_bytes()
        self.flag("sleep-scaling", SLEEPER)
        (self.state / "bench-calls").unlink()
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.subTest(signal=number):
                (self.state / "signals").unlink(missing_ok=True)
                (self.state / "sleeping").unlink(missing_ok=True)
                process = subprocess.Popen(self.command("reproduce"), cwd=self.elsewhere, env=self.environment,
                                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                self.wait_for(self.state / "sleeping")
                process.send_signal(number)
                _, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, code, errors)
                self.assertIn("interrupted", errors)
                with self.assertRaises(ProcessLookupError):
                    os.kill(int(self.noted("sleeping")[0]), 0)
                self.assertEqual(self.noted("signals"), ["1"])
        self.assertNotIn("accuracy", self.names())
        self.assertEqual((self.checkout / "out" / "scaling.json").read_bytes(), before)
        self.assertEqual(json.loads(before)["experiment"], "scaling")
        self.assert_no_temporary_files()

    def test_experiment_that_was_interrupted_ends_the_run(self):
        self.flag("exit-allocs", "130")
        self.assertEqual(self.run_script("reproduce").returncode, 130)
        self.assertEqual(self.names()[-1], "allocs")

    def wait_for(self, path):
        limit = time.monotonic() + 60
        while not path.exists() or not path.read_text(encoding="utf-8").strip():
            self.assertLess(time.monotonic(), limit, f"{path} did not appear")
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
