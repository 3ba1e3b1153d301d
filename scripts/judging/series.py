"""Turns the samples of a time row into one logarithm for each block: a visit inside a report, or a report of a round."""

import numpy as np

from . import statistics
from .reports import Report, Row, Unusable
from .rules import CLOCK, Rules


class NoReference(Exception):
    """A row has nothing to be related to; its text is the reason."""


def check_durations(report: Report, row: Row) -> None:
    """Raises Unusable when a sample is no duration: a negative or zero one is never averaged."""
    bad = np.flatnonzero(row.samples <= 0)
    if len(bad):
        raise Unusable(f"{report.path!r}: {row}: sample {bad[0]} is {row.samples[bad[0]]:g} {row.unit}; "
                       "a duration is longer than 0")


def _blocks(row: Row) -> np.ndarray:
    """The block of each sample. Without visits each sample is one; what they have in common then shows as autocorrelation."""
    return row.visits if row.visits is not None else np.arange(len(row.samples))


def _reference_row(report: Report, row: Row, reference: str) -> Row:
    """The row of the reference that belongs to `row`: of a service the same case and metric, of a floor its only row."""
    found = [other for other in report.rows.values() if other.service == reference and other.measured
             and (reference.startswith("floor/") or (other.key[1:] == row.key[1:]))]
    if not found:
        raise NoReference(f"the run has no row of the reference {reference!r} for it")
    return found[0]


def log_blocks(report: Report, row: Row, reference: str) -> np.ndarray:
    """Logarithm of the row's time relative to the reference, one for each visit, in the order of the visits.

    Raises Unusable for a sample that is no duration and NoReference when there is nothing to relate the row to.
    """
    check_durations(report, row)
    if reference == CLOCK and row.clock_ns is not None:
        return np.log(statistics.block_medians(row.samples / row.clock_ns, _blocks(row)))
    other = _reference_row(report, row, reference)
    check_durations(report, other)
    mine, theirs = _blocks(row), _blocks(other)
    common = np.intersect1d(mine, theirs)
    if len(common) == 0:
        raise NoReference(f"no visit of it has one of the reference {reference!r} beside it")
    own = statistics.block_medians(row.samples, mine)[np.isin(np.unique(mine), common)]
    beside = statistics.block_medians(other.samples, theirs)[np.isin(np.unique(theirs), common)]
    return np.log(own / beside)


def of_side(reports: list[Report], rows: list[Row], rules: Rules, unit: str) -> np.ndarray:
    """The blocks of one side: those of all its reports one after the other, or one for each report (a round)."""
    each = [log_blocks(report, row, rules.reference) for report, row in zip(reports, rows)]
    if unit == "rounds":
        return np.array([float(statistics.location(blocks, rules.trim["visits"])) for blocks in each])
    return np.concatenate(each)


def reference_spread(reports: list[Report]) -> float | None:
    """How unstable the machine was: the largest spread of the floor row over the visits of a report, None without one.

    The row is taken relative to the clock readings beside it where they are there, so a change of frequency that both
    share does not count.
    """
    spreads = []
    for report in reports:
        for row in report.rows.values():
            if row.service != CLOCK or not row.measured:
                continue
            check_durations(report, row)
            values = row.samples if row.clock_ns is None else row.samples / row.clock_ns
            medians = statistics.block_medians(values, _blocks(row))
            if len(medians) >= 4:
                spreads.append(statistics.spread(medians))
    return max(spreads, default=None)
