"""Shows an outcome: text for people, markdown for a pull request, junit for CI servers, JSON for programs.

Nothing here decides anything, and no program should read the text: `--json` has all of it.
"""

import argparse
import json
import math
import os
import re
import stat
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections import Counter
from typing import Any, Callable

from .reports import Unusable
from .verdicts import Judgement, Outcome

FORMAT = "timerbench.verdict/1"
MOST_LINES = 40  # of one verdict in text and markdown
KIND_NAMES = {"time": "times", "count": "counts", "instructions": "instructions", "report": "missing reports"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options for output files."""
    parser.add_argument("--markdown", metavar="FILE", help="write the report for a pull request to FILE")
    parser.add_argument("--junit", metavar="FILE", help="write the verdicts as JUnit XML to FILE")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON to FILE")


def check_options(arguments: argparse.Namespace) -> None:
    """Raises Unusable when an output file could not be written at the end, or would overwrite a report."""
    chosen: dict[str, str] = {}
    for option in ("markdown", "junit", "json"):
        path = getattr(arguments, option)
        if path is None:
            continue
        real = os.path.realpath(path)
        if _special(real):
            continue
        if real in chosen:
            raise Unusable(f"--{chosen[real]} and --{option} both name {path!r}; give each a file of its own")
        chosen[real] = option
        folder = os.path.dirname(real)
        if os.path.isdir(real) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            raise Unusable(f"--{option} {path!r} cannot be written; give a file in a folder that is there and can be written")
        if _is_report(real):
            raise Unusable(f"--{option} {path!r} is a report and would be overwritten; give another file")


def _special(path: str) -> bool:
    """A pipe or a device: it is written to, never replaced."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _is_report(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b'"timerbench.report/' in file.read(4096)
    except OSError:
        return False


def write_file(path: str, text: str) -> None:
    """Writes under a temporary name, then renames: a reader sees the old file or the whole new one. Raises Unusable."""
    real = os.path.realpath(path)
    temporary = None
    data = text.encode("utf-8", "backslashreplace")
    try:
        if _special(real):
            with open(real, "wb") as file:
                file.write(data)
            return
        handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(real)[:100]}.", dir=os.path.dirname(real))
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, real)
        temporary = None
    except OSError as error:
        raise Unusable(f"{path!r} cannot be written: {error.strerror}") from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def write(outcome: Outcome, arguments: argparse.Namespace, title: str) -> None:
    """Prints the text and writes the files that the options ask for. Raises Unusable when a file cannot be written."""
    for path, make in ((arguments.markdown, markdown), (arguments.junit, junit), (arguments.json, as_json)):
        if path is not None:
            write_file(path, make(outcome, title))
    show(text(outcome, title))


def show(lines: str) -> None:
    """Prints to standard output, whatever it is able to show; a reader that went away is no error."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(lines, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def percent(value: float | None) -> str:
    """A relative change with its sign."""
    if value is None:
        return "-"
    if math.isinf(value):
        return "from 0"
    return f"{value * 100:+.1f} %" if value < 10 else "more than +1000 %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def figures(judgement: Judgement) -> str:
    """The figures of a judgement in one line; empty when there are none."""
    if judgement.base is None or judgement.head is None:
        return ""
    parts = [f"{_number(judgement.base)} -> {_number(judgement.head)}{' ' + judgement.unit if judgement.unit else ''}",
             percent(judgement.change)]
    if judgement.interval is not None:
        parts.append("interval " + " to ".join(percent(end - 1) for end in judgement.interval))
    if judgement.p is not None:
        parts.append(f"rank test p = {judgement.p:.2g}")
    return ", ".join(parts)


def smallest(judgement: Judgement) -> str:
    """The smallest worsening that the run would have shown, in words; empty when it is not known."""
    if judgement.smallest_change is None:
        return ""
    if judgement.smallest_change == 0:
        return "any change would have shown"
    if math.isinf(judgement.smallest_change) or judgement.smallest_change > 100:
        return "no change would have shown for certain"
    return f"smallest change that would have shown: {percent(judgement.smallest_change)}"


def _groups(judgements: list[Judgement]) -> list[tuple[str, str]]:
    """(what, why) for each judgement. Many rows of an experiment that share one reason without figures become one."""
    def shared(judgement: Judgement) -> tuple[str, str, str] | None:
        bare = judgement.base is None and judgement.smallest_change is None
        return (judgement.experiment, judgement.kind, judgement.reason) if bare else None

    counts = Counter(shared(judgement) for judgement in judgements)
    result: list[tuple[str, str]] = []
    done = set()
    for judgement in judgements:
        group = shared(judgement)
        if group is not None and counts[group] > 3:
            if group not in done:
                done.add(group)
                result.append((f"{judgement.experiment}: {counts[group]} rows of kind {judgement.kind}", judgement.reason))
            continue
        result.append((judgement.row, "; ".join(filter(None, (judgement.reason, figures(judgement), smallest(judgement))))))
    return result


def _sections(outcome: Outcome) -> list[tuple[str, list[tuple[str, str]]]]:
    titles = {"regression": "Regressions", "review": "To be reviewed: better than is plausible", "undecided": "Undecided",
              "improvement": "Improvements"}
    return [(f"{title} ({len(outcome.of(verdict))})", _groups(outcome.of(verdict)))
            for verdict, title in titles.items() if outcome.of(verdict)]


def _limit(outcome: Outcome) -> str:
    """What the times that passed could have shown."""
    changes = sorted(judgement.smallest_change for judgement in outcome.judgements
                     if judgement.kind == "time" and judgement.smallest_change is not None)
    if not changes:
        return ""
    middle, last = changes[len(changes) // 2], changes[-1]
    return f"smallest change of a time that would have shown: {percent(middle)} in half of the rows, " + \
           (f"{percent(last)} in all" if last <= 100 else "in some rows none for certain")


def _totals(outcome: Outcome) -> list[str]:
    shares = outcome.shares()
    lines = [f"{len(outcome.of('pass')) + len(outcome.of('improvement'))} of {len(outcome.judgements)} rows pass"
             + (f", {len(outcome.of('improvement'))} of them improved" if outcome.of("improvement") else "")
             + (f"; {outcome.new_rows} rows are new and have no baseline" if outcome.new_rows else "")]
    if shares:
        lines.append("undecided: " + ", ".join(f"{undecided} of {total} {KIND_NAMES[kind]} ({undecided / total * 100:.1f} %)"
                                               for kind, (undecided, total) in shares.items())
                     + f"; allowed are {outcome.max_undecided * 100:g} % of a kind")
    if outcome.tested:
        lines.append(f"false alarms: at most {outcome.alpha * 100:g} % of whole runs; intervals corrected for {outcome.tested} times, "
                     f"resampled by {outcome.unit}")
    return [*lines, *filter(None, [_limit(outcome)])]


def text(outcome: Outcome, title: str) -> str:
    """For people: the verdict first, then what led to it, then the counts."""
    lines = [f"verdict: {outcome.verdict}" + (f": {'; '.join(outcome.reasons())}" if outcome.reasons() else ""), title]
    for heading, entries in _sections(outcome):
        lines += ["", heading]
        for what, why in entries[:MOST_LINES]:
            lines += [f"  {what}", f"      {why}"] if why else [f"  {what}"]
        if len(entries) > MOST_LINES:
            lines.append(f"  and {len(entries) - MOST_LINES} more; --json FILE has all of them")
    lines += ["", *_totals(outcome), *(f"note: {remark}" for remark in outcome.remarks)]
    return "\n".join(lines)


def _markdown_text(value: str) -> str:
    value = re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", value)
    return " ".join(value.split())


def markdown(outcome: Outcome, title: str) -> str:
    """The same for a pull request."""
    lines = [f"### timerbench: {outcome.verdict}", "", _markdown_text(title), ""]
    lines += [f"- {_markdown_text(reason)}" for reason in outcome.reasons()]
    for heading, entries in _sections(outcome):
        lines += ["", f"<details{'' if heading.startswith(('Und', 'Imp')) else ' open'}><summary>{heading}</summary>", "",
                  "| row | why |", "| --- | --- |"]
        lines += [f"| {_markdown_text(what)} | {_markdown_text(why)} |" for what, why in entries[:MOST_LINES]]
        if len(entries) > MOST_LINES:
            lines.append(f"| and {len(entries) - MOST_LINES} more | |")
        lines += ["", "</details>"]
    lines += ["", *(f"- {_markdown_text(line)}" for line in _totals(outcome)),
              *(f"- note: {_markdown_text(remark)}" for remark in outcome.remarks)]
    return "\n".join(lines) + "\n"


def _xml_text(value: str) -> str:
    """Without what XML cannot hold."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", value)


def junit(outcome: Outcome, title: str) -> str:
    """One test case a row: a regression is a failure, undecided and to be reviewed are skipped. One more for the whole run,
    which is an error when it cannot be decided, so that a run in which nothing was decided does not look green."""
    suites = xml.Element("testsuites", name=_xml_text(title))
    whole = xml.SubElement(suites, "testsuite", name="whole run", tests="1", failures=str(int(outcome.exit_code == 1)),
                           errors=str(int(outcome.exit_code == 3)), skipped="0")
    case = xml.SubElement(whole, "testcase", classname="whole run", name="verdict")
    if outcome.exit_code:
        xml.SubElement(case, "failure" if outcome.exit_code == 1 else "error", message=_xml_text("; ".join(outcome.reasons())))
    for experiment in dict.fromkeys(judgement.experiment for judgement in outcome.judgements):
        rows = [judgement for judgement in outcome.judgements if judgement.experiment == experiment]
        count: Callable[..., str] = lambda *verdicts: str(sum(row.verdict in verdicts for row in rows))  # noqa: B023, E731
        suite = xml.SubElement(suites, "testsuite", name=_xml_text(experiment), tests=str(len(rows)), failures=count("regression"),
                               errors="0", skipped=count("undecided", "review"))
        for row in rows:
            case = xml.SubElement(suite, "testcase", classname=_xml_text(f"{experiment}.{row.service}"),
                                  name=_xml_text(row.row.partition(": ")[2]))
            why = _xml_text("; ".join(filter(None, (row.reason, figures(row), smallest(row)))))
            if row.verdict == "regression":
                xml.SubElement(case, "failure", message=why)
            elif row.verdict in ("undecided", "review"):
                xml.SubElement(case, "skipped", message=f"{row.verdict}: {why}")
    xml.indent(suites)
    return xml.tostring(suites, encoding="unicode", xml_declaration=False) + "\n"


def _finite(record: dict[str, Any], name: str, value: float | None) -> None:
    """A number, or null with the reason beside it."""
    if value is not None and math.isinf(value):
        record[name], record[f"{name}_reason"] = None, "infinite"
    else:
        record[name] = value


def as_json(outcome: Outcome, title: str) -> str:
    """Everything, strict JSON."""
    rows = []
    for row in outcome.judgements:
        record: dict[str, Any] = {"experiment": row.experiment, "service": row.service, "case": row.case, "metric": row.metric,
                                  "unit": row.unit, "kind": row.kind, "verdict": row.verdict}
        for name in ("base", "head", "change", "smallest_change", "p"):
            _finite(record, name, getattr(row, name))
        record["interval"] = list(row.interval) if row.interval is not None else None
        record["reason"] = row.reason
        rows.append(record)
    document = {"schema": FORMAT, "title": title, "verdict": outcome.verdict, "exit_code": outcome.exit_code,
                "reasons": outcome.reasons(), "alpha": outcome.alpha, "max_undecided": outcome.max_undecided,
                "unit_of_resampling": outcome.unit, "times_tested": outcome.tested, "new_rows": outcome.new_rows,
                "undecided": {kind: {"rows": undecided, "of": total} for kind, (undecided, total) in outcome.shares().items()},
                "remarks": outcome.remarks, "judgements": rows}
    return json.dumps(document, allow_nan=False, indent=1) + "\n"
