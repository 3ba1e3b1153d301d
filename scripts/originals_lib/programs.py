"""The programs of the ecosystems: what is needed to build them, and one run of them.

Each lives in a folder with two commands, `build DEST` (exit code 0 built, 3 with a line per missing tool, else broken) and
`run DEST ARGUMENT...`. DEST is a folder of this program's own; nothing is written into the source tree.
"""

import os
import subprocess
from dataclasses import dataclass, field

from judging import processes
from judging.reports import Unusable

from . import lines, systems

READY, MISSING, BROKEN = "ready", "missing", "broken"
MOST_TEXT = 300


class Unsound(Exception):
    """A run of a program that gave nothing usable; says why."""


@dataclass
class Program:
    """One ecosystem's program. `reason` says why it is not ready."""

    name: str
    folder: str
    dest: str
    state: str = READY
    reason: str = ""
    systems: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # systems that are not to be timed, and why
    seconds: float = 0.0  # that its visits took so far

    @property
    def ready(self) -> bool:
        return self.state == READY

    @property
    def timed(self) -> list[str]:
        return [name for name in self.systems if name not in self.refused]


def find(folder: str, dest: str, only: list[str]) -> list[Program]:
    """The programs in the folder, ours first. Raises Unusable for an unknown name and when ours is not there."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError as error:
        raise Unusable(f"{folder!r} cannot be read ({error.strerror}); it should hold the programs of the originals") from None
    found = [name for name in entries if os.path.isfile(os.path.join(folder, name, "build"))]
    originals = [name for name in found if name != systems.OURS]
    for name in only:
        if name not in originals:
            raise Unusable(f"--only {name!r} is not there; there are {', '.join(originals) or 'none'}")
    if systems.OURS not in found:
        raise Unusable(f"{folder!r} holds no folder {systems.OURS!r} with a build command")
    chosen = [systems.OURS, *(name for name in originals if not only or name in only)]
    return [Program(name, os.path.join(folder, name), os.path.join(dest, name)) for name in chosen]


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT - 3] + "..."


def build(program: Program, limit_s: float) -> None:
    """Builds it and asks for its systems; leaves in it whether it is ready, and if not, why."""
    os.makedirs(program.dest, exist_ok=True)
    try:
        code, output = processes.run([os.path.join(program.folder, "build"), program.dest], timeout_s=limit_s, accepted=(0, 3))
    except processes.Failed as failed:
        why = processes.first_error(failed.output) or processes.describe_code(failed.code)
        program.state, program.reason = BROKEN, _shown(f"the build broke: {why}")
        return
    except subprocess.TimeoutExpired:
        program.state, program.reason = BROKEN, f"the build did not end within {limit_s:g} s"
        return
    except OSError as error:
        program.state, program.reason = BROKEN, f"its build cannot be run: {error.strerror}"
        return
    if code == 3:
        said = [_shown(line) for line in output.splitlines() if line.strip()]
        program.state, program.reason = MISSING, "; ".join(said) or "its build says that something is missing"
        return
    try:
        _, listed, _ = _output(program, ["--list"], 60, (0,))
        program.systems = [line.strip() for line in listed.splitlines() if line.strip()]
    except Unsound as unsound:
        program.state, program.reason = BROKEN, f"--list {unsound}"
        return
    if not program.systems:
        program.state, program.reason = BROKEN, "--list names no system"


def _output(program: Program, arguments: list[str], limit_s: float, accepted: tuple[int, ...]) -> tuple[int, str, str]:
    """One run: exit code, standard output, and the last words on standard error. Raises Unsound."""
    said = os.path.join(program.dest, "said")
    # The lines are on standard output alone, so the two are kept apart.
    command = ["/bin/sh", "-c", 'exec "$@" 2>"$0"', said, os.path.join(program.folder, "run"), program.dest, *arguments]
    try:
        code, printed = processes.run(command, timeout_s=limit_s, accepted=accepted)
        return code, printed, _last_words(said)
    except processes.Failed as failed:
        if failed.code == processes.INTERRUPTED:
            raise KeyboardInterrupt from None
        raise Unsound(_ended(failed.code, _last_words(said))) from None
    except subprocess.TimeoutExpired:
        raise Unsound(f"did not end within {limit_s:g} s") from None
    except OSError as error:
        raise Unsound(f"cannot be run: {error.strerror}") from None
    finally:
        try:
            os.remove(said)
        except OSError:
            pass


def _last_words(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return processes.last_lines(file.read())
    except OSError:
        return ""


def _ended(code: int, words: str) -> str:
    return _shown(f"ended with {processes.describe_code(code)}: {words or 'it said nothing'}")


def run(program: Program, arguments: list[str], limit_s: float) -> lines.Output:
    """One run. A failed check (exit code 1) leaves its rows and checks. Raises Unsound."""
    code, printed, words = _output(program, arguments, limit_s, (0, 1))
    try:
        output = lines.parse(printed)
    except lines.BadOutput as bad:
        raise Unsound(_shown(str(bad))) from None
    # What ends with 1 has to say what failed; a runtime ends with 1 when it crashes, too.
    if code == 1 and not any("error" in row for row in output.rows) and all(check["ok"] for check in output.checks):
        raise Unsound(_ended(code, words))
    if not (output.versions or output.rows or output.checks or output.environment):
        raise Unsound("printed nothing")
    return output


def verify(program: Program, limit_s: float) -> lines.Output:
    """Runs its own checks and notes which systems are not to be timed. Returns what it printed."""
    try:
        output = run(program, ["--verify"], limit_s)
    except Unsound as unsound:
        program.refused = {name: f"--verify {unsound}" for name in program.systems}
        return lines.Output()
    checked = {check["service"] for check in output.checks}
    for check in output.checks:
        if not check["ok"]:
            concerned = [check["service"]] if check["service"] in program.systems else program.systems
            for name in concerned:
                program.refused.setdefault(name, _shown(f"its check failed: {check['name']}: {check['detail']}"))
    for name in program.systems:
        if name not in checked:
            program.refused.setdefault(name, "--verify says nothing about it")
    return output
