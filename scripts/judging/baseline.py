"""Finds the baseline a run is judged against, and makes a run the baseline."""

import os
import re
import shutil
import tempfile

from .reports import Fingerprint, NotAReport, Report, Unusable, load, load_folder, report_names
from .rules import Rules

OLD = re.compile(r".*\.old(\.[0-9]+)?")


class Refused(Exception):
    """A run that may not become the baseline; its text is the reason."""


def _fingerprint_of(folder: str, rules: Rules) -> Fingerprint | None:
    """The fingerprint of a folder's smallest judged report, None when it holds none."""
    paths = [os.path.join(folder, f"{name}.json") for name in report_names(folder) if name in rules.metrics]
    for path in sorted(paths, key=lambda path: (os.path.getsize(path), path)):
        try:
            return load(path).fingerprint()
        except NotAReport:
            continue
    return None


def candidates(results: str, rules: Rules) -> dict[str, Fingerprint]:
    """Folder and fingerprint of each baseline below `results`; those that an update put aside do not count."""
    try:
        names = sorted(os.listdir(results))
    except OSError:
        return {}
    found = {}
    for name in names:
        folder = os.path.join(results, name)
        if name.startswith(".") or OLD.fullmatch(name) or not os.path.isdir(folder):
            continue
        fingerprint = _fingerprint_of(folder, rules)
        if fingerprint is not None:
            found[folder] = fingerprint
    return found


def choose(results: str, rules: Rules, fingerprint: Fingerprint, experiments: set[str]) -> tuple[str | None, bool]:
    """The baseline for a run, and whether its fingerprint is the run's. Of several the one that shares most experiments.

    Where none fits, the one that differs in least: counts can be judged against it. None when there is no baseline.
    """
    def worth(item: tuple[str, Fingerprint]) -> tuple[int, int]:
        folder, other = item
        return (sum(mine == theirs for mine, theirs in zip(fingerprint, other)), len(experiments & set(report_names(folder))))

    found = candidates(results, rules)
    if not found:
        return None, False
    folder, other = max(found.items(), key=worth)
    return folder, other == fingerprint


def check_suitable(reports: list[Report]) -> None:
    """Raises Refused for what may never be a baseline."""
    for report in reports:
        obstacles = report.obstacles()
        if obstacles:
            raise Refused(f"{report.path!r} is marked {', '.join(obstacles)}")
        if report.quick or "QUICK RUN" in report.marks:
            raise Refused(f"{report.path!r} is a quick run; scripts/reproduce --full makes full ones")
        if report.environment["git"]["dirty"]:
            raise Refused(f"{report.path!r} was measured with uncommitted changes; commit them and measure again")
        failed = [check for check in report.checks if not check["ok"]]
        if failed:
            raise Refused(f"{report.path!r}: its own check {failed[0]['name']!r} failed")
        for row in report.rows.values():
            if row.error is not None:
                raise Refused(f"{report.path!r}: {row} is in error: {row.error}")
    for report in reports[1:]:
        differences = report.fingerprint().differences(reports[0].fingerprint())
        if differences:
            raise Refused(f"{report.path!r} and {reports[0].path!r} are of different contexts: {differences}")


def load_all(run_dirs: list[str]) -> list[Report]:
    """Every report of the folders, those of experiments that are not judged too. Raises Refused when one is there twice."""
    reports: dict[str, Report] = {}
    for folder in run_dirs:
        for name, report in load_folder(folder).items():
            if name in reports:
                raise Refused(f"{reports[name].path!r} and {report.path!r} are of the same experiment; a baseline is one run")
            reports[name] = report
    return list(reports.values())


def update(reports: list[Report], folder: str) -> str | None:
    """Makes these reports, and the text files beside them, the baseline in `folder`.

    What the folder held before is kept whole under another name, which is returned (None when there was nothing). Files that
    the run has no successor for stay in the new folder too. Either all of it happens or nothing. Raises Unusable.
    """
    folder = os.path.realpath(folder)
    parent, name = os.path.split(folder)
    staging = None
    try:
        staging = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
        new = os.path.join(staging, name)
        if os.path.isdir(folder):
            shutil.copytree(folder, new, symlinks=True)
        else:
            os.mkdir(new)
        for report in reports:
            for path in (report.path, os.path.splitext(report.path)[0] + ".txt"):
                target = os.path.join(new, os.path.basename(path))
                if os.path.lexists(target):
                    os.unlink(target)
                if os.path.isfile(path):
                    shutil.copyfile(path, target)
        kept = None
        if os.path.isdir(folder):
            kept = _free_name(folder)
            os.rename(folder, kept)
        try:
            os.rename(new, folder)
        except OSError:
            if kept is not None:
                os.rename(kept, folder)
            raise
        return kept
    except (OSError, shutil.Error) as error:
        raise Unusable(f"the baseline {folder!r} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _free_name(folder: str) -> str:
    """FOLDER.old, or the first of FOLDER.old.2, FOLDER.old.3, ... that is not taken."""
    name, number = f"{folder}.old", 1
    while os.path.lexists(name):
        number += 1
        name = f"{folder}.old.{number}"
    return name
