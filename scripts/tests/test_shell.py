"""Every shell script parses, is executable where it is a command, and is clean for shellcheck where that is installed."""

import os
import shutil
import subprocess
import unittest

from sandbox import SCRIPTS

COMMANDS = [SCRIPTS / "setup", SCRIPTS / "reproduce", SCRIPTS / "test", SCRIPTS / "notebook", SCRIPTS.parent / ".ci" / "run",
            SCRIPTS.parent / ".ci" / "gate"]


class Shell(unittest.TestCase):
    def test_syntax(self):
        for path in [*COMMANDS, SCRIPTS / "lib.sh"]:
            subprocess.run(["bash", "-n", path], check=True)

    def test_executable(self):
        for path in [*COMMANDS, SCRIPTS / "summary"]:
            self.assertTrue(os.access(path, os.X_OK), path)

    def test_help(self):
        for path in [*COMMANDS[:4], SCRIPTS / "summary"]:
            result = subprocess.run([path, "--help"], check=False, capture_output=True, text=True)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("usage:", result.stdout)

    def test_shellcheck(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("shellcheck is not installed")
        result = subprocess.run(["shellcheck", "-x", *COMMANDS], check=False, capture_output=True, text=True)
        self.assertEqual(result.stdout + result.stderr, "")


if __name__ == "__main__":
    unittest.main()
