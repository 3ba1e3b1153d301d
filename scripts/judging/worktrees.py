"""Two git revisions side by side: worktrees in a temporary folder, built for measuring, gone at the end.

A worktree is known to git besides being a folder, so that removing the folder alone would leave a trace in the repository.
`Workshop` removes both, however it is left: at the end, after an error, after Ctrl-C or SIGTERM.
"""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from typing import Callable, Sequence

from . import processes
from .reports import Unusable


@dataclass(frozen=True)
class Revision:
    """What one side is made of.

    given: how it was named. commit: full hash. working_tree: the checkout as it lies there, changes included.
    """

    given: str
    commit: str
    working_tree: bool = False

    def __str__(self) -> str:
        if self.working_tree:
            return f"working tree ({self.commit[:12]} and changes)"
        return self.commit[:12] if self.commit.startswith(self.given) else f"{self.given} ({self.commit[:12]})"


def _git(root: str, *arguments: str) -> str:
    # Variables such as GIT_DIR, set while a hook runs, would lead git elsewhere.
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")}
    try:
        return processes.run(["git", "-C", root, *arguments], environment=environment)[1].strip()
    except FileNotFoundError:
        raise Unusable("git is not there; scripts/setup installs it") from None


def resolve(root: str, given: str) -> Revision:
    """The commit that `given` names. Raises Unusable."""
    try:
        _git(root, "rev-parse", "--git-dir")
    except processes.Failed:
        raise Unusable(f"{root!r} is no git checkout; comparing revisions needs one") from None
    if given == "" or given.startswith("-"):
        raise Unusable(f"{given!r} is not a revision; give a commit, a branch or a tag")
    try:
        return Revision(given, _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{given}^{{commit}}"))
    except processes.Failed:
        raise Unusable(f"revision {given!r} is not in this repository; give a commit, a branch or a tag") from None


def is_dirty(root: str) -> bool:
    return _git(root, "status", "--porcelain") != ""


def checkout_of(root: str) -> Revision:
    """HEAD, or the working tree where it holds changes."""
    return Revision("HEAD", resolve(root, "HEAD").commit, is_dirty(root))


class Workshop:
    """A temporary folder with worktrees, builds and reports. A context manager.

    keep: leaves the folder (the worktrees in it, too) and says where by `say`.
    """

    def __init__(self, root: str, *, keep: bool = False, say: Callable[[str], None] = print):
        self.root = root
        self.keep = keep
        self.say = say
        self.folder = ""
        self._trees: list[str] = []

    def __enter__(self) -> "Workshop":
        try:
            with processes.signals_held():  # what comes meanwhile is delivered when the folder is known
                self.folder = tempfile.mkdtemp(prefix="timerbench-compare-")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_unused: object) -> None:
        with processes.signals_held():
            if self.keep:
                self.say(f"kept: {self.folder}")
                return
            lost = False
            for tree in self._trees:
                lost = not self._try("worktree", "remove", "--force", "--force", tree) or lost
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            if lost:  # git forgets what is gone; not asked otherwise, because it would forget worktrees of others, too
                self._try("worktree", "prune")

    def _try(self, *arguments: str) -> bool:
        try:
            _git(self.root, *arguments)
        except (processes.Failed, Unusable, OSError):
            return False
        return True

    def source_of(self, revision: Revision, name: str) -> str:
        """A folder with the sources: the checkout itself for a working tree, else a new worktree called `name`."""
        if revision.working_tree:
            return self.root
        tree = os.path.join(self.folder, name)
        self._trees.append(tree)  # first: git may be interrupted halfway
        try:
            _git(self.root, "worktree", "add", "--detach", "--quiet", tree, revision.commit)
        except processes.Failed as failed:
            raise Unusable(f"revision {revision.given!r} cannot be laid out: {processes.last_lines(failed.output)}") from None
        return tree


@dataclass
class Build:
    """A configured build folder of one side. `whose` names it in messages ("revision 'v1'", "the working tree")."""

    source: str
    folder: str
    whose: str
    linker_flags: Sequence[str] = ()

    def configure(self, *definitions: str) -> None:
        command = ["cmake", "-S", self.source, "-B", self.folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                   "-DTIMERBENCH_BUILD_EXPERIMENTS=ON", "-DTIMERBENCH_BUILD_TESTS=OFF", "-DTIMERBENCH_WERROR=OFF",
                   f"-DCMAKE_EXE_LINKER_FLAGS={' '.join(self.linker_flags)}", *definitions]
        self._run(command, "cannot be configured")

    def make(self, target: str, jobs: int) -> str:
        """Builds one binary and returns its path. Raises Unusable when there is no such target or it does not compile."""
        command = ["cmake", "--build", self.folder, "--parallel", str(jobs), "--target", target]
        try:
            self._run(command, f"does not build ({target})")
        except Unusable:
            if self._unknown:
                raise Unusable(f"{self.whose} has no {target}, so there is nothing to compare") from None
            raise
        path = os.path.join(self.folder, "bin", target)
        if not os.path.isfile(path):
            raise Unusable(f"{self.whose} built {target}, yet {path!r} is not there")
        return path

    _unknown = False

    def _run(self, command: list[str], problem: str) -> None:
        self._unknown = False
        try:
            processes.run(command)
        except FileNotFoundError:
            raise Unusable(f"{command[0]} is not there; scripts/setup installs it") from None
        except processes.Failed as failed:
            self._unknown = re.search(r"unknown target|No rule to make target", failed.output) is not None
            raise Unusable(f"{self.whose} {problem}: {processes.first_error(failed.output)}") from None
