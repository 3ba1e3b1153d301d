"""scripts/readme: the figures in README.md are what their commands print."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from sandbox import SCRIPTS

SUMMARY = "#!/usr/bin/env python3\nprint('figure 42', *__import__('sys').argv[1:])\n"


class Readme(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench readme ")
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(SCRIPTS / "readme", self.root / "scripts" / "readme")
        summary = self.root / "scripts" / "summary"
        summary.write_text(SUMMARY, encoding="utf-8")
        summary.chmod(0o755)

    def run_readme(self, text, *arguments):
        path = self.root / "README.md"
        path.write_text(text, encoding="utf-8")
        result = subprocess.run([sys.executable, self.root / "scripts" / "readme", *arguments], check=False,
                                capture_output=True, text=True, timeout=60)
        self.assertNotIn("Traceback", result.stderr)
        return result, path.read_text(encoding="utf-8")

    def test_a_block_is_filled_and_then_up_to_date(self):
        text = "before\n<!-- figures: scripts/summary --table x -->\nold\n<!-- end of figures -->\nafter\n"
        result, filled = self.run_readme(text)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("$ scripts/summary --table x\nfigure 42 --table x\n", filled)
        self.assertNotIn("old", filled)
        self.assertTrue(filled.startswith("before\n") and filled.endswith("after\n"))
        result, again = self.run_readme(filled, "--check")
        self.assertEqual((result.returncode, again), (0, filled))

    def test_an_edited_figure_is_noticed(self):
        text = "<!-- figures: scripts/summary -->\n```\n$ scripts/summary\nfigure 41\n```\n<!-- end of figures -->\n"
        result, unchanged = self.run_readme(text, "--check")
        self.assertEqual((result.returncode, unchanged), (1, text))

    def originals(self):
        path = self.root / "scripts" / "originals"
        path.write_text("#!/usr/bin/env python3\nprint('| a | b |')\n", encoding="utf-8")
        path.chmod(0o755)
        return "<!-- figures: scripts/originals --table results/m/originals -->\nold\n<!-- end of figures -->\n"

    def test_markdown_stands_as_it_is_with_its_command(self):
        text = self.originals()
        (self.root / "results" / "m" / "originals").mkdir(parents=True)
        result, _ = self.run_readme(text, "--check")
        self.assertEqual(result.returncode, 1)
        result, filled = self.run_readme(text)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("-->\n| a | b |\n\nMade by `scripts/originals --table results/m/originals`.\n<!--", filled)
        result, again = self.run_readme(filled, "--check")
        self.assertEqual((result.returncode, again), (0, filled))

    def test_originals_that_were_not_run_are_left_alone(self):
        text = self.originals()
        for arguments in ((), ("--check",)):
            result, unchanged = self.run_readme(text, *arguments)
            self.assertEqual((result.returncode, result.stdout + result.stderr, unchanged), (0, "", text))

    def test_other_commands_are_refused(self):
        result, _ = self.run_readme("<!-- figures: rm -rf x -->\n<!-- end of figures -->\n")
        self.assertEqual(result.returncode, 2)
        self.assertIn("rm -rf x", result.stderr)

    def test_no_marker(self):
        result, _ = self.run_readme("nothing\n")
        self.assertEqual(result.returncode, 2)

    def test_pages_in_docs_are_looked_after_too(self):
        (self.root / "docs").mkdir()
        page = self.root / "docs" / "page.md"
        fresh = "<!-- figures: scripts/summary -->\n```\n$ scripts/summary\nfigure 42\n```\n<!-- end of figures -->\n"
        page.write_text(fresh.replace("42", "41"), encoding="utf-8")
        result, _ = self.run_readme(fresh, "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("docs/page.md", result.stderr)
        result, _ = self.run_readme(fresh)
        self.assertEqual((result.returncode, page.read_text(encoding="utf-8")), (0, fresh))
        page.write_text("no figures\n", encoding="utf-8")
        result, _ = self.run_readme(fresh, "--check")
        self.assertEqual(result.returncode, 0, result.stderr)


class Committed(unittest.TestCase):
    def test_the_readme_of_this_checkout_is_up_to_date(self):
        result = subprocess.run([sys.executable, SCRIPTS / "readme", "--check"], check=False, capture_output=True, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, 0, result.stderr)



if __name__ == "__main__":
    unittest.main()
