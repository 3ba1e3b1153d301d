"""Runs as pandas frames, a line for each row of a report, and how to choose among the lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import numpy as np
import pandas as pd

from timerbench_reports import ORIGINALS, Run, chosen_folders, is_number, read_runs
from timerbench_style import Palette, plain


class Missing(Exception):
    """There is nothing to draw; the text says why."""


class Runs:
    """The runs that are loaded, and the look of their services."""

    def __init__(self, runs: list[Run]):
        self.all = runs
        names = {}
        for run in runs:
            for experiment in sorted(run.reports, key=lambda name: (name != "arm_cancel", name.startswith(ORIGINALS), name)):
                names |= dict.fromkeys(row["service"] for row in run.reports[experiment]["rows"])
        self.palette = Palette(names)
        self._frames: dict[str, pd.DataFrame] = {}

    def having(self, experiment: str) -> list[Run]:
        """The runs that have a report of the experiment. Raises Missing when none has."""
        found = [run for run in self.all if experiment in run.reports]
        if not found:
            maker = "scripts/originals" if experiment.startswith(f"{ORIGINALS}/") else f"bench_{experiment}"
            raise Missing(f"No picture: there is no report of {experiment} in {', '.join(run.label for run in self.all)}; {maker} makes one.")
        return found

    def without(self, experiment: str) -> list[str]:
        return [f"{run.label} has no report of {experiment}." for run in self.all if experiment not in run.reports]

    def experiments(self) -> list[str]:
        return list(dict.fromkeys(name for run in self.all for name in run.reports))

    def frame(self, experiment: str) -> pd.DataFrame:
        """A line for each row of the experiment's reports. `case` is the row's case in JSON; each name in it is a column as
        well, `case.NAME`. low and high bound the 95 % interval of the median, clock* are relative to a clock reading: the one
        beside it where there is a single sample."""
        if experiment not in self._frames:
            lines = []
            for run in self.all:
                for row in run.reports.get(experiment, {}).get("rows", ()):
                    clock = row.get("clock_ratio") or {}
                    low, high = row.get("ci95") or (np.nan, np.nan)
                    clock_low, clock_high = clock.get("ci95") or (np.nan, np.nan)
                    lines.append({
                        "run": run.label, "service": row["service"], "metric": row["metric"], "unit": row.get("unit", ""),
                        **{name: _figure(row.get(name)) for name in ("p50", "mean", "min", "p10", "p90", "p99", "max", "aa_gap")},
                        "n": row.get("n") or 0, "low": low, "high": high, "clock": _figure(clock.get("p50")) if clock else _clock_of_one(row),
                        "clock_low": clock_low, "clock_high": clock_high, "samples": row.get("samples"),
                        "skipped": row.get("skipped") or "", "error": row.get("error") or "", "note": row.get("note") or "",
                        "case": json.dumps(row["case"], sort_keys=True),
                        **{f"case.{name}": value if isinstance(value, (str, int, float, bool)) else json.dumps(value)
                           for name, value in row["case"].items()}})
            self._frames[experiment] = pd.DataFrame(lines)
        return self._frames[experiment]


def _figure(value: object) -> float:
    return float(value) if is_number(value) else np.nan


def _clock_of_one(row: dict) -> float:
    samples, clocks = row.get("samples"), row.get("clock_ns")
    alone = isinstance(clocks, list) and isinstance(samples, list) and len(samples) == len(clocks) == 1
    return samples[0] / clocks[0] if alone and is_number(clocks[0]) and clocks[0] > 0 else np.nan


def load(folders: Iterable[str | os.PathLike]) -> Runs:
    """Reads folders of reports. Raises Unusable: one line that names the file and the row."""
    return Runs(read_runs(list(folders)))


def chosen() -> Runs:
    """Loads $TIMERBENCH_RESULTS (a JSON list of folders), else out/ when it holds reports, else all of results/."""
    return load(chosen_folders())


# --- choosing rows ---


def select(frame: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """The lines that have these values; a name is that of a column, or of a value of the case."""
    for name, value in wanted.items():
        column = name if name in ("run", "service", "metric", "case", "unit") else f"case.{name}"
        if column not in frame:
            return frame.iloc[0:0]
        frame = frame[frame[column] == value]
    return frame


def best_case(frame: pd.DataFrame, preferred: list[tuple[str, object]]) -> str | None:
    """The case that agrees with the longest run of the preferred values; the first of equals."""
    if frame.empty:
        return None
    cases = list(dict.fromkeys(frame["case"]))
    return max(cases, key=lambda case: [json.loads(case).get(name) == value for name, value in preferred])


def measured(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["p50"].notna()] if not frame.empty else frame


def reasons(frame: pd.DataFrame, having: list[Run]) -> list[str]:
    """One sentence for each reason for which lines have no figure; with the run's name where there are several runs."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for line in frame.itertuples() if not frame.empty else ():
        if line.skipped or line.error:
            reason = f"skipped: {line.skipped}" if line.skipped else f"in error: {line.error}"
            found.setdefault((line.run, reason), {})[line.service] = None
    sentences = []
    for (run, reason), services in found.items():
        everybody = len(services) > 4 and len(services) == frame[frame["run"] == run]["service"].nunique()
        sentences.append((f"{run}: " if len(having) > 1 else "") + ("some rows of all services" if everybody else ", ".join(services)) + f" {reason}.")
    return sentences


def duration_text(milliseconds: object) -> str:
    """3000 -> 3 s; "1000..60000" -> 1 to 60 s"""
    ends = str(milliseconds).split("..")
    if not all(end.isdigit() for end in ends):
        return str(milliseconds)
    values = [int(end) for end in ends]
    if all(value >= 1000 for value in values):
        return " to ".join(f"{value / 1000:g}" for value in values) + " s"
    return " to ".join(map(str, values)) + " ms"


def case_text(case: str, leave_out: Iterable[str] = ()) -> str:
    """A case in words."""
    words = []
    for name, value in json.loads(case).items():
        if name in leave_out:
            continue
        figure = plain(value) if is_number(value) else str(value)
        words.append({"duration_ms": duration_text(value), "cancel": f"{figure} cancelled", "deadline": f"{figure} deadline",
                      "population": f"{figure} others armed"}.get(name, figure if isinstance(value, str) else
                                                                  f"{name.replace('_', ' ')} {figure}"))
    return ", ".join(words) or "one case"
