"""Counts the tests in a JUnit file of ctest: prints "PASSED FAILED SKIPPED".

Every test case is counted by its own status, not by the totals in the file's head. A test that was disabled or skipped
is neither passed nor failed. Exit code 2 and one line on standard error when the file cannot be read as what it is.
"""

import sys
import xml.etree.ElementTree as ET


def count(path):
    """Returns (passed, failed, skipped) of the file at `path`. Raises OSError or ET.ParseError."""
    passed = failed = skipped = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run" and case.find("failure") is None and case.find("error") is None:
            passed += 1
        elif status in ("disabled", "notrun") and (status == "disabled" or _skipped_by_choice(case)):
            skipped += 1
        else:
            failed += 1
    return passed, failed, skipped


def _skipped_by_choice(case):
    """ctest says "notrun" both for a test that skipped itself and for one whose binary is missing."""
    skipped = case.find("skipped")
    return skipped is not None and "SKIP" in (skipped.get("message") or "").upper()


def main():
    if len(sys.argv) != 2:
        print("usage: count_tests.py FILE", file=sys.stderr)
        return 2
    try:
        print(*count(sys.argv[1]))
    except (OSError, ET.ParseError, UnicodeDecodeError) as error:
        print(f"count_tests: {sys.argv[1]!r} is not a result of ctest: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
