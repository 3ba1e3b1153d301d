"""The runs of a calibration: which they are, in which order, and doing them, again and again interruptible.

Everything lies in a work folder: the builds, the placements of the bench binary, and each run's report. A run that is there is not
done again, so an interrupted campaign goes on where it was. `plan.json` in that folder says what the runs belong to; a folder
of another plan or of other binaries is refused.
"""

import hashlib
import json
import os
import random
from dataclasses import asdict, dataclass
from typing import Any, Callable, Sequence

from . import output, placements, pool, reports, rounds, worktrees
from .reports import Report, Unusable
from .rules import Rules

PLANTED = ("percent:2", "percent:5", "percent:10", "percent:20", "alloc", "clock")
EXACT_BINARY = "bench_exact"
FEWEST_BUILDS = 8


@dataclass(frozen=True)
class Settings:
    """What a campaign does. runs: A/A runs. planted_runs: of each kind in each block. sets: which objects are compiled."""

    runs: int
    builds: int
    rounds: int
    none_runs: int
    planted_runs: int
    planted: tuple[str, ...]
    service: str
    services: tuple[str, ...]
    visits: int
    quick: bool
    seed: int

    @property
    def sets(self) -> tuple[str, ...]:
        """Ordinary objects for A/A, and objects that can plant work. A quick campaign compiles the latter only."""
        return ("plant",) if self.quick else ("plain", "plant")

    @property
    def like_kind(self) -> str:
        """The kind of run that A/A decisions are formed from."""
        return pool.NONE if self.quick else pool.PLAIN


@dataclass(frozen=True)
class Planned:
    """A run to be done. kind: as in pool.Run."""

    when: int
    block: int
    build: int
    kind: str

    @property
    def name(self) -> str:
        return f"run-{self.when:05}-{self.kind.replace(':', '-')}-{self.build:02}"


def plan(settings: Settings) -> list[Planned]:
    """The runs in the order of time: blocks in which each build runs once without planted work, and builds in turn with it.

    Random within a block, by the settings' seed, and the same each time.
    """
    choice = random.Random(settings.seed)
    waiting: dict[str, list[int]] = {}  # builds whose turn comes before any of them has another
    found: list[Planned] = []
    done = block = 0
    while done < settings.runs:
        like = min(settings.builds, settings.runs - done)
        builds = choice.sample(range(1, settings.builds + 1), like)
        jobs = [(build, settings.like_kind) for build in builds]
        done += like
        counts = {kind: settings.planted_runs for kind in settings.planted}
        if settings.like_kind != pool.NONE:
            counts[pool.NONE] = settings.none_runs
        for kind, count in counts.items():
            for _ in range(count):
                if not waiting.get(kind):
                    waiting[kind] = choice.sample(range(1, settings.builds + 1), settings.builds)
                jobs.append((waiting[kind].pop(), kind))
        choice.shuffle(jobs)
        found += [Planned(when, block, build, kind) for when, (build, kind) in enumerate(jobs, len(found))]
        block += 1
    return found


class Work:
    """The work folder of a campaign. `whose` names the source in messages."""

    def __init__(self, folder: str, root: str, settings: Settings, say: Callable[[str], None]):
        self.folder = folder
        self.root = root
        self.settings = settings
        self.say = say
        self.how = placements.method()

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    def binary(self, kind: str, build: int) -> str:
        return self.path("bin", "plain" if kind == pool.PLAIN else "plant", f"{build:02}", rounds.BINARY)

    def build(self, jobs: int) -> None:
        """Compiles each set of objects once and links its placements. Raises Unusable."""
        for name in self.settings.sets:
            self.say(f"building {rounds.BINARY} ({name}), {self.settings.builds} placements: {placements.in_words(self.how)}")
            build = worktrees.Build(self.root, self.path(f"build-{name}"), "the checkout")
            placed = placements.Placements(build, rounds.BINARY, jobs, self.how)
            placed.prepare(f"-DTIMERBENCH_PLANT={'ON' if name == 'plant' else 'OFF'}")
            for number in range(1, self.settings.builds + 1):
                placed.make(number, self.path("bin", name, f"{number:02}", rounds.BINARY))

    def exact_binary(self, jobs: int) -> str:
        """bench_exact of the objects that can plant work. Raises Unusable where there is none."""
        build = worktrees.Build(self.root, self.path("build-plant"), "the checkout")
        return build.make(EXACT_BINARY, jobs)

    def _identity(self) -> dict[str, Any]:
        """What runs of this folder have in common: the plan and the binaries."""
        digests = {}
        for name in self.settings.sets:
            digest = hashlib.sha256()
            for number in range(1, self.settings.builds + 1):
                with open(self.path("bin", name, f"{number:02}", rounds.BINARY), "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            digests[name] = digest.hexdigest()
        return {"settings": json.loads(json.dumps(asdict(self.settings))), "binaries": digests, "placements": self.how}

    def begin(self) -> None:
        """Writes plan.json, or checks that the runs that are there belong to the same. Raises Unusable."""
        identity = self._identity()
        path = self.path("plan.json")
        if os.path.exists(path):
            if reports.read_json(path) != identity:
                raise Unusable(f"{self.folder!r} holds runs of another plan or of other binaries; "
                               "remove it to begin anew, or give another --out")
            return
        os.makedirs(self.path("runs"), exist_ok=True)
        output.write_file(path, json.dumps(identity, indent=1) + "\n")

    def report_path(self, planned: Planned) -> str:
        return self.path("runs", planned.name, f"{rounds.EXPERIMENT}.json")

    def measure(self, runs: Sequence[Planned], progress: Callable[[int, int], None]) -> None:
        """Does every run that is not there yet. `progress` gets the number of the run and how many were there already."""
        arguments = rounds.subset_arguments(self.settings.services, self.settings.visits)
        skipped = 0
        for planned in runs:
            if os.path.exists(self.report_path(planned)):
                skipped += 1
                continue
            progress(planned.when, skipped)
            environment = {} if planned.kind in (pool.PLAIN, pool.NONE) else \
                {"TIMERBENCH_PLANT": f"{self.settings.service}:{planned.kind}"}
            rounds.run_once(self.binary(planned.kind, planned.build), arguments, os.path.dirname(self.report_path(planned)),
                            whose="the checkout", environment=environment)

    def load(self, runs: Sequence[Planned], rules: Rules) -> tuple[list[pool.Run], dict[str, list[float]], Report]:
        """The pool, what each kind "percent:P" really planted (per cent), and one whole report for its environment."""
        found, planted = [], {}
        for planned in runs:
            report = reports.load(self.report_path(planned))
            found.append(pool.run_of(planned.when, planned.block, planned.build, planned.kind, report, rules))
            plant = report.parameters.get("plant")
            if isinstance(plant, dict) and "reached_percent" in plant:
                planted.setdefault(planned.kind, []).append(float(plant["reached_percent"]))
        return found, planted, report
