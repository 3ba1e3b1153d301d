"""The picture of lateness: how late callbacks start, as curves of shares."""

from __future__ import annotations

import json

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from timerbench_frames import Missing, Runs, best_case, duration_text, measured, reasons, select
from timerbench_output import Picture, column_title, draw_line, finish, handle, head_lines, heading, or_sentence, tag
from timerbench_reports import ORIGINALS
from timerbench_style import ALERT, LIMIT, Sheet, is_service, plain

ENVIRONMENTS = {"idle": "idle machine", "cores_busy": "every core busy", "service_busy": "service busy with others",
                "herd": "all due at once", "slow_callback": "one slow callback among them"}
QUANTILES = np.unique(np.concatenate([np.linspace(0, 1, 31), [0.005, 0.01, 0.1, 0.5, 0.9, 0.985, 0.99, 0.995, 0.999]]))


@or_sentence
def lateness(runs: Runs, experiment: str = "accuracy", name: str = "lateness") -> Picture:
    """How late callbacks start: the share of timers that are no later than x. Of accuracy, its surroundings; of herd, its cases;
    of the originals, durations."""
    key, environments, prefer = {"accuracy": ("environment", ("idle", "cores_busy", "service_busy"), [("duration_ms", 10)]),
                                 "herd": ("kind", ("herd", "slow_callback"), []),
                                 f"{ORIGINALS}/accuracy": ("duration_ms", (1, 10, 100), [])}[experiment]
    having = runs.having(experiment)
    frame = select(runs.frame(experiment), metric="callback_start")
    columns = []
    for run in having:
        for environment in environments:
            rows = select(frame, run=run.label, **{key: environment})
            case = best_case(rows, prefer)
            if case is not None:
                columns.append((run, environment, case, select(rows, case=case)))
    services = runs.palette.sort(name for _, _, _, rows in columns for name in measured(rows)["service"])
    if not services:
        raise Missing(f"No picture: the reports of {experiment} have no rows callback_start in {', '.join(map(str, environments))}.")
    panels = runs.palette.panels(services)
    headings = []
    for run, environment, case, _ in columns:
        values = json.loads(case)
        length = f", {duration_text(values['duration_ms'])}" if "duration_ms" in values else \
            f", {plain(values['timers'])} timers" if "timers" in values else ""
        surroundings = ENVIRONMENTS.get(environment, str(environment).replace("_", " ")) if key != "duration_ms" else "after"
        headings.append(heading(having, run, experiment, surroundings + (length if key != "duration_ms" else length[1:])))
    title = "Lateness of the callback: share of timers that are no later than x" + ", originals and ours" * experiment.startswith(ORIGINALS)
    sheet = Sheet(len(panels), len(columns), row_height=1.35, column_width=2.75 if len(columns) > 1 else 4.6, key_width=2.75,
                  title=title, lines=head_lines(having, experiment), bottom=0.55,
                  heading_lines=max(text.count("\n") + 1 for text in headings))
    extremes, tags = [0.0, 0.0], {}
    curves = {}
    for number, (_, _, _, rows) in enumerate(columns):
        for line in measured(rows).itertuples():
            if is_service(line.service) or line.service.startswith(LIMIT):
                curves[number, line.service] = np.quantile(np.asarray(line.samples, float), QUANTILES)
                extremes = [min(extremes[0], curves[number, line.service][0]), max(extremes[1], curves[number, line.service][-1])]
    limits = list(dict.fromkeys(service for _, service in curves if service.startswith(LIMIT)))
    marks = [int(np.argmin(abs(QUANTILES - share))) for share in (0.1, 0.5, 0.9, 0.99)]
    for row, (family, names) in enumerate(panels):
        for number, (run, _, _, _) in enumerate(columns):
            axes = sheet.axes[row][number]
            for service in limits:
                if (number, service) in curves:
                    tag(axes.plot(curves[number, service], QUANTILES, color=runs.palette[service].colour, linewidth=2.4, zorder=2)[0], service, tags)
            for service in names:
                if (number, service) in curves:
                    draw_line(axes, runs.palette, service, curves[number, service], QUANTILES, tags, markevery=marks)
            axes.axvline(0, color=ALERT, linewidth=0.8, zorder=1)
            axes.axvspan(-1e9, 0, color=ALERT, alpha=0.06, zorder=0, linewidth=0)
            if row == 0:
                column_title(axes, run, experiment, headings[number])
                axes.annotate("early", (0, 0.96), xytext=(-3, 0), textcoords="offset points", xycoords=("data", "axes fraction"), fontsize=7,
                              color=ALERT, ha="right", va="top")
            if number == 0:
                axes.set_ylabel("share of timers")
            if row == len(panels) - 1:
                axes.set_xlabel("lateness, ms (log)")
        sheet.key(row, [handle(runs.palette, service) for service in [*names, *limits]], family)
    first = sheet.axes[0][0]
    grain = 0.01
    first.set_xscale("symlog", linthresh=grain, linscale=0.8)
    first.set_xlim(min(extremes[0] * 1.3, -grain), max(extremes[1], 2 * grain) * 1.3)
    powers = [10.0**power for power in range(-1, 7)]
    ticks = [*(-tick for tick in reversed(powers)), 0.0, grain, *powers]
    first.xaxis.set_major_locator(FixedLocator([tick for tick in ticks if extremes[0] * 1.3 <= tick <= max(extremes[1], grain) * 1.3]))
    first.xaxis.set_minor_locator(NullLocator())
    first.xaxis.set_major_formatter(FuncFormatter(plain))
    first.set_ylim(-0.03, 1.03)
    first.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    first.yaxis.set_major_formatter(FuncFormatter(plain))
    return finish(sheet, name, title, [*runs.without(experiment), *(text for _, _, _, rows in columns for text in reasons(rows, having))])
