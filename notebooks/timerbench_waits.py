"""The pictures of `waiting`, what it costs to wait with a bound, and of `clocks`, what a step of the wall clock does to a timeout."""

from __future__ import annotations

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from timerbench_frames import Missing, Runs, duration_text, measured, reasons, select
from timerbench_output import Picture, column_title, draw_line, finish, handle, head_lines, heading, log_axis, or_sentence, tag
from timerbench_reports import Run
from timerbench_style import INK, PALE, Sheet, is_service, plain

# What a wait costs: metric, what stands above its panels, label.
COSTS = [("cpu", "CPU of a wait", "us per wait (log)"), ("rss", "memory of a wait", "resident B per wait (log)"),
         ("wake_up", "wake-up, median", "us (log)"), ("overshoot", "overshoot, median", "ms (log)")]


@or_sentence
def waiting(runs: Runs) -> Picture:
    """CPU, memory and punctuality of outstanding waits against their number, by way of waiting."""
    having = runs.having("waiting")
    frame = select(runs.frame("waiting"), kind="outstanding")
    frame = frame[frame["metric"].isin([metric for metric, _, _ in COSTS]) & frame["service"].map(is_service)] if len(frame) else frame
    rows = measured(frame)
    if rows.empty or "case.waits" not in rows or not len(select(rows, metric="cpu")) + len(select(rows, metric="rss")):
        raise Missing("No picture: the reports of waiting have no measured rows cpu or rss of outstanding waits.")
    shown = [entry for entry in COSTS if len(select(rows, metric=entry[0]))]
    columns = [(run, *entry) for run in having for entry in shown]
    services = runs.palette.sort(rows["service"])
    panels = runs.palette.panels(services)
    points = sorted({float(value) for value in rows["case.waits"]})
    headings = [heading(having, run, "waiting", text) for run, _, text, _ in columns]
    title = "What it costs to wait, against the number of waits at a time"
    sheet = Sheet(len(panels), len(columns), row_height=1.55, column_width=2.3, key_width=2.5, gap=0.8, title=title, bottom=0.55,
                  lines=head_lines(having, "waiting"), share_y=False, heading_lines=max(text.count("\n") + 1 for text in headings))
    tags: dict = {}
    remarks = []
    for number, (run, metric, _, label) in enumerate(columns):
        mine = select(rows, run=run.label, metric=metric)
        curves = {service: select(mine, service=service).sort_values("case.waits") for service in services}
        positive = mine["p50"][mine["p50"] > 0]
        low, high = (positive.min(), positive.max()) if len(positive) else (1.0, 1.0)
        floor = bool((mine["p50"] <= 0).any())
        for row, (_, names) in enumerate(panels):
            axes = sheet.axes[row][number]
            for service in services:
                if service not in names:
                    axes.plot(curves[service]["case.waits"], curves[service]["p50"], color=PALE, linewidth=0.7, zorder=1)
            for service in names:
                if len(curves[service]):
                    draw_line(axes, runs.palette, service, curves[service]["case.waits"], curves[service]["p50"], tags)
            axes.set_ylabel(label, fontsize=8)
            if row == len(panels) - 1:
                axes.set_xlabel("waits at a time (log)")
        first = sheet.axes[0][number]
        column_title(first, run, "waiting", headings[number])
        if floor:
            first.set_yscale("symlog", linthresh=low, linscale=0.4)
            first.set_ylim(-0.3 * low, high * 1.6)
        else:
            first.set_yscale("log")
            first.set_ylim(low * 0.6, high * 1.6)
        log_axis(first.yaxis, low * 0.6, high * 1.6)
        if floor:
            first.yaxis.set_major_locator(FixedLocator([0.0, *(tick for tick in first.yaxis.get_major_locator().locs if tick >= low)]))
            remarks.append(f"{metric}: the axis is linear below {plain(low)}, so that it can show 0.")
    first = sheet.axes[0][0]
    first.set_xscale("log")
    first.set_xlim(min(points) * 0.7, max(points) * 1.5)
    log_axis(first.xaxis, min(points) * 0.7, max(points) * 1.5)
    first.xaxis.set_major_locator(FixedLocator(points))
    for row, (family, names) in enumerate(panels):
        sheet.key(row, [handle(runs.palette, name) for name in names], family if len(names) > 1 else None)
    return finish(sheet, "waiting", title, [*remarks, *runs.without("waiting"), *reasons(frame, having)])


def _steps(run: Run, rows) -> str:
    """The timeout and when the clock is set, where the rows agree on them."""
    found = {name: list(dict.fromkeys(rows[f"case.{name}"])) for name in ("timeout_ms", "step_after_ms") if f"case.{name}" in rows}
    words = []
    if len(found.get("timeout_ms", [])) == 1:
        words.append(f"timeout of {duration_text(int(found['timeout_ms'][0]))}")
    if len(found.get("step_after_ms", [])) == 1:
        words.append(f"the clock is set after {duration_text(int(found['step_after_ms'][0]))}")
    return ", ".join(words)


@or_sentence
def clock_steps(runs: Runs) -> Picture:
    """How far a timeout misses when the wall clock is set meanwhile."""
    having = runs.having("clocks")
    frame = select(runs.frame("clocks"), kind="deadline", metric="error")
    rows = measured(frame)
    if rows.empty or "case.step_s" not in rows:
        raise Missing("No picture: the reports of clocks have no measured rows error of a timeout.")
    services = runs.palette.sort(rows["service"])
    panels = runs.palette.panels(services)
    columns = [run for run in having if len(select(rows, run=run.label))]
    headings = [heading(columns, run, "clocks", _steps(run, select(rows, run=run.label))) for run in columns]
    title = "Error of a timeout when the wall clock is set meanwhile"
    sheet = Sheet(len(panels), len(columns), row_height=2.0, column_width=4.6, key_width=2.75, left=1.0, title=title, bottom=0.55,
                  lines=head_lines(columns, "clocks"), heading_lines=max(text.count("\n") + 1 for text in headings))
    tags: dict = {}
    for row, (_, names) in enumerate(panels):
        for number, run in enumerate(columns):
            axes = sheet.axes[row][number]
            axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
            axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
            for service in names:
                mine = select(rows, run=run.label, service=service).sort_values("case.step_s")
                if len(mine):
                    look = runs.palette[service]
                    # Curves of a family lie upon each other: those below are wider.
                    relatives = [name for name in names if runs.palette[name].family == look.family]
                    wide = len(relatives) - 1 - relatives.index(service)
                    tag(axes.plot(mine["case.step_s"], mine["p50"], color=look.colour, marker=look.marker, linestyle=look.dash if wide == 0 else "-",
                                  linewidth=1.3 + 1.8 * wide, markersize=4.5 + 2.2 * wide, markeredgecolor="white", markeredgewidth=0.4,
                                  zorder=3 - 0.1 * wide)[0], service, tags)
            if row == 0:
                column_title(axes, run, "clocks", headings[number])
            if number == 0:
                axes.set_ylabel("error, ms (symlog)")
            if row == len(panels) - 1:
                axes.set_xlabel("the wall clock is set by, s (symlog)")
        sheet.key(row, [handle(runs.palette, name) for name in names])
    first = sheet.axes[0][0]
    steps = sorted({float(value) for value in rows["case.step_s"]})
    first.set_xscale("symlog", linthresh=min([abs(step) for step in steps if step] or [1.0]), linscale=0.6)
    first.xaxis.set_major_locator(FixedLocator([*steps, 0.0]))
    first.xaxis.set_minor_locator(NullLocator())
    first.xaxis.set_major_formatter(FuncFormatter(plain))
    first.set_xlim(min(*steps, 0.0) * 1.6 or -1.0, max(*steps, 0.0) * 1.6 or 1.0)
    low, high = min(rows["p50"].min(), 0.0), max(rows["p50"].max(), 0.0)
    first.set_yscale("symlog", linthresh=1, linscale=0.9)
    first.set_ylim(min(low * 3, -1.0), max(high * 3, 1.0))
    powers = [10.0**power for power in range(0, 13, 2)]
    first.yaxis.set_major_locator(FixedLocator([tick for tick in [*(-power for power in reversed(powers)), 0.0, *powers]
                                                if min(low * 3, -1) <= tick <= max(high * 3, 1)]))
    first.yaxis.set_minor_locator(NullLocator())
    first.yaxis.set_major_formatter(FuncFormatter(plain))
    return finish(sheet, "clock_steps", title, [*runs.without("clocks"), *reasons(frame, having)])
