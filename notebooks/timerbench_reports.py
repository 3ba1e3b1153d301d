"""Reads folders of reports. Standard library only, so that bad input can be told before anything slow begins.

`folder` is one run: one report of each experiment; those in its folder `originals`, of the originals beside ours, go by
the name originals/EXPERIMENT, also where that folder itself is given. What cannot be read raises `Unusable`, whose text
is one line that names the file and, where there is one, the row.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import sys
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORIGINALS = "originals"
SCHEMA = "timerbench.report/"
VERSION = 1
FIGURES = ("p50", "mean", "min", "p10", "p90", "p99", "p999", "max", "n", "aa_gap")

sys.path.insert(0, str(ROOT / "scripts"))
from check_reports import load_strict  # noqa: E402 # the path above leads to it


class Unusable(Exception):
    """Input that cannot be used; the text is one line."""


@dataclass
class Run:
    """One folder. `label` is its name, made different from the names of the others."""

    folder: pathlib.Path
    label: str
    reports: dict[str, dict] = field(default_factory=dict)

    def marks(self, experiment: str | None = None) -> list[str]:
        """What forbids to quote the report (QUICK RUN, DEBUG BUILD, a sanitizer); without an experiment, of any report."""
        names = self.reports if experiment is None else [experiment] if experiment in self.reports else []
        found: dict[str, None] = {}
        for name in names:
            report = self.reports[name]
            marks = report.get("marks")
            found |= dict.fromkeys(str(mark) for mark in (marks if isinstance(marks, list) else []))
            if report.get("quick") is True:
                found["QUICK RUN"] = None
        return list(found)

    def environment(self, experiment: str | None = None) -> dict:
        """The environment of that report, else of the first one; {} when there is none."""
        reports = [self.reports[experiment]] if experiment in self.reports else list(self.reports.values())
        environment = reports[0].get("environment") if reports else None
        return environment if isinstance(environment, dict) else {}

    def cores(self, experiment: str | None = None) -> int | None:
        """Processors the run could use, None when the report does not say."""
        cpu = self.environment(experiment).get("cpu")
        cores = cpu.get("usable") if isinstance(cpu, dict) else None
        return cores if isinstance(cores, int) and not isinstance(cores, bool) and cores > 0 else None

    def machine(self, experiment: str | None = None) -> str:
        """The machine in a few words."""
        environment = self.environment(experiment)
        cpu = environment.get("cpu") if isinstance(environment.get("cpu"), dict) else {}
        cores = self.cores(experiment)
        words = [str(cpu["model"])[:48] if cpu.get("model") else "", f"{cores} core{'s' * (cores != 1)}" if cores else "",
                 "virtual machine" if cpu.get("virtual_machine") is True else "",
                 str(environment.get("compiler", ""))[:32], str(environment.get("started_utc", ""))[:10]]
        return ", ".join(word for word in words if word)


def shorten(text: object, width: int) -> str:
    """One line of at most `width` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_row(row: object) -> str | None:
    """What is wrong with a row, None when it can be drawn."""
    if not isinstance(row, dict):
        return "is not an object"
    for name in ("service", "metric"):
        if not isinstance(row.get(name), str) or not row[name]:
            return f"has no {name}"
    if not isinstance(row.get("case"), dict):
        return "has no case"
    if row.get("skipped") or row.get("error"):
        return None
    for name in FIGURES:
        if row.get(name) is not None and not is_number(row[name]):
            return f"has a {name} that is not a number"
    if not is_number(row.get("p50")):
        return "has neither a p50 nor a reason for having none"
    samples = row.get("samples")
    if not isinstance(samples, list) or not samples or not all(map(is_number, samples)):
        return "has no samples, or one that is not a number"
    clock = row.get("clock_ratio") or {}
    if not isinstance(clock, dict):
        return "has a clock_ratio that is not an object"
    for interval in (row.get("ci95"), clock.get("ci95")):
        if interval is not None and not (isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval))):
            return "has an interval that is not two numbers"
    return None


def read_report(path: pathlib.Path) -> dict | None:
    """Returns the report; None for another kind of file of this project (its schema says timerbench., not a report)."""
    try:
        report = load_strict(path)
    except (OSError, ValueError, RecursionError) as error:
        raise Unusable(f"{str(path)!r} cannot be read: {shorten(error, 120)}") from None
    schema = report.get("schema") if isinstance(report, dict) else None
    if not isinstance(schema, str) or not schema.startswith("timerbench."):
        raise Unusable(f"{str(path)!r} is not a timerbench report; keep other JSON files elsewhere")
    if not schema.startswith(SCHEMA):
        return None
    version = schema[len(SCHEMA):]
    if version != str(VERSION):
        raise Unusable(f"{str(path)!r} has schema {shorten(schema, 40)!r}; this notebook reads {SCHEMA}{VERSION}")
    if not isinstance(report.get("experiment"), str) or not report["experiment"]:
        raise Unusable(f"{str(path)!r} does not say which experiment it is of")
    if not isinstance(report.get("rows"), list):
        raise Unusable(f"{str(path)!r} has no list of rows")
    seen = set()
    for position, row in enumerate(report["rows"]):
        wrong = _check_row(row)
        if wrong is None:
            key = (row["service"], row["metric"], json.dumps(row["case"], sort_keys=True))
            wrong = "stands there twice" if key in seen else None
            seen.add(key)
        if wrong:
            name = " ".join(str(row.get(key, "")) for key in ("service", "metric")) if isinstance(row, dict) else ""
            raise Unusable(f"{str(path)!r}: row {position} ({shorten(name, 60)}) {wrong}")
    return report


def report_paths(folder: str | os.PathLike) -> list[pathlib.Path]:
    """The JSON files of a folder, sorted by name."""
    try:
        with os.scandir(folder) as entries:
            return sorted(pathlib.Path(entry.path) for entry in entries
                          if entry.name.endswith(".json") and not entry.name.startswith(".") and entry.is_file())
    except OSError as error:
        raise Unusable(f"{str(folder)!r} is no folder that can be read ({error.strerror}); give a folder with reports") from None


def default_folders(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
    """out/ when it holds reports, else every folder in results/ that does."""
    out = root / "out"
    if out.is_dir() and report_paths(out):
        return [out]
    results = root / "results"
    # A replaced baseline keeps its folder under a name of its own.
    folders = sorted(path for path in results.iterdir() if path.is_dir() and ".old" not in path.name) if results.is_dir() else []
    return [folder for folder in folders if report_paths(folder)]


def chosen_folders() -> list[pathlib.Path]:
    """The folders in $TIMERBENCH_RESULTS (a JSON list), else the default ones."""
    chosen = os.environ.get("TIMERBENCH_RESULTS")
    return [pathlib.Path(folder) for folder in json.loads(chosen)] if chosen else default_folders()


def _labels(folders: list[pathlib.Path]) -> list[str]:
    """The last part of each path, with as many parts before it as make all of them differ, else numbered."""
    paths = [pathlib.Path(os.path.abspath(folder)) for folder in folders]
    for parts in range(1, 4):
        labels = ["/".join(path.parts[-parts:]) or "/" for path in paths]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]


def _read_folder(run: Run, folder: pathlib.Path, prefix: str) -> None:
    for file in report_paths(folder):
        report = read_report(file)
        if report is None:
            continue
        name = prefix + report["experiment"]
        if name in run.reports:
            raise Unusable(f"{str(file)!r} is a second report of {report['experiment']!r} in its folder")
        run.reports[name] = report


def read_runs(folders: list[str | os.PathLike]) -> list[Run]:
    """Reads each folder. Raises Unusable, also for a folder that holds no report."""
    if not folders:
        raise Unusable("there are no reports in out/ and none in results/; scripts/reproduce makes some")
    paths = [pathlib.Path(folder) for folder in folders]
    runs = []
    for path, label in zip(paths, _labels(paths)):
        run = Run(path, label)
        _read_folder(run, path, f"{ORIGINALS}/" if pathlib.Path(os.path.abspath(path)).name == ORIGINALS else "")
        if (path / ORIGINALS).is_dir():
            _read_folder(run, path / ORIGINALS, f"{ORIGINALS}/")
        if not run.reports:
            raise Unusable(f"{str(path)!r} holds no report (*.json); scripts/reproduce makes some")
        runs.append(run)
    return runs
