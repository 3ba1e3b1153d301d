"""Reports made up for the tests of the judging: valid, small, with whatever noise and faults a test asks for."""

import copy
import json
import pathlib
import sys
import tempfile
import unittest

import numpy as np

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SCRIPTS))

CPU = "A CPU of 2 cores"
WINDOW = {"kind": "window", "cancel": "oldest", "population": 0, "duration_ms": 3000, "regime": "saturating"}


def environment(**fields):
    whole = {
        "started_utc": "2024-01-01T00:00:00Z",
        "cpu": {"model": CPU, "online": 2, "usable": 2, "affinity": "0-1", "mhz": [2000.0, 2000.0], "virtual_machine": True,
                "governor": "unknown"},
        "clock": {"source": "tsc", "monotonic_resolution_ns": 1, "coarse_resolution_ns": 4000000, "timer_slack_ns": 50000},
        "kernel": "Linux", "machine": "x86_64", "libc": "glibc 2.36", "compiler": "GNU 12.2.0", "flags": "-O3 -DNDEBUG",
        "build_type": "Release", "optimised": True, "ndebug": True, "sanitizer": "none", "libraries": {}, "version": "0.1.0",
        "git": {"revision": "0123456789ab", "dirty": False}, "load": {"before": None, "after": None, "between": None}}
    cpu = fields.pop("cpu", None)
    if cpu is not None:
        whole["cpu"]["model"] = cpu
    dirty = fields.pop("dirty", None)
    if dirty is not None:
        whole["git"]["dirty"] = dirty
    return whole | fields


def row(service, metric, samples=None, case=None, **fields):
    """A row; its statistics only have to look like some."""
    result = {"service": service, "case": copy.deepcopy(case or {}), "metric": metric, "unit": "ns/op"}
    if samples is not None:
        samples = [float(value) for value in samples]
        ordered = sorted(samples)
        middle = ordered[len(ordered) // 2] if ordered else 0.0
        result |= {"n": len(samples), "min": ordered[0] if ordered else 0.0, "p10": middle, "p50": middle,
                   "max": ordered[-1] if ordered else 0.0, "mean": middle, "ci95": None, "outliers": {"low": 0, "high": 0},
                   "samples": samples}
    return result | fields


def timed(service, ratios, case=WINDOW, metric="arm_cancel", per_visit=4, clock=25.0):
    """A time row from its ratios to the clock, `per_visit` of them a visit."""
    ratios = np.asarray(ratios, dtype=float)
    return row(service, metric, ratios * clock, case, clock_ns=[clock] * len(ratios),
               visits=[number // per_visit for number in range(len(ratios))])


def steady(ratio, visits=14, per_visit=4, noise=0.002, seed=0):
    """Ratios with a little noise."""
    return ratio * np.exp(np.random.default_rng(seed).normal(0, noise, visits * per_visit))


def counted(service, value, metric="allocations", case=None):
    samples = value if isinstance(value, (list, tuple)) else [value] * 2
    return row(service, metric, samples, case or {"kind": "article", "operations": 1000}, unit="1")


def document(experiment, rows, **fields):
    place = fields.pop("environment", None) or environment()
    return {"schema": "timerbench.report/1", "experiment": experiment, "quick": False, "seed": 1, "marks": [],
            "environment": place, "parameters": {}, "rows": list(rows), "checks": []} | fields


class FolderTest(unittest.TestCase):
    """Gives each test a folder with a space and letters beyond ASCII in its name."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench \u00fcber \u0434 ")
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def write(self, content, name="arm_cancel", folder="run"):
        """Writes a report file: an object as JSON, text and bytes as they are."""
        place = self.folder / folder
        place.mkdir(exist_ok=True)
        path = place / f"{name}.json"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def load(self, content, name="arm_cancel", folder="run"):
        from judging import reports
        return reports.load(self.write(content, name, folder))
