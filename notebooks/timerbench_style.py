"""How a service looks, in every picture the same, and how pictures are laid out.

A family of services shares a hue of the Okabe-Ito palette, which people with any of the common kinds of colour
blindness can tell apart; where there are more families than hues, of Tol's muted one. Members of a family differ by
shade, and also by marker and dash, so that a picture reads in grey too. Names in `FAMILIES` look the same in every
run; a name that is not there gets what is left, by its place among all services of all the runs that are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import matplotlib
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

# Family: its hue and the members whose looks do not depend on who else is there. A name belongs to the family whose
# name it has, or begins with, before a slash.
FAMILIES: dict[str, tuple[str, list[str]]] = {
    "coarse_slot": ("#0072B2", ["coarse_slot", "twin", "coarse_slot_faithful"]),
    "asio": ("#E69F00", ["asio", "asio_per_thread", "asio_per_thread/locked"]),
    "libevent": ("#009E73", ["libevent", "libevent/common", "libevent/default", "libevent_per_thread",
                             "libevent_per_thread/common", "libevent_per_thread/default"]),
    "hashed_wheel": ("#D55E00", ["hashed_wheel/10ms", "hashed_wheel/30ms", "hashed_wheel/100ms", "hashed_wheel/10ms_mark"]),
    "locked_heap": ("#CC79A7", ["locked_heap", "locked_heap/lazy"]),
    "per_thread_wheel": ("#56B4E9", ["per_thread_wheel"]),
    "locked_wheel": ("#999933", ["locked_wheel"]),
    "timerfd": ("#332288", ["timerfd"]),
    "thread_per_timeout": ("#882255", ["thread_per_timeout"]),
    "waiter_timed": ("#8C5A3C", ["waiter_timed"]),
    # Ways to wait that are no timer service, and clocks.
    "condition_variable": ("#A86B00", ["condition_variable"]),
    "future": ("#3C6E2F", ["future"]),
    "futex": ("#5A4FCF", ["futex/spin_0us", "futex/spin_1us", "futex/spin_10us", "futex/spin_50us"]),
    "thread_per_wait": ("#2F4F4F", ["thread_per_wait"]),
    "wall": ("#C4570A", ["wall/wait_until", "wall/sleep_rest", "wall/poll_10ms"]),
    "steady": ("#0A6F8F", ["steady/wait_until", "steady/poll_10ms"]),
    "handed": ("#7A5195", ["handed/time_of_day", "handed/remaining"]),
    # The originals.
    "pingora": ("#3F5FBF", [f"original/pingora/{name}" for name in ("fast_timeout", "tokio_timeout", "above_threshold")]),
    "tokio": ("#00796B", [f"original/tokio/{name}" for name in ("time_only", "time_and_io", "time_and_io_known_wakeup", "per_worker")]),
    "netty": ("#E0701A", [f"original/netty/{name}" for name in ("10ms", "30ms", "100ms")]),
    "jdk": ("#8E24AA", [f"original/jdk/{name}" for name in ("executor", "executor_remove", "or_timeout", "park_nanos", "future_get")]),
    "go": ("#0097C4", [f"original/go/{name}" for name in ("after_func", "context", "new_timer")]),
    "node": ("#6B8E23", [f"original/node/{name}" for name in ("set_timeout", "abort_signal", "promise_race", "promise_race_uncleared")]),
    "ruby": ("#A8326E", ["original/ruby/timeout"]),
    "libuv": ("#546E7A", ["original/libuv/timer"]),
    "libev": ("#9E9D24", ["original/libev/timer"]),
}
ORIGINAL = "original/"
OF_FAMILY = {"twin": "coarse_slot", "asio_per_thread": "asio", "libevent_per_thread": "libevent",
             "coarse_slot_faithful": "coarse_slot", "per_thread_wheel_loop": "per_thread_wheel"}
SPARE_HUES = ["#117733", "#AA4499", "#6699CC", "#44AA99", "#B8860B", "#661100", "#4B4B9B", "#DDAA33"]
# Families begin with different markers, so that hues that had to be used twice can be told apart as well.
# A member's lightness, darker (below 0) or lighter than its family's hue, by its place in the family.
SHADES = [0.0, 0.5, -0.5, 0.3, -0.25, 0.68, -0.68]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*", "<", ">"]
DASHES = ["-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1.2)), (0, (6, 1.2, 1.2, 1.2, 1.2, 1.2))]
# What a policy does about retries has a hue, what it does when time is up a shade, a marker and a dash.
RETRIES = {"no_retry": "#0072B2", "naive": "#D55E00", "inside": "#009E73", "budget": "#CC79A7"}
CANCELS = ["deadline", "detach", "abort", "no_timeout", "coop_10ms", "coop_1ms", "coop_100ms"]
LIMIT = "limit/"
HELPERS = ("floor/", "direct/", LIMIT)
# Lines that a panel of one family, and one of several small families, can bear.
PANEL_LINES = 6
SMALL_FAMILIES_LINES = 4

INK = "#222222"
PALE = "#C9C9C9"
ALERT = "#B22222"
RC = {
    "svg.fonttype": "path", "svg.hashsalt": "timerbench", "font.family": ["DejaVu Sans"], "font.size": 9,
    "axes.titlesize": 9, "axes.labelsize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#777777", "axes.linewidth": 0.8,
    "axes.labelcolor": INK, "text.color": INK, "xtick.color": "#444444", "ytick.color": "#444444",
    "axes.grid": True, "grid.color": "#E4E4E4", "grid.linewidth": 0.6, "axes.axisbelow": True, "hatch.linewidth": 0.7,
    "lines.linewidth": 1.5, "lines.markersize": 4.5, "legend.frameon": False, "figure.facecolor": "white",
    "axes.unicode_minus": True, "path.simplify": True,
}


def drawing():
    """A context in which nothing of the user's matplotlib settings holds, so that pictures come out the same everywhere."""
    settings = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    return matplotlib.rc_context(settings | RC)


def family_of(service: str) -> str:
    """The family of a service; `direct/x` belongs to the family of x, `original/x y` is its own family, x."""
    name = service.removeprefix("direct/").removeprefix(ORIGINAL)
    if service.startswith(LIMIT):
        return "limit"
    words = name.split("/")[0].split()
    head = words[0] if words else name
    return OF_FAMILY.get(head, head)


def is_service(name: str) -> bool:
    """False for helper rows: the floor, the limit, hand-written use of a library."""
    return not name.startswith(HELPERS)


def shade(hue: str, amount: float) -> str:
    """The hue mixed with white (amount above 0, 1 is white) or with black (below 0, -1 is black)."""
    return to_hex([part + amount * (1 - part) if amount > 0 else part * (1 + amount) for part in to_rgb(hue)])


@dataclass(frozen=True)
class Look:
    """How a service is drawn."""

    colour: str
    marker: str
    dash: object
    family: str


class Palette:
    """The look of each service of the runs that are loaded."""

    def __init__(self, services: Iterable[str]):
        self.looks: dict[str, Look] = {}
        self.order: list[str] = []
        members = {family: list(pinned) for family, (_, pinned) in FAMILIES.items()}
        hues = {family: hue for family, (hue, _) in FAMILIES.items()}
        names = [name for name in dict.fromkeys(services) if is_service(name)]
        for name in names:
            family = family_of(name)
            if family not in hues:
                turn, place = divmod(len(hues) - len(FAMILIES), len(SPARE_HUES))
                hues[family] = shade(SPARE_HUES[place], 1 - 0.72**turn)
                members[family] = []
            if name not in members[family]:
                members[family].append(name)
        for place, (family, hue) in enumerate(hues.items()):
            for number, name in enumerate(members[family]):
                self.looks[name] = Look(shade(hue, SHADES[number % len(SHADES)]), MARKERS[(number + place) % len(MARKERS)],
                                        DASHES[number % len(DASHES)], family)
                if name in names:
                    self.order.append(name)

    def __getitem__(self, name: str) -> Look:
        if name.startswith(LIMIT):
            return Look("#000000" if name == f"{LIMIT}clock_nanosleep" else "#8c8c8c", "", "-", "limit")
        if name.startswith("direct/"):
            return self.looks.get(name.removeprefix("direct/"), Look("#666666", "D", "-", family_of(name)))
        return self.looks.get(name, Look("#666666", "x", "-", family_of(name)))

    def sort(self, services: Iterable[str]) -> list[str]:
        """In the order of the palette: family by family."""
        present = set(services)
        return [name for name in self.order if name in present]

    def panels(self, services: Iterable[str]) -> list[tuple[str, list[str]]]:
        """Divides services among panels that can be read: a family of three or more by itself, small ones together."""
        large: list[tuple[str, list[str]]] = []
        small: dict[str, list[str]] = {}
        families: dict[str, list[str]] = {}
        for name in self.sort(services):
            families.setdefault(self[name].family, []).append(name)
        for family, names in families.items():
            if len(names) < 3:
                small[family] = names
                continue
            for start in range(0, len(names), PANEL_LINES):
                large.append((family, names[start:start + PANEL_LINES]))
        room = 0
        for family, names in small.items():
            if len(names) > room:
                large.append(("", []))
                room = SMALL_FAMILIES_LINES
            large[-1] = (large[-1][0] + ", " * bool(large[-1][0]) + family, large[-1][1] + names)
            room -= len(names)
        return large


def policy_look(policy: str) -> Look:
    """The look of a policy, whose name is CANCEL/RETRY."""
    cancel, _, retry = policy.partition("/")
    number = CANCELS.index(cancel) if cancel in CANCELS else len(CANCELS) + sum(map(ord, cancel))
    return Look(shade(RETRIES.get(retry, "#666666"), SHADES[number % len(SHADES)]), MARKERS[number % len(MARKERS)],
                DASHES[number % len(DASHES)], retry)


def plain(value: float, _position: object = None) -> str:
    """A number for an axis or a label: three significant digits, thousands apart, no exponent where it can be helped."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        mantissa, exponent = f"{value:.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        power = f"$10^{{{int(exponent)}}}$"
        return power if mantissa == "1" else f"{mantissa}·{power}"
    if size >= 100:
        return (f"{value:,.0f}" if size >= 10_000 else f"{value:.0f}").replace(",", "\u2009").replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


class Sheet:
    """A figure laid out in inches: a head with the title, rows of panels, a column for keys at the right of each row."""

    def __init__(self, rows: int, columns: int, *, row_height: float, column_width: float, key_width: float,
                 title: str, lines: list[tuple[str, str]], left: float = 0.85, bottom: float = 0.6, gap: float = 0.3,
                 row_gap: float = 0.28, heading_lines: int = 1, key_gap: float = 0.1,
                 share_x: bool = True, share_y: bool = True):
        """`lines` stand below the title, each a text and a colour; `heading_lines` is what the tallest heading of a column has;
        `key_gap` is what figures beside the last panel take; without `share_y` only panels of a column share their y."""
        head = 0.52 + 0.19 * len(lines) + 0.16 * heading_lines
        needed = max([0.112 * len(title), *(0.066 * len(text) for text, _ in lines)]) + 0.3
        key_width = max(key_width, needed - (left + columns * column_width + (columns - 1) * gap + key_gap))
        width = left + columns * column_width + (columns - 1) * gap + key_gap + key_width
        height = head + rows * row_height + (rows - 1) * row_gap + bottom
        self.figure = Figure(figsize=(width, height))
        self.figure.text(0.12 / width, 1 - 0.12 / height, title, fontsize=12, fontweight="bold", va="top", ha="left")
        for number, (text, colour) in enumerate(lines):
            self.figure.text(0.12 / width, 1 - (0.4 + 0.19 * number) / height, text, fontsize=8.5, color=colour, va="top", ha="left")
        self.axes = []
        self.keys = []
        first = None
        for row in range(rows):
            bottom_of_row = (height - head - (row + 1) * row_height - row * row_gap) / height
            line = []
            for column in range(columns):
                axes = self.figure.add_axes(
                    [(left + column * (column_width + gap)) / width, bottom_of_row, column_width / width, row_height / height],
                    sharex=first if share_x else None, sharey=first if share_y else self.axes[0][column] if self.axes else None)
                first = first or axes
                lowest, leftmost = row == rows - 1 or not share_x, column == 0 or not share_y
                axes.tick_params(labelbottom=lowest, bottom=lowest, labelleft=leftmost, left=leftmost)
                line.append(axes)
            self.axes.append(line)
            key = self.figure.add_axes([1 - key_width / width, bottom_of_row, key_width / width, row_height / height])
            key.set_axis_off()
            self.keys.append(key)

    def key(self, row: int, handles: list, title: str | None = None) -> None:
        """What the marks of a row of panels mean. A title too long for the column is left out: the names tell as much."""
        title = title if title and len(title) <= 26 else None
        legend = self.keys[row].legend(handles=handles, loc="upper left", borderaxespad=0, handlelength=3, labelspacing=0.45,
                                       title=title, alignment="left", bbox_to_anchor=(0.0, 1.0))
        legend.get_title().set_fontweight("bold")
