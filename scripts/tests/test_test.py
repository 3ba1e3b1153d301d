"""scripts/test and the counting behind it, with cmake and ctest replaced."""

import subprocess
import sys
import unittest

from sandbox import SCRIPTS, SandboxTest

CASE = {
    "pass": '<testcase name="a" status="run"/>',
    "fail": '<testcase name="b" status="fail"><failure message=""/></testcase>',
    "skip": '<testcase name="c" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>',
    "missing": '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>',
    "fixture": '<testcase name="e" status="notrun"><skipped message="Fixture dependency failed"/></testcase>',
    "disabled": '<testcase name="f" status="disabled"/>',
}


def junit(*kinds):
    return "<testsuite>" + "".join(CASE[kind] for kind in kinds) + "</testsuite>"


# Writes state/<preset>.xml to where the results are wanted; ends with the code in state/ctest-exit.
CTEST = r"""
echo "$* aslr=${UNDER_SETARCH:-on}" >>"$STATE/ctest-calls"
while (($#)); do
    case $1 in --preset) preset=$2 ;; --output-junit) file=$2 ;; esac
    shift
done
[[ ! -e $STATE/$preset.xml ]] || cat "$STATE/$preset.xml" >"$file"
[[ ! -e $STATE/ctest-exit ]] || exit "$(cat "$STATE/ctest-exit")"
"""

# Compiles a program that starts only below setarch when state/wide-aslr is there.
COMPILER = r"""
while (($#)); do [[ $1 != -o ]] || out=$2; shift; done
printf '#!/bin/bash\n[[ ! -e "$STATE/wide-aslr" || -n ${UNDER_SETARCH:-} ]]\n' >"$out"
/bin/chmod +x "$out"
"""


class Test(SandboxTest):
    def setUp(self):
        super().setUp()
        self.stand_in("cmake", 'echo "$* aslr=${UNDER_SETARCH:-on}" >>"$STATE/cmake-calls"\n'
                               '[[ ! -e $STATE/build-fails || $* != *"$(cat "$STATE/build-fails")"* ]]')
        self.stand_in("ctest", CTEST)
        self.stand_in("c++", COMPILER)
        (self.bin / "setarch").unlink()
        self.stand_in("setarch", '[[ $1 == -R ]] || exit 9; shift; UNDER_SETARCH=off exec "$@"')
        for preset in ("release", "asan", "tsan"):
            self.flag(f"{preset}.xml", junit("pass", "pass", "skip"))

    def last_line(self, result):
        return result.stdout.splitlines()[-1]

    def test_sums_over_the_presets(self):
        result = self.run_script("test", "--jobs", "3")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertEqual(self.last_line(result), "6 passed, 0 failed")
        for preset in ("release", "asan", "tsan"):
            self.assertIn(f"test: {preset}: 2 passed, 0 failed, 1 skipped in ", result.stdout)
        self.assertEqual(len(self.noted("ctest-calls")), 3)
        self.assertIn("--parallel 6", self.noted("ctest-calls")[0])
        self.assert_no_temporary_files()

    def test_one_preset(self):
        result = self.run_script("test", "--preset", "asan", "--preset=asan")
        self.assertEqual(self.last_line(result), "2 passed, 0 failed")
        self.assertIn("--preset asan", self.noted("ctest-calls")[0])

    def test_failures_count(self):
        self.flag("tsan.xml", junit("pass", "fail", "missing", "fixture", "disabled"))
        self.flag("ctest-exit", "8")
        for preset in ("release", "asan"):
            self.flag(f"{preset}.xml", junit("fail"))
        result = self.run_script("test")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.last_line(result), "1 passed, 5 failed")

    def test_exit_code_of_ctest_counts_even_if_no_case_failed(self):
        self.flag("ctest-exit", "8")
        result = self.run_script("test", "--preset", "release")
        self.assertEqual((result.returncode, self.last_line(result)), (1, "2 passed, 1 failed"))

    def test_zero_tests_is_a_failure(self):
        self.flag("release.xml", junit())
        result = self.run_script("test", "--preset", "release")
        self.assertEqual((result.returncode, self.last_line(result)), (1, "0 passed, 1 failed"))
        self.assertIn("no tests were found", result.stdout)

    def test_only_skipped_tests_is_a_failure(self):
        self.flag("release.xml", junit("skip", "disabled"))
        self.assertEqual(self.run_script("test", "--preset", "release").returncode, 1)

    def test_no_results_and_broken_results_are_failures(self):
        for text in (None, "", "<testsuite><testcase"):
            with self.subTest(text=text):
                (self.state / "release.xml").unlink(missing_ok=True)
                if text is not None:
                    self.flag("release.xml", text)
                result = self.run_script("test", "--preset", "release")
                self.assertEqual((result.returncode, self.last_line(result)), (1, "0 passed, 1 failed"))

    def test_a_preset_that_does_not_build_is_one_failure_and_stops_no_other(self):
        self.flag("build-fails", "--build --preset asan")
        result = self.run_script("test")
        self.assertEqual((result.returncode, self.last_line(result)), (1, "4 passed, 1 failed"))
        self.assertIn("asan: 0 passed, 1 failed, 0 skipped", result.stdout)

    def test_a_preset_that_does_not_configure_is_one_failure(self):
        self.flag("build-fails", "--preset release")
        result = self.run_script("test", "--preset", "release")
        self.assertEqual((result.returncode, self.last_line(result)), (1, "0 passed, 1 failed"))

    def test_thread_sanitizer_under_wide_randomisation(self):
        self.flag("wide-aslr")
        result = self.run_script("test", "--preset", "tsan", "--preset", "release", "--preset", "asan")
        self.assertEqual(self.last_line(result), "6 passed, 0 failed")
        self.assertIn("setarch -R", result.stdout)
        for calls in (self.noted("ctest-calls"), self.noted("cmake-calls")):
            for call in calls:
                self.assertEqual("tsan" in call, call.endswith("aslr=off"), call)

    def test_starts_afresh_when_the_build_folder_is_of_another_checkout_or_compiler(self):
        folder = self.checkout / "build" / "release"
        folder.mkdir(parents=True)
        cache = "CMAKE_HOME_DIRECTORY:INTERNAL={}\nCMAKE_CXX_COMPILER:FILEPATH={}\n"
        compiler = str(self.bin / "c++")
        for home, environment, fresh in ((self.checkout, {}, False), ("/another", {}, True),
                                         (self.checkout, {"CXX": "c++"}, False), (self.checkout, {"CXX": "bash"}, True)):
            with self.subTest(home=home, environment=environment):
                (self.state / "cmake-calls").unlink(missing_ok=True)
                (folder / "CMakeCache.txt").write_text(cache.format(home, compiler), encoding="utf-8")
                self.run_script("test", "--preset", "release", **environment)
                self.assertEqual("--fresh" in self.noted("cmake-calls")[0], fresh)

    def test_bad_options(self):
        for arguments, word in ((["--preset", "debug"], "'debug'"), (["--preset"], "--preset"),
                                (["--preset", ""], "''"), (["--preset", "asan tsan"], "'asan tsan'"),
                                (["--jobs", "many"], "'many'"), (["release"], "'release'")):
            with self.subTest(arguments=arguments):
                self.assert_one_line_exit_2(self.run_script("test", *arguments), word)
                self.assertEqual(self.noted("cmake-calls"), [])


class CountTests(unittest.TestCase):
    def count(self, path):
        return subprocess.run([sys.executable, SCRIPTS / "count_tests.py", path], check=False, capture_output=True, text=True)

    def test_what_cannot_be_read(self):
        for path in ("/nonexistent.xml", "/", "/bin/sh"):
            result = self.count(path)
            self.assertEqual((result.returncode, result.stdout, result.stderr.count("\n")), (2, "", 1), result.stderr)


if __name__ == "__main__":
    unittest.main()
