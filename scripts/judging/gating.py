"""The command scripts/gate: judges a run against a baseline, and makes it the baseline when asked."""

import argparse
import fnmatch
import os
import signal
import sys
from dataclasses import replace

from . import baseline, output, rules, verdicts
from .reports import Report, Row, Unusable, load_folder

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
ME = "gate"


class Parser(argparse.ArgumentParser):
    """One line on standard error, exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"{self.prog}: {' '.join(message.split())}; see --help", file=sys.stderr)
        sys.exit(2)


def share(low: float, high: float):
    """A parser of numbers in a range."""
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value
    return parse


def kinds(text: str) -> tuple[str, ...]:
    """A list of kinds, separated by commas."""
    chosen = tuple(text.split(","))
    for kind in chosen:
        if kind not in rules.KINDS:
            raise argparse.ArgumentTypeError(f"{kind!r} is not one of {', '.join(rules.KINDS)}")
    return chosen


def names(text: str) -> tuple[str, ...]:
    """A list of names, separated by commas."""
    chosen = tuple(text.split(","))
    if not all(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME[,NAME]")
    return chosen


def case_value(text: str) -> tuple[str, str]:
    """KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def parser() -> Parser:
    made = Parser(prog=ME, description="judges a run against a baseline", allow_abbrev=False,
                  epilog="Exit code: 0 pass, 1 regression, 2 unusable input, 3 cannot decide (or to be reviewed), 130 interrupted.")
    made.add_argument("runs", metavar="RUN_DIR", nargs="*", help="folder with the run's reports; several are one run in parts, "
                      "or repeated runs (default: out)")
    made.add_argument("--baseline", metavar="DIR", help="folder with the baseline's reports (default: the one in results/ whose CPU "
                      "model, libc, compiler and flags are the run's)")
    made.add_argument("--rules", metavar="FILE", help="what is judged and how (default: scripts/gate_rules.json)")
    made.add_argument("--only", metavar="KIND[,KIND]", type=kinds, help="judge only these kinds: time, count, instructions")
    made.add_argument("--experiment", metavar="NAME[,NAME]", action="extend", type=names, default=[],
                      help="judge only these experiments; may be given again")
    made.add_argument("--service", metavar="NAME[,NAME]", action="extend", type=names, default=[],
                      help="judge only these services; * stands for anything; may be given again")
    made.add_argument("--case", metavar="KEY=VALUE", action="append", type=case_value, default=[],
                      help="judge only rows of such cases; may be given again")
    made.add_argument("--alpha", metavar="RATE", type=share(1e-6, 0.5), help="false-alarm rate of the whole run (default: as the "
                      "rules say)")
    made.add_argument("--max-undecided", metavar="SHARE", type=share(0, 1), help="share of undecided rows of a kind with which a run "
                      "may pass, 0 to 1 (default: as the rules say)")
    made.add_argument("--instructions-threshold", metavar="SHARE", type=share(0, 10), help="relative increase of instructions that is "
                      "a regression (default: as the rules say)")
    made.add_argument("--update", action="store_true", help="make the run the baseline, unless it fails or may not be one")
    output.add_options(made)
    return made


def _with_threshold(chosen: rules.Rules, threshold: float | None) -> rules.Rules:
    if threshold is None:
        return chosen
    return replace(chosen, metrics={experiment: {metric: replace(rule, threshold=threshold) if rule.kind == "instructions" else rule
                                                 for metric, rule in metrics.items()}
                                    for experiment, metrics in chosen.metrics.items()})


def _check_judged(experiments: list[str], chosen: rules.Rules) -> None:
    """Raises Unusable for an experiment that is never judged, whether or not there is a report of it."""
    for name in experiments:
        if name in chosen.ignored_experiments:
            raise Unusable(f"--experiment {name!r}: it is not judged: {chosen.ignored_experiments[name]} ({chosen.path!r})")


def _narrowed(reports: list[Report], arguments: argparse.Namespace, whose: str, folders: list[str]) -> list[Report]:
    """What the arguments choose of the reports; floor rows stay, because the others refer to them. Raises Unusable for a name
    that is not there, and when nothing is left."""
    def stays(row: Row) -> bool:
        return row.service.startswith("floor/") or (
            (not arguments.service or any(fnmatch.fnmatchcase(row.service, name) for name in arguments.service))
            and all(str(row.case.get(key)) == value for key, value in arguments.case))

    for name in arguments.experiment:
        if name not in {report.experiment for report in reports}:
            raise Unusable(f"--experiment {name!r}: there is no report of it in {' and '.join(map(repr, folders))}, {whose}; those to be "
                           f"judged there are {', '.join(sorted({report.experiment for report in reports}))}")
    services = {row.service for report in reports for row in report.rows.values()}
    for name in arguments.service:
        if not fnmatch.filter(services, name):
            raise Unusable(f"--service {name!r}: {whose} has {', '.join(sorted(services))}")
    for key, value in arguments.case:
        if not any(str(row.case.get(key)) == value for report in reports for row in report.rows.values()):
            raise Unusable(f"--case '{key}={value}': {whose} has no row of such a case")
    chosen = [replace(report, rows={key: row for key, row in report.rows.items() if stays(row)}) for report in reports
              if not arguments.experiment or report.experiment in arguments.experiment]
    if not any(not row.service.startswith("floor/") for report in chosen for row in report.rows.values()):
        raise Unusable(f"{whose} has no row that --experiment, --service and --case leave together")
    return chosen


def _run_reports(folders: list[str], chosen: rules.Rules) -> list[Report]:
    seen: dict[str, str] = {}
    for folder in folders:
        real = os.path.realpath(folder)
        if real in seen:
            raise Unusable(f"{seen[real]!r} and {folder!r} are one folder; give each run once")
        seen[real] = folder
    return [report for folder in folders for report in load_folder(folder, chosen.ignored_experiments).values()]


def _write_nothing_judged(arguments: argparse.Namespace, chosen: rules.Rules, reason: str) -> int:
    """The answer when there was nothing to compare: the files that were asked for say so too."""
    outcome = verdicts.Outcome(arguments.alpha or chosen.alpha, chosen.max_undecided, remarks=[reason])
    output.write(outcome, arguments, "nothing was compared")
    return outcome.exit_code


def _needed(reports: list[Report]) -> str:
    fingerprint = reports[0].fingerprint()
    return (f"CPU model {fingerprint.cpu!r}, libc {fingerprint.libc!r}, compiler {fingerprint.compiler!r}, flags {fingerprint.flags!r}")


def _make_baseline(folders: list[str], folder: str, base: list[Report], outcome: verdicts.Outcome | None) -> int:
    """Updates, or says why not. `base` and `outcome`: what is there, and the run against it; empty and None for a new one."""
    if outcome is not None and outcome.exit_code == 1:
        return _refuse(1, "the run regressed; a failing run never becomes the baseline")
    if outcome is not None and (any(undecided / total > outcome.max_undecided for undecided, total in outcome.shares().values())
                                or not outcome.judgements):
        return _refuse(3, "the run could not be decided; measure again on a quiet machine, or name a new folder with --baseline")
    try:
        reports = baseline.load_all(folders)
        baseline.check_suitable(reports)
        differences = reports[0].fingerprint().differences(base[0].fingerprint()) if base else ""
        if differences:
            raise baseline.Refused(f"it is of another context ({differences} there); name a new folder with --baseline")
    except baseline.Refused as refused:
        return _refuse(2, str(refused))
    kept = baseline.update(reports, folder)
    output.show(f"{folder!r} is now this run" + (f"; what was there before is {os.path.basename(kept)!r}" if kept else ""))
    return 0


def _refuse(code: int, reason: str) -> int:
    print(f"{ME}: the baseline stays as it is: {reason}", file=sys.stderr)
    return code


def run(arguments: argparse.Namespace) -> int:
    """Judges as the arguments say. Raises Unusable."""
    chosen = _with_threshold(rules.load(arguments.rules), arguments.instructions_threshold)
    output.check_options(arguments)
    if arguments.update and arguments.only:
        raise Unusable("--only does not go with --update: a baseline is judged whole")
    narrow = bool(arguments.experiment or arguments.service or arguments.case)
    if arguments.update and narrow:
        raise Unusable("--experiment, --service and --case do not go with --update: a baseline is judged whole")
    _check_judged(arguments.experiment, chosen)
    folders = arguments.runs or [os.path.join(ROOT, "out")]
    reports = _run_reports(folders, chosen)
    if not reports:
        return _write_nothing_judged(arguments, chosen, f"{' and '.join(map(repr, folders))} holds only reports that are not judged")
    if narrow:
        reports = _narrowed(reports, arguments, "the run", folders)
    folder, fits, remarks = arguments.baseline, True, []
    if folder is None:
        results = os.path.join(ROOT, "results")
        folder, fits = baseline.choose(results, chosen, reports[0].fingerprint(), {report.experiment for report in reports})
        if not fits:
            remarks.append(f"no baseline in {results!r} fits this run; times and instructions need one with {_needed(reports)}: "
                           "make it with scripts/gate --update --baseline results/NAME, or compare with the revision you started "
                           "from by scripts/compare BASE (--exact: counts and instructions)")
        if arguments.update and not fits:
            raise Unusable("no baseline fits this run; name a new folder with --baseline results/NAME")
        if folder is None:
            return _write_nothing_judged(arguments, chosen, remarks[0])
    elif arguments.update and not os.path.lexists(folder):
        return _make_baseline(folders, folder, [], None)
    if os.path.realpath(folder) in map(os.path.realpath, folders):
        raise Unusable(f"{folder!r} is the run and its own baseline; give two different folders")
    base = list(load_folder(folder, chosen.ignored_experiments).values())
    if narrow:
        base = _narrowed(base, arguments, "the baseline", [folder])
    outcome = verdicts.judge(base, reports, chosen, alpha=arguments.alpha, kinds=arguments.only or rules.KINDS,
                             max_undecided=arguments.max_undecided)
    outcome.remarks = remarks + outcome.remarks
    output.write(outcome, arguments, f"run {', '.join(map(repr, folders))} against baseline {folder!r}")
    if arguments.update:
        return _make_baseline(folders, folder, base, outcome)
    return outcome.exit_code


def main() -> int:
    """The command. Returns its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parser().parse_args()
    try:
        return run(arguments)
    except Unusable as problem:
        line = f"{ME}: {problem}".encode("utf-8", "backslashreplace").decode("utf-8")
        print(" ".join(line.split("\n")), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{ME}: interrupted; nothing was changed", file=sys.stderr)
        return 130
