"""Compares two sides, row by row, and says what follows for the whole run.

A side is a list of reports. One report a side, or a few: times are resampled by visit. ROUNDS or more reports of an experiment
on both sides: round i of the base belongs to round i of the head, and rounds are resampled as pairs.

Times, with w the worsening (logarithm of the ratio, sign by the metric's direction), m the number of times tested:
  regression   the interval at alpha / m lies wholly on the worse side, w and the shift of the median are at least the minimum
               effect, and the rank test sees it too (RANK_LEVEL)
  improvement  the same on the other side; it counts as a pass
  review       better by more than the implausible factor
  pass         a worsening of the minimum effect lies outside the one-sided interval at `miss`
  undecided    else: such a worsening could hide in the interval
Counts are compared exactly, instructions by their threshold. A row that the base has and the head has not is a regression.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Iterable

import numpy as np

from . import series, statistics
from .reports import Report, Row, Unusable, describe
from .rules import KINDS, Rule, Rules

ROUNDS = 5
RANK_LEVEL = 0.01  # of the rank test, a second opinion beside the interval; 8 rounds can reach it
POWER = 0.95
VERDICTS = ("regression", "review", "undecided", "improvement", "pass")


@dataclass(frozen=True)
class Judgement:
    """The verdict on one row, or on a report that is missing (service and metric "*", kind "report").

    base, head: the row's value on each side: of a time relative to the reference, else in the row's unit. None if not there.
    change: head / base - 1; infinite from 0. interval: (low, high) of head / base at the corrected level, times only.
    smallest_change: smallest relative worsening that this run would have shown with 95 % probability, None if unknown.
    p: two-sided p of the rank test, uncorrected, times only. reason: in words why the verdict is what it is.
    """

    experiment: str
    service: str
    case: dict[str, Any]
    metric: str
    unit: str
    kind: str
    verdict: str
    base: float | None = None
    head: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    smallest_change: float | None = None
    p: float | None = None
    reason: str = ""

    @property
    def row(self) -> str:
        return f"{self.experiment}: {describe(self.service, self.case, self.metric)}"


@dataclass
class Outcome:
    """All judgements of a run. `tested`: how many times the interval's level is corrected for."""

    alpha: float
    max_undecided: float
    unit: str = "visits"
    judgements: list[Judgement] = field(default_factory=list)
    tested: int = 0
    new_rows: int = 0
    remarks: list[str] = field(default_factory=list)

    def of(self, verdict: str) -> list[Judgement]:
        return [judgement for judgement in self.judgements if judgement.verdict == verdict]

    def shares(self) -> dict[str, tuple[int, int]]:
        """Undecided rows and all rows, by kind."""
        result = {}
        for kind in (*KINDS, "report"):
            rows = [judgement for judgement in self.judgements if judgement.kind == kind]
            if rows:
                result[kind] = (sum(judgement.verdict == "undecided" for judgement in rows), len(rows))
        return result

    @property
    def undecided_share(self) -> float:
        """Of all rows."""
        return len(self.of("undecided")) / len(self.judgements) if self.judgements else 0.0

    def reasons(self) -> list[str]:
        """What keeps the run from passing, the most serious first."""
        found = []
        if self.of("regression"):
            found.append(f"{len(self.of('regression'))} of {len(self.judgements)} rows regressed")
        if not self.judgements:
            found.append("no row could be judged")
        elif len(self.of("undecided")) == len(self.judgements):
            found.append("none of the rows could be decided")
        if self.of("review"):
            found.append(f"{len(self.of('review'))} rows are better than is plausible and want a look")
        for kind, (undecided, total) in self.shares().items():
            if undecided / total > self.max_undecided:
                found.append(f"{undecided} of {total} rows of kind {kind} are undecided, "
                             f"more than the {self.max_undecided * 100:g} % that are allowed")
        return found

    @property
    def exit_code(self) -> int:
        """0 pass, 1 regression, 3 cannot decide."""
        if self.of("regression"):
            return 1
        return 3 if self.reasons() else 0

    @property
    def verdict(self) -> str:
        return {0: "pass", 1: "regression", 3: "cannot decide"}[self.exit_code]


@dataclass
class _Context:
    """What forbids judgements between two sides of one experiment, in words; empty when nothing does."""

    everything: str = ""
    exact: str = ""  # instructions, and times
    times: str = ""
    rows_may_differ: bool = False

    def against(self, kind: str) -> str:
        if kind == "count":
            return self.everything
        return self.everything or self.exact or (self.times if kind == "time" else "")


def _context(base: list[Report], head: list[Report], rules: Rules) -> _Context:
    context = _Context()
    for side, reports in (("baseline", base), ("run", head)):
        marks = [mark for report in reports for mark in report.obstacles()]
        if marks:
            context.everything = f"the {side} is marked {', '.join(dict.fromkeys(marks))}"
            return context
    for report in (*base[1:], *head):
        differences = report.fingerprint().differences(base[0].fingerprint())
        if differences:
            context.exact = f"contexts cannot be compared: {differences} of the baseline"
            break
    if len({report.quick for report in (*base, *head)}) > 1:
        context.exact = context.exact or "a quick run cannot be compared with a full one"
        context.rows_may_differ = True
    for name in rules.same_parameters.get(base[0].experiment, ()):
        values = [report.parameters.get(name) for report in (*base, *head)]
        if any(value != values[0] for value in values):
            context.times = f"the runs differ in their parameter {name!r}"
    spreads = [spread for spread in map(series.reference_spread, (base, head)) if spread is not None]
    if "time" in rules.kinds(base[0].experiment) and spreads and max(spreads) > rules.largest_reference_spread:
        context.times = (f"machine too noisy: the reference row floor/steady_clock itself varied by {max(spreads) * 100:.0f} %, "
                         f"more than {rules.largest_reference_spread * 100:g} %")
    return context


@dataclass
class _Pending:
    """A time whose interval waits for the number of times that are tested."""

    judgement: Judgement
    rule: Rule
    series: list[np.ndarray]  # base and head, or the differences of rounds
    median_shift: float
    unit: str
    position: int


def _ratio(base: float, head: float) -> float:
    """head / base - 1, where nothing out of nothing is no change."""
    if base == 0:
        return 0.0 if head == 0 else math.copysign(math.inf, head)
    return head / base - 1


def _judge_count(judgement: Judgement, rule: Rule, base: np.ndarray, head: np.ndarray) -> Judgement:
    """Exact. A count that varied in the baseline itself is judged by its range."""
    sign = 1 if rule.worse_up else -1
    base_worst, head_worst = (sign * float(np.max(sign * values)) for values in (base, head))
    base_best, head_best = (sign * float(np.min(sign * values)) for values in (base, head))
    judgement = replace(judgement, base=base_worst, head=head_worst, change=_ratio(base_worst, head_worst), smallest_change=0.0)
    repeats = base_best == base_worst
    if sign * (head_worst - base_worst) > 0:
        if repeats or sign * (head_best - base_worst) > 0:
            return replace(judgement, verdict="regression", reason=f"{base_worst:g} became {head_worst:g}; counts are exact")
        return replace(judgement, verdict="undecided", smallest_change=_ratio(base_best, base_worst),
                       reason=f"does not repeat in the baseline: {base_best:g} to {base_worst:g}, now up to {head_worst:g}")
    if sign * (head_worst - base_best) >= 0:
        return replace(judgement, verdict="pass")
    better, worse = (head_worst, base_best) if rule.worse_up else (base_best, head_worst)
    if better <= 0 or worse / better > rule.implausible_factor:
        return replace(judgement, verdict="review", reason=f"{base_worst:g} became {head_worst:g}, better by more than a factor of "
                       f"{rule.implausible_factor:g}: is the same work still done?")
    return replace(judgement, verdict="improvement", reason=f"{base_worst:g} became {head_worst:g}")


def _judge_instructions(judgement: Judgement, rule: Rule, base: np.ndarray, head: np.ndarray) -> Judgement:
    sign = 1 if rule.worse_up else -1
    before, after = float(np.median(base)), float(np.median(head))
    change = _ratio(before, after)
    judgement = replace(judgement, base=before, head=after, change=change, smallest_change=rule.threshold)
    for side, values, middle in (("baseline", base, before), ("run", head, after)):
        if np.max(np.abs(values - middle)) > rule.threshold * abs(middle):
            return replace(judgement, verdict="undecided", smallest_change=_ratio(float(np.min(values)), float(np.max(values))),
                           reason=f"does not repeat in the {side}: {np.min(values):g} to {np.max(values):g}")
    if sign * change > rule.threshold:
        return replace(judgement, verdict="regression",
                       reason=f"worse by {abs(change) * 100:.3g} %, more than {rule.threshold * 100:g} %")
    if sign * change < -rule.threshold:
        better, worse = (after, before) if rule.worse_up else (before, after)
        if better <= 0 or worse / better > rule.implausible_factor:
            return replace(judgement, verdict="review", reason=f"better by more than a factor of {rule.implausible_factor:g}: "
                           "is the same work still done?")
        return replace(judgement, verdict="improvement")
    return replace(judgement, verdict="pass")


def _start_time(judgement: Judgement, rules: Rules, unit: str, base: np.ndarray,
                head: np.ndarray) -> tuple[Judgement, list[np.ndarray]]:
    """What can be said of a time before the level of its interval is known, and the series to be resampled, if enough."""
    trim = rules.trim[unit]
    before, after = (math.exp(float(statistics.location(values, trim))) for values in (base, head))
    paired = unit == "rounds"
    change = math.expm1(float(statistics.location(head - base, trim))) if paired else after / before - 1
    judgement = replace(judgement, base=before, head=after, change=change, unit="x reference",
                        p=statistics.rank_test(base, head, paired))
    fewest = min(len(base), len(head))
    if fewest < rules.fewest[unit]:
        return replace(judgement, reason=f"too few samples: {fewest} {unit} on one side, {rules.fewest[unit]} are needed"), []
    return judgement, [head - base] if paired else [base, head]


def _finish_time(pending: _Pending, estimate: statistics.Estimate, rules: Rules, alpha: float, tested: int) -> Judgement:
    judgement, rule, level = pending.judgement, pending.rule, alpha / tested
    effect = rule.minimum_effect[pending.unit]
    sign = 1 if rule.worse_up else -1
    worsening = replace(estimate, value=sign * estimate.value)
    low, high = worsening.bound(level, upper=False), worsening.bound(level, upper=True)
    ends = sorted((math.exp(min(sign * low, 700)), math.exp(min(sign * high, 700))))
    judgement = replace(judgement, interval=(ends[0], ends[1]),
                        smallest_change=statistics.smallest_detectable(worsening, level, effect, POWER))
    least = math.log1p(effect)
    if low > 0 and worsening.value >= least:
        shift = sign * pending.median_shift
        if shift < least or judgement.p is None or judgement.p > RANK_LEVEL:
            return replace(judgement, verdict="undecided", reason=f"one side is noisier than the other: the faster {pending.unit} "
                           f"are worse by {math.expm1(worsening.value) * 100:.1f} %, the median by {math.expm1(shift) * 100:.1f} %")
        return replace(judgement, verdict="regression", reason=f"worse by {math.expm1(worsening.value) * 100:.1f} %, by at least "
                       f"{math.expm1(low) * 100:.1f} %; {effect * 100:g} % is the minimum effect")
    if -worsening.value > math.log(rule.implausible_factor):
        return replace(judgement, verdict="review", reason=f"better by more than a factor of {rule.implausible_factor:g}: "
                       "is the same work still done?")
    if high < 0 and worsening.value <= -least:
        return replace(judgement, verdict="improvement")
    if worsening.bound(rules.miss, upper=True) < least:
        return replace(judgement, verdict="pass")
    return replace(judgement, verdict="undecided",
                   reason=f"interval too wide: a worsening of {effect * 100:g} % could hide in it")


class _Judge:
    def __init__(self, rules: Rules, outcome: Outcome, kinds: frozenset[str]):
        self.rules = rules
        self.outcome = outcome
        self.kinds = kinds
        self.pending: list[_Pending] = []

    def experiment(self, base: list[Report], head: list[Report]) -> None:
        for report in (*base, *head):
            for row in report.rows.values():
                self.rules.rule(report, row)  # refuses unknown metrics
        unit = "rounds" if min(len(base), len(head)) >= ROUNDS else "visits"
        if unit == "rounds" and len(base) != len(head):
            raise Unusable(f"{base[0].experiment}: {len(base)} rounds of the base against {len(head)} of the head; "
                           "rounds are compared in pairs")
        self.outcome.unit = unit
        context = _context(base, head, self.rules)
        if context.exact and "count" in self.kinds & self.rules.kinds(base[0].experiment):
            self.outcome.remarks.append(f"{base[0].experiment}: {context.exact}; counts are judged all the same")
        for key in dict.fromkeys(key for report in base for key in report.rows):
            self.row(key, base, head, unit, context)
        known = {key for report in base for key, row in report.rows.items() if row.measured}
        for report in head[:1]:
            for key, row in report.rows.items():
                rule = self.rules.rule(report, row, unit)
                if rule is not None and rule.kind in self.kinds and row.measured and key not in known:
                    self.outcome.new_rows += 1

    def row(self, key: tuple[str, str, str], base: list[Report], head: list[Report], unit: str, context: _Context) -> None:
        there = [number for number, report in enumerate(base) if key in report.rows and report.rows[key].measured]
        if not there:
            return
        old = [base[number].rows[key] for number in there]
        rule = self.rules.rule(base[there[0]], old[0], unit)
        if rule is None or rule.kind not in self.kinds or (rule.kind == "time" and old[0].service == self.rules.reference):
            return
        row = old[0]
        judgement = Judgement(base[0].experiment, row.service, row.case, row.metric, row.unit, rule.kind, "undecided")
        obstacle = context.against(rule.kind)
        lost = self.lost(key, head)
        if lost and context.rows_may_differ:
            obstacle = obstacle or "a quick run need not have the rows of a full one"
        if obstacle:
            self.add(replace(judgement, reason=obstacle))
            return
        if lost:
            self.add(replace(judgement, verdict="regression", reason=lost))
            return
        partners = [head[number] for number in there] if unit == "rounds" else head
        new = [report.rows[key] for report in partners]
        if any(other.unit != row.unit for other in (*old, *new)):
            units = sorted({other.unit for other in (*old, *new)})
            self.add(replace(judgement, reason=f"contexts cannot be compared: the units are {' and '.join(map(repr, units))}"))
            return
        if rule.kind == "time":
            self.time(judgement, rule, unit, [base[number] for number in there], old, partners, new)
            return
        values = [np.concatenate([other.samples for other in rows]) for rows in (old, new)]
        for report, other in zip((*[base[number] for number in there], *partners), (*old, *new)):
            if np.any(other.samples < 0):
                raise Unusable(f"{report.path!r}: {other}: {other.samples.min():g} is no count; counts start at 0")
        decide = _judge_count if rule.kind == "count" else _judge_instructions
        self.add(decide(judgement, rule, *values))

    @staticmethod
    def lost(key: tuple[str, str, str], head: list[Report]) -> str:
        """Why the head has no figure for a row that the base has; empty when it has."""
        for number, report in enumerate(head):
            where = "the run" if len(head) == 1 else f"run {number + 1} of {len(head)}"
            row = report.rows.get(key)
            if row is None:
                return f"the row is missing in {where}"
            if row.error is not None:
                return f"the row is in error in {where}: {row.error}"
            if row.skipped is not None:
                return f"the row was skipped in {where}: {row.skipped}"
        return ""

    def time(self, judgement: Judgement, rule: Rule, unit: str, base: list[Report], old: list[Row], head: list[Report],
             new: list[Row]) -> None:
        try:
            sides = [series.of_side(reports, rows, self.rules, unit) for reports, rows in ((base, old), (head, new))]
        except series.NoReference as error:
            self.add(replace(judgement, reason=str(error)))
            return
        judgement, found = _start_time(judgement, self.rules, unit, *sides)
        if found:
            shift = statistics.median_shift(*found) if len(found) == 2 else float(np.median(found[0]))
            self.pending.append(_Pending(judgement, rule, found, shift, unit, len(self.outcome.judgements)))
        self.add(judgement)

    def missing_report(self, reports: list[Report], head: list[Report]) -> None:
        """An experiment of the base that the head did not run at all."""
        report = reports[0]
        kinds = self.rules.kinds(report.experiment) & self.kinds
        rows = sum(self.judged(report, row) for row in report.rows.values())
        if not kinds or not rows:
            return
        judgement = Judgement(report.experiment, "*", {}, "*", "", "report", "regression",
                              reason=f"the run holds no report of it, {rows} rows of the baseline are missing")
        differences = head[0].fingerprint().differences(report.fingerprint())
        if "count" not in kinds and differences:
            judgement = replace(judgement, verdict="undecided",
                                reason=f"not in the run; contexts cannot be compared anyway: {differences} of the baseline")
        self.add(judgement)

    def judged(self, report: Report, row: Row) -> bool:
        rule = self.rules.rule(report, row)
        return rule is not None and rule.kind in self.kinds and row.measured

    def add(self, judgement: Judgement) -> None:
        self.outcome.judgements.append(judgement)

    def finish(self) -> None:
        """Times get their verdicts, now that their number is known."""
        self.outcome.tested = len(self.pending)
        for unit in dict.fromkeys(pending.unit for pending in self.pending):
            chosen = [pending for pending in self.pending if pending.unit == unit]
            estimates = iter(statistics.series_estimates([values for pending in chosen for values in pending.series],
                                                         self.rules.trim[unit]))
            for pending in chosen:
                estimate = next(estimates)
                if len(pending.series) == 2:
                    estimate = statistics.difference(estimate, next(estimates))
                self.outcome.judgements[pending.position] = _finish_time(pending, estimate, self.rules, self.outcome.alpha,
                                                                         len(self.pending))


def _by_experiment(reports: Iterable[Report], rules: Rules) -> dict[str, list[Report]]:
    result: dict[str, list[Report]] = {}
    for report in reports:
        if rules.experiment(report) is not None:
            result.setdefault(report.experiment, []).append(report)
    return result


def judge(base: list[Report], head: list[Report], rules: Rules, *, alpha: float | None = None,
          kinds: Iterable[str] = KINDS, max_undecided: float | None = None) -> Outcome:
    """Judges the reports of `head` against those of `base`.

    Each side may hold several reports of one experiment (runs or rounds, in order) and several experiments; the correction
    for many rows spans all of them. kinds: which kinds of metric are judged. alpha, max_undecided: the rules' own when None.
    Raises Unusable when the two sides have no experiment in common or hold something no verdict can rest on.
    """
    outcome = Outcome(rules.alpha if alpha is None else alpha, rules.max_undecided if max_undecided is None else max_undecided)
    work = _Judge(rules, outcome, frozenset(kinds))
    old, new = _by_experiment(base, rules), _by_experiment(head, rules)
    if old and new and not old.keys() & new.keys():
        raise Unusable(f"{base[0].path!r} and {head[0].path!r} are of different experiments ({', '.join(old)} and "
                       f"{', '.join(new)}); there is nothing to compare")
    if not old or not new:
        return outcome
    for name, reports in old.items():
        if name in new:
            work.experiment(reports, new[name])
        else:
            work.missing_report(reports, head)
    for name in new.keys() - old.keys():
        outcome.remarks.append(f"{name}: the baseline has no report of it, nothing was judged")
    for report in head:
        failed = [check for check in report.checks if not check["ok"]]
        if failed:
            outcome.remarks.append(f"{report.path!r}: {len(failed)} of its own checks failed, first {failed[0]['name']!r}"
                                   + (f" of {failed[0]['service']}" if failed[0]["service"] else ""))
    work.finish()
    return outcome
