"""scripts/rules: what it costs to break each rule, read from reports."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from sandbox import SCRIPTS

RESULTS = SCRIPTS.parent / "results" / "epyc-2-cores"


def run_rules(*arguments):
    result = subprocess.run([sys.executable, SCRIPTS / "rules", *arguments], check=False, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in result.stderr, result.stderr
    return result


def row(policy, value=None, **more):
    case = {"form": "simulated", "scale": "full", "policy": policy}
    return {"service": "s", "case": case, "metric": "wasted", **({"p50": value} if value is not None else {}), **more}


class Rules(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench rules ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, text):
        (self.folder / "aftermath.json").write_text(text, encoding="utf-8")

    def line(self, rows, words):
        self.write(json.dumps({"schema": "timerbench.report/1", "rows": rows}))
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
        lease = [{"service": f"lease/{name}", "case": {"kind": "lease", "trials": 12345}, "metric": "overwrites", "p50": 7} for name in ("token", "nothing")]
        (self.folder / "clocks.json").write_text(json.dumps({"schema": "timerbench.report/1", "quick": True, "rows": lease}), encoding="utf-8")
        result = run_rules(self.folder)
        self.assertIn("in 12 345 trials | 7 | 7 |", result.stdout)
        self.assertIn("From a quick run, not for quoting: clocks.", result.stdout)

    def test_unusable_input(self):
        self.assertEqual(run_rules(self.folder).returncode, 2)
        self.assertEqual(self.line([row("coop_1ms/no_retry", p50=None)], "When the caller has left")[3], "-")
        for text in ("", "[]", "{", json.dumps({"schema": "other/1", "rows": []}), json.dumps({"schema": "timerbench.report/1", "rows": [7]})):
            self.write(text)
            result = run_rules(self.folder)
            self.assertEqual((result.returncode, len(result.stderr.splitlines())), (2, 1), result.stderr)
            self.assertIn("aftermath.json", result.stderr)
        self.assertEqual(run_rules("--nonsense").returncode, 2)


class Committed(unittest.TestCase):
    def test_every_rule_has_its_figures_in_the_reference_run(self):
        result = run_rules(RESULTS)
        self.assertEqual(result.returncode, 0, result.stderr)
        for line in result.stdout.splitlines()[2:]:
            self.assertNotIn("| - |", line)


if __name__ == "__main__":
    unittest.main()
