"""What the commands of this folder share: how they begin and how they end."""

import os
import signal
import sys
from typing import Callable


def run(name: str, main: Callable[[], int]) -> int:
    """Runs a command and returns its exit code; 2 with one line when standard output cannot be written.

    The command sets SIGINT to its default before its imports, which take a while; here it becomes KeyboardInterrupt again.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.stdout is None:
        return _unwritable(name, "it is closed")
    try:
        try:
            code = main()
        except SystemExit as end:  # argparse, after its help or its line on standard error
            code = end.code if isinstance(end.code, int) else 2
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        _drop_output()
        return _unwritable(name, error.strerror or str(error))


def _drop_output() -> None:
    """What is still buffered must not fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unwritable(name: str, why: str) -> int:
    print(f"{name}: standard output cannot be written: {why}", file=sys.stderr)
    return 2
