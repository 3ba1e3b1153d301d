"""Runs of the measured subset, and the order A-B-B-A in which two sides take turns.

The subset is what a bench binary of any revision can be asked for with options it has always had: two cases of a handful of
services, in many short visits, in random order. One run takes about a second.
"""

import os
import re
import subprocess
from dataclasses import dataclass, field
from typing import Callable, Mapping, Sequence

from . import processes, reports
from .reports import Report, Unusable

BINARY = "bench_arm_cancel"
EXPERIMENT = "arm_cancel"
# What they measure differs: ours by reading, the same code at other addresses, a lock and a heap, a wheel, a library.
SERVICES = ("coarse_slot", "twin", "hashed_wheel/10ms", "locked_heap", "asio_per_thread")
# The article's timer and the window of outstanding ones, both with a deadline that is not the earliest: an earliest one makes some
# services call the kernel each time, which on a shared machine hides everything else.
ARTICLE = "article/population=0/duration_ms=1000"
WINDOW = "window/window=[0-9]+/cancel=oldest/population=0/duration_ms=3000"
# Their 30 000 timers do not stay in the caches, and what that costs differs by 5 % between two runs of one binary.
NO_WINDOW = ("locked_heap", "asio_per_thread")
VISITS = 32
RUN_LIMIT_S = 120


def _quoted(name: str) -> str:
    """A name as a POSIX extended regular expression that matches it alone."""
    return re.sub(r"([^A-Za-z0-9_/-])", r"[\1]", name)


def subset_arguments(services: Sequence[str], visits: int = VISITS, leave_out: Sequence[str] = NO_WINDOW) -> list[str]:
    """The options of bench_arm_cancel that make it run the subset.

    services: exact names. leave_out: those of them whose window case is not run.
    """
    def pattern(names: Sequence[str], case: str) -> str:
        return f"({'|'.join(map(_quoted, names))})/kind={case}"
    chosen = [word for name in services for word in ("--service", name)]
    parts = [pattern(services, ARTICLE)]
    with_window = [name for name in services if name not in leave_out]
    if with_window:
        parts.append(pattern(with_window, WINDOW))
    return ["--population", "0", *chosen, f"--benchmark_repetitions={visits}",
            f"--benchmark_filter=^(floor/steady_clock/|({'|'.join(parts)})/deadline=latest/regime=saturating/)"]


def services_of(binary: str, whose: str) -> list[str]:
    """The services that a bench binary knows."""
    try:
        _, output = processes.run([binary, "--list"], timeout_s=30)
    except (processes.Failed, subprocess.TimeoutExpired, OSError) as error:
        raise Unusable(f"{whose}: {os.path.basename(binary)} --list does not work: {error}") from None
    return [line.split()[0] for line in output.splitlines() if line.split()]


def common_services(known: Mapping[str, Sequence[str]], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which services both sides can be asked for, and what is left out of the default subset, in words.

    known: by side ("revision 'v1'"), what its binary lists. wanted: names given by the user, which have to be there on both
    sides; empty for the default subset. Raises Unusable.
    """
    if wanted:
        names: list[str] = []
        for word in wanted:
            for side, listed in known.items():
                if word not in listed:
                    raise Unusable(f"--service {word!r}: {side} has no such service; it has {', '.join(listed)}")
            if word not in names:
                names.append(word)
        return names, []
    left_out = [f"{name} ({side} has no such service)" for name in SERVICES for side, listed in known.items() if name not in listed]
    names = [name for name in SERVICES if all(name in listed for listed in known.values())]
    if not names:
        raise Unusable(f"the two sides have none of {', '.join(SERVICES)} in common; name others with --service")
    return names, left_out


def run_once(binary: str, arguments: Sequence[str], folder: str, *, whose: str, experiment: str = EXPERIMENT,
             environment: Mapping[str, str] | None = None, accepted: Sequence[int] = (0, 1)) -> Report:
    """Runs a bench binary, which writes its reports into `folder`, and reads the report of `experiment`.

    A failed check (1) leaves rows in error, which are judged as such. Raises Unusable for every other end.
    """
    name = os.path.basename(binary)
    # Google Benchmark would take options from there, and a planted slowdown is only what the caller plants.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("BENCHMARK_", "TIMERBENCH_"))}
    try:
        processes.run([binary, *arguments, "--out", folder], environment=inherited | dict(environment or {}),
                      timeout_s=RUN_LIMIT_S, accepted=accepted)
    except processes.Failed as failed:
        if failed.code == processes.INTERRUPTED:
            raise KeyboardInterrupt from None
        raise Unusable(f"{whose}: {name} ended with {processes.describe_code(failed.code)}: "
                       f"{processes.last_lines(failed.output)}") from None
    except subprocess.TimeoutExpired:
        raise Unusable(f"{whose}: {name} did not end within {RUN_LIMIT_S} s") from None
    except OSError as error:
        raise Unusable(f"{whose}: {binary!r} cannot be run: {error.strerror}") from None
    return reports.load(os.path.join(folder, f"{experiment}.json"))


@dataclass
class Side:
    """One of the two sides: its binaries (one for each placement, or one for all) and the reports they gave, a round each."""

    whose: str
    binaries: Sequence[str]
    reports: list[Report] = field(default_factory=list)

    def binary_of(self, number: int) -> str:
        return self.binaries[number % len(self.binaries)]


def order_of(number: int) -> tuple[int, int]:
    """Which side goes first in round `number`: A-B, B-A, A-B, ..."""
    return (0, 1) if number % 2 == 0 else (1, 0)


def take_turns(base: Side, head: Side, rounds: int, arguments: Sequence[str], folder: str,
               progress: Callable[[int], None] = lambda number: None) -> None:
    """Runs `rounds` rounds, A-B-B-A, and leaves each side's reports in order. `progress` is called before each round."""
    sides = (base, head)
    for number in range(rounds):
        progress(number)
        for which in order_of(number):
            side = sides[which]
            place = os.path.join(folder, f"round-{number:03}-{'AB'[which]}")
            side.reports.append(run_once(side.binary_of(number), arguments, place, whose=side.whose))
