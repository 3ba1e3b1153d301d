"""The tables of the notebook."""

from __future__ import annotations

import html
from collections.abc import Callable

import numpy as np
import pandas as pd

from timerbench_frames import Missing, Runs, measured, reasons, select
from timerbench_output import Table, or_sentence
from timerbench_reports import is_number, shorten
from timerbench_style import Palette


def _swatch(palette: Palette, service: str) -> str:
    return (f'<span style="display:inline-block;width:0.8em;height:0.8em;margin-right:0.5em;'
            f'background:{palette[service].colour}"></span>{html.escape(service)}')


def _html_table(name: str, frame: pd.DataFrame, *, words: tuple[str, ...], formats: dict | None = None,
                paint: Callable | None = None) -> str:
    """`words` are the columns that hold text; the others hold figures."""
    left = [{"selector": kind, "props": "text-align: left; white-space: nowrap"} for kind in ("th", "td")]
    styler = frame.style.hide(axis="index").set_uuid(name).set_table_attributes('class="timerbench-table"')
    styler = styler.set_table_styles({column: left for column in frame.columns if column in words}, overwrite=False)
    styler = styler.format(formats or {}, na_rep="–")
    if paint is not None:
        styler = styler.apply(paint, axis=None)
    return styler.to_html()


@or_sentence
def reports_table(runs: Runs) -> Table:
    """What was loaded: a line for each report."""
    lines = []
    for run in runs.all:
        for experiment, report in run.reports.items():
            environment = run.environment(experiment)
            git = environment.get("git") if isinstance(environment.get("git"), dict) else {}
            checks = [check for check in report.get("checks") or [] if isinstance(check, dict)]
            failed = [str(check.get("name")) for check in checks if check.get("ok") is not True]
            rows = report["rows"]
            lines.append({
                "folder": html.escape(run.label), "experiment": html.escape(experiment), "rows": len(rows),
                "skipped": sum(bool(row.get("skipped")) for row in rows), "in error": sum(bool(row.get("error")) for row in rows),
                "checks failed": html.escape(shorten(f"{len(failed)}: {failed[0]}", 60)) if failed else "0",
                "not for quoting": html.escape(", ".join(run.marks(experiment))),
                "machine": html.escape(run.machine(experiment)),
                "revision": html.escape(str(git.get("revision", ""))[:12] + (" (dirty)" if git.get("dirty") is True else "")),
            })
    frame = pd.DataFrame(lines)
    return Table("reports", frame, _html_table("reports", frame, words=("folder", "experiment", "checks failed", "not for quoting", "machine", "revision")))


# The columns of the allocations table: title, metric, kind of the case.
ALLOCATIONS = [
    ("arm+cancel|allocs", "allocations", "article"), ("arm+cancel|B", "bytes", "article"),
    ("window|allocs", "allocations", "window"), ("window|B", "bytes", "window"),
    ("arm+fire|allocs", "arm_fire_allocations", "fire"), ("arm+fire|B", "arm_fire_bytes", "fire"),
    ("ready path|allocs", "allocations", "ready path"), ("outstanding|heap B", "held", "outstanding"),
    ("outstanding|handle B", "timer_size", "outstanding"), ("cancelled|held B", "held_settled", "held burst"),
]


@or_sentence
def allocations_table(runs: Runs) -> Table:
    """Heap allocations and bytes for each operation, and what a timer holds."""
    having = runs.having("allocs")
    frame = runs.frame("allocs")
    lines = []
    for run in having:
        mine = select(frame, run=run.label)
        marks = f" [{' '.join(run.marks('allocs'))}]" if run.marks("allocs") else ""
        for service in runs.palette.sort(mine["service"].unique()):
            line = {"folder": html.escape(run.label + marks), "service": _swatch(runs.palette, service)}
            for title, metric, kind in ALLOCATIONS:
                found = measured(select(mine, service=service, metric=metric, kind=kind))
                line[title] = found["p50"].iloc[0] if len(found) else np.nan
            lines.append(line)
    table = pd.DataFrame(lines)
    titles = [title for title, _, _ in ALLOCATIONS if table.get(title) is not None and table[title].notna().any()]
    if table.empty or not titles:
        raise Missing("No table: the reports of allocs hold none of its figures.")
    table = table[[*(["folder"] if len(runs.all) > 1 or any(run.marks("allocs") for run in having) else []), "service", *titles]]
    table.columns = [title.replace("|", " ") for title in table.columns]

    def paint(data: pd.DataFrame) -> pd.DataFrame:
        # What prints as zero is nothing, or the first use of a block spread over all operations.
        return data.apply(lambda column: ["" if not is_number(value) else
                                          "color: #888888" if value < (0.005 if column.name.endswith("allocs") else 0.05)
                                          else "font-weight: bold; background: #FFF1D6" for value in column])

    formats = {title: "{:.2f}" if title.endswith("allocs") else "{:.1f}" for title in table.columns if title not in ("folder", "service")}
    return Table("allocations", table, _html_table("allocations", table, words=("folder", "service"), formats=formats, paint=paint),
                 [*runs.without("allocs"), *reasons(frame, having)])
