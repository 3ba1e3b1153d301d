"""Child processes that end with this one.

Every child leads a process group of its own: Ctrl-C at the terminal reaches this process alone, which then hands one signal on
(a bench binary leaves in order at the first and at once at the second) and waits. SIGTERM is treated like Ctrl-C.
"""

import os
import signal
import subprocess
from typing import Any, Iterator, Mapping, Sequence
from contextlib import contextmanager

INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Failed(Exception):
    """A program ended with another code than 0. `code` may be negative: the signal that ended it."""

    def __init__(self, command: Sequence[str], code: int, output: str):
        super().__init__(f"{os.path.basename(command[0])} ended with {describe_code(code)}")
        self.code = code
        self.output = output


def describe_code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# The main thread alone reads and writes these two: Python runs signal handlers there.
_held = 0
_pending = False


def signals_end_in_order() -> None:
    """From now on SIGTERM and SIGHUP raise KeyboardInterrupt as SIGINT does, even where the shell had SIGINT ignored.

    Only the first: what cleans up afterwards is not to be disturbed, and every wait in it is bounded.
    """
    for number in SIGNALS:
        signal.signal(number, _interrupt)


def _interrupt(_number: int = 0, _frame: Any = None) -> None:
    global _pending
    _pending = _held > 0
    if _held == 0:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt


@contextmanager
def signals_held() -> Iterator[None]:
    """The signals above wait while the block runs: for cleaning up, and for what must be known before anything may fail.

    They are not blocked, because a child would be born with them blocked.
    """
    global _held
    _held += 1
    try:
        yield
    finally:
        _held -= 1
        if _held == 0 and _pending:
            _interrupt()


def _end(child: "subprocess.Popen[str]") -> None:
    """Ends what is left of a child's group: asks once, waits ten seconds, then kills."""
    for number, patience in ((signal.SIGINT, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            continue
        if number == signal.SIGINT:  # the leader has gone; its own children may be there still
            continue
        break
    child.wait()


def run(command: Sequence[str], *, cwd: str | None = None, environment: Mapping[str, str] | None = None,
        timeout_s: float | None = None, accepted: Sequence[int] = (0,)) -> tuple[int, str]:
    """Runs a program and returns its exit code and everything it printed. Nothing of it is left running in any case.

    Raises Failed for a code that is not among `accepted`, OSError when the program cannot be started, and
    subprocess.TimeoutExpired.
    """
    child = None
    try:
        with signals_held():  # what comes while it is started is delivered when `child` is known
            child = subprocess.Popen(list(command), cwd=cwd, env=None if environment is None else dict(environment),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                     errors="replace", start_new_session=True)
        output, _ = child.communicate(timeout=timeout_s)
    except BaseException:
        with signals_held():
            if child is not None:
                _end(child)
                child.stdout.close()
        raise
    if child.returncode not in accepted:
        raise Failed(command, child.returncode, output)
    return child.returncode, output


def last_lines(text: str, count: int = 1) -> str:
    """The last lines that say something, in one line."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:])


def first_error(text: str) -> str:
    """The line of a build's output that a person would look for; else the last one."""
    for line in text.splitlines():
        if "error:" in line or "Error:" in line or line.startswith("CMake Error"):
            shown = " ".join(line.split())
            return shown if len(shown) <= 200 else shown[:197] + "..."
    return last_lines(text)
