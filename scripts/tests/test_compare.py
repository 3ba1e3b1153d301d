#!/usr/bin/env python3
"""scripts/compare, with real git repositories and stand-ins for cmake, ninja and the compiler.

The stand-in cmake "builds" by copying a bench binary that makes its figures up from a file `costs.json` of the source folder, so
that each revision costs what that file says.
"""

import contextlib
import io
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
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import sandbox  # noqa: E402
import synthetic  # noqa: E402
from judging import comparing, processes  # noqa: E402

COSTS = {"coarse_slot": 37.0, "locked_heap": 60.0}

# cmake -S SOURCE -B FOLDER ... / cmake --build FOLDER ... --target TARGET
CMAKE = r"""
echo "cmake $*" >>"$STATE/calls"
if [[ $1 == -S ]]; then
    [[ ! -e $2/unconfigurable ]] || { echo "CMake Error at CMakeLists.txt:1 (message): no such thing"; exit 1; }
    mkdir -p "$4" && cp -- "$2/costs.json" "$4/" && echo "$2" >"$4/source"
    exit 0
fi
source=$(cat "$2/source")
target=${!#}
if [[ $target != bench_* || -e $source/without-$target ]]; then
    echo "ninja: error: unknown target '$target'"; exit 1
fi
[[ ! -e $source/uncompilable ]] || { echo "arm.cpp:7:1: error: expected ';'"; echo "ninja: build stopped"; exit 1; }
mkdir -p "$2/bin"
cp -- "$STATE/bench" "$2/bin/$target"
"""
NINJA = r"""
echo ": && c++ -O3 -fuse-ld=lld -Wl,--shuffle-sections=.text*=1 a.o -o ${!#} && :"
"""
# Links: puts the bench where -o says, with what it needs beside it.
COMPILER = r"""
echo "c++ $*" >>"$STATE/calls"
while (($#)); do [[ $1 == -o ]] && out=$2; shift; done
[[ $out == *.o ]] && { : >"$out"; exit 0; }
cp -- "$STATE/bench" "$out"
read -r source <source
# Once for each build folder is enough: FAKE_BENCH looks in the folders above it too.
top=${out%/*/*}
[[ -e $top/costs.json ]] || cp -- costs.json "$STATE/template.json" "$top/"
for name in slow broken; do [[ ! -e $source/$name ]] || : >"$top/$name"; done
"""


class RepositoryTest(sandbox.SandboxTest):
    """A sandbox whose checkout is a git repository."""

    def setUp(self):
        super().setUp()
        self.link("git")
        (self.state / "bench").write_text(synthetic.FAKE_BENCH, encoding="utf-8")
        (self.state / "bench").chmod(0o755)
        (self.state / "template.json").write_text(synthetic.template(), encoding="utf-8")
        self.stand_in("cmake", CMAKE)
        self.stand_in("ninja", NINJA)
        self.stand_in("c++", COMPILER)
        self.stand_in("ld.lld", "")
        (self.checkout / "harness").mkdir()
        shutil.copy(synthetic.SCRIPTS.parent / "harness" / "report.schema.json", self.checkout / "harness")
        for key, value in (("HOME", str(self.elsewhere)), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_AUTHOR_NAME", "a"),
                           ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@b")):
            self.environment[key] = value
        self.git("init", "--quiet", "--initial-branch=main")
        self.costs(COSTS)
        self.commit("v1")

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.checkout, env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def costs(self, costs):
        self.file("costs.json", json.dumps(costs))

    def file(self, name, text=""):
        (self.checkout / name).write_text(text, encoding="utf-8")

    def commit(self, tag):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", tag)
        self.git("tag", tag)

    def command(self, script, *arguments):
        return [str(self.checkout / "scripts" / script), *map(str, arguments)]

    def inside(self, main, module, *arguments, **environment):
        """Runs a command's main() in this process, which saves a second of imports each time. As run_script, else."""
        name = module.ME
        output, errors = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, self.environment | environment, clear=True), mock.patch.object(sys, "argv", [
                name, *map(str, arguments)]), mock.patch.object(module, "ROOT", str(self.checkout)), mock.patch.object(
                processes, "signals_end_in_order"), mock.patch.object(tempfile, "tempdir", str(self.tmp)), \
                contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                code = main()
            except SystemExit as ended:
                code = ended.code
        return subprocess.CompletedProcess([name, *arguments], code, output.getvalue(), errors.getvalue())

    def compare(self, *arguments, **environment):
        return self.inside(comparing.main, comparing, *arguments, **environment)

    def bench_calls(self):
        return [json.loads(line) for line in self.noted("bench-calls")]

    def assert_nothing_left(self):
        self.assert_no_temporary_files()
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertFalse(list((self.checkout / ".git").glob("worktrees/*")))


class Verdicts(RepositoryTest):
    def test_like_sides_pass_in_rounds_a_b_b_a_each_in_another_placement(self):
        self.commit("v2")
        json_file = self.elsewhere / "verdict.json"
        done = self.compare("v1", "v2", "--rounds", "10", "--json", json_file, "--markdown", self.elsewhere / "v.md", "--junit", self.elsewhere / "v.xml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("verdict: pass", done.stdout)
        for word in ("interval", "rank test", "could show", "coarse_slot", "locked_heap"):
            self.assertIn(word, done.stdout)
        verdict = json.loads(json_file.read_text(encoding="utf-8"))
        self.assertEqual(verdict["unit_of_resampling"], "rounds")
        self.assertTrue((self.elsewhere / "v.md").exists() and (self.elsewhere / "v.xml").exists())
        calls = self.bench_calls()
        self.assertEqual(len(calls), 20)
        sides = "".join("A" if "/bin-base/" in call[0] else "B" for call in calls)
        self.assertEqual(sides, "ABBA" * 5)
        for side in ("base", "head"):
            binaries = [call[0] for call in calls if f"/bin-{side}/" in call[0]]
            self.assertEqual(len(set(binaries)), 10)
        seeds = {word for line in self.noted("calls") for word in line.split() if "shuffle" in word and line.startswith("c++")}
        self.assertEqual(seeds, {f"-Wl,--shuffle-sections=.text*={seed}" for seed in range(1, 11)})
        self.assertTrue(all(call[1].count("--service") == 2 for call in calls), calls[0])
        self.assert_nothing_left()

    def test_a_slower_head_is_a_regression_that_names_the_row_whatever_its_flags(self):
        self.costs(COSTS | {"coarse_slot": 37.0 * 1.2, "flags": "-O1"})
        self.commit("v2")
        done = self.compare("v1", "v2")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("HEAD differs from BASE in how it is built, and is judged all the same: flags '-O1' against '-O3'", done.stdout)
        self.assertIn("coarse_slot arm_cancel", done.stdout)
        self.assertNotIn("locked_heap arm_cancel (", done.stdout)
        done = self.compare("v2", "v1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("improved", done.stdout)
        self.assert_nothing_left()

    def test_uncommitted_changes_are_the_head_and_it_says_so(self):
        self.costs(COSTS | {"coarse_slot": 37.0 * 1.5})
        done = self.run_script("compare", "v1", "--service", "coarse_slot")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("uncommitted changes", done.stderr)
        self.assertIn("working tree", done.stdout)
        self.assertEqual(json.loads((self.checkout / "costs.json").read_text())["coarse_slot"], 37.0 * 1.5)
        # Named, HEAD is the commit.
        done = self.compare("v1", "HEAD", "--service", "coarse_slot")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("nothing but noise", done.stderr)
        self.assert_nothing_left()

    def test_without_lld_padding_moves_the_code_and_keep_keeps(self):
        (self.bin / "ld.lld").unlink()
        self.stand_in("ninja", 'echo ": && c++ -O3 $2/padding-1.o a.o -o ${!#} && :"')
        done = self.compare("v1", "HEAD", "--keep", "--rounds", "10")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (folder,) = self.tmp.iterdir()
        self.assertIn(f"kept: {folder}", done.stderr)
        self.assertTrue(list(folder.glob("runs/round-009-B/arm_cancel.json")))
        self.assertIn("lld (Debian package lld) is not there", done.stderr)
        linked = [line for line in self.noted("calls") if line.startswith("c++") and "bin-" in line]
        self.assertEqual({word.rsplit("/", 1)[1] for line in linked for word in line.split() if "padding-" in word},
                         {f"padding-{seed}.o" for seed in range(1, 11)})

    def test_a_service_of_one_side_only_is_left_out_or_refused(self):
        self.costs(COSTS | {"twin": 37.0})
        self.commit("v2")
        done = self.compare("v1", "v2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("left out: twin (revision 'v1' (base) has no such service)", done.stderr)
        done = self.compare("v1", "v2", "--service", "twin")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--service 'twin': revision 'v1' (base) has no such service", done.stderr)

    def test_what_the_environment_holds_does_not_reach_the_runs_or_git(self):
        done = self.compare("v1", "HEAD", TIMERBENCH_PLANT="coarse_slot:percent:50", BENCHMARK_FILTER="x",
                            GIT_DIR="/nowhere", GIT_INDEX_FILE="/nowhere/index")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual({call[2] for call in self.bench_calls()}, {None})
        self.assert_nothing_left()


class Refusals(RepositoryTest):
    def refused(self, *words, arguments=("v1", "v2")):
        done = self.compare(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        last = done.stderr.rstrip().splitlines()[-1]
        for word in words:
            self.assertIn(word, last)
        self.assertNotIn("Traceback", done.stderr)
        self.assert_nothing_left()

    def test_bad_arguments(self):
        for arguments, word in ((("--rounds", "9", "v1"), "'9'"), (("--rounds", "x", "v1"), "'x'"), ((), "BASE"),
                                (("v1", "v1", "v1"), "v1"), (("--jobs", "0", "v1"), "'0'"), (("v1", "--alpha", "2"), "'2'"),
                                (("v1", "--json", "/nowhere/x.json"), "/nowhere/x.json"), (("v1", "--rules", "/nowhere"), "/nowhere"),
                                (("v1", "--exact", "--service", "twin"), "--exact"), (("nonsense",), "'nonsense'"), (("",), "''"),
                                (("v1", "-x"), "-x"), (("v1^{tree}",), "v1^{tree}")):
            with self.subTest(arguments=arguments):
                self.assert_one_line_exit_2(self.compare(*arguments), word)

    def test_no_repository(self):
        shutil.rmtree(self.checkout / ".git")
        self.assert_one_line_exit_2(self.compare("v1"), "no git checkout")

    def test_revisions_that_cannot_be_built_or_run(self):
        for name, words in (("uncompilable", ("revision 'v2'", "bench_arm_cancel", "expected ';'")),
                            ("unconfigurable", ("revision 'v2'", "configured", "no such thing")),
                            ("without-bench_arm_cancel", ("revision 'v2'", "has no bench_arm_cancel")),
                            ("broken", ("revision 'v2'", "bench_arm_cancel", "it fell over"))):
            with self.subTest(name=name):
                self.file(name)
                self.git("add", "--all")
                self.git("commit", "--quiet", "--message", name)
                self.git("tag", "--force", "v2")
                self.refused(*words)
                (self.checkout / name).unlink()
                self.git("add", "--all")
                self.git("commit", "--quiet", "--message", "again")

    def test_exact_needs_its_binary_on_both_sides(self):
        self.file("without-bench_exact")
        self.commit("v2")
        self.refused("revision 'v2'", "has no bench_exact", arguments=("v1", "v2", "--exact"))


class Interrupted(RepositoryTest):
    def test_signals_leave_no_worktree_no_folder_and_no_process(self):
        self.file("slow")
        self.commit("v2")
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                (self.state / "bench-calls").unlink(missing_ok=True)
                child = subprocess.Popen(self.command("compare", "v2", "HEAD"), cwd=self.elsewhere, env=self.environment,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                bound = time.monotonic() + 60
                while not self.noted("bench-calls") and time.monotonic() < bound:
                    time.sleep(0.02)
                self.assertEqual(len(self.git("worktree", "list").splitlines()), 3)
                running = self.bench_calls()[0][0]
                child.send_signal(number)
                output, errors = child.communicate(timeout=60)
                self.assertEqual(child.returncode, 130, output + errors)
                self.assertEqual(errors.rstrip().splitlines()[-1], "compare: interrupted; nothing is left behind")
                self.assertNotIn("Traceback", errors)
                self.assert_nothing_left()
                self.assertFalse(self.alive(running))

    @staticmethod
    def alive(program):
        for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if program.encode() in place.read_bytes():
                    return True
            except OSError:
                pass
        return False


if __name__ == "__main__":
    unittest.main()
