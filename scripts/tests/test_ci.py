""".ci/run with a stand-in for scripts/test and bench binaries that do as they are told."""

import shutil
import subprocess
import unittest

from sandbox import SCRIPTS, SandboxTest

BENCH = r"""
name=${0##*/bench_}
echo "$name $*" >>"$STATE/bench-calls"
while (($#)); do [[ $1 != --out ]] || out=$2; shift; done
mkdir -p "$out"
value=1
[[ ! -e $STATE/nan-$name ]] || value=NaN
echo '{"schema": "timerbench.report/1", "experiment": "'"$name"'", "rows": [{"p50": '"$value"'}]}' >"$out/$name.json"
[[ ! -e $STATE/exit-$name ]] || exit "$(cat "$STATE/exit-$name")"
"""


class Ci(SandboxTest):
    def setUp(self):
        super().setUp()
        shutil.copytree(SCRIPTS.parent / ".ci", self.checkout / ".ci")
        for folder in ("timers", "harness", "experiments", "examples"):
            (self.checkout / folder).mkdir()
        (self.checkout / "harness" / "report.schema.json").write_text('{"type": "object"}', encoding="utf-8")
        self.bench_folder = self.checkout / "build" / "release" / "bin"
        self.scripts_test_says("11 passed, 0 failed", 0)
        self.gate_says("0 passed, 0 failed", 0)
        for name in ("allocs", "scaling"):
            (self.checkout / "experiments" / f"bench_{name}.cpp").write_text("int main() {}\n", encoding="utf-8")
            self.program(self.bench_folder / f"bench_{name}", BENCH)

    def scripts_test_says(self, line, code):
        self.program(self.checkout / "scripts" / "test", f'echo noise; echo "{line}"; exit {code}')

    def gate_says(self, line, code):
        self.program(self.checkout / ".ci" / "gate", f'echo "{line}"; exit {code}')

    def run_ci(self, *arguments):
        result = subprocess.run(["/bin/bash", str(self.checkout / ".ci" / "run"), *arguments], cwd=self.elsewhere,
                                check=False, env=self.environment, capture_output=True, text=True, timeout=120)
        return result, (result.stdout.splitlines() or [""])[-1]

    def test_adds_up(self):
        result, last = self.run_ci()
        self.assertEqual((result.returncode, last), (0, "15 passed, 0 failed"), result.stdout + result.stderr)
        for call in self.noted("bench-calls"):
            self.assertRegex(call, r"^\w+ --quick --out .* --service coarse_slot$")
        self.assert_no_temporary_files()

    def original(self, name, build, verify="exit 0"):
        folder = self.checkout / "experiments" / "originals" / name
        self.program(folder / "build", build)
        self.program(folder / "run", f'echo "{name} $2" >>"$STATE/verified"; {verify}')

    def test_originals_that_can_be_built_verify_themselves(self):
        self.original("c", "exit 0")
        self.original("go", "exit 0", 'echo "{}"; exit 1')
        self.original("rust", "echo 'cargo: install it' >&2; exit 3")
        self.original("java", "echo 'Could not transfer artifact' >&2; exit 1")
        self.original("node", "echo 'syntax error' >&2; exit 1")
        result, last = self.run_ci()
        self.assertEqual((result.returncode, last), (1, "16 passed, 2 failed"), result.stdout + result.stderr)
        self.assertIn("originals/c verifies", result.stdout)
        self.assertIn("FAILED: originals/go --verify", result.stdout)
        self.assertIn("originals/rust: left out, missing here: cargo: install it", result.stdout)
        self.assertIn("originals/java: left out, its packages cannot be fetched here", result.stdout)
        self.assertIn("FAILED: originals/node does not build", result.stdout)
        self.assertEqual(self.noted("verified"), ["c --verify", "go --verify"])

    def test_failed_tests(self):
        self.scripts_test_says("10 passed, 1 failed", 1)
        result, last = self.run_ci()
        self.assertEqual((result.returncode, last), (1, "14 passed, 1 failed"))

    def test_gate(self):
        for line, code, expected in (("2 passed, 0 failed", 0, (0, "17 passed, 0 failed")), ("1 passed, 1 failed", 1, (1, "16 passed, 1 failed")),
                                     ("no counts", 0, (1, "15 passed, 1 failed"))):
            with self.subTest(line=line):
                self.gate_says(line, code)
                result, last = self.run_ci()
                self.assertEqual((result.returncode, last), expected)

    def test_tests_that_fail_without_a_count(self):
        for line, code in (("cmake exploded", 1), ("", 0), ("11 passed, 0 failed", 1)):
            with self.subTest(line=line, code=code):
                self.scripts_test_says(line, code)
                result, last = self.run_ci()
                self.assertEqual(result.returncode, 1)
                self.assertRegex(last, r"^\d+ passed, 1 failed$")

    def test_failing_experiment_and_invalid_report(self):
        self.flag("exit-allocs", "1")
        self.flag("nan-scaling")
        result, last = self.run_ci()
        self.assertEqual((result.returncode, last), (1, "13 passed, 2 failed"), result.stdout)

    def test_cannot_decide_is_no_failure(self):
        self.flag("exit-allocs", "3")
        self.assertEqual(self.run_ci()[1], "15 passed, 0 failed")

    def test_missing_binary(self):
        (self.bench_folder / "bench_scaling").unlink()
        result, last = self.run_ci()
        self.assertEqual((result.returncode, last), (1, "13 passed, 1 failed"))

    def test_formatting(self):
        self.link("clang-format")
        self.link("find")
        shutil.copy(SCRIPTS.parent / ".clang-format", self.checkout)
        if "version 14." not in subprocess.run(["clang-format", "--version"], check=False, capture_output=True, text=True).stdout:
            self.skipTest("clang-format 14 is not installed")
        self.assertEqual(self.run_ci()[1], "16 passed, 0 failed")
        (self.checkout / "timers" / "a.hpp").write_text("int   a ;\n", encoding="utf-8")
        result, last = self.run_ci()
        self.assertEqual((result.returncode, last), (1, "15 passed, 1 failed"))

    def test_takes_no_arguments(self):
        result, _ = self.run_ci("--fast")
        self.assert_one_line_exit_2(result, "'--fast'")


class Gate(SandboxTest):
    """.ci/gate with stand-ins that end as they are told."""

    def setUp(self):
        super().setUp()
        shutil.copytree(SCRIPTS.parent / ".ci", self.checkout / ".ci")
        for path in ("build/release/bin/bench_exact", "build/release/bin/bench_arm_cancel", "scripts/setup",
                     "scripts/instructions", "scripts/compare"):
            name = path.rsplit("/", 1)[1]
            self.program(self.checkout / path, f'[[ ! -e $STATE/{name} ]] || exit "$(cat "$STATE/{name}")"')
        # The code of a stand-in for the gate goes by the experiment that it is asked for.
        self.program(self.checkout / "scripts" / "gate",
                     'while [[ $1 != --experiment ]]; do shift; done; [[ ! -e $STATE/$2 ]] || exit "$(cat "$STATE/$2")"')

    def gate(self):
        result = subprocess.run(["/bin/bash", str(self.checkout / ".ci" / "gate")], cwd=self.elsewhere, check=False,
                                env=self.environment, capture_output=True, text=True, timeout=60)
        return result.returncode, (result.stdout.splitlines() or [""])[-1]

    def test_verdicts(self):
        for flags, expected in (({}, (0, "2 passed, 0 failed")),
                                ({"exact,instructions": "1"}, (1, "1 passed, 1 failed")),
                                ({"exact,instructions": "3"}, (1, "1 passed, 1 failed")),
                                ({"arm_cancel": "1"}, (0, "2 passed, 0 failed")),
                                ({"arm_cancel": "3"}, (0, "2 passed, 0 failed")),
                                ({"arm_cancel": "2"}, (1, "1 passed, 1 failed")),
                                ({"bench_exact": "1"}, (1, "1 passed, 1 failed")),
                                ({"instructions": "1"}, (1, "1 passed, 1 failed")),
                                ({"setup": "2"}, (0, "2 passed, 0 failed")),
                                ({"setup": "2", "exact": "1"}, (1, "1 passed, 1 failed"))):
            with self.subTest(flags=flags):
                for name, code in flags.items():
                    self.flag(name, code)
                self.assertEqual(self.gate(), expected)
                for name in flags:
                    (self.state / name).unlink()

    def test_the_earlier_revision_decides_where_the_baseline_does_not_pass(self):
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "1"], ["commit", "-qm", "2", "--allow-empty"]):
            subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", *command], cwd=self.checkout, check=True)
        self.link("git")
        self.flag("exact,instructions", "3")
        self.assertEqual(self.gate(), (0, "2 passed, 0 failed"))
        self.flag("compare", "1")
        self.assertEqual(self.gate(), (1, "1 passed, 1 failed"))


if __name__ == "__main__":
    unittest.main()
