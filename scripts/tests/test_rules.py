"""scripts/rules: what it costs to break each rule, read from reports."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from sandbox import SCRIPTS
from synthetic import ENVIRONMENT

RESULTS = SCRIPTS.parent / "results" / "epyc-2-cores"


def run_rules(*arguments):
    result = subprocess.run([sys.executable, SCRIPTS / "rules", *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in result.stderr, result.stderr
    return result


def figures(value):
    return {"n": 1, "min": value, "p10": value, "p50": value, "max": value, "mean": value, "ci95": None,
            "outliers": {"low": 0, "high": 0}, "samples": [value]}


def row(policy, value=None, **more):
    case = {"form": "simulated", "scale": "full", "policy": policy}
    return {"service": "s", "case": case, "metric": "wasted", **(figures(value) if value is not None else {}), **more}


def report(rows, experiment="aftermath", **more):
    return json.dumps({"schema": "timerbench.report/1", "experiment": experiment, "quick": False, "seed": 1, "marks": [],
                       "environment": ENVIRONMENT, "parameters": {}, "rows": rows, "checks": [], **more})


class Rules(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench rules ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, text):
        (self.folder / "aftermath.json").write_text(text, encoding="utf-8")

    def line(self, rows, words):
        self.write(report(rows))
        result = run_rules(self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        found = [line for line in result.stdout.splitlines() if words in line]
        self.assertEqual(len(found), 1, result.stdout)
        return [cell.strip() for cell in found[0].split("|")]

    def test_figures_stand_beside_each_other(self):
        cells = self.line([row("coop_1ms/no_retry", 0.25), row("detach/no_retry", 1234.5)], "When the caller has left")
        self.assertEqual(cells[3:5], ["0.25", "1 234"])

    def test_a_row_that_is_not_there_or_was_skipped_is_no_figure(self):
        cells = self.line([row("detach/no_retry", skipped="for a reason")], "When the caller has left")
        self.assertEqual(cells[3:5], ["-", "for a reason"])

    def test_the_loopback_form_is_not_mistaken_for_the_simulation(self):
        other = row("coop_1ms/no_retry", 9)
        other["case"]["scale"] = "loopback"
        cells = self.line([other, row("coop_1ms/no_retry", 2)], "When the caller has left")
        self.assertEqual(cells[3], "2")

    def test_counts_stand_with_what_they_are_counted_of(self):
        lease = [{"service": f"lease/{name}", "case": {"kind": "lease", "trials": 12345}, "metric": "overwrites", **figures(7)}
                 for name in ("token", "nothing")]
        (self.folder / "clocks.json").write_text(report(lease, "clocks", quick=True), encoding="utf-8")
        result = run_rules(self.folder)
        self.assertIn("in 12 345 trials | 7 | 7 |", result.stdout)
        self.assertIn("From a quick run, not for quoting: clocks.", result.stdout)
        for one in lease:
            del one["case"]["trials"]
        (self.folder / "clocks.json").write_text(report(lease, "clocks"), encoding="utf-8")
        self.assertIn("writes over those of a newer holder | 7 | 7 |", run_rules(self.folder).stdout)

    def test_a_reason_stays_in_its_cell(self):
        cells = self.line([row("detach/no_retry", skipped="first\nsecond\ud800")], "When the caller has left")
        self.assertEqual(cells[4], "first second\\ud800")

    def refused(self, *arguments):
        """Its one line on standard error."""
        result = run_rules(*(arguments or [self.folder]))
        self.assertEqual((result.returncode, len(result.stderr.splitlines()), result.stdout), (2, 1, ""), result.stderr)
        return result.stderr

    def test_no_report_and_unknown_words(self):
        self.assertIn("holds no report of aftermath, clocks, waiting", self.refused())
        self.assertEqual(self.refused("--nonsense"), "rules: unrecognized arguments: --nonsense; see --help\n")

    def test_reports_are_read_as_strictly_as_by_the_gate(self):
        good = report([row("coop_1ms/no_retry", 2)])
        huge = report([row("coop_1ms/no_retry", 2, p50=10**400)])
        for text, words in (("", "is empty; a report was expected"),
                            ("{", "is not strict JSON"),
                            (good.replace('"p50": 2', '"p50": 1e999'), "1e999 is too large for a number"),
                            (good.replace('"p50": 2', '"p50": NaN'), "NaN is not JSON"),
                            (good.replace('"p50": 2', '"p50": 2, "p50": 3'), "the name 'p50' occurs twice"),
                            (good.replace('"p50": 2', '"p50": null'), "row 0"),
                            (huge, "row 0 p50: a number that is too large"),
                            ("[]", 'there is no text under "schema"'),
                            ("{}", 'there is no text under "schema"'),
                            (report([], schema="other/1"), "its schema is 'other/1'"),
                            (report([], schema="timerbench.report/2"), "has report version 2"),
                            (report([], schema="timerbench.verdict/1"), "is no report"),
                            (report([], "clocks"), "holds a report of the experiment 'clocks', not of 'aftermath'"),
                            (report(7), "rows: 7 is not of type 'array'"),
                            (report([7]), "row 0: 7 is not of type 'object'"),
                            (report([row("coop_1ms/no_retry", 2, case=[])]), "row 0 case: [] is not of type 'object'")):
            self.write(text)
            line = self.refused()
            self.assertIn("aftermath.json", line)
            self.assertIn(words, line)

    def test_what_is_no_regular_file_is_refused(self):
        path = self.folder / "clocks.json"
        os.mkfifo(path)
        self.assertEqual(self.refused(), f"rules: {str(path)!r} is not a regular file; a report was expected\n")
        path.unlink()
        path.mkdir()
        self.assertIn("is not a regular file", self.refused())


class Committed(unittest.TestCase):
    def test_every_rule_has_its_figures_in_the_reference_run(self):
        result = run_rules(RESULTS)
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in result.stdout.splitlines()[2:]:
            self.assertNotIn("| - |", line)


if __name__ == "__main__":
    unittest.main()
