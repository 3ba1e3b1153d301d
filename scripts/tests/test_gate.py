"""scripts/gate as a command: exit codes, output files, the choice of the baseline, updates, bad input."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import types
import unittest
import xml.etree.ElementTree as xml
from unittest import mock

import judging_reports as made
from judging_reports import FolderTest, counted, document, row, steady, timed

from judging import gating

PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else "python3"


def arm_cancel(factor=1.0, seed=0, **fields):
    return document("arm_cancel", [timed("coarse_slot", steady(1.5 * factor, seed=seed)), timed("twin", steady(1.5, seed=seed + 9)),
                                   timed("floor/steady_clock", steady(1, seed=seed + 5), case={})], **fields)


def exact(allocations=0, **fields):
    return document("exact", [counted("coarse_slot", allocations), counted("twin", 0)], **fields)


class GateTest(FolderTest):
    """A checkout with the scripts, the schema and an empty results folder."""

    def setUp(self):
        super().setUp()
        self.checkout = self.folder / "a checkout"
        (self.checkout / "harness").mkdir(parents=True)
        (self.checkout / "scripts").mkdir()
        shutil.copy(made.SCRIPTS.parent / "harness" / "report.schema.json", self.checkout / "harness")
        for name in ("gate", "gate_rules.json"):
            shutil.copy(made.SCRIPTS / name, self.checkout / "scripts")
        shutil.copytree(made.SCRIPTS / "judging", self.checkout / "scripts" / "judging", ignore=shutil.ignore_patterns("__pycache__"))
        self.results = self.checkout / "results"
        self.results.mkdir()
        self.run_dir = self.folder / "run"
        self.base_dir = self.results / "base"

    def base(self, *documents, name="a checkout/results/base"):
        for one in documents:
            self.write(one, one["experiment"], name)

    def head(self, *documents):
        self.base(*documents, name="run")

    def gate(self, *arguments):
        """Runs the command inside this process, which is ten times as fast as starting one."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2)]
        with mock.patch.object(gating, "ROOT", str(self.checkout)), contextlib.chdir(self.folder), \
                mock.patch.object(sys, "argv", ["gate", *map(str, arguments)]), \
                contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                code = gating.main()
            except SystemExit as ended:
                code = ended.code
        texts = []
        for stream in streams:
            stream.flush()
            texts.append(stream.buffer.getvalue().decode("utf-8"))
        return types.SimpleNamespace(returncode=code, stdout=texts[0], stderr=texts[1])

    def command(self, *arguments, **environment):
        """Runs the command as a user would."""
        result = subprocess.run([PYTHON, self.checkout / "scripts" / "gate", *map(str, arguments)], check=False, capture_output=True,
                                env=os.environ | environment, cwd=self.folder, timeout=120)
        result.stdout, result.stderr = (text.decode("utf-8", "surrogateescape") for text in (result.stdout, result.stderr))
        self.assertNotIn("Traceback", result.stderr)
        return result

    def assert_code(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout + result.stderr)

    def assert_one_line_exit_2(self, result, *words):
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def everything(self):
        """All files below the folder and their bytes."""
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}


class Verdicts(GateTest):
    def test_pass(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(seed=1), exact())
        result = self.command(self.run_dir)
        self.assert_code(result, 0, "verdict: pass", "4 of 4 rows pass", "0 of 2 times (0.0 %)", "smallest change")
        self.assertEqual(result.stderr, "")

    def test_out_is_the_default(self):
        self.base(exact())
        self.base(exact(), name="a checkout/out")
        self.assert_code(self.command(), 0)

    def test_regressions_name_the_row(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(1.6, seed=1), exact())
        result = self.gate(self.run_dir)
        self.assert_code(result, 1, "verdict: regression: 1 of 4", "Regressions (1)", "arm_cancel: coarse_slot arm_cancel (kind=window")
        self.assertTrue(result.stdout.startswith("verdict"))
        self.head(arm_cancel(seed=1), exact(1))
        self.assert_code(self.gate(self.run_dir), 1, "exact: coarse_slot allocations", "0 became 1")
        self.assert_code(self.gate(self.run_dir, "--only", "time"), 0)

    def test_cannot_decide_and_its_smallest_change(self):
        self.base(arm_cancel())
        noisy = arm_cancel(seed=1)
        noisy["rows"][0] = timed("coarse_slot", steady(2.0, noise=0.5, seed=4))
        self.head(noisy)
        self.assert_code(self.gate(self.run_dir), 3, "verdict: cannot decide", "1 of 2 times (50.0 %)", "smallest change that would have shown")
        self.assert_code(self.gate(self.run_dir, "--max-undecided", "0.5"), 0)

    def test_options_overrule_the_rules(self):
        self.base(document("instructions", [row("coarse_slot", "instructions", [100.0])]))
        self.head(document("instructions", [row("coarse_slot", "instructions", [101.5])]))
        self.assert_code(self.gate(self.run_dir), 1, "coarse_slot instructions")
        self.assert_code(self.gate(self.run_dir, "--instructions-threshold", "0.02"), 0)
        rules_file = self.folder / "own rules.json"
        rules_file.write_text((made.SCRIPTS / "gate_rules.json").read_text().replace('"threshold": 0.01', '"threshold": 0.05'))
        self.assert_code(self.gate(self.run_dir, "--rules", rules_file), 0)

    def test_repeated_runs_and_runs_in_parts(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(seed=1))
        self.base(exact(), name="more")
        self.assert_code(self.gate(self.run_dir), 1, "holds no report of it")
        self.assert_code(self.gate(self.run_dir, self.folder / "more"), 0)
        self.base(arm_cancel(seed=3), name="more")
        self.assert_code(self.gate(self.run_dir, self.folder / "more"), 0)

    def test_failed_checks_are_told(self):
        failed = [{"name": "balance", "service": "twin", "ok": False, "detail": ""}]
        self.base(exact())
        self.head(exact(checks=failed))
        self.assert_code(self.gate(self.run_dir), 0, "'balance' of twin")


class Baselines(GateTest):
    def test_the_one_that_fits_is_taken(self):
        self.base(arm_cancel(9, environment=made.environment(cpu="another")), name="a checkout/results/aaa")
        self.base(arm_cancel())
        self.base(arm_cancel(9), name="a checkout/results/base.old")
        self.base(arm_cancel(9), name="a checkout/results/base.old.2")
        self.head(arm_cancel(seed=1))
        self.assert_code(self.gate(self.run_dir), 0, "results/base'")

    def test_none_fits(self):
        self.base(arm_cancel(environment=made.environment(cpu="another")), exact(environment=made.environment(cpu="another")))
        self.head(arm_cancel(9), exact())
        result = self.gate(self.run_dir)
        self.assert_code(result, 3, "CPU model", made.CPU, "scripts/compare BASE", "--update --baseline")
        self.assert_code(self.gate(self.run_dir, "--only", "count"), 0)
        self.head(exact(1))
        self.assert_code(self.gate(self.run_dir), 1, "exact: coarse_slot allocations")

    def test_there_is_none(self):
        self.head(arm_cancel())
        target = self.folder / "verdict.json"
        self.assert_code(self.gate(self.run_dir, "--json", target), 3, "cannot decide", made.CPU)
        self.assertEqual(json.loads(target.read_text())["exit_code"], 3)
        shutil.rmtree(self.results)
        self.assert_code(self.gate(self.run_dir), 3)

    def test_itself(self):
        self.base(exact())
        self.assert_one_line_exit_2(self.gate(self.base_dir), "its own baseline")
        self.assert_one_line_exit_2(self.gate(self.run_dir, self.run_dir), "one folder")

    def test_a_part_of_a_run(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(1.6, seed=1))
        self.assert_code(self.gate(self.run_dir), 1, "coarse_slot")
        # What was left out of the run is a regression only where it is asked for.
        self.assert_code(self.gate(self.run_dir, "--experiment", "arm_cancel", "--service", "twin"), 0)
        self.assert_code(self.gate(self.run_dir, "--experiment", "arm_cancel", "--service", "twin,coarse*"), 1, "coarse_slot")
        self.assert_code(self.gate(self.run_dir, "--experiment", "arm_cancel,exact"), 2, "'exact'")
        self.assert_code(self.gate(self.run_dir, "--experiment", "arm_cancel", "--service", "twin", "--service", "nixx"), 2, "'nixx'")
        self.assert_code(self.gate(self.run_dir, "--experiment", "arm_cancel", "--case", "population=none"), 2, "--case")
        self.assert_code(self.gate(self.run_dir, "--experiment", "nonsense"), 2, "--experiment")
        self.assert_code(self.gate(self.run_dir, "--service", "twin", "--update"), 2, "--update")

    def test_an_experiment_that_is_not_judged_or_not_there(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(seed=1), document("clocks", []))
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--experiment", "clocks"), "'clocks'", "it is not judged", "gate_rules.json")
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--experiment", "exact"), "no report of it in", repr(str(self.run_dir)),
                                    "the run;", "judged there are arm_cancel")
        # Not judged is so wherever one looks; a report of it need not be there.
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--experiment", "herd"), "it is not judged")
        self.head(document("allocs", []))
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--experiment", "allocs"), "no row")
        (self.run_dir / "arm_cancel.json").unlink()
        (self.run_dir / "allocs.json").unlink()
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--experiment", "clocks"), "it is not judged")

    def test_only_what_is_not_judged(self):
        self.base(exact())
        self.head(document("scaling", []))
        self.assert_code(self.gate(self.run_dir), 3, "not judged")


class Files(GateTest):
    def outputs(self, code, *arguments):
        paths = [self.folder / f"\u00fc {name}" for name in ("r.md", "r.xml", "r.json")]
        self.assert_code(self.gate(self.run_dir, "--markdown", paths[0], "--junit", paths[1], "--json", paths[2], *arguments), code)
        return paths[0].read_text(encoding="utf-8"), xml.parse(paths[1]).getroot(), json.loads(paths[2].read_text(encoding="utf-8"))

    def test_regression(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(1.6, seed=1), exact(3))
        markdown, suites, document_ = self.outputs(1)
        self.assertIn("timerbench: regression", markdown)
        self.assertIn("coarse\\_slot", markdown)
        self.assertEqual({suite.get("name"): (suite.get("tests"), suite.get("failures")) for suite in suites},
                         {"whole run": ("1", "1"), "arm_cancel": ("2", "1"), "exact": ("2", "1")})
        self.assertEqual(len(suites.findall(".//failure")), 3)
        self.assertEqual((document_["verdict"], document_["exit_code"]), ("regression", 1))
        found = {(entry["service"], entry["kind"]): entry for entry in document_["judgements"]}
        self.assertEqual(found["coarse_slot", "count"]["change"], None)
        self.assertEqual(found["coarse_slot", "count"]["change_reason"], "infinite")
        self.assertAlmostEqual(found["coarse_slot", "time"]["change"], 0.6, delta=0.01)
        self.assertEqual(found["twin", "time"]["verdict"], "pass")
        self.assertEqual(list(self.folder.glob(".*")), [])

    def test_undecided_is_no_green_in_junit(self):
        self.base(arm_cancel())
        self.head(arm_cancel(quick=True))
        _, suites, _ = self.outputs(3)
        self.assertEqual((len(suites.findall(".//error")), len(suites.findall(".//skipped")), len(suites.findall(".//failure"))), (1, 2, 0))

    def test_strange_names_do_no_harm(self):
        name = "a|b<&>\"\u0001\u00fc"
        self.base(document("exact", [counted(name, 0)]))
        self.head(document("exact", [counted(name, 1)]))
        markdown, suites, document_ = self.outputs(1)
        self.assertIn("a\\|b\\<&\\>", markdown)
        self.assertIn("a|b<&>\"", suites.find(".//testcase[@classname!='whole run']").get("name"))
        self.assertEqual(document_["judgements"][0]["service"], name)

    def test_the_same_bytes_whatever_the_locale(self):
        self.base(arm_cancel())
        self.head(arm_cancel(1.6))
        seen = set()
        for locale in ("C", "C.UTF-8", "de_DE.UTF-8", "de_DE", "POSIX"):
            target = self.folder / "out.json"
            result = self.command(self.run_dir, "--json", target, LC_ALL=locale, LANG=locale)
            self.assertEqual(result.returncode, 1, result.stderr)
            seen.add(target.read_bytes())
            self.assertNotRegex(result.stdout, r"\d,\d")
        self.assertEqual(len(seen), 1)

    def test_an_output_that_cannot_be_read_back_is_refused_before_anything_is_done(self):
        self.base(exact())
        self.head(exact())
        before = self.everything()
        for path, words in ((self.folder, "cannot be written"), (self.folder / "no" / "where", "cannot be written"),
                            (self.run_dir / "exact.json", "would be overwritten"), (self.base_dir / "exact.json", "would be overwritten")):
            for option in ("--json", "--markdown", "--junit"):
                self.assert_one_line_exit_2(self.gate(self.run_dir, option, path), option, words)
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--json", "x", "--junit", "x"), "both name")
        self.assertEqual(self.everything(), before)

    def test_devices_are_written_to_and_stay(self):
        self.base(exact())
        self.head(exact())
        self.assert_code(self.gate(self.run_dir, "--json", "/dev/null"), 0)
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_a_verdict_may_lie_beside_the_reports(self):
        self.base(exact())
        self.head(exact())
        for _ in range(2):
            self.assert_code(self.gate(self.run_dir, "--json", self.run_dir / "gate.json"), 0)

    def test_the_gate_reads_no_text(self):
        self.base(exact())
        self.head(exact())
        for number, words in enumerate(("regression + 99 %", "")):
            (self.run_dir / "exact.txt").write_text(words)
            self.assert_code(self.gate(self.run_dir), 0)

    def test_a_reader_that_goes_away(self):
        self.base(exact())
        self.head(exact())
        result = subprocess.run(f"'{PYTHON}' '{self.checkout}/scripts/gate' '{self.run_dir}' | true; echo ${{PIPESTATUS[0]}}", shell=True,
                                executable="/bin/bash", capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((result.stdout, result.stderr), ("0\n", ""))


class Bad(GateTest):
    def test_reports(self):
        good = json.dumps(exact())
        self.base(exact())
        for content in ("", good[:100], "[]", good.replace('"timerbench.report/1"', '"google/1"'), good.replace("report/1", "report/9"),
                        good.replace("0.0", "NaN", 1), good.replace('"allocations"', '"surprises"', 1), b"\xff"):
            with self.subTest(content=content[:20]):
                self.write(content, "exact")
                before = self.everything()
                self.assert_one_line_exit_2(self.gate(self.run_dir, "--json", self.folder / "never.json"), "exact.json")
                self.assertEqual(self.everything(), before)
        self.head(exact())
        self.write(good[:100], "exact", "a checkout/results/base")
        self.assert_one_line_exit_2(self.gate(self.run_dir), "base/exact.json")

    def test_folders(self):
        self.base(exact())
        (self.folder / "empty").mkdir()
        for name in ("missing", "empty", "/dev/null"):
            self.assert_one_line_exit_2(self.gate(self.folder / name), name)
        self.head(exact())
        self.assert_one_line_exit_2(self.gate(self.run_dir, "--baseline", "nowhere"), "nowhere")
        self.write(exact(), "allocs", "renamed")
        self.assert_one_line_exit_2(self.gate(self.folder / "renamed"), "allocs.json", "'exact'")

    def test_arguments(self):
        for arguments in (["--alpha", "2"], ["--alpha", "x"], ["--alpha", "nan"], ["--max-undecided", "5"], ["--only", "tiem"], ["--experiment", "a,,b"], ["--service", ""],
                          ["--case", "population"], ["--case", "=1"], ["--unknown"],
                          ["--instructions-threshold", "1 %"], ["--json"]):
            self.assert_one_line_exit_2(self.gate(*arguments), arguments[-1])
        self.assert_one_line_exit_2(self.command("--rules", self.folder / "no rules.json"), "no rules.json")

    def test_help(self):
        self.assert_code(self.command("--help"), 0, "usage:", "Exit code")

    def test_interrupt(self):
        self.head(exact())
        os.mkfifo(self.run_dir / "allocs.json")
        process = subprocess.Popen([PYTHON, self.checkout / "scripts" / "gate", self.run_dir], stderr=subprocess.PIPE, text=True)
        # It waits for the pipe's other end; opening that succeeds only once it does.
        deadline = time.monotonic() + 60
        while True:
            try:
                writer = os.open(self.run_dir / "allocs.json", os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
        self.addCleanup(os.close, writer)
        process.send_signal(signal.SIGINT)
        message = process.communicate(timeout=60)[1]
        self.assertEqual((process.returncode, message.count("\n")), (130, 1), message)


class Update(GateTest):
    def update(self, *arguments):
        return self.gate(self.run_dir, "--update", *arguments)

    def refused(self, code, *words):
        before = self.everything()
        result = self.update()
        self.assert_code(result, code, "baseline stays as it is", *words)
        self.assertEqual(self.everything(), before)

    def test_a_run_that_passes(self):
        self.base(arm_cancel(), exact())
        (self.base_dir / "README.md").write_text("about")
        old = (self.base_dir / "arm_cancel.json").read_bytes()
        self.head(arm_cancel(seed=1), exact(), document("scaling", []))
        (self.run_dir / "arm_cancel.txt").write_text("table")
        self.assert_code(self.update(), 0, "is now this run", "base.old")
        for name in ("arm_cancel.json", "exact.json", "scaling.json", "arm_cancel.txt"):
            self.assertEqual((self.base_dir / name).read_bytes(), (self.run_dir / name).read_bytes())
        self.assertEqual((self.base_dir / "README.md").read_text(), "about")
        self.assertEqual((self.results / "base.old" / "arm_cancel.json").read_bytes(), old)
        self.assert_code(self.update(), 0, "base.old.2")
        self.assertEqual(sorted(os.listdir(self.results)), ["base", "base.old", "base.old.2"])

    def test_nothing_is_updated_unasked(self):
        self.base(exact())
        self.head(exact())
        before = self.everything()
        self.gate(self.run_dir)
        self.assertEqual(self.everything(), before)

    def test_a_first_baseline(self):
        self.head(arm_cancel())
        self.assert_one_line_exit_2(self.update(), "--baseline")
        self.assert_code(self.update("--baseline", self.results / "n\u00fcw one"), 0)
        self.assert_code(self.gate(self.run_dir), 0, "n\u00fcw one")

    def test_failing_and_undecided_runs(self):
        self.base(arm_cancel(), exact())
        self.head(arm_cancel(1.6), exact())
        self.refused(1, "regressed")
        noisy = arm_cancel()
        noisy["rows"][0] = timed("coarse_slot", steady(2.0, noise=0.5, seed=4))
        self.head(noisy)
        self.refused(3, "could not be decided")

    def test_an_improvement_to_be_reviewed_may_be_taken(self):
        self.base(exact(4))
        self.head(exact(0))
        self.assert_code(self.gate(self.run_dir), 3, "To be reviewed")
        self.assert_code(self.update(), 0)

    def test_runs_that_may_never_be_one(self):
        self.base(exact())
        for fields, code, word in (({"quick": True, "marks": ["QUICK RUN"]}, 2, "quick"), ({"marks": ["DEBUG BUILD"]}, 3, ""),
                                   ({"environment": made.environment(dirty=True)}, 2, "uncommitted"),
                                   ({"environment": made.environment(sanitizer="address")}, 3, ""),
                                   ({"checks": [{"name": "balance", "service": "", "ok": False, "detail": ""}]}, 2, "balance")):
            self.head(exact(**fields))
            self.refused(code, word)
        for fields in ({"marks": ["DEBUG BUILD"]}, {"environment": made.environment(sanitizer="address")},
                       {"environment": made.environment(optimised=False)}, {"quick": True}, {"environment": made.environment(dirty=True)}):
            self.head(exact(**fields))
            before = self.everything()
            self.assert_code(self.update("--baseline", self.results / "new"), 2, "baseline stays as it is")
            self.assertEqual(self.everything(), before)

    def test_another_machines_baseline_is_not_replaced(self):
        self.base(exact(environment=made.environment(cpu="another")))
        self.head(exact())
        before = self.everything()
        self.assert_code(self.update("--baseline", self.base_dir), 2, "another context", "CPU model")
        self.assertEqual(self.everything(), before)


if __name__ == "__main__":
    unittest.main()
