"""judging/reports.py and judging/rules.py: what is read, and how each kind of bad input is named."""

import copy
import json
import os
import pathlib
import unittest

import judging_reports as made
from judging_reports import FolderTest, counted, document, row, steady, timed

from judging import reports, rules
from judging.reports import Unusable

GOLDEN = made.SCRIPTS.parent / "harness" / "tests" / "golden"


def good():
    return document("arm_cancel", [timed("coarse_slot", steady(1.5)), row("asio", "arm_cancel", skipped="not here"),
                                   row("libevent", "arm_cancel", error="wrong count")])


class Good(FolderTest):
    def test_rows(self):
        report = self.load(good())
        self.assertEqual((report.experiment, report.quick, len(report.rows)), ("arm_cancel", False, 3))
        first, second, third = report.rows.values()
        self.assertTrue(first.measured)
        self.assertEqual((len(first.samples), len(first.clock_ns), int(first.visits[-1])), (56, 56, 13))
        self.assertEqual((second.skipped, second.measured, third.error, third.measured), ("not here", False, "wrong count", False))
        self.assertEqual(report.fingerprint().cpu, made.CPU)
        self.assertEqual(report.obstacles(), [])

    def test_key_is_the_same_whatever_the_order_and_the_spelling_of_numbers(self):
        one = self.load(document("allocs", [counted("a", 1, case={"x": 30, "y": "z"})]), "allocs")
        two = self.load(document("allocs", [counted("a", 1, case={"y": "z", "x": 30.0})]), "allocs")
        self.assertEqual(one.rows.keys(), two.rows.keys())

    def test_golden_reports_of_every_version(self):
        for version in range(1, reports.NEWEST + 1):
            report = reports.load(str(GOLDEN / f"report-{version}.json"))
            self.assertGreater(sum(row.measured for row in report.rows.values()), 0)
            self.assertTrue(all(report.fingerprint()))

    def test_marks_and_builds_that_forbid_everything(self):
        for fields in ({"marks": ["DEBUG BUILD"]}, {"environment": made.environment(optimised=False)},
                       {"environment": made.environment(ndebug=False)}, {"environment": made.environment(sanitizer="thread")}):
            self.assertNotEqual(self.load(good() | fields).obstacles(), [], fields)
        self.assertEqual(self.load(good() | {"marks": ["QUICK RUN"], "quick": True}).obstacles(), [])

    def test_each_optional_field_may_be_missing(self):
        whole = json.loads((GOLDEN / "report-1.json").read_text())
        optional = set(whole["rows"][0]) - {"service", "case", "metric", "n", "min", "p10", "p50", "max", "mean", "ci95",
                                            "outliers", "samples"}
        self.assertGreater(len(optional), 4)
        for name in optional:
            lacking = copy.deepcopy(whole)
            for entry in lacking["rows"]:
                entry.pop(name, None)
            self.assertEqual(len(self.load(lacking).rows), len(whole["rows"]), name)


class Bad(FolderTest):
    def refused(self, content, *words, name="arm_cancel"):
        with self.assertRaises(Unusable) as caught:
            self.load(content, name)
        message = str(caught.exception)
        self.assertEqual(message.count("\n"), 0, message)
        for word in (f"{name}.json", *words):
            self.assertIn(word, message)

    def test_files_that_are_no_json(self):
        text = json.dumps(good())
        for content, word in (("", "empty"), (" \n", "empty"), (text[:len(text) // 2], "strict JSON"), (text[:-1], "strict JSON"),
                              ("not json", "strict JSON"), (b"\xff\xfe\x00", "UTF-8"), ("[" * 100000, "strict JSON"),
                              (text.replace('"n": 56', '"n": 56, "n": 56'), "twice"),
                              (text.replace('"seed": 1', '"seed": 1,5'), "strict JSON")):
            with self.subTest(content=content[:20]):
                self.refused(content, word)

    def test_numbers_that_are_none(self):
        marked = good()
        marked["rows"][0]["samples"][3] = 123.25
        text, value = json.dumps(marked), "123.25"
        for bad in ("NaN", "Infinity", "-Infinity", "1e999", "1,5", "1.2.3", "01", '"12"', "true", "null", "[]"):
            with self.subTest(value=bad):
                self.refused(text.replace(value, bad, 1))
        self.refused(text.replace(value, "1" + "0" * 400, 1), "coarse_slot")

    def test_foreign_documents(self):
        for content in ("[]", "null", "{}", '{"schema": 1}', '{"schema": "other/1"}', '{"benchmarks": []}',
                        '{"schema": "timerbench.report/1.5"}', '{"schema": "timerbench.report/"}'):
            with self.subTest(content=content):
                self.refused(content, "not a timerbench report")

    def test_versions(self):
        self.refused(json.dumps(good()).replace("report/1", "report/2"), "version 2", "up to 1", "newer")
        self.refused(json.dumps(good()).replace("report/1", "report/0"), "version 0")

    def test_what_the_schema_refuses_names_the_row(self):
        for change in (lambda rows: rows[0].pop("p50"), lambda rows: rows[0].update(samples=[]), lambda rows: rows[0].pop("metric"),
                       lambda rows: rows[0].update(skipped="and measured"), lambda rows: rows[0].update(n=0),
                       lambda rows: rows.insert(0, 7), lambda rows: rows[0].update(case=[])):
            broken = good()
            change(broken["rows"])
            self.refused(broken, "row 0")

    def test_missing_parts(self):
        for name in good():
            broken = good()
            del broken[name]
            with self.subTest(name=name):
                self.refused(broken)

    def test_what_a_schema_cannot_say(self):
        for change, word in ((lambda row: row.update(n=3), "n is 3"), (lambda row: row["clock_ns"].pop(), "55 values of clock_ns"),
                             (lambda row: row["visits"].append(99), "57 values of visits"),
                             (lambda row: row["visits"].__setitem__(5, 0.5), "visits"),
                             (lambda row: row["clock_ns"].__setitem__(5, 0), "clock_ns"),
                             (lambda row: row["clock_ns"].__setitem__(5, -1), "clock_ns")):
            broken = good()
            change(broken["rows"][0])
            self.refused(broken, "coarse_slot arm_cancel", word)

    def test_duplicate_rows(self):
        broken = good()
        broken["rows"].append(copy.deepcopy(broken["rows"][0]))
        broken["rows"][-1]["case"] = dict(reversed(broken["rows"][-1]["case"].items()))
        self.refused(broken, "coarse_slot", "twice")

    def test_folders(self):
        with self.assertRaisesRegex(Unusable, "no report"):
            reports.load_folder(str(self.folder))
        for path in (self.folder / "missing", pathlib.Path("/dev/null")):
            with self.assertRaisesRegex(Unusable, "cannot be read"):
                reports.load_folder(str(path))
        self.write(good(), "allocs")
        with self.assertRaisesRegex(Unusable, "experiment 'arm_cancel', not of 'allocs'"):
            reports.load_folder(str(self.folder / "run"))

    def test_documents_of_this_project_that_are_no_reports_are_passed_over(self):
        self.write(good())
        self.write({"schema": "timerbench.verdict/1"}, "gate")
        self.assertEqual(list(reports.load_folder(str(self.folder / "run"))), ["arm_cancel"])


class RulesFile(FolderTest):
    def text(self):
        return pathlib.Path(rules.DEFAULT_PATH).read_text(encoding="utf-8")

    def test_own_rules_name_every_metric_of_the_committed_results(self):
        chosen = rules.load()
        judged = set()
        folder = made.SCRIPTS.parent / "results" / "epyc-2-cores"
        for report in reports.load_folder(str(folder), chosen.ignored_experiments).values():
            judged |= {rule.kind for rule in (chosen.rule(report, row) for row in report.rows.values()) if rule}
        self.assertLessEqual({"time", "count"}, judged)
        for name in os.listdir(folder):
            if name.endswith(".json"):
                self.assertIn(name[:-5], {**chosen.metrics, **chosen.ignored_experiments})

    def test_which_rows_are_judged(self):
        chosen = rules.load()
        paced = made.WINDOW | {"regime": "paced"}
        report = self.load(document("arm_cancel", [
            timed("coarse_slot", steady(1.5)), timed("coarse_slot", steady(1.5), paced), timed("floor/mutex", steady(1.5)),
            timed("asio", steady(1.5)), row("coarse_slot", "arm", [1.0])]))
        verdicts = [[chosen.rule(report, entry, unit) is not None for entry in report.rows.values()] for unit in rules.UNITS]
        self.assertEqual(verdicts, [[True, False, False, False, False], [True, False, False, True, False]])

    def test_unknown_metric_and_experiment(self):
        chosen = rules.load()
        report = self.load(document("arm_cancel", [row("coarse_slot", "surprise", [1.0])]))
        with self.assertRaisesRegex(Unusable, "arm_cancel.json.*coarse_slot surprise.*unknown"):
            chosen.rule(report, next(iter(report.rows.values())))
        with self.assertRaisesRegex(Unusable, "experiment 'novelty' is unknown"):
            chosen.experiment(self.load(document("novelty", []), "novelty"))

    def test_bad_rules(self):
        for old, new, words in (('"alpha": 0.01', '"alpha": 2', "alpha"), ('"alpha": 0.01', '"alpha": "1 %"', "alpha"),
                                ('"alpha": 0.01,', "", "'alpha' is missing"), ('"alpha"', '"aplha"', "aplha"),
                                ('"kind": "time"', '"kind": "tiem"', "tiem"), ('"worse": "up"', '"worse": "bigger"', "bigger"),
                                ('"threshold": 0.01', '"treshold": 0.01', "treshold"), ('"max_undecided": 0.05', '"max_undecided": true', "True"),
                                ("rules/1", "rules/2", "not a rules file"), ('"case": {"regime": "paced"}', '"case": []', "leave_out"),
                                ('"visits": [0, 0.5]', '"visits": 0.5', "two shares"), ("{", "", "strict JSON")):
            path = self.folder / "rules.json"
            self.assertIn(old, self.text())
            path.write_text(self.text().replace(old, new, 1), encoding="utf-8")
            with self.subTest(new=new), self.assertRaisesRegex(Unusable, f"rules.json.*{words}"):
                rules.load(str(path))


if __name__ == "__main__":
    unittest.main()
