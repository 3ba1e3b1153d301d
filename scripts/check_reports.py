"""Checks JSON reports: strict JSON, the report schema, and what a schema cannot say.

usage: check_reports.py [--schema FILE] REPORT...

Prints one line per report. Exit codes: 0 all are valid; 1 one is not; 2 unusable arguments.
Without the package python3-jsonschema the schema is left out, and the line says so.
"""

import argparse
import json
import os
import sys


class NotStrict(ValueError):
    """Something that json.loads takes and JSON does not know, or that readers resolve differently."""


def _no_constant(name):
    raise NotStrict(f"{name} is not JSON")


def _no_duplicates(pairs):
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        raise NotStrict(f"the name {next(n for n in names if names.count(n) > 1)!r} occurs twice in one object")
    return result


def load_strict(path):
    """Returns the document. Raises OSError or ValueError (bad bytes, broken JSON, NaN, infinity, a name given twice)."""
    with open(path, encoding="utf-8") as file:
        return json.load(file, parse_constant=_no_constant, object_pairs_hook=_no_duplicates)


def check(path, validator):
    """Returns what is wrong with the report at `path`, or None."""
    try:
        report = load_strict(path)
    except (OSError, ValueError, RecursionError) as error:
        return str(error)
    if not isinstance(report, dict):
        return "the document is not an object"
    if validator is not None:
        errors = sorted(validator.iter_errors(report), key=lambda error: list(map(str, error.absolute_path)))
        if errors:
            where = "/".join(map(str, errors[0].absolute_path)) or "top level"
            return f"{where}: {errors[0].message[:200]}"
    name = os.path.basename(path)[: -len(".json")]
    if report.get("experiment") != name:
        return f"experiment is {report.get('experiment')!r}, the file's name says {name!r}"
    if not report.get("rows"):
        return "there are no rows"
    return None


def make_validator(schema_path):
    """Returns (validator or None, remark). Raises OSError or ValueError for a schema that cannot be used."""
    if schema_path is None:
        return None, "no schema given"
    schema = load_strict(schema_path)
    try:
        import jsonschema
    except ImportError:
        return None, "python3-jsonschema is not installed, schema not checked"
    kind = jsonschema.validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a JSON schema: {error.message}") from None
    return kind(schema), "strict JSON and schema"


def main():
    parser = argparse.ArgumentParser(prog="check_reports.py", description="checks JSON reports")
    parser.add_argument("--schema", metavar="FILE")
    parser.add_argument("reports", metavar="REPORT", nargs="+")
    arguments = parser.parse_args()
    try:
        validator, remark = make_validator(arguments.schema)
    except (OSError, ValueError) as error:
        print(f"check_reports: --schema {arguments.schema!r} cannot be used: {error}", file=sys.stderr)
        return 2
    bad = 0
    for path in arguments.reports:
        problem = check(path, validator)
        bad += problem is not None
        print(f"{path}: {'ok, ' + remark if problem is None else problem}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
