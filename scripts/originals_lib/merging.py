"""Joins the rows of many visits into rows of a report.

Samples are put one after the other in the order of the visits. A reason for an error in one visit makes the whole row one: what
was wrong once is not to be averaged away. A row is skipped when no visit has samples of it.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from judging import reports, statistics

RESAMPLES = 999
SEED = 20111
FEWEST_VISITS = 8  # to be resampled as such
UNIT_OF_TIME = "ns"
MANY = 400  # samples from which on the interval of the median is read from their ranks


@dataclass
class Joined:
    """One service x case x metric, all its visits."""

    service: str
    case: dict[str, Any]
    metric: str
    unit: str
    samples: list[float] = field(default_factory=list)
    clock_ns: list[float] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    single_events: bool = False
    notes: dict[str, None] = field(default_factory=dict)  # an ordered set
    skipped: str = ""
    error: str = ""


class Rows:
    """The rows of one experiment."""

    def __init__(self) -> None:
        self.joined: dict[tuple[str, str, str], Joined] = {}
        self._visits: dict[str, int] = {}

    def add_visit(self, program: str, order: int, rows: list[dict[str, Any]]) -> None:
        """The rows of one visit of a program; `order` is its place in the whole run."""
        number = self._visits.get(program, 0)
        self._visits[program] = number + 1
        seen: set[tuple[str, str, str]] = set()
        for row in rows:
            key = (row["service"], reports.canonical(row["case"]), row["metric"])
            joined = self.joined.setdefault(key, Joined(row["service"], row["case"], row["metric"], row["unit"]))
            if key in seen:
                joined.error = joined.error or "one visit gave this row twice"
                continue
            seen.add(key)
            _join(joined, row, number, order)

    def add_reason(self, service: str, *, skipped: str = "", error: str = "") -> None:
        """Why there are no figures of a service in this experiment."""
        self.joined.setdefault((service, "{}", "available"),
                               Joined(service, {}, "available", "1", skipped=skipped, error=error))

    def services(self) -> set[str]:
        return {joined.service for joined in self.joined.values()}

    def to_json(self) -> list[dict[str, Any]]:
        return [to_row(joined) for joined in self.joined.values()]


def _join(joined: Joined, row: dict[str, Any], number: int, order: int) -> None:
    if row["unit"] != joined.unit:
        joined.error = joined.error or f"its unit is {joined.unit!r} in one visit and {row['unit']!r} in another"
        return
    if row.get("note"):
        joined.notes[row["note"]] = None
    if "error" in row:
        joined.error = joined.error or row["error"]
    elif "skipped" in row:
        joined.skipped = joined.skipped or row["skipped"]
    else:
        # Counts and bytes have nothing to do with a clock.
        clocks = row.get("clock_ns") or [] if row["unit"].startswith(UNIT_OF_TIME) else []
        if joined.samples and bool(joined.clock_ns) != bool(clocks):
            joined.error = joined.error or "some visits have clock_ns and some have not"
            return
        joined.samples += row["samples"]
        joined.clock_ns += clocks
        joined.visits += [number] * len(row["samples"])
        joined.order += [order] * len(row["samples"])
        joined.single_events = joined.single_events or row.get("single_events") is True


def to_row(joined: Joined) -> dict[str, Any]:
    """The row as it stands in a report."""
    row: dict[str, Any] = {"service": joined.service, "case": joined.case, "metric": joined.metric, "unit": joined.unit}
    if joined.error or (not joined.samples and not joined.skipped):
        row["error"] = joined.error or "no visit gave samples"
    elif not joined.samples:
        row["skipped"] = joined.skipped
    else:
        row |= figures(joined)
    if joined.notes:
        row["note"] = "; ".join(joined.notes)
    return row


def figures(joined: Joined) -> dict[str, Any]:
    samples = np.array(joined.samples, dtype=float)
    visits = np.array(joined.visits)
    count = len(samples)

    def percentile(percent: float, fewest: int = 1) -> float | None:
        return float(np.percentile(samples, percent)) if count >= fewest else None

    row: dict[str, Any] = {"n": count, "min": float(samples.min()), "p10": percentile(10), "p50": percentile(50)}
    if joined.single_events:
        row |= {"p90": percentile(90, 100), "p99": percentile(99, 100)}
    row |= {"max": float(samples.max()), "mean": float(samples.mean()), "ci95": median_interval(samples, visits)}
    row["stddev"] = float(samples.std(ddof=1)) if count > 1 else None
    row["outliers"] = _outliers(samples)
    row["aa_gap"] = _gap(samples, visits)
    if joined.clock_ns and count > 1:
        clocks = np.array(joined.clock_ns, dtype=float)
        ratios = samples / clocks
        row["clock_ratio"] = {"n": count, "p50": float(np.median(ratios)), "ci95": median_interval(ratios, visits),
                              "min": float(samples.min() / clocks.min()),
                              "p10": float(np.percentile(samples, 10) / np.percentile(clocks, 10))}
    row["samples"] = joined.samples
    if joined.clock_ns:
        row["clock_ns"] = joined.clock_ns
    return row | {"visits": joined.visits, "visit_order": joined.order}


def median_interval(samples: np.ndarray, visits: np.ndarray) -> list[float] | None:
    """95 % interval of the median; None for a single sample.

    From the ranks where there are many samples, else by the bootstrap: of whole visits where there are enough, because samples of
    one visit share its disturbances.
    """
    count = len(samples)
    if count < 2:
        return None
    if count >= MANY:
        ordered = np.sort(samples)
        reach = 1.96 * math.sqrt(count) / 2
        return [float(ordered[max(math.floor(count / 2 - reach), 0)]),
                float(ordered[min(math.ceil(count / 2 + reach), count - 1)])]
    numbers = np.unique(visits)
    groups = [samples[visits == number] for number in numbers] if len(numbers) >= FEWEST_VISITS else [samples[i:i + 1] for i in range(count)]
    draws = np.random.default_rng(SEED).integers(len(groups), size=(RESAMPLES, len(groups)))
    if len({len(group) for group in groups}) == 1:
        medians = np.median(np.stack(groups)[draws].reshape(RESAMPLES, -1), axis=1)
    else:
        medians = np.array([np.median(np.concatenate([groups[i] for i in draw])) for draw in draws])
    low, high = np.percentile(medians, [2.5, 97.5])
    return [float(low), float(high)]


def _outliers(samples: np.ndarray) -> dict[str, int]:
    """Counts beyond Tukey's fences at 1.5 interquartile ranges."""
    if len(samples) < 4:
        return {"low": 0, "high": 0}
    first, third = np.percentile(samples, [25, 75])
    reach = 1.5 * (third - first)
    return {"low": int(np.sum(samples < first - reach)), "high": int(np.sum(samples > third + reach))}


def _gap(samples: np.ndarray, visits: np.ndarray) -> float | None:
    """A row against itself: its even visits against its odd ones, relative to the median."""
    blocks = statistics.block_medians(samples, visits) if len(np.unique(visits)) >= 2 else samples
    middle = float(np.median(samples))
    if len(blocks) < 2 or middle <= 0:
        return None
    return float(abs(np.median(blocks[::2]) - np.median(blocks[1::2])) / middle)
