"""The pictures of the notebook: folders of reports become pandas frames, and one function makes each picture.

    runs = load(["results/epyc-2-cores", "out"])
    cost_bars(runs)

A function returns what a notebook shows: a `Picture`, a `Table`, or a `Sentence` where the reports hold nothing to
draw. With $TIMERBENCH_FIGURES set, each picture is also written to that folder as NAME.svg. The same reports give
the same bytes with one version of matplotlib. Experiments, metrics and services that are not known here do no harm:
a service more gets a line more, an experiment more shows up in `other_experiments`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from timerbench_after import amplification, incident, wasted_work  # noqa: F401
from timerbench_frames import Missing, Runs, best_case, case_text, chosen, load, measured, reasons, select  # noqa: F401
from timerbench_lateness import lateness  # noqa: F401
from timerbench_originals import originals  # noqa: F401
from timerbench_output import Picture, Pictures, Sentence, column_title, draw_line, finish, handle, head_lines, heading, log_axis, or_sentence, tag, wide
from timerbench_reports import ORIGINALS, Run, shorten
from timerbench_style import ALERT, INK, PALE, Sheet, is_service, plain
from timerbench_tables import allocations_table, reports_table  # noqa: F401
from timerbench_waits import clock_steps, waiting  # noqa: F401

# Experiments that have pictures of their own; `other_experiments` draws the rest.
DRAWN = ("arm_cancel", "scaling", "accuracy", "allocs", "lost_wakeup", "aftermath",
         *(f"{ORIGINALS}/{name}" for name in ("arm_cancel", "accuracy", "memory")))
# Those of which only one kind of case has one, and that kind.
DRAWN_KIND = {"waiting": "outstanding", "clocks": "deadline"}
# Metrics that tell more than the first ones of their experiment and kind.
TELLING = {("clocks", "lease"): ["stale_accepted", "overwrites", "refused", "rightful_refused"], ("clocks", "commit"): ["violations", "mean_wait"]}

PAIR = [("kind", "article"), ("population", 0), ("duration_ms", 1000), ("deadline", "earliest"), ("pairs_per_ms", 1000)]
WINDOW = [("kind", "window"), ("population", 0), ("duration_ms", 3000), ("cancel", "oldest"), ("deadline", "latest"), ("pairs_per_ms", 1000)]


# --- cost ---


def noise_of(rows: pd.DataFrame) -> dict[str, float]:
    """What no smaller difference can show, as shares: `twin`, its distance from coarse_slot relative to the clock readings
    taken beside both, and `A/A`, the distance of one half of the samples from the other, the larger one of the two."""
    found = {}
    pair = {name: measured(select(rows, service=name)) for name in ("coarse_slot", "twin")}
    if all(len(lines) for lines in pair.values()):
        column = "clock" if all(np.isfinite(lines["clock"].iloc[0]) for lines in pair.values()) else "p50"
        one, other = (lines[column].iloc[0] for lines in pair.values())
        if one > 0:
            found["twin"] = abs(other / one - 1)
    gaps = [lines["aa_gap"].iloc[0] for lines in pair.values() if len(lines) and np.isfinite(lines["aa_gap"].iloc[0])]
    if gaps:
        found["A/A"] = max(gaps)
    return found


def percent(share: float) -> str:
    """Two significant digits: no gap between two runs is known better."""
    return f"{plain(float(f'{100 * share:.2g}'))} %"


def _bar(axes, runs: Runs, line, y: float, rest: float, low: float, tags: dict) -> None:
    """One service: the caller's median, the rest's mean on top of it, the interval, the figures at the right."""
    look = runs.palette[line.service]
    tag(axes.barh(y, line.p50 - low, left=low, height=0.72, color=look.colour, zorder=2)[0], line.service, tags)
    if rest > 0.01 * line.p50:
        axes.barh(y, rest, left=line.p50, height=0.72, facecolor="white", edgecolor=look.colour, hatch="/////", linewidth=0.8, zorder=2)
    if np.isfinite(line.low):
        ends = [max(line.low, low), line.high]
        axes.hlines(y, *ends, color=INK, linewidth=1.2, zorder=4)
        axes.vlines(ends, y - 0.2, y + 0.2, color=INK, linewidth=1.2, zorder=4)
    label = plain(round(line.p50, 1)) + (f" + {plain(rest)}" if rest >= 0.05 * line.p50 else "")
    axes.text(1.03, y, label, fontsize=8, va="center", transform=axes.get_yaxis_transform())


@or_sentence
def cost_bars(runs: Runs, regime: str = "saturating") -> Picture:
    """What arm and cancel cost, the caller and the rest of the process."""
    having = runs.having("arm_cancel")
    frame = select(runs.frame("arm_cancel"), regime=regime)
    panels = []
    for run in having:
        rows = select(frame, run=run.label, metric="arm_cancel")
        for preferred in (PAIR, WINDOW):
            case = best_case(select(rows, kind=preferred[0][1]), preferred)
            if case is not None:
                rests = select(frame, run=run.label, case=case, metric="arm_cancel_rest_cpu").set_index("service")["mean"]
                panels.append((run, case, select(rows, case=case), rests[rests > 0].to_dict()))
    services = runs.palette.sort(name for _, _, rows, _ in panels for name in rows["service"])
    if not services:
        raise Missing(f"No picture: no report of arm_cancel has rows arm_cancel in the {regime} regime.")
    places, place = {}, 0.0
    for before, service in zip([services[0], *services], services):
        place += 1.0 if runs.palette[service].family == runs.palette[before].family else 1.4
        places[service] = place

    ours = [rows[rows["service"].isin(services) & rows["p50"].notna()] for _, _, rows, _ in panels]
    clocks = {run.label: measured(select(runs.frame("arm_cancel"), run=run.label, service="floor/steady_clock", metric="arm_cancel"))["p50"]
              for run in having}
    log = wide(value for rows in ours for value in rows["p50"])
    smallest = min([value for rows in ours for value in rows["p50"] if value > 0] + [value for clock in clocks.values() for value in clock],
                   default=1.0)
    low = smallest * 0.8 if log else 0.0
    high = max([line.p50 + rests.get(line.service, 0.0) for (_, _, _, rests), rows in zip(panels, ours) for line in rows.itertuples()]
               + [value for rows in ours for value in rows["high"] if np.isfinite(value)], default=1.0)

    headings = []
    for run, case, _, _ in panels:
        values = json.loads(case)
        what = f"window of {plain(values['window'])} timers" if "window" in values else "one timer"
        pace = f", {plain(values['pairs_per_ms'])} pairs a ms" if "pairs_per_ms" in values else ""
        words = case_text(case, ("kind", "regime", "window", "pairs_per_ms", "population"))
        headings.append(heading(having, run, "arm_cancel", f"{what}{pace}\n{words}\n{case_text(case, set(values) - {'population'})}"))
    title = f"Cost of arm + cancel, {regime} regime" + (": one thread, as fast as it can" if regime == "saturating" else ": bursts with pauses")
    sheet = Sheet(1, len(panels), row_height=0.205 * place + 0.3, column_width=3.1, key_width=2.0, gap=1.05, key_gap=1.0, bottom=0.78,
                  left=0.35 + 0.068 * max(map(len, services)), title=title, lines=head_lines(having, "arm_cancel"), heading_lines=max(text.count("\n") + 1 for text in headings))
    tags: dict = {}
    for axes, text, (run, case, rows, rests) in zip(sheet.axes[0], headings, panels):
        for line in rows.itertuples():
            if line.service in places and np.isfinite(line.p50):
                _bar(axes, runs, line, places[line.service], rests.get(line.service, 0.0), low, tags)
            elif line.service in places:
                axes.text(0.02, places[line.service], shorten(line.skipped or line.error, 58), fontsize=7, color="#777777",
                          va="center", transform=axes.get_yaxis_transform())
            direct = line.service.removeprefix("direct/")
            if direct != line.service and direct in places and np.isfinite(line.p50):
                axes.plot(line.p50, places[direct], marker="D", color="white", markeredgecolor=INK, markersize=4.5, zorder=5, linestyle="")
        noise, base = noise_of(rows), measured(select(rows, service="coarse_slot"))
        note = "no noise band: it takes coarse_slot and twin"
        if noise and len(base):
            share, centre = max(noise.values()), base["p50"].iloc[0]
            axes.axvspan(max(centre * (1 - share), low), centre * (1 + share), color="#6F6F6F", alpha=0.3, zorder=1, linewidth=0.8)
            note = f"noise band ±{percent(share)}: " + ", ".join(f"{name} {percent(gap)}" for name, gap in noise.items())
        for clock in clocks[run.label]:
            axes.axvline(clock, color=INK, linestyle=(0, (2, 2)), linewidth=0.9, zorder=1)
        axes.set_xlabel(f"ns per pair{' (log)' if log else ''}\n{note}", fontsize=8.5)
        axes.text(1.03, 1.0, "caller + rest", fontsize=7.5, color="#777777", transform=axes.transAxes, va="bottom")
        column_title(axes, run, "arm_cancel", text)
        axes.set_ylim(place + 0.8, 0.2)
        axes.set_yticks(list(places.values()), labels=list(places))
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
    first = sheet.axes[0][0]
    if log:
        first.set_xscale("log")
        log_axis(first.xaxis, low, high * 1.1)
    first.set_xlim(low, high * 1.1)
    direct = any(name.startswith("direct/") for _, _, rows, _ in panels for name in measured(rows)["service"])
    sheet.key(0, [Patch(color="#888888", label="caller, median"),
                  Patch(facecolor="white", edgecolor="#888888", hatch="/////", label="rest of the process:\nmean CPU, on top"),
                  Line2D([], [], color=INK, label="95 % interval of\nthe caller's median"),
                  Patch(color="#6F6F6F", alpha=0.3, label="noise band around\ncoarse_slot"),
                  Line2D([], [], color=INK, linestyle=(0, (2, 2)), label="one clock reading"),
                  *[Line2D([], [], marker="D", color="white", markeredgecolor=INK, linestyle="", label="the library used\ndirectly")] * direct])
    return finish(sheet, "cost_bars" if regime == "saturating" else f"cost_bars_{regime}", title,
                  [*runs.without("arm_cancel"), *(text for _, _, rows, _ in panels for text in reasons(rows, having))])


# --- curves ---


@dataclass
class Column:
    """A column of panels: its measured rows, and which column of the frame is x."""

    run: Run
    heading: str
    rows: pd.DataFrame
    x: str


def _curves(runs: Runs, experiment: str, columns: list[Column], *, title: str, ylabel: str, xlabel: str,
            decorate: Callable | None = None) -> Sheet:
    """A row of panels for each family, the others' curves pale behind it. Both axes are shared, y is logarithmic."""
    services = runs.palette.sort(name for column in columns for name in column.rows["service"])
    panels = runs.palette.panels(services)
    having = list({column.run.label: column.run for column in columns}.values())
    headings = [heading(having, column.run, experiment, column.heading) for column in columns]
    sheet = Sheet(len(panels), len(columns), row_height=1.45, column_width=4.6 if len(columns) == 1 else 3.1, key_width=2.75,
                  title=title, lines=head_lines(having, experiment), bottom=0.55,
                  heading_lines=max(text.count("\n") + 1 for text in headings))
    tags: dict = {}
    curves = {(number, service): select(column.rows, service=service).sort_values(column.x)
              for number, column in enumerate(columns) for service in services}
    for row, (family, names) in enumerate(panels):
        for number, column in enumerate(columns):
            axes = sheet.axes[row][number]
            pale: list[tuple[float, float]] = []
            for service in services:
                mine = curves[number, service]
                if service in names:
                    draw_line(axes, runs.palette, service, mine[column.x], mine["p50"], tags, mine["low"], mine["high"])
                else:
                    pale += [*zip(mine[column.x], mine["p50"]), (np.nan, np.nan)]
            if pale:
                axes.plot(*zip(*pale), color=PALE, linewidth=0.7, zorder=1)
            if decorate is not None:
                decorate(axes, column, row)
            if row == 0:
                column_title(axes, column.run, experiment, headings[number])
            if number == 0:
                axes.set_ylabel(ylabel)
            if row == len(panels) - 1:
                axes.set_xlabel(xlabel)
        sheet.key(row, [handle(runs.palette, name) for name in names], family)
    values = [value for column in columns for value in
              column.rows[column.rows["service"].isin(services)][["low", "high", "p50"]].to_numpy(float).flat if value > 0]
    first = sheet.axes[0][0]
    if values:
        first.set_yscale("log")
        first.set_ylim(min(values) * 0.8, max(values) * 1.25)
        log_axis(first.yaxis, min(values) * 0.8, max(values) * 1.25)
    return sheet


def _x_ticks(sheet: Sheet, points: list) -> None:
    axis = sheet.axes[0][0].xaxis
    axis.set_major_locator(FixedLocator(points))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}".replace(",", "\u2009")))


@or_sentence
def population(runs: Runs, kind: str = "window") -> Picture:
    """What arm and cancel cost with others armed meanwhile."""
    having = runs.having("arm_cancel")
    frame = select(runs.frame("arm_cancel"), metric="arm_cancel", regime="saturating", kind=kind)
    columns = []
    for run in having:
        mine = select(frame, run=run.label)
        case = best_case(mine, WINDOW if kind == "window" else PAIR)
        if case is not None and "population" in json.loads(case):
            values = {name: value for name, value in json.loads(case).items() if name != "population"}
            what = f"window of {plain(values['window'])} timers" if "window" in values else "one timer"
            rows = select(mine, **values)
            columns.append((Column(run, f"{what}\n{case_text(json.dumps(values), ('kind', 'regime', 'window'))}", measured(rows),
                                   "case.population"), rows))
    points = sorted({value for column, _ in columns for value in column.rows[column.x]})
    if len(points) < 2:
        raise Missing(f"No picture: arm_cancel has no rows of kind {kind!r} with more than one population.")
    title = "Cost of arm + cancel against the number of other armed timers, saturating regime"
    sheet = _curves(runs, "arm_cancel", [column for column, _ in columns], title=title, ylabel="ns per pair (log)",
                    xlabel="other armed timers (log)")
    first = sheet.axes[0][0]
    first.set_xscale("symlog", linthresh=10, linscale=0.6)
    first.set_xlim(-2, max(points) * 1.6)
    _x_ticks(sheet, points)
    return finish(sheet, f"population_{kind}", title,
                  [*runs.without("arm_cancel"), *(text for _, rows in columns for text in reasons(rows, having))])


@or_sentence
def scaling(runs: Runs, timers: str = "own") -> Picture:
    """Wall and CPU time of arm and cancel from 1, 2, 4, 8 threads."""
    having = runs.having("scaling")
    frame = select(runs.frame("scaling"), timers=timers)
    kinds = {"arm_cancel": "wall time in each thread", "arm_cancel_cpu": "CPU time of the whole process"}
    columns = [Column(run, text, measured(select(frame, run=run.label, metric=metric)), "case.workers")
               for run in having for metric, text in kinds.items()]
    columns = [column for column in columns if len(column.rows)]
    points = sorted({value for column in columns for value in column.rows[column.x]})
    if not points:
        raise Missing(f"No picture: the reports of scaling have no measured rows with timers {timers!r}.")

    def mark_cores(axes, column: Column, row: int) -> None:
        cores = column.run.cores("scaling")
        if cores is None or cores > max(points):
            return
        axes.axvline(cores, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
        axes.axvspan(cores, max(points) * 2, color="#F1F1F1", zorder=0, linewidth=0)
        if row == 0:
            left = cores > min(points)
            axes.annotate(f"{cores} core{'s' * (cores != 1)}", (cores, 0.98), xytext=(-3 if left else 3, 0), textcoords="offset points",
                          xycoords=("data", "axes fraction"), fontsize=7.5, va="top", ha="right" if left else "left")

    title = "Scaling of arm + cancel" + {"own": ": each thread has timers of its own",
                                         "handed over": ": armed by one thread, cancelled by another"}.get(timers, f", {timers}")
    sheet = _curves(runs, "scaling", columns, title=title, ylabel="ns per pair (log)", xlabel="threads (log)", decorate=mark_cores)
    first = sheet.axes[0][0]
    first.set_xscale("log", base=2)
    first.set_xlim(min(points) * 0.85, max(points) * 1.2)
    _x_ticks(sheet, points)
    used = frame[frame["metric"].isin(list(kinds))]
    return finish(sheet, f"scaling_{timers.replace(' ', '_')}", title, [*runs.without("scaling"), *reasons(used, having)])


# --- soak ---


@or_sentence
def soak_bound(runs: Runs) -> Picture:
    """The loss that a soak without loss leaves possible, or the loss it saw."""
    having = runs.having("lost_wakeup")
    frame = runs.frame("lost_wakeup")
    wanted = frame[frame["metric"].isin(["bound_95", "stopped_tasks", "completions"])] if len(frame) else frame
    lines = {}
    for run in having:
        mine = measured(select(wanted, run=run.label))
        for (service, case), rows in mine.groupby(["service", "case"], sort=False):
            figures = dict(zip(rows["metric"], rows["p50"]))
            seam = json.loads(case).get("seam", "closed")
            if is_service(service):
                lines[run.label, service, seam] = figures
    drawable = {key: figures for key, figures in lines.items()
                if figures.get("bound_95", 0) > 0 or (figures.get("stopped_tasks", 0) > 0 and figures.get("completions", 0) > 0)}
    if not drawable:
        raise Missing("No picture: the reports of lost_wakeup hold neither a bound nor a loss.")
    order = runs.palette.sort(service for _, service, _ in drawable)
    keys = sorted({(service, seam) for _, service, seam in drawable}, key=lambda key: (order.index(key[0]), key[1] != "closed", key[1]))
    places = {key: float(number) for number, key in enumerate(keys, 1)}
    names = [service if seam == "closed" else f"{service}, seam {seam}" for service, seam in keys]
    title = "Soak: share of timeouts that can be lost, 95 % bound"
    headings = [heading(having, run, "lost_wakeup", "") for run in having]
    sheet = Sheet(1, len(having), row_height=0.215 * len(keys) + 0.2, column_width=3.9, key_width=2.3, key_gap=1.45, gap=1.6,
                  left=0.35 + 0.068 * max(map(len, names)), title=title, lines=head_lines(having, "lost_wakeup"),
                  heading_lines=max(bool(text) + text.count("\n") for text in headings))
    tags: dict = {}
    values = []
    for axes, text, run in zip(sheet.axes[0], headings, having):
        for (label, service, seam), figures in drawable.items():
            if label != run.label:
                continue
            y, look = places[service, seam], runs.palette[service]
            lost, completions = figures.get("stopped_tasks", 0.0), figures.get("completions", 0.0)
            if lost > 0:
                share = lost / completions if completions > 0 else figures["bound_95"]
                tag(axes.plot(share, y, marker="X", color=look.colour, markeredgecolor=ALERT, markersize=9, linestyle="")[0], service, tags)
                note = f"{plain(lost)} of {completions / 1e6:.3g} M lost"
            else:
                share = figures["bound_95"]
                axes.annotate("", (share / 2.2, y), (share, y), arrowprops={"arrowstyle": "->", "color": look.colour, "linewidth": 1.4})
                tag(axes.plot(share, y, marker=look.marker, color=look.colour, markersize=6, linestyle="")[0], service, tags)
                note = f"0 of {completions / 1e6:.3g} M" if completions > 0 else ""
            values.append(share)
            axes.text(1.03, y, note, fontsize=8, va="center", color=ALERT if lost > 0 else INK, transform=axes.get_yaxis_transform())
        axes.text(1.03, 1.0, "lost, of completed", fontsize=7.5, color="#777777", transform=axes.transAxes, va="bottom")
        axes.set_xlabel("share of timeouts (log)")
        axes.set_ylim(len(keys) + 0.7, 0.3)
        axes.set_yticks(list(places.values()), labels=names)
        axes.tick_params(axis="y", length=0)
        column_title(axes, run, "lost_wakeup", text)
    first = sheet.axes[0][0]
    first.set_xscale("log")
    first.set_xlim(10 ** np.floor(np.log10(min(values) / 2.2)), 10 ** np.ceil(np.log10(max(values) * 1.01)))
    first.xaxis.set_minor_locator(NullLocator())
    sheet.key(0, [Line2D([], [], marker="o", color="#888888", linestyle="", markersize=6, label="nothing was lost: at most\nthis share (3 / N), 95 %"),
                  Line2D([], [], marker="X", color="#888888", markeredgecolor=ALERT, linestyle="", markersize=9, label="so many were lost")])
    return finish(sheet, "soak_bound", title, [*runs.without("lost_wakeup"), *reasons(wanted, having)])


# --- the rest ---

METRICS_SHOWN = 4
CASES_SHOWN = 5


def _typical(rows: pd.DataFrame) -> list[str]:
    """Cases, those first that show a service which the ones before do not show."""
    left = {case: set(lines["service"]) for case, lines in rows.groupby("case", sort=False)}
    chosen_cases: list[str] = []
    while left:
        case = max(left, key=lambda name: len(left[name]))
        covered = left.pop(case)
        chosen_cases.append(case)
        left = {name: services - covered for name, services in left.items()}
    return chosen_cases


def _scale(axes, values: pd.Series) -> str:
    """Gives the axis x a scale for these values; returns what the label adds."""
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    smallest = values[values > 0].min() if (values > 0).any() else 0.0
    if low >= 0 and wide(values):
        if low > 0:
            axes.set_xscale("log")
            axes.set_xlim(low * 0.7, high * 1.4)
        else:
            axes.set_xscale("symlog", linthresh=smallest, linscale=0.5)
            axes.set_xlim(-0.3 * smallest, high * 1.6)
        log_axis(axes.xaxis, smallest * 0.7, high * 1.4)
        ticks = list(axes.xaxis.get_major_locator().locs)
        # A narrow panel has room for four large numbers, beside a zero for two.
        room = 2 if low == 0 and high >= 10_000 else 4
        axes.xaxis.set_major_locator(FixedLocator([0.0] * (low == 0) + ticks[::-(-len(ticks) // room) or 1]))
        return " (log)"
    low = min(low, 0.0)
    span = (high - low) or 1.0
    axes.set_xlim(low - 0.06 * span, low + 1.06 * span)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    return ""


def _settled(cases: list[str]) -> set[str]:
    """Names whose values do not tell these cases of one kind apart."""
    values = [json.loads(case) for case in cases]
    names = {name for value in values for name in value}
    return {name for name in names if name == "kind" or (len(values) > 1 and all(value.get(name) == values[0].get(name) for value in values))}


def _strip(runs: Runs, experiment: str, kind: str | None = None) -> Picture:
    """An experiment (or a kind of its cases) without a picture of its own: the median of each of its first metrics, a mark for each case."""
    having = runs.having(experiment)
    whole = frame = runs.frame(experiment) if kind is None else select(runs.frame(experiment), kind=kind)
    frame = measured(frame[frame["service"].map(is_service)]) if len(frame) else frame
    if frame.empty:
        raise Missing(f"No picture of {experiment}{f', {kind}' * (kind is not None)}: it has no measured rows of a service.")
    metrics = list(dict.fromkeys(frame["metric"]))
    metrics.sort(key=lambda metric: metric not in TELLING.get((experiment, kind), ()))
    services = runs.palette.sort(frame["service"])
    columns = [(run, metric) for run in having for metric in metrics[:METRICS_SHOWN]]
    cases = {metric: _typical(select(frame, metric=metric)) for metric in metrics[:METRICS_SHOWN]}
    left_out = [f"Not shown of {experiment}: {', '.join(metrics[METRICS_SHOWN:])}."] if len(metrics) > METRICS_SHOWN else []
    left_out += [f"Not shown of {experiment}, {metric}: {len(listed) - CASES_SHOWN} more cases." for metric, listed in cases.items()
                 if len(listed) > CASES_SHOWN]
    used = list(dict.fromkeys(case for listed in cases.values() for case in listed[:CASES_SHOWN]))
    settled = _settled(used) if kind is not None else set()
    headings = [heading(having, run, experiment, metric) for run, metric in columns]
    title = f"{experiment}{f', {kind}' * (kind is not None)}: medians"
    sheet = Sheet(1, len(columns), row_height=max(0.205 * len(services), 0.19 * len(used)) + 0.3, column_width=2.2, key_width=4.2, gap=0.35,
                  left=0.35 + 0.068 * max(map(len, services)), title=title, lines=head_lines(having, experiment),
                  heading_lines=max(text.count("\n") + 1 for text in headings), share_x=False)
    tags: dict = {}
    shapes = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "*"]
    for axes, text, (run, metric) in zip(sheet.axes[0], headings, columns):
        rows = select(frame, run=run.label, metric=metric)
        values = rows[rows["case"].isin(cases[metric][:CASES_SHOWN])]["p50"]
        for line in rows.itertuples():
            if line.case in cases[metric][:CASES_SHOWN]:
                tag(axes.plot(line.p50, services.index(line.service) + 1, marker=shapes[used.index(line.case) % len(shapes)], markersize=5.5,
                              color=runs.palette[line.service].colour, markeredgecolor="white", markeredgewidth=0.5, linestyle="",
                              alpha=0.9)[0], line.service, tags)
        unit = (list(dict.fromkeys(rows["unit"])) or [""])[0]
        axes.set_xlabel(f"{metric}{f', {unit}' * (unit != '1')}{_scale(axes, values)}")
        axes.set_ylim(len(services) + 0.7, 0.3)
        axes.set_yticks(range(1, len(services) + 1), labels=services)
        axes.tick_params(axis="y", length=0)
        column_title(axes, run, experiment, text)
    sheet.key(0, [Line2D([], [], marker=shapes[number % len(shapes)], color="#777777", linestyle="", label=shorten(case_text(case, settled), 60))
                  for number, case in enumerate(used)])
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in experiment + f"_{kind}" * (kind is not None))
    return finish(sheet, f"other_{safe}", title, left_out + reasons(whole, having))


def other_experiments(runs: Runs) -> Pictures | Sentence:
    """A plain picture of each experiment that has none of its own."""
    wanted: list[tuple[str, str | None]] = []
    for name in runs.experiments():
        if name in DRAWN_KIND:
            frame = runs.frame(name)
            kinds = frame["case.kind"].dropna() if "case.kind" in frame else []
            wanted += [(name, kind) for kind in dict.fromkeys(kinds) if kind != DRAWN_KIND[name]]
        elif name not in DRAWN:
            wanted.append((name, None))
    if not wanted:
        return Sentence("Every experiment of these reports has its picture above.")
    return Pictures(or_sentence(_strip)(runs, name, kind) for name, kind in wanted)
