"""What is judged and how: the rules file, `scripts/gate_rules.json` unless another is named.

Top level:
  alpha                     highest rate of false alarms of a whole run
  miss                      a row passes when a worsening of the minimum effect would be overlooked with at most this probability
  max_undecided             highest share of undecided rows of a kind with which a run may still pass
  reference                 floor/steady_clock: the clock reading taken beside each sample; else a service of the same run
  largest_reference_spread  spread (10th to 90th percentile over median) of the floor row above which no time is judged
  fewest_visits, fewest_rounds   blocks a side needs for a time to be judged
  trim                      shares of blocks left out at the fast and at the slow end, by unit of resampling
  implausible_factor        an improvement by more than this factor asks for review; a metric may set its own
  ignored_services          pattern: reason
  experiments               name: {"ignored": reason} or {"metrics": {...}, "same_parameters": [...]}
A metric:
  kind            time, count, instructions, or ignored (with a "reason")
  worse           up or down: the direction in which it gets worse
  minimum_effect  (time) relative worsening that is worth an alarm; a number, or one for each unit of resampling
  threshold       (instructions) relative worsening that is a regression
  leave_out       [{"service": pattern, "case": {...}, "unit": ..., "reason": ...}]: rows that agree with all that is given are not
                  judged; service and unit (of resampling) may be left out, so may the case
"""

import fnmatch
import os
from dataclasses import dataclass, field
from typing import Any

from .reports import Report, Row, Unusable, read_json

DEFAULT_PATH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "gate_rules.json")
FORMAT = "timerbench.rules/1"
KINDS = ("time", "count", "instructions")
# The metric of the row that stands for a service which cannot be made on a machine. The rows that it has elsewhere are missing.
NOT_HERE = "available"
UNITS = ("visits", "rounds")
CLOCK = "floor/steady_clock"


@dataclass(frozen=True)
class Rule:
    """How one metric of one experiment is judged. `kind` is one of KINDS or "ignored"."""

    kind: str
    worse_up: bool = True
    minimum_effect: dict[str, float] = field(default_factory=dict)
    threshold: float = 0.0
    implausible_factor: float = 3.0
    leave_out: tuple[dict[str, Any], ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Rules:
    """A rules file that was read and checked."""

    path: str
    alpha: float
    miss: float
    max_undecided: float
    reference: str
    largest_reference_spread: float
    fewest: dict[str, int]
    trim: dict[str, tuple[float, float]]
    ignored_services: dict[str, str]
    metrics: dict[str, dict[str, Rule]]
    same_parameters: dict[str, tuple[str, ...]]
    ignored_experiments: dict[str, str]

    def rule(self, report: Report, row: Row, unit: str = "visits") -> Rule | None:
        """The rule of a row, or None when it is not to be judged. Raises Unusable for a metric that no rule names.

        unit: what is resampled, visits or rounds; some rows are too noisy to be judged by the visits of one run.
        """
        rules = self.experiment(report)
        if rules is None or row.metric == NOT_HERE:
            return None
        rule = rules.get(row.metric)
        if rule is None:
            raise Unusable(f"{report.path!r}: {row}: the metric {row.metric!r} of {report.experiment!r} is unknown; "
                           f"name it in {self.path!r}")
        if rule.kind == "ignored" or any(fnmatch.fnmatchcase(row.service, pattern) for pattern in self.ignored_services):
            return None
        for entry in rule.leave_out:
            if fnmatch.fnmatchcase(row.service, entry.get("service", "*")) and entry.get("unit", unit) == unit \
                    and all(name in row.case and row.case[name] == value for name, value in entry.get("case", {}).items()):
                return None
        return rule

    def experiment(self, report: Report) -> dict[str, Rule] | None:
        """The rules of a report's metrics, None for an experiment that is ignored. Raises Unusable for an unknown one."""
        if report.experiment in self.ignored_experiments:
            return None
        if report.experiment not in self.metrics:
            raise Unusable(f"{report.path!r}: the experiment {report.experiment!r} is unknown; name it in {self.path!r}, "
                           "with the metrics to be judged or as ignored")
        return self.metrics[report.experiment]

    def kinds(self, experiment: str) -> set[str]:
        """The kinds of metric that are judged in an experiment."""
        return {rule.kind for rule in self.metrics.get(experiment, {}).values()} - {"ignored"}


class _Reader:
    """Takes values out of the file; whatever is wrong with one raises Unusable with its place."""

    def __init__(self, path: str):
        self.path = path

    def fail(self, place: str, problem: str) -> Unusable:
        return Unusable(f"{self.path!r}: {place}: {problem}")

    def names(self, value: Any, place: str, known: set[str], needed: set[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(place, "is not an object")
        for name in value:
            if name not in known:
                raise self.fail(place, f"{name!r} is unknown; known are {', '.join(sorted(known))}")
        for name in sorted(needed):
            if name not in value:
                raise self.fail(place, f"{name!r} is missing")
        return value

    def number(self, value: Any, place: str, low: float, high: float) -> float:
        if type(value) not in (int, float) or not low <= value <= high:
            raise self.fail(place, f"{value!r} is not a number from {low:g} to {high:g}")
        return float(value)

    def trim(self, value: Any, place: str) -> tuple[float, float]:
        if not isinstance(value, list) or len(value) != 2:
            raise self.fail(place, f"{value!r} is not a list of two shares")
        return self.number(value[0], place, 0, 0.5), self.number(value[1], place, 0, 0.5)

    def text(self, value: Any, place: str) -> str:
        if not isinstance(value, str) or not value:
            raise self.fail(place, f"{value!r} is not a text")
        return value

    def texts(self, value: Any, place: str) -> dict[str, str]:
        if not isinstance(value, dict):
            raise self.fail(place, "is not an object")
        return {name: self.text(reason, f"{place}/{name}") for name, reason in value.items()}


def _metric(reader: _Reader, place: str, value: Any, factor: float) -> Rule:
    reader.names(value, place, {"kind", "worse", "minimum_effect", "threshold", "implausible_factor", "leave_out", "reason"},
                 {"kind"})
    kind = value["kind"]
    if kind == "ignored":
        reader.names(value, place, {"kind", "reason"}, {"reason"})
        return Rule("ignored", reason=reader.text(value["reason"], f"{place}/reason"))
    if kind not in KINDS:
        raise reader.fail(place, f"kind {kind!r} is not one of {', '.join(KINDS)}, ignored")
    if value.get("worse") not in ("up", "down"):
        raise reader.fail(place, f"worse is {value.get('worse')!r}, not up or down")
    effect: dict[str, float] = {}
    if kind == "time":
        given = value.get("minimum_effect")
        given = given if isinstance(given, dict) else dict.fromkeys(UNITS, given)
        reader.names(given, f"{place}/minimum_effect", set(UNITS), set(UNITS))
        effect = {unit: reader.number(given[unit], f"{place}/minimum_effect", 0, 10) for unit in UNITS}
    threshold = reader.number(value.get("threshold"), f"{place}/threshold", 0, 10) if kind == "instructions" else 0.0
    left_out = value.get("leave_out", [])
    if not isinstance(left_out, list):
        raise reader.fail(f"{place}/leave_out", "is not a list")
    for entry in left_out:
        reader.names(entry, f"{place}/leave_out", {"service", "case", "unit", "reason"}, {"reason"})
        if not isinstance(entry.get("case", {}), dict):
            raise reader.fail(f"{place}/leave_out", "case is not an object with values to agree with")
        reader.text(entry.get("service", "*"), f"{place}/leave_out/service")
        if not entry.get("case") and "service" not in entry:
            raise reader.fail(f"{place}/leave_out", "neither a service nor a case is given")
        if entry.get("unit", "visits") not in UNITS:
            raise reader.fail(f"{place}/leave_out", f"unit {entry['unit']!r} is not one of {', '.join(UNITS)}")
    own_factor = reader.number(value.get("implausible_factor", factor), f"{place}/implausible_factor", 1, 1e9)
    return Rule(kind, value["worse"] == "up", effect, threshold, own_factor, tuple(left_out))


def load(path: str | None = None) -> Rules:
    """Reads the rules, the project's own when `path` is None. Raises Unusable with what is wrong and where."""
    path = os.path.normpath(DEFAULT_PATH) if path is None else os.fspath(path)
    document = read_json(path)
    reader = _Reader(path)
    if not isinstance(document, dict) or document.get("schema") != FORMAT:
        raise Unusable(f"{path!r} is not a rules file: its schema is not {FORMAT!r}")
    needed = {"schema", "alpha", "miss", "max_undecided", "reference", "largest_reference_spread", "fewest_visits",
              "fewest_rounds", "trim", "implausible_factor", "ignored_services", "experiments"}
    reader.names(document, "top level", needed | {"about"}, needed)
    factor = reader.number(document["implausible_factor"], "implausible_factor", 1, 1e9)
    reader.names(document["trim"], "trim", set(UNITS), set(UNITS))
    if not isinstance(document["experiments"], dict):
        raise reader.fail("experiments", "is not an object")
    metrics: dict[str, dict[str, Rule]] = {}
    same: dict[str, tuple[str, ...]] = {}
    ignored: dict[str, str] = {}
    for name, value in document["experiments"].items():
        place = f"experiments/{name}"
        reader.names(value, place, {"ignored", "metrics", "same_parameters"}, set())
        if "ignored" in value:
            reader.names(value, place, {"ignored"}, set())
            ignored[name] = reader.text(value["ignored"], place)
            continue
        reader.names(value, place, {"metrics", "same_parameters"}, {"metrics"})
        if not isinstance(value["metrics"], dict):
            raise reader.fail(f"{place}/metrics", "is not an object")
        metrics[name] = {metric: _metric(reader, f"{place}/metrics/{metric}", rule, factor)
                         for metric, rule in value["metrics"].items()}
        parameters = value.get("same_parameters", [])
        if not isinstance(parameters, list) or not all(isinstance(parameter, str) for parameter in parameters):
            raise reader.fail(f"{place}/same_parameters", "is not a list of names")
        same[name] = tuple(parameters)
    return Rules(
        path=path,
        alpha=reader.number(document["alpha"], "alpha", 1e-6, 0.5),
        miss=reader.number(document["miss"], "miss", 1e-6, 0.5),
        max_undecided=reader.number(document["max_undecided"], "max_undecided", 0, 1),
        reference=reader.text(document["reference"], "reference"),
        largest_reference_spread=reader.number(document["largest_reference_spread"], "largest_reference_spread", 0, 100),
        fewest={unit: int(reader.number(document[f"fewest_{unit}"], f"fewest_{unit}", 4, 1e6)) for unit in UNITS},
        trim={unit: reader.trim(document["trim"][unit], f"trim/{unit}") for unit in UNITS},
        ignored_services=reader.texts(document["ignored_services"], "ignored_services"),
        metrics=metrics, same_parameters=same, ignored_experiments=ignored)
