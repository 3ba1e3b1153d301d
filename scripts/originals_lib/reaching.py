"""The numbers to reach, judged: this project's services against the originals of the same run.

Times are compared in clock readings taken beside each sample, so that a slow spell of the machine does not fall to one side. A ratio
is one of medians, with the interval of statistics.py over visits where there are several, else over batches. A number is reached or
missed when the whole interval says so, cannot be decided when the limit lies inside, and is not measured when a side is not there.
"""

import math
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Mapping

import numpy as np
from judging import reports, statistics

from . import systems

Rows = Mapping[tuple[str, str, str], dict[str, Any]]
REACHED, MISSED, UNDECIDED, UNMEASURED = "reached", "missed", "cannot decide", "not measured"
TRIM = (0.25, 0.25)
FEWEST_BLOCKS = 4
POPULATIONS = (0, 10_000, 1_000_000)
DURATIONS_MS = (1, 5, 10, 25, 100)


@dataclass(frozen=True)
class Finding:
    """One number to reach, and what was found."""

    what: str
    limit: str
    verdict: str
    detail: str


def by_key(report: dict[str, Any] | None) -> Rows:
    """The rows of a report by service, case and metric."""
    rows = report["rows"] if report else []
    return {(row["service"], reports.canonical(row["case"]), row["metric"]): row for row in rows}


def article(population: int) -> str:
    return reports.canonical({"kind": "article", "population": population, "duration_ms": 1000, "regime": "saturating"})


def why_absent(row: dict[str, Any] | None) -> str:
    """Why a row has no figures; empty when it has."""
    if row is None:
        return "no row"
    if row.get("skipped"):
        return row["skipped"]
    if row.get("error"):
        return f"error: {row['error']}"
    return ""


def in_clocks(row: dict[str, Any]) -> float:
    """What rows are compared by: the median in clock readings, without them in the row's unit."""
    return row["clock_ratio"]["p50"] if "clock_ratio" in row else row["p50"]


def _blocks(row: dict[str, Any]) -> np.ndarray:
    """Logarithms of a row's visits, or of its batches where there are few visits."""
    values = np.array(row["samples"], dtype=float)
    if "clock_ratio" in row:
        values = values / np.array(row["clock_ns"], dtype=float)
    visits = np.array(row["visits"])
    if len(np.unique(visits)) >= FEWEST_BLOCKS:
        values = statistics.block_medians(values, visits)
    return np.log(values[values > 0])


def ratio(ours: dict[str, Any], original: dict[str, Any]) -> tuple[float, tuple[float, float] | None] | None:
    """Ours over the original: of medians, and its 95 % interval where there are enough samples. None if one is not positive."""
    clocked = "clock_ratio" in ours and "clock_ratio" in original
    mine, theirs = (in_clocks(ours), in_clocks(original)) if clocked else (ours["p50"], original["p50"])
    if mine <= 0 or theirs <= 0:
        return None
    series = [_blocks(original), _blocks(ours)]
    if min(map(len, series)) < FEWEST_BLOCKS or clocked != ("clock_ratio" in ours or "clock_ratio" in original):
        return mine / theirs, None
    estimate = statistics.difference(*statistics.series_estimates(series, TRIM))
    low, high = math.exp(estimate.bound(0.025, upper=False)), math.exp(estimate.bound(0.025, upper=True))
    return mine / theirs, (min(low, mine / theirs), max(high, mine / theirs))


def judge_ratio(what: str, limit: float, ours: dict[str, Any] | None, original: dict[str, Any] | None, unit: str = "ns") -> Finding:
    """Whether ours over the original is at most the limit."""
    shown = f"at most {limit:g} x"
    for name, row in (("ours", ours), ("the original", original)):
        if why := why_absent(row):
            return Finding(what, shown, UNMEASURED, f"{name}: {why}")
    found = ratio(ours, original)
    sides = f"{ours['service']} {ours['p50']:.4g} {unit}, {original['service']} {original['p50']:.4g} {unit}"
    if found is None:
        return Finding(what, shown, UNDECIDED, f"{sides}: a ratio needs both above 0")
    value, interval = found
    low, high = interval or (value, value)
    verdict = REACHED if high <= limit else MISSED if low > limit else UNDECIDED
    between = f" [{low:.3f} {high:.3f}]" if interval else " (too few samples for an interval)"
    return Finding(what, shown, verdict, f"{value:.3f}{between} x; {sides}")


def cheapest(rows: Rows, case: str, metric: str, wanted: Callable[[str], bool]) -> dict[str, Any] | None:
    """The original with the smallest median in clock readings, of those wanted."""
    found = [row for (service, of, name), row in rows.items()
             if (of, name) == (case, metric) and service.startswith("original/") and wanted(service) and not why_absent(row)]
    return min(found, key=in_clocks, default=None)


def any_thread(service: str) -> bool:
    return not service.startswith(systems.LOOP_ONLY)


def _costs(rows: Rows) -> Iterable[Finding]:
    for population in POPULATIONS:
        case = article(population)
        yield judge_ratio(f"coarse_slot against pingora fast_timeout, arm + cancel, {population} others", 0.4,
                          rows.get(("coarse_slot", case, "arm_cancel")),
                          rows.get(("original/pingora/fast_timeout", case, "arm_cancel")))
    for population in POPULATIONS:
        case = article(population)
        yield judge_ratio(f"per_thread_wheel against the cheapest original for any thread, CPU of the process, {population} others", 0.25,
                          rows.get(("per_thread_wheel", case, "process_cpu")), cheapest(rows, case, "process_cpu", any_thread))


def _ready(rows: Rows) -> Iterable[Finding]:
    """What a timeout adds is a difference of two batches and may be nothing, so that a ratio may not be there: the ends of the two
    intervals are compared instead, in the rows' own unit."""
    what, limit = "ready path against the best original, above the bare poll", "at most 1.1 x"
    case = reports.canonical({"kind": "ready", "duration_ms": 1000})
    ours = rows.get(("per_thread_wheel", case, "above_bare"))
    original = cheapest(rows, case, "above_bare", lambda service: True)
    for name, row in (("ours", ours), ("the original", original)):
        if why := why_absent(row) or ("" if row.get("ci95") else "too few samples for an interval"):
            yield Finding(what, limit, UNMEASURED, f"{name}: {why}")
            return
    (low, high), (low_original, high_original) = ours["ci95"], original["ci95"]
    verdict = REACHED if high <= 1.1 * low_original else MISSED if low > 1.1 * high_original else UNDECIDED
    yield Finding(what, limit, verdict, f"{ours['service']} {ours['p50']:.2f} [{low:.2f} {high:.2f}] ns, {original['service']} "
                                        f"{original['p50']:.2f} [{low_original:.2f} {high_original:.2f}] ns")


def _accuracy(rows: Rows) -> Iterable[Finding]:
    """The faithful port is late as its original is, and early as it is."""
    what = "coarse_slot_faithful against pingora fast_timeout, lateness"
    names = ("coarse_slot_faithful", "original/pingora/fast_timeout")
    earliest: dict[str, float] = {}
    for duration in DURATIONS_MS:
        case = reports.canonical({"duration_ms": duration})
        pair = [rows.get((name, case, "callback_start")) for name in names]
        absent = [f"{name}: {why}" for name, row in zip(names, pair) if (why := why_absent(row))]
        if absent:
            yield Finding(f"{what}, {duration} ms", "medians within 2 ms", UNMEASURED, "; ".join(absent))
            continue
        ours, theirs = (row["p50"] for row in pair)
        for name, row in zip(names, pair):
            earliest[name] = min(earliest.get(name, math.inf), row["min"])
        # Each visit meets the two clocks, which sleep 10 ms from whenever they finished, in one phase: medians of single visits lie
        # up to 7 ms apart.
        visits = min(len(set(row["visits"])) for row in pair)
        verdict = REACHED if abs(ours - theirs) <= 2 else MISSED if visits >= FEWEST_BLOCKS else UNDECIDED
        yield Finding(f"{what}, {duration} ms", "medians within 2 ms", verdict,
                      f"ours {ours:+.2f} ms, the original {theirs:+.2f} ms, of {visits} visit{'s' * (visits != 1)} at least")
    if len(earliest) == 2:
        yield Finding(f"{what}, early fires", "in both", REACHED if max(earliest.values()) < 0 else UNDECIDED,
                      ", ".join(f"{name} earliest {value:+.3f} ms" for name, value in earliest.items()))
    else:
        yield Finding(f"{what}, early fires", "in both", UNMEASURED, "a side was not measured")


def judge(documents: Mapping[str, dict[str, Any]]) -> list[Finding]:
    """Every number to reach, from the reports by experiment."""
    return [*_costs(by_key(documents.get("arm_cancel"))), *_ready(by_key(documents.get("ready_path"))),
            *_accuracy(by_key(documents.get("accuracy")))]


def judge_time(seconds: float, quick: bool) -> Finding:
    limit = 300 if quick else 1200
    return Finding("the whole run after the build", f"at most {limit // 60} min", REACHED if seconds <= limit else MISSED,
                   f"{int(seconds) // 60} min {int(seconds) % 60:02} s")
