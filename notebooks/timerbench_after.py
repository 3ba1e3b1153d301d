"""The pictures of `aftermath`: what a policy for timeouts and retries makes of an incident.

Rows of this experiment differ by policy (CANCEL/RETRY), not by service: colours are those of `policy_look`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from timerbench_frames import Missing, Runs, measured, reasons, select
from timerbench_output import Picture, column_title, finish, head_lines, heading, log_axis, or_sentence, tag
from timerbench_reports import Run, is_number, shorten
from timerbench_style import INK, PALE, Sheet, plain, policy_look

EXPERIMENT = "aftermath"
CANCEL_WORDS = {"no_timeout": "no timeout", "detach": "per layer, work left running", "abort": "per layer, hard abort",
                "deadline": "one deadline handed down"}
RETRY_WORDS = {"no_retry": "no retry", "naive": "naive retries in each layer", "inside": "retries inside the deadline",
               "budget": "retries with a budget"}
# Points of a curve that can be told apart in a panel.
POINTS = 240


def cancel_words(cancel: str) -> str:
    """What a policy does when time is up, with its name in the report."""
    words = CANCEL_WORDS.get(cancel)
    if words is None and cancel.startswith("coop_"):
        words = f"cooperative, a look every {cancel.removeprefix('coop_').replace('ms', ' ms')}"
    return f"{words} ({cancel})" if words and words.replace(" ", "_") != cancel else words or cancel


def simulated(runs: Runs) -> pd.DataFrame:
    """The rows of the simulation at its full scale, with `case.policy`, `case.cancel` and `case.retry`."""
    frame = select(runs.frame(EXPERIMENT), form="simulated", scale="full")
    return frame if {"case.policy", "case.cancel", "case.retry"} <= set(frame.columns) else frame.iloc[0:0]


def given(run: Run) -> dict:
    """The parameters of the simulation, those that are numbers."""
    parameters = run.reports[EXPERIMENT].get("parameters")
    values = parameters.get("simulated") if isinstance(parameters, dict) else None
    return {name: value for name, value in values.items() if is_number(value)} if isinstance(values, dict) else {}


def _stacked(runs: Runs, first: str, second: str, *, rest: Callable, name: str, title: str, xlabel: str, labels: tuple[str, str],
             figures: str, above: str) -> Picture:
    """A panel for each retry, a row for each way to end an attempt: `first` solid, the rest beyond it hatched."""
    having = runs.having(EXPERIMENT)
    frame = simulated(runs)
    frame = frame[frame["metric"].isin([first, second])] if len(frame) else frame
    if measured(select(frame, metric=first)).empty:
        raise Missing(f"No picture: the reports of {EXPERIMENT} have no measured rows {first} of the simulation.")
    cancels, retries = (list(dict.fromkeys(frame[column])) for column in ("case.cancel", "case.retry"))
    columns = [(run, retry) for run in having for retry in retries]
    names = [cancel_words(cancel) for cancel in cancels]
    headings = [heading(having, run, EXPERIMENT, RETRY_WORDS.get(retry, retry)) for run, retry in columns]
    sheet = Sheet(1, len(columns), row_height=0.27 * len(cancels) + 0.25, column_width=1.95, key_width=2.1, gap=1.0, key_gap=0.95,
                  left=0.35 + 0.068 * max(map(len, names)), title=title, lines=head_lines(having, EXPERIMENT),
                  heading_lines=max(text.count("\n") + 1 for text in headings))
    tags: dict = {}
    high = 0.0
    for axes, text, (run, retry) in zip(sheet.axes[0], headings, columns):
        for place, cancel in enumerate(cancels, 1):
            lines = select(frame, run=run.label, cancel=cancel, retry=retry)
            values = {line.metric: line.p50 for line in measured(lines).itertuples()}
            if first not in values:
                why = next((line.skipped or line.error for line in lines.itertuples()), "")
                axes.text(0.02, place, shorten(why, 38), fontsize=7, color="#777777", va="center", transform=axes.get_yaxis_transform())
                continue
            policy = f"{cancel}/{retry}"
            look = policy_look(policy)
            more = max(rest(values[first], values.get(second, np.nan)), 0.0) if second in values else 0.0
            tag(axes.barh(place, values[first], height=0.7, color=look.colour, zorder=2)[0], policy, tags, "policy")
            axes.barh(place, more, left=values[first], height=0.7, facecolor="white", edgecolor=look.colour, hatch="/////", linewidth=0.8,
                      zorder=2)
            axes.text(1.03, place, figures.format(*(plain(values.get(metric, np.nan)) for metric in (first, second))), fontsize=8,
                      va="center", transform=axes.get_yaxis_transform())
            high = max(high, values[first] + more)
        axes.text(1.03, 1.0, above, fontsize=7.5, color="#777777", transform=axes.transAxes, va="bottom")
        axes.set_xlabel(xlabel)
        axes.set_ylim(len(cancels) + 0.7, 0.3)
        axes.set_yticks(range(1, len(cancels) + 1), labels=names)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        column_title(axes, run, EXPERIMENT, text)
    axes = sheet.axes[0][0]
    axes.set_xlim(0, (high or 1.0) * 1.04)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    sheet.key(0, [Patch(color="#888888", label=labels[0]),
                  Patch(facecolor="white", edgecolor="#888888", hatch="/////", label=labels[1])])
    return finish(sheet, name, title, [*runs.without(EXPERIMENT), *reasons(frame, having)])


@or_sentence
def wasted_work(runs: Runs) -> Picture:
    """Work that nobody had use of, by policy."""
    return _stacked(runs, "wasted", "lost", rest=lambda _, lost: lost, name="wasted_work", xlabel="ms of work per request",
                    title="Wasted work: what was done for nobody, by policy",
                    labels=("for callers who\nhad left", "lost: other work\nwithout an answer\nin time"), figures="{} + {}", above="left + lost")


@or_sentence
def amplification(runs: Runs) -> Picture:
    """Attempts that a request makes of one, by policy."""
    return _stacked(runs, "store_calls", "calls", rest=lambda store, calls: calls - store, name="amplification", xlabel="attempts per request",
                    title="Amplification: attempts per request, by policy",
                    labels=("at the store", "at the layers\nbefore it, on top"), figures="{} of {}", above="store of all")


# Metric over time, what stands above its panels, label, how the values of neighbouring bins become one.
SERIES = [("goodput_by_time", "goodput", "1/s", np.mean), ("p99_by_time", "latency, p99", "ms (log)", np.max),
          ("store_calls_by_time", "attempts at the store", "per request", np.mean)]


def _series(line, bin_s: float, begin_s: float, window: tuple[float, float], join: Callable, points: int) -> tuple[np.ndarray, np.ndarray]:
    """A curve within the window, in seconds after the incident's beginning, thinned to what a panel can show."""
    values = np.asarray(line.samples, float)
    times = (np.arange(len(values)) + 0.5) * bin_s - begin_s
    inside = (times >= window[0]) & (times <= window[1])
    values, times = values[inside], times[inside]
    together = max(-(-len(values) // points), 1)
    groups = [slice(start, start + together) for start in range(0, len(values), together)]
    return np.array([times[group].mean() for group in groups]), np.array([join(values[group]) for group in groups])


@or_sentence
def incident(runs: Runs) -> Picture:
    """Goodput, latency and attempts through the incident, of the policies that have them over time."""
    having = runs.having(EXPERIMENT)
    frame = simulated(runs)
    wanted = frame[frame["metric"].isin([metric for metric, _, _, _ in SERIES])] if len(frame) else frame
    series = measured(wanted)
    known = {run.label: given(run) for run in having}
    timed = [run for run in having if {"bin_ms", "incident_at_ms", "incident_ms"} <= set(known[run.label]) and known[run.label]["bin_ms"] > 0
             and len(select(series, run=run.label))]
    if not timed:
        raise Missing(f"No picture: the reports of {EXPERIMENT} have no rows over time, or do not say when the incident was.")
    policies = list(dict.fromkeys(series["case.policy"]))
    metrics = [entry for entry in SERIES if len(select(series, metric=entry[0]))]
    columns = [(run, *entry) for run in timed for entry in metrics]
    title = "Through the incident, by policy"
    headings = [heading(timed, run, EXPERIMENT, text) for run, _, text, _, _ in columns]
    sheet = Sheet(len(policies), len(columns), row_height=1.0, column_width=2.75, key_width=3.4, gap=0.85, row_gap=0.2, title=title,
                  lines=head_lines(timed, EXPERIMENT), bottom=0.55, share_y=False, left=0.95,
                  heading_lines=max(text.count("\n") + 1 for text in headings))
    tags: dict = {}
    for number, (run, metric, _, label, join) in enumerate(columns):
        parameters = known[run.label]
        begin, length = parameters["incident_at_ms"] / 1000, parameters["incident_ms"] / 1000
        window = (-0.5 * length, 4.0 * length)
        rows = select(series, run=run.label, metric=metric)
        curves, pale = ({policy: _series(line, parameters["bin_ms"] / 1000, begin, window, join, points)
                         for policy, line in zip(rows["case.policy"], rows.itertuples())} for points in (POINTS, POINTS // 3))
        usual = {"goodput_by_time": parameters.get("rate"), "p99_by_time": parameters.get("limit_ms")}.get(metric)
        high = max([values.max() for _, values in curves.values() if len(values)] + [usual or 0.0])
        for row, policy in enumerate(policies):
            axes = sheet.axes[row][number]
            look = policy_look(policy)
            for other, (times, values) in pale.items():
                if other != policy:
                    axes.plot(times, values, color=PALE, linewidth=0.6, zorder=1)
            if policy in curves:
                tag(axes.plot(*curves[policy], color=look.colour, linewidth=1.4, zorder=3)[0], policy, tags, "policy")
            tag(axes.axvspan(0, length, color="#6F6F6F", alpha=0.18, zorder=0, linewidth=0), "incident", tags, "span")
            if usual:
                axes.axhline(usual, color=INK, linestyle=(0, (2, 2)), linewidth=0.8, zorder=2)
            axes.set_xlim(*window)
            axes.set_ylabel(label, fontsize=8)
            if row == len(policies) - 1:
                axes.set_xlabel("s after the incident began")
            if row == 0:
                column_title(axes, run, EXPERIMENT, headings[number])
                axes.annotate("incident", (0, 0.5), xytext=(2, 0), textcoords="offset points", xycoords=("data", "axes fraction"), fontsize=7,
                              color="#555555", va="center")
        first = sheet.axes[0][number]
        positive = [value for _, values in curves.values() for value in values if value > 0]
        if "(log)" in label and positive:
            first.set_yscale("log")
            first.set_ylim(min(positive) * 0.7, high * 1.4)
            log_axis(first.yaxis, min(positive) * 0.7, high * 1.4)
        else:
            first.set_ylim(0, (high or 1.0) * 1.08)
            first.yaxis.set_major_locator(MaxNLocator(4))
            first.yaxis.set_major_formatter(FuncFormatter(plain))
    recovery = select(frame, metric="recovery")
    for row, policy in enumerate(policies):
        cancel, _, retry = policy.partition("/")
        notes = []
        for run in timed:
            for line in select(recovery, run=run.label, policy=policy).itertuples():
                who = f"{shorten(run.label, 20)}: " * (len(timed) > 1)
                notes.append(who + (f"normal {plain(line.p50)} s after its end" if np.isfinite(line.p50) else "not normal again"))
        words = [cancel_words(cancel), RETRY_WORDS.get(retry, retry), *notes]
        sheet.key(row, [Line2D([], [], color=policy_look(policy).colour, linewidth=2.2, label="\n".join(words))])
    dotted = ("Dotted: the rate at which requests come, and the time after which their users leave. A point of a curve is one bin of the report, "
              "or some: the mean of goodput and attempts, the highest of the p99.")
    return finish(sheet, "incident", title, [dotted, *runs.without(EXPERIMENT), *reasons(wanted, having)])
