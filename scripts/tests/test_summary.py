"""scripts/summary: figures that are there, figures that are not, and files that are no reports."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from sandbox import SCRIPTS


def row(service, metric, case=None, **fields):
    return {"service": service, "case": case or {}, "metric": metric, "unit": "ns/op", **fields}


def report(experiment, rows, checks=(), **fields):
    return {"schema": "timerbench.report/1", "experiment": experiment, "quick": False, "seed": 1, "environment": {},
            "parameters": {}, "rows": list(rows), "checks": list(checks), **fields}


class Summary(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench summary ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, name, content):
        path = self.folder / f"{name}.json"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    def run_summary(self, *arguments):
        result = subprocess.run([sys.executable, SCRIPTS / "summary", *arguments, self.folder], check=False,
                                capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", result.stderr)
        return result

    def cells(self, output, service):
        for line in output.splitlines():
            if line.split()[:1] == [service]:
                return line.split()[1:]
        self.fail(f"no line of {service} in\n{output}")

    def test_figures(self):
        self.write("arm_cancel", report("arm_cancel", [
            row("floor/steady_clock", "arm_cancel", p50=28.0),
            row("coarse_slot", "arm_cancel", {"kind": "article", "population": 0}, p50=99.0, clock_ratio={"p50": 9.0}),
            row("coarse_slot", "arm_cancel", {"kind": "window", "population": 64}, p50=98.0, clock_ratio={"p50": 8.0}),
            row("coarse_slot", "arm_cancel", {"kind": "window", "population": 0}, p50=41.25, clock_ratio={"p50": 1.5}),
            row("coarse_slot", "arm", {"kind": "window", "population": 0}, p50=97.0)]))
        self.write("scaling", report("scaling", [
            row("coarse_slot", "cpu_ratio", {"timers": "handed over", "workers": 8, "to_workers": 1}, p50=9.0),
            row("coarse_slot", "cpu_ratio", {"timers": "own", "workers": 8, "to_workers": 1}, p50=1.25)]))
        self.write("accuracy", report("accuracy", [
            row("coarse_slot", "callback_start", {"environment": "busy", "duration_ms": 10}, p50=1.0, p90=2.0, min=3.0),
            row("coarse_slot", "callback_start", {"environment": "idle", "duration_ms": 10}, p50=5.25, p90=9.5, min=0.125)]))
        self.write("lost_wakeup", report("lost_wakeup", [
            row("coarse_slot", "stopped_tasks", {"seam": "held open"}, p50=7),
            row("coarse_slot", "stopped_tasks", {"seam": "closed"}, p50=0)]))
        result = self.run_summary()
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        cells = self.cells(result.stdout, "coarse_slot")
        self.assertEqual(cells[:2], ["41.2", "1.50"])
        self.assertEqual(cells[5:], ["1.25", "5.25", "9.50", "0.125", "0"])
        self.assertTrue(all(cell.startswith("-") for cell in cells[2:5]), cells)
        self.assertIn("no report of allocs", result.stdout)
        self.assertNotIn("floor/", result.stdout)

    def test_declared_services_leave_helper_rows_out(self):
        self.write("accuracy", report("accuracy", [row("a/b", "lateness", p50=1), row("clock_nanosleep", "lateness", p50=1)],
                                      parameters={"services": {"a/b": {}}}))
        output = self.run_summary().stdout
        self.cells(output, "a/b")
        self.assertNotIn("clock_nanosleep", output)

    def test_reasons_of_missing_figures(self):
        self.write("arm_cancel", report("arm_cancel", [
            row("a", "arm_cancel", skipped="at most 256 durations"), row("b", "arm_cancel", error="wrong count"),
            row("c", "arm_cancel", p50=None), row("d", "arm_cancel", p50="12"), row("e", "other", p50=1),
            row("f", "arm_cancel", p50=None, p50_reason="fewer than 100 events")]))
        output = self.run_summary().stdout
        for reason in ("at most 256 durations", "error: wrong count", "arm_cancel has no p50", "arm_cancel has no row arm_cancel",
                       "fewer than 100 events"):
            self.assertIn(reason, output)
        for service in "abcdef":
            self.assertTrue(self.cells(output, service)[0].startswith("-"))

    def test_state_of_each_experiment(self):
        checks = [{"name": "balance", "service": "x", "ok": True}, {"name": "early", "service": "asio", "ok": False}]
        self.write("accuracy", report("accuracy", [row("x", "lateness", error="e"), row("y", "lateness", skipped="s")],
                                      checks, quick=True))
        output = self.run_summary("--ran", "accuracy=1", "--ran", "scaling=139").stdout
        line = next(line for line in output.splitlines() if line.split()[:1] == ["accuracy"])
        for words in ("a check failed", "checks 1 of 2 ok", "asio early", "1 rows in error", "1 skipped", "QUICK RUN"):
            self.assertIn(words, line)
        self.assertRegex(output, r"scaling +exit code 139; did not run")
        self.assertRegex(output, r"ready_path +did not run")

    def test_a_table_alone_says_which_of_its_reports_are_quick(self):
        self.write("arm_cancel", report("arm_cancel", [row("x", "arm_cancel", p50=1)], quick=True, marks=["QUICK RUN", "DEBUG BUILD"]))
        self.write("idle", report("idle", [row("x", "wakeups", p50=1)], quick=True))
        self.write("clocks", report("clocks", [], quick=True))
        self.write("scaling", report("scaling", []))
        for option, quick in (("--table", "arm_cancel"), ("--guide", "arm_cancel, idle")):
            with self.subTest(option=option):
                lines = self.run_summary(option).stdout.splitlines()
                self.assertEqual(lines[-2:], [f"  QUICK RUN, not for quoting: {quick}", "  DEBUG BUILD, not for quoting: arm_cancel"])
        for name in ("arm_cancel", "idle"):
            self.write(name, report(name, [row("x", "wakeups", p50=1)], marks=[]))
        for option in ("--table", "--guide"):
            self.assertNotIn("QUICK", self.run_summary(option).stdout)

    def test_old_report_is_marked(self):
        self.write("allocs", report("allocs", []))
        self.assertIn("earlier run", self.run_summary("--since", "99999999999").stdout)
        self.assertNotIn("earlier run", self.run_summary("--since", "1").stdout)

    def test_one_line_for_each_file_that_is_no_report(self):
        good = json.dumps(report("allocs", [row("x", "m", p50=1)]))
        for content in ("", " ", good[: len(good) // 2], good[:-1], "[]", "null", "{}", '{"schema": 1}', "not json",
                        '{"schema": "other/1", "rows": [], "checks": []}', good.replace('"rows": [', '"rows": [1, '),
                        good.replace('"p50": 1', '"p50": NaN'), b"\xff\xfe\x00", "[" * 100000,
                        '{"schema": "timerbench.report/1", "rows": {}, "checks": []}'):
            with self.subTest(content=content[:40]):
                self.write("allocs", content)
                result = self.run_summary()
                self.assertEqual(result.returncode, 2)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertIn("allocs.json", result.stderr)

    def test_a_broken_report_hides_no_other(self):
        self.write("allocs", "{")
        self.write("scaling", report("scaling", [row("good", "cpu_ns", {"workers": 1}, p50=1)]))
        result = self.run_summary()
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stdout, r"allocs +report cannot be read")
        self.cells(result.stdout, "good")

    def test_odd_fields_do_no_harm(self):
        rows = [row("x", "arm_cancel", p50=1), {"service": "x"}, {"metric": "lost", "case": [], "service": "x", "p50": True},
                {"service": 7, "metric": None}, row("y", "arm_cancel", p50="huge")]
        text = json.dumps(report("arm_cancel", rows, [{}], parameters=[]))
        self.write("arm_cancel", text.replace('"huge"', "1e999"))
        result = self.run_summary()
        self.assertEqual(result.returncode, 0)
        self.assertIn("checks 0 of 1 ok", result.stdout)
        self.assertTrue(self.cells(result.stdout, "y")[0].startswith("-"))

    def test_folder_without_reports(self):
        for arguments in ([self.folder], [self.folder / "missing"], ["/dev/null"]):
            result = subprocess.run([sys.executable, SCRIPTS / "summary", *arguments], check=False, capture_output=True,
                                    text=True)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)

    def test_bad_arguments(self):
        self.write("allocs", report("allocs", []))
        for arguments in (["--ran", "allocs"], ["--since", "yesterday"], ["--unknown"]):
            result = self.run_summary(*arguments)
            self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
            self.assertTrue(result.stderr.endswith("; see --help\n"), result.stderr)

    def test_fits_on_a_screen(self):
        names = [f"service_{i}/variant" for i in range(16)]
        self.write("arm_cancel", report("arm_cancel", [row(n, "arm_cancel", p50=1234.5, clock_ratio={"p50": 44.1}) for n in names]))
        lines = self.run_summary().stdout.splitlines()
        self.assertLess(len(lines), 50)
        self.assertLessEqual(max(map(len, lines)), 120)


if __name__ == "__main__":
    unittest.main()
