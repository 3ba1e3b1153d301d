"""scripts/originals: the original systems and this project's services, in turns, on this machine.

Builds the programs of experiments/originals, has each of them verify its systems, then runs rounds. In a round every experiment is
visited by every program, in an order that is the round's own; where figures drift with the machine, the services that are compared
most closely are measured again beside each original. What the programs print is merged into one report for each experiment.

A toolchain that is missing leaves rows that say so; without any, nothing is measured and the exit code is 2.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

from judging import processes, reports
from judging.comparing import TimeLeft, check_quiet, seconds_in_words, whole_number
from judging.gating import Parser
from judging.reports import Unusable

from . import merging, programs, published, reaching, systems, tables
from .programs import Program

ME = "originals"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
QUICK_ROUNDS, FULL_ROUNDS = 2, 3
QUICK_BUDGET_S, FULL_BUDGET_S = 270, 1140
BUILD_LIMIT_S = 1800


def say(text: str) -> None:
    print(f"{ME}: {text}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    made = Parser(prog=ME, description="runs the originals of the services beside ours and merges the figures", allow_abbrev=False,
                  epilog="Leaves DIR/originals/<experiment>.json, <experiment>.txt and summary.txt, all or none of them. Exit code: 0 fine, "
                         "1 a check or a build failed, 2 unusable input or no toolchain of any original, 130 interrupted.")
    length = made.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="short runs, marked as such in the reports (default)")
    length.add_argument("--full", action="store_true", help="runs for figures to keep; leave the machine alone meanwhile")
    made.add_argument("--out", metavar="DIR", help="where the folder originals/ goes (default: out/ of the checkout)")
    made.add_argument("--only", metavar="ECOSYSTEM", nargs="+", default=[], help="these originals only, beside ours")
    made.add_argument("--rounds", metavar="N", type=whole_number(1, 1000),
                      help=f"rounds, however long they take (default: {QUICK_ROUNDS} quick or {FULL_ROUNDS} full ones, fewer when time is short)")
    made.add_argument("--seed", metavar="N", type=whole_number(0, 2**32 - 1), default=1, help="of every random choice (default 1)")
    made.add_argument("--no-setup", action="store_true", help="do not look for missing packages of our own")
    made.add_argument("--table", metavar="DIR", nargs="?", const="",
                      help="measure nothing: print the table for the README from the reports in DIR (default: out/originals)")
    made.add_argument("--programs", metavar="DIR", default=os.path.join(ROOT, "experiments", "originals"),
                      help="the folder of the programs (default: experiments/originals)")
    made.add_argument("--limit", metavar="SECONDS", type=whole_number(1, 86_400), help="for one visit (default: 60 quick, 240 full)")
    return made


class Campaign:
    """One whole run, from the builds to the reports."""

    def __init__(self, arguments: argparse.Namespace):
        self.arguments = arguments
        self.quick = not arguments.full
        self.limit_s = arguments.limit or (60 if self.quick else 240)
        self.rows = {name: merging.Rows() for name in systems.EXPERIMENTS}
        self.checks: list[dict[str, Any]] = []
        self.versions: dict[str, str] = {}
        self.environment: dict[str, Any] = {}
        self.rounds_run = 0
        self.visits = 0
        self.failed = False
        self.all: list[Program] = []

    @property
    def ours(self) -> Program:
        return self.all[0]

    @property
    def originals(self) -> list[Program]:
        return [program for program in self.all[1:] if program.timed]

    # ---- before measuring ----

    def prepare(self) -> None:
        """Builds what can be built. Raises Unusable when no original is there."""
        self.all = programs.find(self.arguments.programs, os.path.join(ROOT, "build", "originals"), self.arguments.only)
        for program in [*self.all[1:], self.ours]:
            say(f"{program.name}: building")
            begun = time.monotonic()
            programs.build(program, BUILD_LIMIT_S)
            if program.ready:
                say(f"{program.name}: {len(program.systems)} systems, built in {seconds_in_words(time.monotonic() - begun)}")
            else:
                self.failed = self.failed or program.state == programs.BROKEN
                say(f"{program.name}: {program.state}: {program.reason}")
            if program is self.all[-1] and all(one.state == programs.MISSING for one in self.all[1:]):
                raise Unusable("no toolchain of any original is there: "
                               + "; ".join(f"{one.name}: {one.reason}" for one in self.all[1:]))
        if not self.ours.ready:
            raise Unusable(f"our own program is not there: {self.ours.reason}")

    def verify(self) -> None:
        for program in self.all:
            if not program.ready:
                continue
            self._take_facts(programs.verify(program, max(self.limit_s, 60)))
            for name, why in program.refused.items():
                say(f"{program.name}: {name} is not timed: {why}")
                self.failed = True
            if program.refused and not program.timed:
                self.checks += [{"name": "is verified before it is timed", "service": name, "ok": False, "detail": why}
                                for name, why in program.refused.items()]

    def _take_facts(self, output: Any) -> None:
        self.versions |= output.versions
        self.checks += output.checks
        self.failed = self.failed or any(not check["ok"] for check in output.checks)

    def environment_now(self) -> dict[str, Any]:
        output = programs.run(self.ours, ["--environment"], 60)
        if output.environment is None:
            raise programs.Unsound("printed no environment")
        return output.environment

    # ---- measuring ----

    def plan(self, number: int) -> list[tuple[str, Program, list[str]]]:
        """The visits of one round: experiment, program, and the systems that are asked for (none: all that it runs by default)."""
        chance = random.Random(self.arguments.seed * 1_000_003 + number)
        beside = [name for name in systems.JUDGED if name in self.ours.timed]
        visits: list[tuple[str, Program, list[str]]] = []
        for experiment in systems.EXPERIMENTS:
            order = [program for program in self.originals if systems.takes_part(program.name, experiment)]
            chance.shuffle(order)
            # Before each original and after the last one. Once with all that we have, else with what is judged.
            whole = chance.randrange(len(order) + 1)
            for place, program in enumerate([*order, None]):
                if place == whole and self.ours.timed:
                    visits.append((experiment, self.ours, self._asked(self.ours)))
                elif beside and experiment in systems.ALTERNATING:
                    visits.append((experiment, self.ours, beside))
                if program is not None:
                    visits.append((experiment, program, self._asked(program)))
        return visits

    @staticmethod
    def _asked(program: Program) -> list[str]:
        return program.timed if program.refused else []

    def measure(self) -> None:
        budget = QUICK_BUDGET_S if self.quick else FULL_BUDGET_S
        rounds = self.arguments.rounds or (QUICK_ROUNDS if self.quick else FULL_ROUNDS)
        begun = time.monotonic()
        for number in range(rounds):
            started = time.monotonic()
            visits = self.plan(number)
            progress = TimeLeft(f"round {number + 1} of {rounds}, visit", len(visits), say)
            for place, (experiment, program, asked) in enumerate(visits):
                progress(place)
                self._visit(number, experiment, program, asked)
            self.rounds_run = number + 1
            now = time.monotonic()
            if self.arguments.rounds is None and number + 1 < rounds and now - begun + (now - started) > budget:
                say(f"{number + 1} rounds in {seconds_in_words(now - begun)}; another would take too long (--rounds N runs it)")
                break

    def _visit(self, number: int, experiment: str, program: Program, asked: list[str]) -> None:
        words = ["--experiment", experiment, "--round", str(number), "--seed", str(self.arguments.seed),
                 "--quick" if self.quick else "--full"]
        for name in asked:
            words += ["--system", name]
        order = self.visits
        self.visits += 1
        begun = time.monotonic()
        try:
            output = programs.run(program, words, self.limit_s)
        except programs.Unsound as unsound:
            say(f"{program.name}: {experiment}: {unsound}")
            self.failed = True
            self.checks.append({"name": f"every visit of {experiment} gives figures", "service": program.name, "ok": False,
                                "detail": f"round {number + 1}: {unsound}"})
            return
        finally:
            program.seconds += time.monotonic() - begun
        self._take_facts(output)
        # A program may take a name for part of a longer one.
        kept = [row for row in output.rows if row["service"] not in program.refused and (not asked or row["service"] in asked)]
        self.failed = self.failed or any("error" in row for row in kept)
        self.rows[experiment].add_visit(program.name, order, kept)

    # ---- afterwards ----

    def add_reasons(self) -> None:
        """Rows for what has no figures, so that no table leaves it out in silence."""
        for experiment, rows in self.rows.items():
            seen = rows.services()
            for program in self.all:
                if not systems.takes_part(program.name, experiment):
                    continue
                if not program.ready:
                    kind = "skipped" if program.state == programs.MISSING else "error"
                    for name in systems.systems_of(program.name):
                        rows.add_reason(name, **{kind: program.reason})
                    continue
                for name, why in program.refused.items():
                    rows.add_reason(name, error=why)
                for name in program.timed if experiment not in systems.ONLY else []:
                    if name not in seen:
                        rows.add_reason(name, error="no visit gave figures of it")
                        self.failed = True

    def documents(self, seconds: float) -> dict[str, dict[str, Any]]:
        """The reports by experiment."""
        environment = self.environment | {"libraries": self.environment["libraries"] | self.versions}
        marks = ["QUICK RUN"] if self.quick else []
        if not environment["optimised"] or not environment["ndebug"]:
            marks.append("DEBUG BUILD")
        made = {}
        for name, rows in self.rows.items():
            if not rows.joined:
                continue
            made[name] = {"schema": "timerbench.report/1", "experiment": name, "quick": self.quick, "seed": self.arguments.seed,
                          "marks": marks, "environment": environment,
                          "parameters": {"rounds": self.rounds_run, "seconds": round(seconds, 1), "versions": self.versions,
                                         "programs": {program.name: {"state": program.state, "reason": program.reason,
                                                                     "systems": program.systems,
                                                                     "seconds": round(program.seconds, 1)} for program in self.all}},
                          "rows": rows.to_json(), "checks": self.checks}
        return made

    def take_environment_before(self) -> None:
        self.environment = self.environment_now()

    def take_environment_after(self) -> None:
        """The load at the end, and the shares of the processors' time between."""
        load = self.environment["load"]
        load["after"] = self.environment_now()["load"]["before"]
        if isinstance(load["before"], dict) and isinstance(load["after"], dict):
            spent = {name: max(load["after"]["jiffies"][name] - value, 0) for name, value in load["before"]["jiffies"].items()}
            total = sum(spent.values())
            load["between"] = {name: value / total for name, value in spent.items()} if total > 0 else None


# ---- output ----

def write_all(folder: str, files: dict[str, str]) -> None:
    """Writes every file, or leaves the folder as it was. Reports of experiments that did not run this time go. Raises Unusable."""
    holder = None
    try:
        os.makedirs(folder, exist_ok=True)
        holder = tempfile.mkdtemp(prefix=".new.", dir=folder)
        for name, text in files.items():
            with open(os.path.join(holder, name), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if name.endswith(".json"):
                reports.load(os.path.join(holder, name))
        with processes.signals_held():
            for name in files:
                os.replace(os.path.join(holder, name), os.path.join(folder, name))
            for experiment in systems.EXPERIMENTS:
                for name in (f"{experiment}.json", f"{experiment}.txt"):
                    if name not in files and os.path.exists(os.path.join(folder, name)):
                        os.remove(os.path.join(folder, name))
    except OSError as error:
        raise Unusable(f"--out: {folder!r} cannot be written: {error.strerror}") from None
    finally:
        if holder is not None:
            with processes.signals_held():
                shutil.rmtree(holder, ignore_errors=True)


def check_writable(folder: str) -> None:
    """Finds out before anything is measured. Raises Unusable."""
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Unusable(f"--out: {folder!r} cannot be written ({error.strerror}); give a folder that can be written or made") from None


def read_documents(folder: str) -> dict[str, dict[str, Any]]:
    """The reports of a folder as they stand in their files. Raises Unusable."""
    found = reports.load_folder(folder)
    return {name: reports.read_json(report.path) for name, report in found.items()}


def print_table(folder: str) -> int:
    print(*published.table(read_documents(folder)), sep="\n")
    return 0


def setup() -> None:
    """Our own packages. Raises Unusable."""
    try:
        processes.run([os.path.join(ROOT, "scripts", "setup")], timeout_s=1800)
    except processes.Failed as failed:
        raise Unusable(processes.last_lines(failed.output)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unusable(f"scripts/setup does not work: {error}") from None


def run(arguments: argparse.Namespace) -> int:
    folder = os.path.join(arguments.out or os.path.join(ROOT, "out"), "originals")
    check_writable(folder)
    if not arguments.no_setup:
        setup()
    campaign = Campaign(arguments)
    campaign.prepare()
    check_quiet(say)
    begun = time.monotonic()
    try:
        campaign.take_environment_before()
        say("verifying")
        campaign.verify()
        campaign.measure()
        campaign.take_environment_after()
    except programs.Unsound as unsound:
        raise Unusable(f"our own program --environment {unsound}") from None
    seconds = time.monotonic() - begun
    campaign.add_reasons()
    documents = campaign.documents(seconds)
    findings = [*reaching.judge(documents), reaching.judge_time(seconds, campaign.quick)]
    took_part = ", ".join(f"{program.name} ({len(program.timed)} systems, {program.seconds:.0f} s)" for program in campaign.all if program.timed)
    title = [f"timerbench: originals{' [QUICK RUN] figures are not for comparison' if campaign.quick else ''}",
             f"  {took_part}; {campaign.rounds_run} rounds",
             *(f"  not measured: {program.name}: {program.reason}" for program in campaign.all if not program.ready),
             *(f"  not timed: {name}: {why}" for program in campaign.all for name, why in program.refused.items())]
    summary = tables.summary_text(title, findings)
    files = {f"{name}.json": json.dumps(document, allow_nan=False, ensure_ascii=False) + "\n" for name, document in documents.items()}
    files |= {f"{name}.txt": tables.experiment_text(document) for name, document in documents.items()}
    write_all(folder, files | {"summary.txt": summary})
    print(summary, end="")
    say(f"took {seconds_in_words(seconds)} after the builds; reports are in {folder}")
    return 1 if campaign.failed else 0


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    processes.signals_end_in_order()
    action: Callable[[], int] = lambda: run(arguments)
    if arguments.table is not None:
        action = lambda: print_table(arguments.table or os.path.join(ROOT, "out", "originals"))
    try:
        return action()
    except Unusable as problem:
        say(str(problem))
        return 2
    except KeyboardInterrupt:
        say("interrupted; nothing was written")
        return processes.INTERRUPTED
