"""scripts/calibrate: measures the gate and `compare` themselves.

The measured subset is run some hundred times: by several placements of the same objects, some of them with slowdowns planted in
one service (experiments/planted.hpp). From these runs many decisions of both tools are formed and counted: how often like is
called slower than like, how often planted work is found, how often they cannot tell. What repeats (allocations, instructions) is
tried directly. The spread between placements says which minimum effect this machine asks for; it is proposed, never set.

Interrupted, it goes on where it was when it is started again with the same options.
"""

import argparse
import datetime
import json
import math
import os
import shutil
import sys
import time
from typing import Any

import numpy as np

from . import calibration, campaign, comparing, gating, output, placements, pool, processes, reports, rounds, rules, verdicts
from .comparing import ROOT, TimeLeft, whole_number
from .reports import Report, Unusable

ME = "calibrate"
SERVICE = "coarse_slot"
FULL_RUNS = 400
FULL_BUILDS = 20
QUICK_PLANTED = ("percent:20",)
COUNT_TRIALS = 30
INSTRUCTION_TRIALS = 10
# A step of the planted chain is an addition, a count and a jump; a visit to it costs some twenty more.
INSTRUCTIONS_A_STEP = 3
INSTRUCTIONS_A_VISIT = 20
STEPS_EVERY = 16


def say(text: str) -> None:
    print(f"{ME}: {text}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    made = gating.Parser(prog=ME, description="measures how often scripts/gate and scripts/compare are right on this machine",
                            allow_abbrev=False,
                            epilog="Exit code: 0 measured, 2 unusable input, 130 interrupted (start it again with the same options, and "
                                   "it goes on). Leave the machine alone meanwhile: a full calibration takes about half an hour.")
    made.add_argument("--quick", action="store_true", help="three minutes, to see that it works; its rates mean nothing")
    made.add_argument("--runs", metavar="N", type=whole_number(20, 100_000), help=f"A/A runs (default {FULL_RUNS})")
    made.add_argument("--builds", metavar="N", type=whole_number(campaign.FEWEST_BUILDS, 200),
                      help=f"placements of the same objects, at least {campaign.FEWEST_BUILDS} (default {FULL_BUILDS}: compare then "
                           "has another one in each round)")
    made.add_argument("--out", metavar="DIR", help="where calibration.json and .txt go (default: out/calibration of the checkout)")
    made.add_argument("--jobs", metavar="N", type=whole_number(1, 1024), help="compile N files at a time (default: one per core)")
    made.add_argument("--rules", metavar="FILE", help="the rules to be tried (default: scripts/gate_rules.json)")
    made.add_argument("--no-exact", action="store_true", help="leave out counts and instructions")
    made.add_argument("--table", metavar="DIR", help="measure nothing; print the rates of DIR/calibration.json")
    return made


def settings_of(arguments: argparse.Namespace) -> campaign.Settings:
    quick = arguments.quick
    builds = arguments.builds or (campaign.FEWEST_BUILDS if quick else FULL_BUILDS)
    runs = arguments.runs or (3 * builds if quick else FULL_RUNS)
    if runs < 2 * builds:
        raise Unusable(f"--runs {runs} is too few for {builds} builds; give at least {2 * builds}")
    return campaign.Settings(
        runs=runs, builds=builds, rounds=comparing.FEWEST_ROUNDS if quick else comparing.ROUNDS, none_runs=10, planted_runs=8 if quick else 6,
        planted=QUICK_PLANTED if quick else campaign.PLANTED, service=SERVICE, services=rounds.SERVICES,
        visits=8 if quick else rounds.VISITS, quick=quick, seed=1)


def print_table(folder: str) -> int:
    path = os.path.join(folder, "calibration.json")
    document = reports.read_json(path)
    if not isinstance(document, dict) or document.get("schema") != calibration.FORMAT:
        raise Unusable(f"{path!r} is no calibration: its schema is not {calibration.FORMAT!r}")
    try:
        lines = calibration.table(document)
    except (KeyError, TypeError, ValueError) as problem:
        raise Unusable(f"{path!r} is no whole calibration: {type(problem).__name__} {problem}") from None
    output.show("\n".join(lines))
    return 0


# ---- what repeats ----

def _planted(work: campaign.Work, what: str | None) -> dict[str, str]:
    return {} if what is None else {"TIMERBENCH_PLANT": f"{work.settings.service}:{what}"}


def _counts(work: campaign.Work, binary: str, name: str, what: str | None) -> Report:
    chosen = [word for service in work.settings.services for word in ("--service", service)]
    return rounds.run_once(binary, chosen, work.path("exact", name), whose="the checkout", experiment="exact",
                           environment=_planted(work, what))


def _instructions(work: campaign.Work, binary: str, name: str, what: str | None) -> Report:
    folder = work.path("exact", name)
    path = os.path.join(folder, "instructions.json")
    if not os.path.exists(path):  # a minute each: an interrupted calibration keeps them
        say(f"counting instructions ({what or 'nothing planted'})")
        os.makedirs(folder, exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TIMERBENCH_")}
        try:
            processes.run([os.path.join(ROOT, "scripts", "instructions"), "--bin", os.path.dirname(binary), "--out", folder], timeout_s=1800,
                          environment=environment | _planted(work, what))
        except FileNotFoundError:
            raise Unusable("scripts/instructions is not there") from None
        except processes.Failed as failed:
            raise Unusable(processes.last_lines(failed.output)) from None
    return reports.load(path)


def _exact_entries(tool: str, planted: str, base: Report, like: list[Report], changed: list[Report], chosen: rules.Rules,
                   service: str) -> list[dict[str, Any]]:
    def decisions(heads: list[Report]) -> list[pool.Decision]:
        outcomes = [verdicts.judge([base], [head], chosen) for head in heads]
        return [pool.Decision(outcome, any(judgement.service == service for judgement in outcome.of("regression")))
                for outcome in outcomes]
    return [calibration.rates_of(tool, "A/A", decisions(like)), calibration.rates_of(tool, planted, decisions(changed))]


def steps_for_two_percent(report: Report, service: str) -> int:
    """How long the planted chain must be to add 2 % to the dearest case of the service. Raises Unusable."""
    costs = [float(np.median(row.samples)) for row in report.rows.values() if row.service == service and row.measured]
    if not costs:
        raise Unusable(f"there are no instructions of {service}")
    return max(math.ceil((STEPS_EVERY * 0.02 * max(costs) - INSTRUCTIONS_A_VISIT) / INSTRUCTIONS_A_STEP), 1)


def try_exact(work: campaign.Work, chosen: rules.Rules, jobs: int, remarks: list[str]) -> list[dict[str, Any]]:
    """Counts with one more allocation, and instructions with 2 % more. What cannot be tried leaves a remark."""
    service, quick = work.settings.service, work.settings.quick
    entries: list[dict[str, Any]] = []
    try:
        binary = work.exact_binary(jobs)
        base = _counts(work, binary, "base", None)
        trials = range(1 if quick else COUNT_TRIALS)
        entries += _exact_entries("counts", "alloc", base, [_counts(work, binary, f"like-{trial}", None) for trial in trials],
                                  [_counts(work, binary, f"alloc-{trial}", "alloc") for trial in trials], chosen, service)
    except Unusable as problem:
        remarks.append(f"Counts were not tried: {problem}.")
        return entries
    if quick:
        remarks.append("Instructions were not tried in a quick calibration.")
        return entries
    try:
        base = _instructions(work, binary, "instructions-base", None)
        steps = steps_for_two_percent(base, service)
        trials = range(INSTRUCTION_TRIALS)
        changed = [_instructions(work, binary, f"instructions-spin-{steps}-{trial}", f"spin:{steps}") for trial in trials]
        entries += _exact_entries("instructions", "instructions:2", base,
                                  [_instructions(work, binary, f"instructions-like-{trial}", None) for trial in trials], changed, chosen,
                                  service)
        added = [float(np.median(row.samples) / np.median(base.rows[key].samples) - 1) for key, row in changed[0].rows.items()
                 if row.service == service and row.measured and key in base.rows and base.rows[key].measured]
        remarks.append(f"Instructions really planted in {service}: {min(added) * 100:.2f} to {max(added) * 100:.2f} %.")
    except Unusable as problem:
        remarks.append(f"Instructions were not tried: {problem}.")
    return entries


# ---- the whole ----

def _durations(runs: list[campaign.Planned], work: campaign.Work) -> float | None:
    """Median time between the reports of runs that follow each other, s."""
    times = [os.path.getmtime(work.report_path(run)) for run in runs]
    gaps = [later - earlier for earlier, later in zip(times, times[1:]) if later > earlier]
    return float(np.median(gaps)) if gaps else None


def analyse(work: campaign.Work, planned: list[campaign.Planned], chosen: rules.Rules, effort: calibration.Effort,
            exact: list[dict[str, Any]], remarks: list[str], started: str) -> dict[str, Any]:
    """The document. Takes a few minutes of one core."""
    settings = work.settings
    runs, really_planted, one = work.load(planned, chosen)
    like = [run for run in runs if run.kind == settings.like_kind]
    failed = sum(1 for run in runs if any(not check["ok"] for check in run.report.checks))
    if failed:
        remarks.append(f"In {failed} of {len(runs)} runs a check of the run itself failed; they count like all others.")
    formed = calibration.form(runs, settings.like_kind, settings.planted, settings.rounds, effort, settings.seed)
    entries, decided = calibration.decide_all(formed, chosen, settings.service, TimeLeft("decision", formed.total(), say))
    noise = pool.noise_of_rows(like, chosen)
    say("seeking thresholds, and the smallest slowdown that is found in 95 %")
    proposed = calibration.thresholds(decided, formed, chosen, settings.service, noise, effort)
    smallest = calibration.smallest(formed, chosen, settings.service, effort)
    entries = entries + exact
    document: dict[str, Any] = {
        "schema": calibration.FORMAT, "quick": settings.quick, "started_utc": started, "finished_utc": utc_now(),
        "environment": one.environment, "placement": placements.in_words(work.how),
        "settings": {"runs": settings.runs, "builds": settings.builds, "rounds": settings.rounds, "visits": settings.visits,
                     "service": settings.service, "services": list(settings.services), "planted": list(settings.planted),
                     "seed": settings.seed},
        "runs": {"like": len(like), "planted": len(runs) - len(like), "median_s": _durations(planned, work)},
        "rows": len(noise), "rules": calibration.rules_document(chosen), "rates": entries, "smallest_found": smallest,
        "targets": calibration.reached(entries), "proposed": proposed, "noise": calibration.by_service(noise),
        "planted_percent": {kind: {"mean": float(np.mean(values)), "sd": float(np.std(values)), "n": len(values)}
                            for kind, values in really_planted.items()},
        "remarks": remarks, "rates_as_proposed": [], "smallest_as_proposed": {}, "targets_as_proposed": []}
    as_proposed = pool.with_effects(chosen, proposed["minimum_effect"])
    if as_proposed.metrics != chosen.metrics:
        again, _ = calibration.decide_all(formed, as_proposed, settings.service, TimeLeft("decision", formed.total(), say))
        document["rates_as_proposed"] = again
        document["smallest_as_proposed"] = calibration.smallest(formed, as_proposed, settings.service, effort)
        document["targets_as_proposed"] = calibration.reached(again)
    return document


def utc_now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def run(arguments: argparse.Namespace) -> int:
    if arguments.table is not None:
        return print_table(arguments.table)
    settings = settings_of(arguments)
    chosen = rules.load(arguments.rules)
    for program in ("cmake", "ninja"):
        if shutil.which(program) is None:
            raise Unusable(f"{program} is not there; scripts/setup installs it")
    out = os.path.abspath(arguments.out or os.path.join(ROOT, "out", "calibration"))
    jobs = arguments.jobs or os.cpu_count() or 1
    work = campaign.Work(os.path.join(out, "quick-work" if settings.quick else "work"), ROOT, settings, say)
    try:
        os.makedirs(work.folder, exist_ok=True)
    except OSError as error:
        raise Unusable(f"--out {out!r} cannot be made: {error.strerror}; give a folder that can be written or made") from None
    if not os.access(out, os.W_OK):
        raise Unusable(f"--out {out!r} cannot be written; give a folder that can be written or made")
    started, begun = utc_now(), time.monotonic()
    work.build(jobs)
    work.begin()
    planned = campaign.plan(settings)
    comparing.check_quiet(say)
    say(f"{len(planned)} runs; interrupted, it goes on where it was")
    left = TimeLeft("run", len(planned), say)

    def progress(number: int, there: int) -> None:
        left.start_at = there
        left(number)

    work.measure(planned, progress)
    remarks: list[str] = []
    exact = [] if arguments.no_exact else try_exact(work, chosen, jobs, remarks)
    effort = calibration.QUICK if settings.quick else calibration.FULL
    document = analyse(work, planned, chosen, effort, exact, remarks, started)
    text = calibration.text_report(document)
    output.write_file(os.path.join(out, "calibration.txt"), text)
    output.write_file(os.path.join(out, "calibration.json"), json.dumps(document, indent=1, allow_nan=False) + "\n")
    output.show(text.rstrip("\n"))
    say(f"took {comparing.seconds_in_words(time.monotonic() - begun)}; {os.path.join(out, 'calibration.json')} and .txt are written, "
        f"the runs lie in {work.folder}")
    return 0


def main() -> int:
    """The command. Returns its exit code."""
    processes.signals_end_in_order()
    arguments = parser().parse_args()
    try:
        return run(arguments)
    except Unusable as problem:
        print(f"{ME}: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("interrupted; start it again with the same options, and it goes on")
        return processes.INTERRUPTED
