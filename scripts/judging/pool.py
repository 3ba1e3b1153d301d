"""Decisions of the gate and of `compare`, formed from runs that were measured before, and how often they are right.

A pool holds runs of one and the same source: several placements ("builds"), several kinds of planted work, in blocks of time.
Within a block every build runs without planted work once, and each kind of planted work a few times, in random order.

A gate decision judges one run against one run of another build: a baseline comes from another build and another time.
A compare decision judges ten rounds against ten. The builds are split at random into those of the base and those of the head,
so that no placement is on both sides, as with two revisions whose code the linker puts elsewhere; the two runs of a
round are those nearest in time to each other. The runs of a pool are few and the decisions many, so decisions share runs and
their rates are less certain than a binomial interval says. Where no run is used twice the rate is called disjoint.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

import numpy as np
from scipy import special

from . import series, statistics
from .reports import Report, Row
from .rules import Rule, Rules
from .verdicts import ROUNDS, Outcome, judge

PLAIN = "plain"  # an ordinary build
NONE = "none"  # a build that can plant work, with none planted
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Run:
    """One run. when: its number in the order of time. kind: PLAIN, NONE, or what was planted ("percent:10").

    report: with the rows that decide something. as_round: the same, with one number for each time, see `condensed`.
    """

    when: int
    block: int
    build: int
    kind: str
    report: Report
    as_round: Report


def run_of(when: int, block: int, build: int, kind: str, report: Report, rules: Rules) -> Run:
    report = slim(report, rules)
    return Run(when, block, build, kind, report, condensed(report, rules))


@dataclass(frozen=True)
class Decision:
    """What was decided. found: a row of the service in question was called a regression."""

    outcome: Outcome
    found: bool

    @property
    def alarm(self) -> bool:
        return self.outcome.exit_code == 1

    @property
    def undecided(self) -> bool:
        return self.outcome.exit_code == 3


@dataclass(frozen=True)
class Rate:
    """`count` of `total`, with the two-sided 95 % interval of Clopper and Pearson; upper: the one-sided 95 % bound."""

    count: int
    total: int

    @property
    def value(self) -> float:
        return self.count / self.total if self.total else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        rest = (1 - CONFIDENCE) / 2
        return self._low(rest), self._high(rest)

    @property
    def upper(self) -> float:
        return self._high(1 - CONFIDENCE)

    @property
    def lower(self) -> float:
        return self._low(1 - CONFIDENCE)

    def _low(self, level: float) -> float:
        return float(special.betaincinv(self.count, self.total - self.count + 1, level)) if self.count else 0.0

    def _high(self, level: float) -> float:
        return float(special.betaincinv(self.count + 1, self.total - self.count, 1 - level)) if self.count < self.total else 1.0

    def document(self) -> dict[str, object]:
        return {"count": self.count, "total": self.total, "rate": self.value if self.total else None, "ci95": list(self.interval),
                "upper95": self.upper, "lower95": self.lower}


def rate(decisions: Iterable[Decision], what: Callable[[Decision], bool]) -> Rate:
    answers = [what(decision) for decision in decisions]
    return Rate(sum(answers), len(answers))


def _rule(report: Report, row: Row, rules: Rules) -> Rule | None:
    """The rule of a row that is judged by visits, by rounds or by both."""
    return rules.rule(report, row, "rounds") or rules.rule(report, row, "visits")


def slim(report: Report, rules: Rules) -> Report:
    """The report without the rows that nothing is decided by."""
    rows = {key: row for key, row in report.rows.items() if row.service.startswith("floor/") or _rule(report, row, rules) is not None}
    return dataclasses.replace(report, rows=rows)


def condensed(report: Report, rules: Rules) -> Report:
    """The report with each time that is judged replaced by the one number that a round contributes: the same verdicts in rounds,
    several times as fast. The floor rows stay as they are."""
    rows = dict(report.rows)
    for key, row in report.rows.items():
        rule = rules.rule(report, row, "rounds")
        if rule is None or rule.kind != "time" or not row.measured or row.clock_ns is None or np.any(row.samples <= 0):
            continue
        value = float(statistics.location(series.log_blocks(report, row, rules.reference), rules.trim["visits"]))
        rows[key] = dataclasses.replace(row, samples=np.array([math.exp(value)]), clock_ns=np.array([1.0]), visits=np.array([0]))
    return dataclasses.replace(report, rows=rows)


def scaled(report: Report, service: str, factor: float) -> Report:
    """The report as it would be if the times of one service were `factor` times as long."""
    rows = {key: dataclasses.replace(row, samples=row.samples * factor) if row.service == service and row.measured else row
            for key, row in report.rows.items()}
    return dataclasses.replace(report, rows=rows)


def with_effects(rules: Rules, effects: dict[str, float]) -> Rules:
    """The rules with other minimum effects for all times: {"visits": 0.2, "rounds": 0.06}."""
    def changed(rule: Rule) -> Rule:
        return dataclasses.replace(rule, minimum_effect=rule.minimum_effect | effects) if rule.kind == "time" else rule
    return dataclasses.replace(rules, metrics={experiment: {name: changed(rule) for name, rule in metrics.items()}
                                               for experiment, metrics in rules.metrics.items()})


Pairs = tuple[list[Run], list[Run]]


def decide(pairs: Pairs, rules: Rules, service: str, factor: float = 1.0) -> Decision:
    """Judges the second list of runs against the first, the second's `service` made slower by `factor`."""
    base, head = ([run.report if len(runs) < ROUNDS else run.as_round for run in runs] for runs in pairs)
    if factor != 1.0:
        head = [scaled(report, service, factor) for report in head]
    outcome = judge(base, head, rules)
    return Decision(outcome, any(judgement.service == service for judgement in outcome.of("regression")))


class Pool:
    """Runs, and ways to form decisions from them. `rng` makes the choices."""

    def __init__(self, runs: Sequence[Run], rng: np.random.Generator):
        self.runs = sorted(runs, key=lambda run: run.when)
        self.rng = rng
        self.builds = sorted({run.build for run in self.runs})

    def of(self, kind: str, block: int | None = None) -> list[Run]:
        return [run for run in self.runs if run.kind == kind and block in (None, run.block)]

    def blocks(self, kind: str) -> list[int]:
        return sorted({run.block for run in self.of(kind)})

    def gate_pairs(self, base_kind: str, head_kind: str) -> list[Pairs]:
        """Each run of `head_kind` once as the head, against a random run of another build and, if it can be, another block."""
        pairs = []
        for head in self.of(head_kind):
            others = [run for run in self.of(base_kind) if run.build != head.build]
            others = [run for run in others if run.block != head.block] or others
            if others:
                pairs.append(([others[self.rng.integers(len(others))]], [head]))
        return pairs

    def compare_pairs(self, base_kind: str, head_kind: str, rounds: int, blocks: Sequence[int] | None = None) -> Pairs | None:
        """One decision of so many rounds; None when the pool has too few runs for it.

        blocks: where the runs are taken from, all of them by default. No run is used twice; a build is used again only when
        every build of its side was used as often.
        """
        order = self.rng.permutation(self.builds)
        sides = (set(order[:len(order) // 2]), set(order[len(order) // 2:]))
        allowed = set(self.blocks(head_kind) if blocks is None else blocks)
        free = [[run for run in self.of(kind) if run.block in allowed and run.build in side]
                for kind, side in zip((base_kind, head_kind), sides)]
        used: dict[int, int] = {}
        visited: dict[int, int] = {}
        pairs: list[tuple[Run, Run]] = []
        while len(pairs) < rounds:
            choices = [run for run in free[1] if any(other.block == run.block for other in free[0])]
            if not choices:
                return None
            # Builds and blocks take turns, chance decides among those that are equal.
            head = min(choices, key=lambda run: (used.get(run.build, 0), visited.get(run.block, 0), self.rng.random()))
            beside = [run for run in free[0] if run.block == head.block]
            least = min(used.get(run.build, 0) for run in beside)
            base = min((run for run in beside if used.get(run.build, 0) == least), key=lambda run: abs(run.when - head.when))
            free[0].remove(base)
            free[1].remove(head)
            for run in (base, head):
                used[run.build] = used.get(run.build, 0) + 1
            visited[head.block] = visited.get(head.block, 0) + 1
            pairs.append((base, head))
        pairs.sort(key=lambda pair: pair[1].when)
        return [base for base, _ in pairs], [head for _, head in pairs]

    def many_compare_pairs(self, base_kind: str, head_kind: str, rounds: int, count: int) -> list[Pairs]:
        found = (self.compare_pairs(base_kind, head_kind, rounds) for _ in range(count))
        return [pairs for pairs in found if pairs is not None]

    def disjoint_compare_pairs(self, kind: str, rounds: int) -> list[Pairs]:
        """Decisions between runs of one kind that share no run: one for each block, or for several together."""
        blocks = self.blocks(kind)
        found: list[Pairs] = []
        waiting: list[int] = []
        for block in blocks:
            waiting.append(block)
            pairs = self.compare_pairs(kind, kind, rounds, waiting)
            if pairs is not None:
                found.append(pairs)
                waiting = []
        return found


# ---- what the pool says about the machine ----

def row_locations(runs: Sequence[Run], rules: Rules) -> dict[tuple[str, str, str], dict[int, list[float]]]:
    """For each time that is judged, by build, the logarithm of each run's time relative to the clock."""
    found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for run in runs:
        for key, row in run.report.rows.items():
            rule = _rule(run.report, row, rules)
            if rule is None or rule.kind != "time" or not row.measured:
                continue
            try:
                blocks = series.log_blocks(run.report, row, rules.reference)
            except series.NoReference:
                continue
            value = float(statistics.location(blocks, rules.trim["visits"]))
            found.setdefault(key, {}).setdefault(run.build, []).append(value)
    return found


@dataclass(frozen=True)
class RowNoise:
    """How far apart builds of the same source lie in one row, as ratios minus 1.

    between: the dearest build against the cheapest, medians of their runs. within: standard deviation of single runs of a build,
    None where no build ran twice. by_visits: the gate judges the row by the visits of one run; else compare alone judges it.
    """

    service: str
    case: str
    metric: str
    between: float
    within: float | None
    by_visits: bool = True


def noise_of_rows(runs: Sequence[Run], rules: Rules) -> list[RowNoise]:
    found = []
    for (service, case, metric), builds in row_locations(runs, rules).items():
        medians = [float(np.median(values)) for values in builds.values()]
        rests = np.concatenate([np.asarray(values) - np.median(values) for values in builds.values()])
        freedom = len(rests) - len(builds)
        within = math.expm1(math.sqrt(float(np.sum(rests ** 2)) / freedom)) if freedom > 0 else None
        found.append(RowNoise(service, case, metric, math.expm1(max(medians) - min(medians)), within,
                              any(rules.rule(run.report, run.report.rows[service, case, metric], "visits") is not None
                                  for run in runs if (service, case, metric) in run.report.rows)))
    return found


def alarm_threshold(decisions: Sequence[Decision]) -> float:
    """The largest change of a row that some decision between like sides would have called a regression with no minimum effect.

    A minimum effect above it leaves these decisions without an alarm. Which side is the base is chance, so a change for the
    better counts as the same change for the worse. 0 when no interval keeps clear of "no change".
    """
    largest = 0.0
    for decision in decisions:
        for judgement in decision.outcome.judgements:
            if judgement.kind != "time" or judgement.interval is None:
                continue
            if judgement.interval[0] > 1:
                largest = max(largest, judgement.change)
            elif judgement.interval[1] < 1:
                largest = max(largest, 1 / (1 + judgement.change) - 1)
    return largest


def deciding_threshold(decisions: Sequence[Pairs], rules: Rules, service: str, unit: str, share: float,
                       grid: Sequence[float]) -> float | None:
    """The smallest minimum effect of the grid with which at most `share` of decisions between like sides cannot be decided; None
    when the largest does not do it. 0 decisions need none."""
    low, high = 0, len(grid)  # grid[high:] does it
    while low < high:
        middle = (low + high) // 2
        tried = with_effects(rules, {unit: grid[middle]})
        undecided = rate((decide(pairs, tried, service) for pairs in decisions), lambda decision: decision.undecided)
        if undecided.count <= share * undecided.total:
            high = middle
        else:
            low = middle + 1
    return grid[high] if high < len(grid) else None


def smallest_found(decisions: Sequence[Pairs], rules: Rules, service: str, share: float,
                   grid: Sequence[float]) -> float | None:
    """The smallest worsening of the grid that at least `share` of decisions between like sides find once the head's times of
    `service` are made that much longer. None when even the largest is not found so often."""
    needed = []
    for pairs in decisions:
        low, high = 0, len(grid)  # grid[high:] is found
        while low < high:
            middle = (low + high) // 2
            if decide(pairs, rules, service, 1 + grid[middle]).found:
                high = middle
            else:
                low = middle + 1
        needed.append(low)
    if not needed:
        return None
    needed.sort()
    position = needed[math.ceil(share * len(needed)) - 1]
    return grid[position] if position < len(grid) else None
