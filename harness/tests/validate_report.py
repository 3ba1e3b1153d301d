#!/usr/bin/env python3
"""validate_report.py SCHEMA REPORT...: checks reports against the schema, strictly (no NaN, no Infinity).

Exit codes: 0 all valid, 1 one is not (its first problem on standard error), 77 the module jsonschema is missing.
"""
import json
import sys

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is not installed", file=sys.stderr)
    sys.exit(77)


def refuse(name):
    raise ValueError(f"{name} is not JSON")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        schema = json.load(file)
    checker = jsonschema.validators.validator_for(schema)
    checker.check_schema(schema)
    for path in sys.argv[2:]:
        try:
            with open(path, encoding="utf-8", errors="strict") as file:
                report = json.load(file, parse_constant=refuse)
        except (ValueError, OSError) as problem:
            print(f"{path}: {problem}", file=sys.stderr)
            return 1
        for problem in checker(schema).iter_errors(report):
            where = "/".join(str(step) for step in problem.absolute_path)
            print(f"{path}: {where}: {problem.message[:300]}", file=sys.stderr)
            return 1
    return 0


sys.exit(main())
