"""Reports made up for tests of the judging: times with noise as measured ones have it, and a bench binary that writes such reports."""

import json
import math
import pathlib
import sys

import numpy as np

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))

from judging.reports import Report, Row  # noqa: E402

ENVIRONMENT = {
    "started_utc": "2026-01-01T00:00:00Z",
    "cpu": {"model": "made up", "online": 2, "usable": 2, "affinity": "0-1", "mhz": [], "virtual_machine": True, "governor": "none"},
    "clock": {"source": "tsc", "monotonic_resolution_ns": 1, "coarse_resolution_ns": 4000000, "timer_slack_ns": 1},
    "kernel": "Linux", "machine": "x86_64", "libc": "glibc 2.36", "compiler": "GNU 12.2.0", "flags": "-O3", "build_type": "Release",
    "optimised": True, "ndebug": True, "sanitizer": "none", "libraries": {}, "version": "0.1.0",
    "git": {"revision": "0123456789ab", "dirty": False}, "load": {"before": None, "after": None, "between": None}}

CASES = ({"kind": "article", "population": 0, "duration_ms": 1000, "deadline": "latest", "regime": "saturating"},
         {"kind": "window", "window": 30000, "cancel": "oldest", "population": 0, "duration_ms": 3000, "deadline": "latest",
          "regime": "saturating"})
COSTS = {"coarse_slot": 37.0, "twin": 37.0, "locked_heap": 60.0}
VISITS, BATCHES = 16, 4


def correlated(rng, count, deviation, rho=0.6):
    """AR(1) noise."""
    values = np.empty(count)
    values[0] = rng.normal(0, deviation)
    for position in range(1, count):
        values[position] = rho * values[position - 1] + rng.normal(0, deviation * math.sqrt(1 - rho * rho))
    return values


def times(rng, cost, visit_noise=0.015, batch_noise=0.01, visits=VISITS):
    """Samples of one row with correlated noise from visit to visit, and now and then a visit that was disturbed."""
    level = correlated(rng, visits, visit_noise) + np.where(rng.random(visits) < 0.05, rng.exponential(0.3, visits), 0)
    return cost * np.exp(np.repeat(level, BATCHES) + rng.normal(0, batch_noise, visits * BATCHES))


def report(rng, slower=None, build_noise=None, run_noise=0.005, services=COSTS, path="made-up.json", visits=VISITS):
    """One run of the subset. slower: {service: factor}. build_noise: {(service, case number): factor}."""
    clock = 23.5 * np.exp(rng.normal(0, 0.002, visits * BATCHES))
    numbers = np.repeat(np.arange(visits, dtype=float), BATCHES)
    rows = [Row("floor/steady_clock", {}, "arm_cancel", "ns/op", clock * np.exp(rng.normal(0, 0.001, len(clock))), clock, numbers)]
    for service in services:
        for position, case in enumerate(CASES):
            factor = (slower or {}).get(service, 1.0) * (build_noise or {}).get((service, position), 1.0)
            cost = services[service] * factor * math.exp(rng.normal(0, run_noise))
            rows.append(Row(service, case, "arm_cancel", "ns/op", times(rng, cost, visits=visits), clock, numbers))
    return Report(path, "arm_cancel", False, (), ENVIRONMENT, {}, {row.key: row for row in rows})


def document(made):
    """The report as a bench binary would have written it."""
    def row(one):
        figures = {"service": one.service, "case": one.case, "metric": one.metric, "unit": one.unit}
        if one.skipped or one.error:
            return figures | ({"skipped": one.skipped} if one.skipped else {"error": one.error})
        samples = one.samples
        more = {} if one.clock_ns is None else {"clock_ns": one.clock_ns.tolist(), "visits": [int(v) for v in one.visits]}
        return figures | {"n": len(samples), "min": float(samples.min()), "p10": float(np.percentile(samples, 10)),
                          "p50": float(np.median(samples)), "max": float(samples.max()), "mean": float(samples.mean()), "ci95": None,
                          "outliers": {"low": 0, "high": 0}, "samples": samples.tolist()} | more
    return {"schema": "timerbench.report/1", "experiment": made.experiment, "quick": made.quick, "seed": 1, "marks": list(made.marks),
            "environment": made.environment, "parameters": made.parameters, "rows": [row(one) for one in made.rows.values()],
            "checks": made.checks}


def write(made, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document(made)), encoding="utf-8")


# A bench binary. Beside it or above lies `costs.json`: {service: ns}. Noise differs from call to call. It leaves in order at
# a signal; a file `slow` beside costs.json makes it wait, so that there is time for one.
FAKE_BENCH = r'''#!/usr/bin/python3 -IS
import json, math, os, random, signal, sys, time
place = os.path.dirname(os.path.realpath(__file__))
while not os.path.exists(os.path.join(place, "costs.json")):
    place = os.path.dirname(place)
costs = json.load(open(os.path.join(place, "costs.json")))
arguments = sys.argv[1:]
if arguments == ["--list"]:
    print(*(name for name in costs if name != "flags"), sep="\n")
    sys.exit(0)
with open(os.path.join(os.environ["STATE"], "bench-calls"), "a") as file:
    print(json.dumps([__file__, arguments, os.environ.get("TIMERBENCH_PLANT")]), file=file)
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
if os.path.exists(os.path.join(place, "slow")):
    time.sleep(60)
if os.path.exists(os.path.join(place, "broken")):
    print("bench_arm_cancel: it fell over", file=sys.stderr)
    sys.exit(2)
chosen = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--service"]
visits = next(int(word.split("=")[1]) for word in arguments if word.startswith("--benchmark_repetitions="))
out = arguments[arguments.index("--out") + 1]
plant = os.environ.get("TIMERBENCH_PLANT", "::").split(":")
gauss = random.Random(os.urandom(8)).gauss
template = json.load(open(os.path.join(place, "template.json")))
rows = []
for service, case in [("floor/steady_clock", {})] + [(name, case) for name in chosen for case in template["cases"]]:
    cost = costs.get(service, 23.5) * math.exp(gauss(0, 0.004))
    if plant[0] == service and plant[1] == "percent":
        cost *= 1 + float(plant[2]) / 100
    samples = [cost * math.exp(gauss(0, 0.01)) for _ in range(4 * visits)]
    rows.append({"service": service, "case": case, "metric": "arm_cancel", "unit": "ns/op", "n": len(samples), "min": min(samples),
                 "p10": min(samples), "p50": cost, "max": max(samples), "mean": cost, "ci95": None,
                 "outliers": {"low": 0, "high": 0}, "samples": samples, "clock_ns": [23.5] * len(samples),
                 "visits": [i // 4 for i in range(len(samples))]})
report = template["report"] | {"rows": rows}
if "flags" in costs:  # no service
    report["environment"]["flags"] = costs["flags"]
os.makedirs(out, exist_ok=True)
with open(os.path.join(out, "unfinished"), "w") as file:
    json.dump(report, file)
os.replace(os.path.join(out, "unfinished"), os.path.join(out, "arm_cancel.json"))
'''


def template():
    """What FAKE_BENCH fills in."""
    made = document(Report("", "arm_cancel", False, (), ENVIRONMENT, {}, {}))
    return json.dumps({"cases": CASES, "report": made})
