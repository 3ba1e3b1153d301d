"""The pictures of the originals: the real systems beside ours, from the folder `originals` of a run."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator

from timerbench_frames import Missing, Runs, duration_text, measured, reasons, select
from timerbench_lateness import lateness
from timerbench_output import Picture, Pictures, Sentence, column_title, finish, head_lines, heading, log_axis, or_sentence, tag
from timerbench_reports import ORIGINALS, shorten
from timerbench_style import INK, ORIGINAL, Sheet, is_service, plain

COST, LATENESS, MEMORY = (f"{ORIGINALS}/{name}" for name in ("arm_cancel", "accuracy", "memory"))


def _by_cost(frame: pd.DataFrame, column: str, metrics: tuple[str, str]) -> list[str]:
    """Services, those with the least of the first metric first, of equals (to a hundredth) those with the least of the second;
    those without a figure last."""
    cost = {}
    for service in sorted(set(frame["service"])):
        least = [select(frame, service=service, metric=metric)[column].min() for metric in metrics]
        cost[service] = tuple(round(max(value, 0.0), 2) if np.isfinite(value) else np.inf for value in least)
    return sorted(cost, key=lambda service: (cost[service], service))


def _pairs(runs: Runs, experiment: str, columns: list, services: list[str], *, metrics: tuple[str, str], column: str, name: str, title: str,
           xlabel: str, labels: tuple[str, str], above: str, remarks: list[str]) -> Picture:
    """Two bars for each service, one of each metric, in a panel for each of `columns`: run, text above, rows."""
    having = runs.having(experiment)
    headings = [heading(having, run, experiment, text) for run, text, _ in columns]
    sheet = Sheet(1, len(columns), row_height=0.25 * len(services) + 0.3, column_width=2.6, key_width=2.3, gap=1.25, key_gap=1.2,
                  left=0.35 + 0.07 * max(map(len, services)), title=title, lines=head_lines(having, experiment),
                  heading_lines=max(text.count("\n") + 1 for text in headings))
    values = pd.concat([measured(rows)[column] for _, _, rows in columns])
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    smallest, high = (positive.min(), positive.max()) if len(positive) else (0.1, 1.0)
    # With values of nothing the axis begins with a linear part.
    level = max(smallest * 0.7, 0.1) if (values <= 0).any() or smallest < 0.1 else None
    low = 0.0 if level else smallest * 0.7
    tags: dict = {}
    for axes, text, (run, _, rows) in zip(sheet.axes[0], headings, columns):
        for place, service in enumerate(services, 1):
            mine = select(rows, service=service)
            figures = {line.metric: getattr(line, column) for line in measured(mine).itertuples()}
            figures = {metric: value for metric, value in figures.items() if np.isfinite(value)}
            colour = runs.palette[service].colour
            if not figures:
                why = next((line.skipped or line.error for line in mine.itertuples() if line.skipped or line.error), "")
                axes.text(0.02, place, shorten(why, 52), fontsize=6.5, color="#777777", va="center", transform=axes.get_yaxis_transform(),
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
                continue
            for metric, offset, paint in ((metrics[0], -0.19, {"color": colour}),
                                          (metrics[1], 0.19, {"facecolor": "white", "edgecolor": colour, "hatch": "//////", "linewidth": 0.8})):
                if metric in figures:
                    bar = axes.barh(place + offset, max(figures[metric] - low, 0.0), left=low, height=0.36, zorder=2, **paint)[0]
                    if metric == metrics[0]:
                        tag(bar, service, tags)
            axes.text(1.03, place, " / ".join(plain(round(figures[metric], 2)) if metric in figures else "–" for metric in metrics), fontsize=7.5,
                      va="center", transform=axes.get_yaxis_transform())
        axes.text(1.03, 1.0, above, fontsize=7.5, color="#777777", transform=axes.transAxes, va="bottom")
        axes.set_xlabel(xlabel)
        axes.set_ylim(len(services) + 0.7, 0.3)
        axes.set_yticks(range(1, len(services) + 1), labels=services)
        for label, service in zip(axes.get_yticklabels(), services):
            label.set_fontweight("bold" if service.startswith(ORIGINAL) else "normal")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        column_title(axes, run, experiment, text)
    first = sheet.axes[0][0]
    if level:
        first.set_xscale("symlog", linthresh=level, linscale=0.4)
        first.set_xlim(0, max(high, level) * 1.5)
        log_axis(first.xaxis, level, max(high, level * 2) * 1.5)
        first.xaxis.set_major_locator(FixedLocator([0.0, *first.xaxis.get_major_locator().locs]))
    else:
        first.set_xscale("log")
        first.set_xlim(low, high * 1.5)
        log_axis(first.xaxis, low, high * 1.5)
        for axes in sheet.axes[0]:
            axes.axvline(1.0, color=INK, linestyle=(0, (2, 2)), linewidth=0.9, zorder=1)
    sheet.key(0, [Patch(color="#888888", label=labels[0]), Patch(facecolor="white", edgecolor="#888888", hatch="//////", label=labels[1]),
                  *[Line2D([], [], color=INK, linestyle=(0, (2, 2)), label="one clock reading")] * (level is None),
                  Line2D([], [], linestyle="", label="bold: an original")])
    return finish(sheet, name, title,
                  [*remarks, *runs.without(experiment), *(text for _, _, rows in columns for text in reasons(rows, having))])


@or_sentence
def originals_cost(runs: Runs) -> Picture:
    """What arm and cancel cost in the originals and in ours: the caller, and the CPU of the whole process."""
    having = runs.having(COST)
    frame = select(runs.frame(COST), kind="article", regime="saturating")
    frame = frame[frame["metric"].isin(["arm_cancel", "process_cpu"]) & frame["service"].map(is_service)] if len(frame) else frame
    rows = measured(frame)
    if rows.empty or "case.population" not in rows or not np.isfinite(rows["clock"]).any():
        raise Missing(f"No picture: the reports of {COST} have no measured rows in the saturating regime, relative to a clock reading.")
    populations = sorted(rows["case.population"].unique())
    columns = [(run, f"{plain(population)} others armed", select(frame, run=run.label, population=population))
               for run in having for population in populations if len(select(frame, run=run.label, population=population))]
    metrics = ("arm_cancel", "process_cpu")
    services = _by_cost(select(frame, population=populations[0]), "clock", metrics)
    services += [service for service in _by_cost(frame, "clock", metrics) if service not in services]
    return _pairs(runs, COST, columns, services, metrics=metrics, column="clock", name="originals_cost",
                  title="Cost of arm + cancel, originals and ours, saturating regime: one thread, as fast as it can", xlabel="x a reading of the clock (log)",
                  labels=("caller, wall time:\nmedian", "CPU of the whole\nprocess: median"), above="wall / CPU",
                  remarks=[f"Sorted by the caller's wall time with {plain(populations[0])} others armed."])


@or_sentence
def originals_memory(runs: Runs) -> Picture:
    """What a cancelled timer holds, in the originals and in ours."""
    having = runs.having(MEMORY)
    frame = select(runs.frame(MEMORY), kind="cancelled")
    frame = frame[frame["metric"].isin(["held", "rss"]) & frame["service"].map(is_service)] if len(frame) else frame
    if measured(frame).empty:
        raise Missing(f"No picture: the reports of {MEMORY} have no measured rows held or rss of cancelled timers.")
    columns = []
    for run in having:
        for case in dict.fromkeys(select(frame, run=run.label)["case"]):
            rows = select(frame, run=run.label, case=case)
            text = ", ".join([f"{plain(float(rows['case.timers'].iloc[0]))} cancelled" if "case.timers" in rows else "cancelled",
                              *([f"of {duration_text(int(rows['case.duration_ms'].iloc[0]))}"] if "case.duration_ms" in rows else [])])
            columns.append((run, text, rows))
    return _pairs(runs, MEMORY, columns, _by_cost(frame, "p50", ("held", "rss")), metrics=("held", "rss"), column="p50", name="originals_memory",
                  title="Memory per cancelled timer, originals and ours", xlabel="B per timer (log, with 0)",
                  labels=("live heap, after\ncollection where\nthere is one", "growth of resident\nmemory"), above="heap / resident",
                  remarks=["Sorted by live heap."])


def originals(runs: Runs) -> Pictures | Sentence:
    """The originals beside ours: cost, lateness, memory."""
    if not any(name.startswith(f"{ORIGINALS}/") for name in runs.experiments()):
        return Sentence(f"No pictures: there is no folder {ORIGINALS} with reports in {', '.join(run.label for run in runs.all)}; "
                        "scripts/originals makes one.")
    return Pictures([originals_cost(runs), lateness(runs, experiment=LATENESS, name="originals_lateness"), originals_memory(runs)])
