"""Reads report files: strict JSON, the report schema, and what a schema cannot say.

Whatever is wrong with a file raises `Unusable`, whose text is one line that names the file and, where there is one, the row.
"""

import json
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Iterable, NamedTuple

import jsonschema
import numpy as np

FORMAT = "timerbench.report"
NEWEST = 1
# Documents this project writes into the same folders and that are not reports.
OTHER_FORMATS = ("timerbench.verdict/", "timerbench.calibration/")
SCHEMA_PATH = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "harness", "report.schema.json")
ARRAYS = ("samples", "clock_ns", "visits")


class Unusable(Exception):
    """Input that cannot be judged. Exit code 2."""


class NotAReport(Exception):
    """A file of this project that is no report (a verdict, a calibration)."""


class Fingerprint(NamedTuple):
    """What has to be equal for times and instructions of two reports to be comparable."""

    cpu: str
    libc: str
    compiler: str
    flags: str

    def differences(self, other: "Fingerprint") -> str:
        """Says in words what differs, this side first; empty when nothing does."""
        names = {"cpu": "CPU model", "libc": "libc", "compiler": "compiler", "flags": "flags"}
        return ", ".join(f"{names[key]} {mine!r} against {theirs!r}"
                         for key, mine, theirs in zip(self._fields, self, other) if mine != theirs)


@dataclass(frozen=True, eq=False)
class Row:
    """One row of a report.

    samples: in the row's unit, in the order in which they were taken; empty when the row was skipped or is in error.
    clock_ns: cost of a clock reading taken beside each sample, or None.
    visits: the number of the visit each sample belongs to, or None. Samples of one visit are correlated.
    """

    service: str
    case: dict[str, Any]
    metric: str
    unit: str
    samples: np.ndarray
    clock_ns: np.ndarray | None = None
    visits: np.ndarray | None = None
    skipped: str | None = None
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.service, canonical(self.case), self.metric

    @property
    def measured(self) -> bool:
        return self.skipped is None and self.error is None

    def __str__(self) -> str:
        return describe(self.service, self.case, self.metric)


@dataclass(frozen=True, eq=False)
class Report:
    """One report file. `rows` by `Row.key`, in the order of the file."""

    path: str
    experiment: str
    quick: bool
    marks: tuple[str, ...]
    environment: dict[str, Any]
    parameters: dict[str, Any]
    rows: dict[tuple[str, str, str], Row]
    checks: list[dict[str, Any]] = field(default_factory=list)

    def fingerprint(self) -> Fingerprint:
        environment = self.environment
        return Fingerprint(environment["cpu"]["model"], environment["libc"], environment["compiler"], environment["flags"])

    def obstacles(self) -> list[str]:
        """Why nothing of this report may be judged: a build without optimisation or with a sanitizer."""
        environment = self.environment
        found = [mark for mark in self.marks if mark != "QUICK RUN"]
        if not environment["optimised"] or not environment["ndebug"]:
            found.append("DEBUG BUILD")
        if environment["sanitizer"] != "none":
            found.append(f"{environment['sanitizer'].upper()} SANITIZER")
        return list(dict.fromkeys(found))


def canonical(case: dict[str, Any]) -> str:
    """A case as text, the same for equal cases whatever the order of their names; 30 and 30.0 are equal."""
    def whole(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: whole(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [whole(inner) for inner in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return json.dumps(whole(case), sort_keys=True, separators=(",", ":"))


def describe(service: str, case: dict[str, Any], metric: str) -> str:
    """A row in words, for messages and tables."""
    values = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value}"
                       for name, value in case.items())
    return f"{service} {metric}" + (f" ({values})" if values else "")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the name {next(name for name in names if names.count(name) > 1)!r} occurs twice in one object")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def read_json(path: str) -> Any:
    """Returns the document in the file. Raises Unusable for bad bytes, broken JSON, NaN, infinity, a name given twice."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise Unusable(f"{path!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Unusable(f"{path!r} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}") from None
    if not text.strip():
        raise Unusable(f"{path!r} is empty; a report was expected")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_refuse_duplicates)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{path!r} is not strict JSON: {error}") from None


_validator: Any = None


def _schema_validator() -> Any:
    global _validator
    if _validator is None:
        schema = read_json(SCHEMA_PATH)
        _validator = jsonschema.validators.validator_for(schema)(schema)
    return _validator


def _check_version(path: str, document: Any) -> None:
    if not isinstance(document, dict) or not isinstance(document.get("schema"), str):
        raise Unusable(f"{path!r} is not a timerbench report: there is no text under \"schema\" at its top level")
    schema = document["schema"]
    if schema.startswith(OTHER_FORMATS):
        raise NotAReport(path)
    match = re.fullmatch(re.escape(FORMAT) + r"/([0-9]{1,9})", schema)
    if match is None:
        raise Unusable(f"{path!r} is not a timerbench report: its schema is {schema[:60]!r}, not '{FORMAT}/{NEWEST}'")
    if int(match[1]) > NEWEST:
        raise Unusable(f"{path!r} has report version {int(match[1])}, this program knows versions up to {NEWEST}; "
                       "use the timerbench that wrote it, or a newer one")
    if int(match[1]) < 1:
        raise Unusable(f"{path!r} has report version {int(match[1])}; the first is 1")


def _name_of(row: Any, position: int) -> str:
    if isinstance(row, dict) and isinstance(row.get("service"), str) and isinstance(row.get("metric"), str) \
            and isinstance(row.get("case"), dict):
        return f"row {position} ({describe(row['service'], row['case'], row['metric'])})"
    return f"row {position}"


def _array(path: str, row: dict[str, Any], position: int, name: str) -> np.ndarray | None:
    """The numbers of a row's array. JSON's true and false are no numbers, though Python counts them as such."""
    values = row.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise Unusable(f"{path!r}: {_name_of(row, position)}: {name} is not a list of numbers")
    try:
        array = np.array(values, dtype=np.float64)
    except OverflowError:
        raise Unusable(f"{path!r}: {_name_of(row, position)}: {name} holds a number that is too large") from None
    return array


def _make_row(path: str, row: dict[str, Any], position: int) -> Row:
    arrays = {name: _array(path, row, position, name) for name in ARRAYS}
    samples = arrays["samples"]
    if samples is not None:
        where = f"{path!r}: {_name_of(row, position)}"
        if len(samples) == 0:
            raise Unusable(f"{where}: there are no samples")
        if row["n"] != len(samples):
            raise Unusable(f"{where}: n is {row['n']}, yet there are {len(samples)} samples")
        for name in ARRAYS[1:]:
            if arrays[name] is not None and len(arrays[name]) not in (0, len(samples)):
                raise Unusable(f"{where}: {len(arrays[name])} values of {name} for {len(samples)} samples")
        if arrays["clock_ns"] is not None and np.any(arrays["clock_ns"] <= 0):
            raise Unusable(f"{where}: clock_ns holds {arrays['clock_ns'].min():g}; a clock reading takes longer than 0 ns")
        if arrays["visits"] is not None and np.any((arrays["visits"] < 0) | (arrays["visits"] % 1 != 0)):
            raise Unusable(f"{where}: visits holds something that is no whole number from 0")

    def given(name: str) -> np.ndarray | None:
        return arrays[name] if arrays[name] is not None and len(arrays[name]) else None

    return Row(row["service"], row["case"], row["metric"], row.get("unit", ""),
               samples if samples is not None else np.empty(0), given("clock_ns"), given("visits"),
               row.get("skipped"), row.get("error"))


def load(path: str) -> Report:
    """Reads one report. Raises Unusable, or NotAReport for another kind of document of this project."""
    path = os.fspath(path)
    document = read_json(path)
    _check_version(path, document)
    # The arrays are checked below: a schema validator would need a minute for them. One element keeps the row's shape.
    rows = document.get("rows")
    if isinstance(rows, list):
        slim = [{name: value[:1] if name in ARRAYS and isinstance(value, list) else value for name, value in row.items()}
                if isinstance(row, dict) else row for row in rows]
        document_to_check = document | {"rows": slim}
    else:
        document_to_check = document
    problem = jsonschema.exceptions.best_match(_schema_validator().iter_errors(document_to_check))
    if problem is not None:
        place = list(problem.absolute_path)
        if len(place) >= 2 and place[0] == "rows" and isinstance(rows, list):
            where = " ".join([_name_of(rows[place[1]], place[1]), *map(str, place[2:])])
        else:
            where = "/".join(map(str, place)) or "top level"
        message = " ".join(problem.message.split())
        raise Unusable(f"{path!r}: {where}: {message if len(message) <= 160 else message[:157] + '...'}")
    loaded: dict[tuple[str, str, str], Row] = {}
    for position, entry in enumerate(rows):
        row = _make_row(path, entry, position)
        if row.key in loaded:
            raise Unusable(f"{path!r}: {_name_of(entry, position)} is there twice")
        loaded[row.key] = row
    return Report(path, document["experiment"], document["quick"], tuple(document["marks"]), document["environment"],
                  document["parameters"], loaded, document["checks"])


def report_names(folder: str) -> list[str]:
    """The names of the report files in a folder, without ".json". Raises Unusable when it cannot be read."""
    try:
        entries = os.listdir(folder)
    except OSError as error:
        raise Unusable(f"{folder!r} cannot be read ({error.strerror}); give a folder with reports") from None
    return sorted(name[:-len(".json")] for name in entries if name.endswith(".json") and not name.startswith("."))


def load_folder(folder: str, leave_out: Iterable[str] = ()) -> dict[str, Report]:
    """Reads every report of a folder but those of the experiments `leave_out`, which are not even opened.

    Raises Unusable when one of them is, when a file holds another experiment than its name says, or when the folder
    holds no report at all.
    """
    folder = os.fspath(folder)
    left_out = set(leave_out)
    names = report_names(folder)
    found: dict[str, Report] = {}
    for name in names:
        if name in left_out:
            continue
        path = os.path.join(folder, f"{name}.json")
        try:
            report = load(path)
        except NotAReport:
            continue
        if report.experiment != name:
            raise Unusable(f"{path!r} holds a report of the experiment {report.experiment!r}, not of {name!r}")
        found[name] = report
    if not found and not any(name in left_out for name in names):
        raise Unusable(f"{folder!r} holds no report (*.json); scripts/reproduce makes some")
    return found
