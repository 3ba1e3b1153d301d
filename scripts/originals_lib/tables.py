"""Tables for people: one text for each experiment, and the summary."""

from typing import Any, Iterable, Sequence

from judging import reports

from .reaching import Finding


class Notes:
    """Reasons and remarks, each with a letter."""

    def __init__(self) -> None:
        self.letters: dict[str, str] = {}

    def mark(self, text: str) -> str:
        place = len(self.letters)
        return self.letters.setdefault(" ".join(text.split()), chr(ord("a") + place % 26) * (1 + place // 26))

    def lines(self) -> list[str]:
        return [f"  -{letter}  {text}" for text, letter in self.letters.items()]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side: the first to the left, figures to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
            for row in rows]


def figure(value: float | None) -> str:
    """At least three digits that say something, and never an exponent."""
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def _interval(row: dict[str, Any]) -> str:
    return f"[{figure(row['ci95'][0])} {figure(row['ci95'][1])}]" if row.get("ci95") else "-"


def in_words(case: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in case.items())


def _measured(row: dict[str, Any]) -> bool:
    return "samples" in row


def _time_cells(row: dict[str, Any], best: float) -> list[str]:
    ratio = row.get("clock_ratio")
    relative = f"{row['p50'] / best:.2f}" if best > 0 and row["p50"] > 0 else "-"
    return [str(row["n"]), figure(row["p50"]), _interval(row), figure(row["min"]), f"{ratio['p50']:.2f}" if ratio else "-", relative]


def _count_cells(row: dict[str, Any], best: float) -> list[str]:
    return [str(row["n"]), *(figure(row[name]) for name in ("p50", "min", "max"))]


def _event_cells(row: dict[str, Any], best: float) -> list[str]:
    return [str(row["n"]), *(figure(row.get(name)) for name in ("min", "p50", "p90", "p99", "max"))]


TIMES = (["n", "median", "[95 %]", "min", "x clock", "x cheapest"], _time_cells)
COUNTS = (["n", "median", "min", "max"], _count_cells)
EVENTS = (["n", "earliest", "p50", "p90", "p99", "max"], _event_cells)
METRICS = ("poll", "above_bare", "arm_cancel", "process_cpu", "allocations", "bytes", "callback_start", "held", "rss", "completions",
           "stopped_tasks")


def _place(metric: str, case: dict[str, Any]) -> tuple[Any, ...]:
    """Where a section stands: by metric, then by case, numbers by size."""
    order = METRICS.index(metric) if metric in METRICS else len(METRICS)
    return (order, metric, len(case), [(name, isinstance(value, str), str(value) if isinstance(value, str) else value)
                                       for name, value in sorted(case.items())])


def section(title: str, rows: list[dict[str, Any]], notes: Notes) -> list[str]:
    """One metric in one case: the services from the cheapest on, then those without figures."""
    measured = sorted((row for row in rows if _measured(row)), key=lambda row: row["p50"])
    best = min((row["p50"] for row in measured if row["p50"] > 0), default=0.0)
    heads, cells_of = EVENTS if any("p90" in row for row in measured) else TIMES if rows[0]["unit"].startswith("ns") else COUNTS
    lines = [["service", *heads]]
    for row in measured:
        mark = f" (-{notes.mark(row['note'])})" if row.get("note") else ""
        lines.append([row["service"] + mark, *cells_of(row, best)])
    for row in rows:
        if not _measured(row):
            reason = row.get("skipped") or f"error: {row.get('error')}"
            lines.append([row["service"], "-" + notes.mark(reason), *[""] * (len(heads) - 1)])
    return [title, *aligned(lines)]


def versions(document: dict[str, Any]) -> str:
    """What the programs said they run on."""
    return ", ".join(f"{name} {version}" for name, version in document["parameters"].get("versions", {}).items())


def experiment_text(document: dict[str, Any]) -> str:
    """The text report of one experiment."""
    environment = document["environment"]
    marks = "".join(f" [{mark}]" for mark in document["marks"])
    lines = [f"timerbench: originals, {document['experiment']}{marks}{' figures are not for comparison' if marks else ''}",
             f"  {environment['cpu']['model']}, {environment['cpu']['usable']} usable, {environment['kernel']}",
             "  " + versions(document), f"  seed {document['seed']}, rounds {document['parameters'].get('rounds')}", ""]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    apart: list[dict[str, Any]] = []
    for row in document["rows"]:
        if row["metric"] == "available":
            apart.append(row)
        else:
            groups.setdefault((row["metric"], reports.canonical(row["case"])), []).append(row)
    notes = Notes()
    for (metric, _), rows in sorted(groups.items(), key=lambda group: _place(group[0][0], group[1][0]["case"])):
        point = in_words(rows[0]["case"])
        lines += [*section(f"{metric}{', ' + point if point else ''} [{rows[0]['unit']}]", rows, notes), ""]
    if apart:
        heads = [["not measured", ""], *([row["service"], "-" + notes.mark(row.get("skipped") or f"error: {row.get('error')}")]
                                         for row in apart)]
        lines += [*aligned(heads), ""]
    lines += notes.lines()
    failed = [check for check in document["checks"] if not check["ok"]]
    lines += [f"checks: {len(document['checks']) - len(failed)} of {len(document['checks'])} ok"]
    lines += [f"  FAILED: {check['service']} {check['name']}: {check['detail']}" for check in failed]
    return "\n".join(lines) + "\n"


def summary_text(title: Iterable[str], findings: Sequence[Finding]) -> str:
    """What was found about the numbers to reach, and who took part."""
    lines = [*title, "", "Numbers to reach"]
    width = max((len(finding.verdict) for finding in findings), default=0)
    for finding in findings:
        lines += [f"  {finding.verdict.ljust(width)}  {finding.what}: {finding.limit}", f"  {' ' * width}    {finding.detail}"]
    return "\n".join(lines) + "\n"
