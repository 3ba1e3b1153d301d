"""scripts/check_reports.py: what is not strict JSON, what the schema refuses, what the file's name must say."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from sandbox import SCRIPTS

SCHEMA = {"type": "object", "required": ["schema"], "properties": {"seed": {"type": "integer"}}}
GOOD = '{"schema": "timerbench.report/1", "experiment": "allocs", "seed": 1, "rows": [{"p50": 1.5}]}'


class CheckReports(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench check ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.schema = self.folder / "schema"
        self.schema.write_text(json.dumps(SCHEMA), encoding="utf-8")

    def check(self, content, name="allocs"):
        path = self.folder / f"{name}.json"
        path.write_text(content, encoding="utf-8")
        result = subprocess.run([sys.executable, SCRIPTS / "check_reports.py", "--schema", self.schema, path],
                                check=False, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.stderr, "")
        self.assertEqual(result.stdout.count("\n"), 1)
        return result

    def test_good(self):
        result = self.check(GOOD)
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_not_strict(self):
        for value in ("NaN", "Infinity", "-Infinity", "1,5", "01", "'x'", "1.", "// no"):
            with self.subTest(value=value):
                self.assertEqual(self.check(GOOD.replace("1.5", value)).returncode, 1)

    def test_name_given_twice(self):
        result = self.check(GOOD.replace('"seed": 1', '"seed": 1, "seed": 2'))
        self.assertEqual(result.returncode, 1)
        self.assertIn("'seed'", result.stdout)

    def test_truncated(self):
        for length in (0, 1, len(GOOD) // 2, len(GOOD) - 1):
            self.assertEqual(self.check(GOOD[:length]).returncode, 1)

    def test_schema(self):
        try:
            import jsonschema  # noqa: F401
        except ImportError:
            self.skipTest("python3-jsonschema is not installed")
        result = self.check(GOOD.replace('"seed": 1', '"seed": "one"'))
        self.assertEqual(result.returncode, 1)
        self.assertIn("seed", result.stdout)

    def test_file_of_another_experiment(self):
        self.assertEqual(self.check(GOOD, "scaling").returncode, 1)

    def test_no_rows(self):
        self.assertEqual(self.check(GOOD.replace('{"p50": 1.5}', "")).returncode, 1)

    def test_not_an_object(self):
        self.assertEqual(self.check("[]").returncode, 1)

    def test_missing_file_and_missing_schema(self):
        script = [sys.executable, SCRIPTS / "check_reports.py"]
        result = subprocess.run([*script, self.folder / "none.json"], check=False, capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout.count("\n")), (1, 1))
        result = subprocess.run([*script, "--schema", self.folder / "none", self.folder / "x.json"], check=False,
                                capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)


if __name__ == "__main__":
    unittest.main()
