"""What the notebook shows: pictures, tables, and sentences in their place; and what pictures have in common."""

from __future__ import annotations

import base64
import functools
import html
import io
import os
import pathlib
import re
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from timerbench_frames import Missing
from timerbench_reports import Run, shorten
from timerbench_style import ALERT, INK, Palette, Sheet, drawing, plain

REASONS = 12
COORDINATES = re.compile(r' (?:d|x|y)="[^"]*"')
SPACES = re.compile(r"\s*([MLQCzZ])\s*")
INDENT = re.compile(r"\n +(?=<)")
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


class Sentence:
    """What stands in the place of a picture."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<p class="timerbench-missing"><em>{html.escape(self.text)}</em></p>'


def _remarks(remarks: Iterable[str]) -> str:
    lines = list(dict.fromkeys(remarks))
    if not lines:
        return ""
    more = [f"and {len(lines) - REASONS} more"] if len(lines) > REASONS else []
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines[:REASONS] + more) + "</ul>"


class Picture:
    """A drawn picture: `svg` is its text, `remarks` what it cannot show and why."""

    def __init__(self, name: str, title: str, svg: str, remarks: Iterable[str]):
        self.name = name
        self.title = title
        self.svg = svg
        self.remarks = list(dict.fromkeys(remarks))

    def __repr__(self) -> str:
        return f"<picture {self.name}: {self.title}>"

    def _repr_html_(self) -> str:
        # As an image of its own: the ids inside two pictures of one page would meet otherwise.
        data = base64.b64encode(self.svg.encode()).decode("ascii")
        return (f'<img class="timerbench-picture" style="max-width: 100%" alt="{html.escape(self.title)}" '
                f'src="data:image/svg+xml;base64,{data}">{_remarks(self.remarks)}')


class Pictures(list):
    """Several pictures below each other."""

    def _repr_html_(self) -> str:
        return "".join(picture._repr_html_() for picture in self)


class Table:
    """Rows for reading."""

    def __init__(self, name: str, frame: pd.DataFrame, text: str, remarks: Iterable[str] = ()):
        self.name = name
        self.frame = frame
        self.text = text
        self.remarks = list(dict.fromkeys(remarks))

    def __repr__(self) -> str:
        return self.frame.to_string()

    def _repr_html_(self) -> str:
        return self.text + _remarks(self.remarks)


def finish(sheet: Sheet, name: str, title: str, remarks: Iterable[str]) -> Picture:
    """Turns the sheet into text; writes it where $TIMERBENCH_FIGURES says."""
    text = io.StringIO()
    sheet.figure.savefig(text, format="svg", metadata={key: None for key in ("Date", "Creator", "Format", "Type")})
    # A hundredth of a point cannot be seen, and the last digits differ between processors.
    svg = COORDINATES.sub(lambda part: SPACES.sub(r"\1", LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", part[0])), text.getvalue())
    svg = INDENT.sub("\n", svg)
    folder = os.environ.get("TIMERBENCH_FIGURES")
    if folder:
        pathlib.Path(folder, f"{name}.svg").write_text(svg, encoding="utf-8")
    return Picture(name, title, svg, remarks)


def or_sentence(function: Callable) -> Callable:
    """Runs a picture's function within the project's settings; nothing to draw becomes a sentence."""

    @functools.wraps(function)
    def show(*arguments, **named):
        try:
            with drawing():
                return function(*arguments, **named)
        except Missing as missing:
            return Sentence(str(missing))

    return show


def head_lines(runs: list[Run], experiment: str) -> list[tuple[str, str]]:
    """Lines below a title: each machine, in red where its report is not for quoting."""
    lines = []
    for run in runs:
        marks = run.marks(experiment)
        lines.append((shorten(f"{run.label}: {run.machine(experiment)}" + (f" — {', '.join(marks)}, not for quoting" if marks else ""), 150),
                      ALERT if marks else "#555555"))
    return lines


def heading(runs: list[Run], run: Run, experiment: str, text: str) -> str:
    """What stands above a column: the run where there are several, its marks, and the text."""
    marks = run.marks(experiment)
    first = " ".join([shorten(run.label, 28)] * (len(runs) > 1) + [f"[{mark}]" for mark in marks])
    return "\n".join(line for line in (first, text) if line)


def column_title(axes, run: Run, experiment: str, text: str) -> None:
    axes.set_title(text, loc="left", y=1.0, color=ALERT if run.marks(experiment) else INK, linespacing=1.25)


def wide(values: Iterable[float], factor: float = 20.0) -> bool:
    """True where a linear axis would hide the small ones."""
    positive = [value for value in values if np.isfinite(value) and value > 0]
    return bool(positive) and max(positive) / min(positive) > factor


def log_axis(axis, low: float, high: float) -> None:
    """Plain numbers: at 1, 2, 5, 10, or fewer where the axis spans much, down to every second or third power of ten."""
    steps = (1,) if high / low > 2000 else (1, 3) if high / low > 100 else (1, 2, 5)
    first, last = int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 1
    stride = 1 + (last - first) // 7
    ticks = [step * 10.0**power for power in range(first, last) if power % stride == 0 for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_formatter(NullFormatter())


def tag(artist, name: str, counter: dict, kind: str = "service") -> None:
    """Names the artist in the picture's text, so that the marks of a service, or of a policy, can be found there."""
    counter[name] = counter.get(name, 0) + 1
    artist.set_gid(f"{kind}--{name}--{counter[name]}")


def draw_line(axes, palette: Palette, service: str, x, y, tags: dict, low=None, high=None, **more):
    look = palette[service]
    line, = axes.plot(x, y, color=look.colour, marker=look.marker, linestyle=look.dash, zorder=3, markeredgecolor="white",
                      markeredgewidth=0.4, **more)
    tag(line, service, tags)
    if low is not None:
        axes.vlines(x, low, high, color=look.colour, linewidth=0.9, alpha=0.7, zorder=2)
    return line


def handle(palette: Palette, service: str) -> Line2D:
    look = palette[service]
    return Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dash, label=shorten(service, 34),
                  markeredgecolor="white", markeredgewidth=0.4, linewidth=2.4 if look.family == "limit" else 1.5)
