"""One set of compiled objects, linked several times so that functions lie elsewhere each time.

Where the linker puts a function changes what it costs (caches, branch prediction), by as much as a fifth between two copies of
one and the same code. One binary a side would show that as a difference between the sides. So every binary that is timed
exists in several placements, made from the same objects: each function in a section of its own (-ffunction-sections), all
functions at multiples of a cache line (-falign-functions=64, so that a function's own loops always lie alike within their lines),
and the order of the sections shuffled by the linker (lld's --shuffle-sections, by a seed). Without lld the code is only moved
as a whole, by a block of random size before it: weaker, and reports say so.
"""

import os
import random
import re
import shlex
import shutil
from dataclasses import dataclass

from . import processes
from .reports import Unusable
from .worktrees import Build

COMPILE_FLAGS = "-ffunction-sections -falign-functions=64"
CACHE_LINE = 64
LARGEST_PADDING_LINES = 4096
_SHUFFLE = re.compile(r"--shuffle-sections=\.text\*=\d+")


def method() -> str:
    """How placements are made on this machine: "lld" or "padding"."""
    return "lld" if shutil.which("ld.lld") else "padding"


def in_words(how: str) -> str:
    return {"lld": "order of functions shuffled by lld",
            "padding": "code moved by padding only: lld (Debian package lld) is not there"}[how]


@dataclass
class Placements:
    """The placements of one target of one build. Configures and compiles at the first call."""

    build: Build
    target: str
    jobs: int
    how: str = ""
    _link: list[str] | None = None

    def prepare(self, *definitions: str) -> None:
        """Compiles. Raises Unusable as Build does."""
        self.how = self.how or method()
        os.makedirs(self.build.folder, exist_ok=True)
        if self.how == "lld":
            self.build.linker_flags = ["-fuse-ld=lld", "-Wl,--shuffle-sections=.text*=1"]
        else:
            self._padding(1)
            self.build.linker_flags = [os.path.join(self.build.folder, "padding-1.o")]
        self.build.configure(f"-DCMAKE_CXX_FLAGS={COMPILE_FLAGS}", *definitions)
        self.build.make(self.target, self.jobs)
        _, output = self._quietly(["ninja", "-C", self.build.folder, "-t", "commands", "-s", f"bin/{self.target}"])
        words = shlex.split(output.splitlines()[-1]) if output.strip() else []
        if words[:2] == [":", "&&"] and words[-2:] == ["&&", ":"]:
            words = words[2:-2]
        if f"bin/{self.target}" not in words or not any(self._is_seed(word) for word in words):
            raise Unusable(f"{self.build.whose}: the command that links {self.target} is not as expected: {output.strip()[:200]!r}")
        self._link = words

    def make(self, seed: int, path: str) -> str:
        """Links the placement of a seed (1 or more) into `path`, atomically, and returns it."""
        assert self._link is not None, "prepare() comes first"
        if self.how == "padding":
            self._padding(seed)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        unfinished = f"{path}.unfinished"
        self._quietly([self._placed(word, seed, unfinished) for word in self._link], cwd=self.build.folder)
        os.replace(unfinished, path)
        return path

    def _is_seed(self, word: str) -> bool:
        return bool(_SHUFFLE.search(word)) or word.endswith("padding-1.o")

    def _placed(self, word: str, seed: int, output: str) -> str:
        if word == f"bin/{self.target}":
            return os.path.abspath(output)
        if word.endswith("padding-1.o"):
            return os.path.join(self.build.folder, f"padding-{seed}.o")
        return _SHUFFLE.sub(f"--shuffle-sections=.text*={seed}", word)

    def _padding(self, seed: int) -> None:
        """An object of a random number of cache lines of code that nobody calls; the linker puts it first."""
        size = CACHE_LINE * random.Random(seed).randrange(LARGEST_PADDING_LINES)
        source = os.path.join(self.build.folder, f"padding-{seed}.s")
        with open(source, "w", encoding="utf-8") as file:
            file.write(f'\t.text\n\t.p2align 6\n\t.skip {size}\n\t.section .note.GNU-stack,"",@progbits\n')
        compiler = os.environ.get("CXX") or "c++"
        self._quietly([*shlex.split(compiler), "-c", source, "-o", source[:-2] + ".o"])

    def _quietly(self, command: list[str], cwd: str | None = None) -> tuple[int, str]:
        try:
            return processes.run(command, cwd=cwd)
        except FileNotFoundError:
            raise Unusable(f"{command[0]} is not there; scripts/setup installs it") from None
        except processes.Failed as failed:
            raise Unusable(f"{self.build.whose}: {self.target} cannot be linked: "
                           f"{processes.first_error(failed.output)}") from None
