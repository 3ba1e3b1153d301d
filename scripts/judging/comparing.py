"""scripts/compare BASE [HEAD]: two git revisions, built and run beside each other on this machine.

Both are built from worktrees in a temporary folder, with the same flags. Times: the sides take turns A-B-B-A, a run of the
measured subset each (rounds.py), and each round runs another placement of the same objects (placements.py), so that neither
a slow spell of the machine nor the luck of the linker falls to one side alone. --exact: counts and instructions, which repeat, one
run a side. What the reports say is judged as scripts/gate judges.
"""

import argparse
import dataclasses
import math
import os
import shutil
import sys
import time
from typing import Callable

from . import output, placements, processes, reports, rounds, rules, verdicts, worktrees
from .gating import Parser, share
from .reports import Report, Unusable

ME = "compare"
FEWEST_ROUNDS = 10
# With ten, a whole run of A against A could not be decided in one of seven.
ROUNDS = 20
EXACT_BINARY = "bench_exact"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def say(text: str) -> None:
    print(f"{ME}: {text}", file=sys.stderr, flush=True)


def whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)
    return parse


def parser() -> argparse.ArgumentParser:
    made = Parser(prog=ME, description="builds two git revisions, runs them in turns, and judges HEAD against BASE", allow_abbrev=False,
                  epilog="Exit code: 0 pass, 1 regression, 2 unusable input, 3 cannot decide, 130 interrupted. Worktrees and builds "
                         "lie in a temporary folder and are gone at the end, however it ends.")
    made.add_argument("base", metavar="BASE", help="a commit, branch or tag")
    made.add_argument("head", metavar="HEAD", nargs="?",
                      help="the same; default: this checkout, with its uncommitted changes if it has any")
    made.add_argument("--rounds", metavar="N", type=whole_number(FEWEST_ROUNDS, 1000), default=ROUNDS,
                      help=f"runs of each side, at least {FEWEST_ROUNDS} (default {ROUNDS})")
    made.add_argument("--service", metavar="NAME", action="append", default=[],
                      help=f"compare this service; may be repeated (default: {', '.join(rounds.SERVICES)})")
    made.add_argument("--exact", action="store_true", help="counts and instructions instead of times")
    made.add_argument("--no-instructions", action="store_true", help="with --exact: counts only, valgrind is not needed")
    made.add_argument("--jobs", metavar="N", type=whole_number(1, 1024), help="compile N files at a time (default: one per core)")
    made.add_argument("--rules", metavar="FILE", help="what is judged and how (default: scripts/gate_rules.json)")
    made.add_argument("--alpha", metavar="RATE", type=share(1e-6, 0.5), help="false-alarm rate of the whole run (default: as the rules say)")
    made.add_argument("--keep", action="store_true", help="keep worktrees, builds and reports, and say where they are")
    output.add_options(made)
    return made


def seconds_in_words(seconds: float) -> str:
    whole = max(int(round(seconds)), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02} s"


class TimeLeft:
    """Says how far a long job is and how long it will still take."""

    def __init__(self, what: str, total: int, tell: Callable[[str], None] = say, every_s: float = 10.0):
        self.what, self.total, self.tell, self.every_s = what, total, tell, every_s
        self.begun = time.monotonic()
        self.said = -every_s
        self.start_at = 0

    def __call__(self, done: int) -> None:
        now = time.monotonic() - self.begun
        if now - self.said < self.every_s:
            return
        self.said = now
        left = ""
        if done > self.start_at:
            left = f", about {seconds_in_words(now / (done - self.start_at) * (self.total - done))} left"
        self.tell(f"{self.what} {done + 1} of {self.total}{left}")


def check_quiet(tell: Callable[[str], None] = say) -> None:
    """Says so when the machine is not left alone."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return
    if load > 0.7:
        tell(f"other programs are running (load average {load:.1f}); they disturb what is measured")


def _sides(root: str, base: str, head: str | None) -> tuple[worktrees.Revision, worktrees.Revision]:
    before = worktrees.resolve(root, base)
    after = worktrees.checkout_of(root) if head is None else worktrees.resolve(root, head)
    if after.working_tree:
        say("the checkout has uncommitted changes: HEAD is the working tree as it is now")
    elif before.commit == after.commit:
        say(f"both sides are {before.commit[:12]}: nothing but noise can be found")
    return before, after


def _whose(revision: worktrees.Revision) -> str:
    return "the working tree" if revision.working_tree else f"revision {revision.given!r}"


def compare_times(shop: worktrees.Workshop, revisions: tuple[worktrees.Revision, worktrees.Revision], arguments: argparse.Namespace,
                  jobs: int) -> tuple[list[Report], list[Report]]:
    how = placements.method()
    sides, known = [], {}
    for name, revision in zip(("base", "head"), revisions):
        whose = _whose(revision)
        say(f"building {rounds.BINARY} of {revision}")
        build = worktrees.Build(shop.source_of(revision, name), os.path.join(shop.folder, f"build-{name}"), whose)
        placed = placements.Placements(build, rounds.BINARY, jobs, how)
        placed.prepare()
        binaries = [placed.make(number + 1, os.path.join(shop.folder, f"bin-{name}", str(number + 1), rounds.BINARY))
                    for number in range(arguments.rounds)]
        sides.append(rounds.Side(whose, binaries))
        known[f"{whose} ({name})"] = rounds.services_of(binaries[0], whose)
    services, left_out = rounds.common_services(known, arguments.service)
    for reason in left_out:
        say(f"left out: {reason}")
    # Who names a service wants all of it, decided or not.
    subset = rounds.subset_arguments(services, leave_out=() if arguments.service else rounds.NO_WINDOW)
    check_quiet()
    say(f"{arguments.rounds} rounds A-B-B-A of {', '.join(services)}; each in another placement ({placements.in_words(how)})")
    rounds.take_turns(*sides, arguments.rounds, subset, os.path.join(shop.folder, "runs"),
                      TimeLeft("round", arguments.rounds))
    return sides[0].reports, sides[1].reports


def exact_reports(binary: str, folder: str, whose: str, root: str, instructions: bool) -> list[Report]:
    """Counts of one binary, and its instructions where asked. Raises Unusable."""
    found = [rounds.run_once(binary, [], folder, whose=whose, experiment="exact")]
    if instructions:
        script = os.path.join(root, "scripts", "instructions")
        try:
            processes.run([script, "--bin", os.path.dirname(binary), "--out", folder], timeout_s=900)
        except FileNotFoundError:
            raise Unusable("scripts/instructions is not there; --no-instructions compares counts alone") from None
        except processes.Failed as failed:
            raise Unusable(f"{whose}: {processes.last_lines(failed.output)} (--no-instructions compares counts alone)") from None
        found.append(reports.load(os.path.join(folder, "instructions.json")))
    return found


def compare_exactly(shop: worktrees.Workshop, revisions: tuple[worktrees.Revision, worktrees.Revision],
                    arguments: argparse.Namespace, jobs: int) -> tuple[list[Report], list[Report]]:
    built = []
    for name, revision in zip(("base", "head"), revisions):
        say(f"building {EXACT_BINARY} of {revision}")
        build = worktrees.Build(shop.source_of(revision, name), os.path.join(shop.folder, f"build-{name}"), _whose(revision))
        build.configure()
        built.append((name, _whose(revision), build.make(EXACT_BINARY, jobs)))
    found = []
    for name, whose, binary in built:
        say(f"counting in {whose}")
        found.append(exact_reports(binary, os.path.join(shop.folder, "runs", name), whose, ROOT, not arguments.no_instructions))
    return found[0], found[1]


def with_same_context(base: list[Report], head: list[Report]) -> tuple[list[Report], list[str]]:
    """The head's reports with the base's compiler flags, and what was different in words.

    A gate refuses to compare builds of different flags. Here both sides were built on this machine just now, and flags that differ
    are part of the change that is judged.
    """
    differences = sorted({report.fingerprint().differences(base[0].fingerprint()) for report in head} - {""})
    if not differences:
        return head, []
    same = {name: base[0].environment[name] for name in ("libc", "compiler", "flags")}
    return ([dataclasses.replace(report, environment=report.environment | same) for report in head],
            [f"HEAD differs from BASE in how it is built, and is judged all the same: {difference}" for difference in differences])


def table(outcome: verdicts.Outcome) -> list[str]:
    """Every time with its interval, rank test and smallest detectable change; empty when no time was judged."""
    lines = [["service", "case", "BASE", "HEAD", "change", "interval", "rank test p", "could show", "verdict"]]
    for row in outcome.judgements:
        if row.kind != "time" or row.base is None:
            continue
        interval = "-" if row.interval is None else " to ".join(output.percent(end - 1) for end in row.interval)
        could = "-" if row.smallest_change is None or math.isinf(row.smallest_change) else output.percent(row.smallest_change)
        lines.append([row.service, str(row.case.get("kind", "")), f"{row.base:.3f}", f"{row.head:.3f}", output.percent(row.change), interval,
                      "-" if row.p is None else f"{row.p:.2g}", could, row.verdict])
    if len(lines) == 1:
        return []
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    head = (f"Times in clock readings of the same moment; interval of the change at a false-alarm rate of {outcome.alpha * 100:g} % for all "
            "rows together; rank test uncorrected; could show: smallest slowdown that would have been called one in 95 %")
    return ["", head, *("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)]


def run(arguments: argparse.Namespace) -> int:
    chosen_rules = rules.load(arguments.rules)
    output.check_options(arguments)
    if arguments.service and arguments.exact:
        raise Unusable("--service does not go with --exact: counts are compared for every service")
    revisions = _sides(ROOT, arguments.base, arguments.head)
    jobs = arguments.jobs or os.cpu_count() or 1
    if shutil.which("ninja") is None:
        raise Unusable("ninja is not there; scripts/setup installs it")
    with worktrees.Workshop(ROOT, keep=arguments.keep, say=say) as shop:
        compared = compare_exactly if arguments.exact else compare_times
        base, head = compared(shop, revisions, arguments, jobs)
        head, remarks = with_same_context(base, head)
        outcome = verdicts.judge(base, head, chosen_rules, alpha=arguments.alpha)
        outcome.remarks = remarks + outcome.remarks
    title = f"{revisions[1]} against {revisions[0]}"
    output.write(outcome, arguments, title)
    if table(outcome):
        output.show("\n".join(table(outcome)))
    return outcome.exit_code


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
        say("interrupted; nothing is left behind" if not arguments.keep else "interrupted")
        return processes.INTERRUPTED
