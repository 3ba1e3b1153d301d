"""Reads what a program prints: JSON lines, strictly. Whatever is wrong with one raises `BadOutput` with its number."""

import json
import math
from dataclasses import dataclass, field
from typing import Any


class BadOutput(Exception):
    """A program printed something that is not of the protocol."""


@dataclass
class Output:
    """What one run of a program printed."""

    versions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _numbers(row: dict[str, Any], name: str) -> list[float]:
    values = row[name]
    # JSON's true and false are no numbers, though Python counts them as such.
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise BadOutput(f"{name} is not a list of numbers")
    return values


def _check_row(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise BadOutput("a row is not an object")
    for name, kind in (("service", str), ("case", dict), ("metric", str), ("unit", str)):
        if not isinstance(row.get(name), kind) or row[name] == "":
            raise BadOutput(f"a row without a usable {name!r}")
    given = [name for name in ("samples", "skipped", "error") if name in row]
    if len(given) != 1:
        raise BadOutput(f"a row of {row['service']} has {' and '.join(given) or 'none'} of samples, skipped, error; it needs one")
    if given == ["samples"]:
        samples = _numbers(row, "samples")
        if not samples:
            raise BadOutput(f"a row of {row['service']} has no samples")
        if "clock_ns" in row:
            clocks = _numbers(row, "clock_ns")
            if clocks and (len(clocks) != len(samples) or min(clocks) <= 0):
                raise BadOutput(f"a row of {row['service']} has unusable clock_ns")
    elif not isinstance(row[given[0]], str) or not row[given[0]]:
        raise BadOutput(f"a row of {row['service']} gives no reason")
    if not isinstance(row.get("note", ""), str):
        raise BadOutput(f"a row of {row['service']} has a note that is no text")
    return row


def _check_check(check: Any) -> dict[str, Any]:
    if not isinstance(check, dict) or not isinstance(check.get("ok"), bool) \
            or not all(isinstance(check.get(name), str) for name in ("name", "service", "detail")) or not check["name"]:
        raise BadOutput("a check is not of the form {name, service, ok, detail}")
    return {name: check[name] for name in ("name", "service", "ok", "detail")}


def _take(output: Output, entry: Any) -> None:
    if not isinstance(entry, dict) or len(entry) != 1:
        raise BadOutput("not an object with one of versions, environment, row, check")
    (kind, value), = entry.items()
    if kind == "versions":
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise BadOutput("versions are not texts by name")
        output.versions |= value
    elif kind == "environment":
        if not isinstance(value, dict):
            raise BadOutput("the environment is not an object")
        output.environment = value
    elif kind == "row":
        output.rows.append(_check_row(value))
    elif kind == "check":
        output.checks.append(_check_check(value))
    else:
        raise BadOutput(f"{kind!r} is none of versions, environment, row, check")


def parse(text: str) -> Output:
    """Returns what the lines say. Raises BadOutput."""
    output = Output()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            _take(output, json.loads(line, parse_constant=_refuse_constant, parse_float=_finite))
        except (ValueError, RecursionError, BadOutput) as error:
            raise BadOutput(f"line {number} of its output is unusable: {error}") from None
    return output
