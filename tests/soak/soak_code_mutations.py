"""Small faults drawn by a seed and put into the package, one at a time: which tier of the tests catches each?

    python tests/soak/soak_code_mutations.py [--count 100] [--seed 12] [--only TEXT] [--until STAGE] [--list]

Tests run on a copy of the checkout, not compiled. The tests of a mutation's own room come first, on each
mutation alone. What they let through goes, all of it together, through the other stages: what is green with
all faults in place is green with each; where a test is red, halving tells whose fault that is. A test that is
red without any fault as well, or with no fault alone, counts for nothing and is told of.

There is a line for each mutation, and a table at the end with the numbers for each file. The program ends
with 0 whatever it finds: some mutations make no difference, and only a person can say which.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

import attrs
import psutil
from checkout_copy import ROOT, copy_checkout
from code_mutations import CodeMutation, apply, drawn

FILES = [
    "runtime/checkpoints/coordinator.py",
    "runtime/job/machine.py",
    "runtime/checkpoints/checkpointing.py",
    "runtime/sinks/file_sink.py",
    "runtime/sinks/run_area.py",
    "runtime/sinks/text_file_sink.py",
    "runtime/storage/checkpoints.py",
    "runtime/storage/durable.py",
    "backends/heap/copy_on_write_state_map.py",
    "backends/ttl/access.py",
    "backends/ttl/cleanup.py",
    "backends/ttl/states.py",
]
#: A test that runs for so long hangs; a run of tests that is no pytest any more, neither.
TEST_LIMIT_S = 60
RUN_LIMIT_S = 3600
#: A loop that a fault has made endless may fill the memory.
MEMORY_LIMIT_BYTES = 6 * 2**30
#: So many red tests are enough to tell whose fault they are.
MOST_RED = 5
QUICK, FULL = "make test", "make test-full"


@attrs.frozen
class Stage:
    """A part of a tier: tests that are marked so, in these folders, without those."""

    name: str
    tier: str
    marked: str
    folders: tuple[str, ...] = ("tests",)
    without: tuple[str, ...] = ()


def own_room(file: str) -> Stage:
    """Return the quick tests of a file's own room, those first whose names say most of the file's."""
    folder = ROOT / "tests" / Path(file).parent.name
    words = set(Path(file).stem.split("_"))
    near = sorted(folder.glob("test_*.py"), key=lambda test: -len(words & set(test.stem.split("_"))))
    names = tuple(str(test.relative_to(ROOT)) for test in near)
    return Stage("room", QUICK, "not spark and not full and not slow", names)


#: What follows the own room, the nearest first.
STAGES = (
    Stage("jobs", QUICK, "not spark and not full and not slow", ("tests/job", "tests/simulation")),
    Stage("quick", QUICK, "not spark and not full and not slow", without=("tests/job", "tests/simulation")),
    Stage("spark", QUICK, "spark and not full and not slow"),
    Stage("full", FULL, "not spark and full and not slow"),
    Stage("full-spark", FULL, "spark and full and not slow"),
)


@attrs.frozen
class TestRun:
    """How tests went: which were red, as far as that is known, and for how long they ran."""

    is_green: bool
    red: tuple[str, ...]
    seconds: float


@attrs.frozen
class Catch:
    """Which stage caught a mutation, with which test, within how many seconds."""

    stage: Stage
    test: str
    seconds: float

    def __str__(self) -> str:
        what = self.test or "it hangs, or fails at the start"
        return f"{self.stage.tier}, {self.stage.name}, {self.seconds:.0f} s: {what}"


class Workshop:
    """A copy of the checkout in which mutations are put in, and tests are run.

    Args:
        folder: the copy is made there.
    """

    def __init__(self, folder: Path) -> None:
        self._checkout = folder / "checkout"
        self._cache = folder / "cache"
        self._package = copy_checkout(self._checkout)
        self._originals: dict[str, str] = {}
        self._ignored: list[str] = []
        self._green: set[Stage] = set()

    def alone(self, mutation: CodeMutation) -> Catch | None:
        """Run the tests of the mutation's own room; the first red one is enough."""
        stage = own_room(mutation.file)
        self._look_without_faults(stage)
        run = self._run([mutation], stage, "--maxfail=1")
        return None if run.is_green else _catch(stage, run)

    def _look_without_faults(self, stage: Stage) -> None:
        while stage not in self._green:
            run = self._run([], stage, f"--maxfail={MOST_RED}")
            if run.is_green:
                self._green.add(stage)
            else:
                self._ignore(run.red, "without any fault")

    def together(self, mutations: Iterable[CodeMutation], stage: Stage) -> dict[CodeMutation, Catch]:
        """Return those that a stage catches."""
        caught: dict[CodeMutation, Catch] = {}
        left = list(mutations)
        while group := _compatible(left):
            run = self._run(group, stage, f"--maxfail={MOST_RED}")
            found = {} if run.is_green else self._whose_fault(group, stage, run)
            caught |= found
            # Green with all in place: none of the group needs another look.
            left = [other for other in left if other not in (group if run.is_green else found)]
        return caught

    def _whose_fault(
        self, group: list[CodeMutation], stage: Stage, run: TestRun
    ) -> dict[CodeMutation, Catch]:
        """Return whose fault it is that tests are red; tests that are red for another reason are left out."""
        tests = attrs.evolve(stage, folders=run.red or stage.folders)
        innocent = self._run([], tests)
        if not innocent.is_green:
            self._ignore(innocent.red, "without any fault")
            return {}
        found = self._halved(group, tests)
        if not found:
            self._ignore(run.red, "with no fault alone")
        return {mutation: attrs.evolve(catch, stage=stage) for mutation, catch in found.items()}

    def _halved(self, group: list[CodeMutation], tests: Stage) -> dict[CodeMutation, Catch]:
        run = self._run(group, tests, "--maxfail=1")
        if run.is_green:
            return {}
        if len(group) == 1:
            return {group[0]: _catch(tests, run)}
        half = len(group) // 2
        return self._halved(group[:half], tests) | self._halved(group[half:], tests)

    def _ignore(self, red: Collection[str], why: str) -> None:
        if not red:
            raise SystemExit(f"the tests end {why}, and none of them is red")
        print(f"red {why}, and left out: {', '.join(red)}", flush=True)
        self._ignored += red

    def _run(self, mutations: list[CodeMutation], stage: Stage, *options: str) -> TestRun:
        self._put_in(mutations)
        (self._cache / "v" / "cache" / "lastfailed").unlink(missing_ok=True)
        begun = time.monotonic()
        status = _pytest(
            self._checkout,
            *("-o", "addopts=", "-o", f"cache_dir={self._cache}", "-q", "--tb=no", "-m", stage.marked),
            *(f"--timeout={TEST_LIMIT_S}", *options),
            *(f"--ignore={folder}" for folder in stage.without),
            *(f"--deselect={test}" for test in self._ignored),
            *stage.folders,
        )
        return TestRun(status in (0, 5), self._red(), time.monotonic() - begun)

    def _red(self) -> tuple[str, ...]:
        noted = self._cache / "v" / "cache" / "lastfailed"
        return tuple(json.loads(noted.read_text())) if noted.exists() else ()

    def _put_in(self, mutations: list[CodeMutation]) -> None:
        """Put these mutations in, and take out those from before."""
        for file, text in self._originals.items():
            self._write(file, text)
        self._originals = {}
        for file in {mutation.file for mutation in mutations}:
            text = self._originals[file] = (self._package / file).read_text()
            self._write(file, apply(text, [mutation for mutation in mutations if mutation.file == file]))

    def _write(self, file: str, text: str) -> None:
        path = self._package / file
        path.write_text(text)
        # Two texts of one length, written within a second, would look the same to Python.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


def _catch(stage: Stage, run: TestRun) -> Catch:
    return Catch(stage, run.red[0] if run.red else "", run.seconds)


def _compatible(mutations: list[CodeMutation]) -> list[CodeMutation]:
    """Return as many mutations as can be put into one copy."""
    chosen: list[CodeMutation] = []
    for mutation in mutations:
        if not any(mutation.overlaps(other) for other in chosen):
            chosen.append(mutation)
    return chosen


def _pytest(checkout: Path, *arguments: str) -> int:
    """Run pytest in a checkout, with its package instead of one that is installed; returns its status."""
    process = subprocess.Popen(
        ["nice", "-n", "10", sys.executable, "-m", "pytest", *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout), "PYFLINKSTATE_PURE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES,) * 2),
    )
    try:
        return process.wait(RUN_LIMIT_S)
    except subprocess.TimeoutExpired:
        for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            child.kill()
        return process.wait()


def _table(mutations: list[CodeMutation], caught: dict[CodeMutation, Catch]) -> str:
    """Return the numbers for each file, and what was not caught."""
    drawn_of = Counter(mutation.file for mutation in mutations)
    caught_by = Counter((mutation.file, catch.stage.tier) for mutation, catch in caught.items())
    rows = [f"{'':44} {'mutations':>10} {QUICK:>10} {FULL:>15} {'survivors':>10}"]
    for file, number in drawn_of.items():
        quick, full = caught_by[file, QUICK], caught_by[file, FULL]
        rows.append(f"{file:44} {number:10} {quick:10} {full:15} {number - quick - full:10}")
    quick, full = (sum(catch.stage.tier == tier for catch in caught.values()) for tier in (QUICK, FULL))
    rows.append(f"{'':44} {len(mutations):10} {quick:10} {full:15} {len(mutations) - len(caught):10}")
    return "\n".join([*rows, "", *(f"survives: {other}" for other in mutations if other not in caught)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of those that are drawn")
    parser.add_argument("--only", default="", help="only those whose line has this text")
    parser.add_argument("--until", choices=["room", *(stage.name for stage in STAGES)], default="full-spark")
    parser.add_argument("--list", action="store_true", help="show what is drawn, and run nothing")
    args = parser.parse_args()
    found = drawn(ROOT / "pyflinkstate", FILES, args.seed, args.count)[args.first :]
    mutations = [mutation for mutation in found if args.only in str(mutation)]
    if args.list:
        print("\n".join(map(str, mutations)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(_table(mutations, _caught(Workshop(Path(folder)), mutations, args.until)))


def _caught(workshop: Workshop, mutations: list[CodeMutation], until: str) -> dict[CodeMutation, Catch]:
    """Run the stages; says of each mutation what has caught it."""
    caught: dict[CodeMutation, Catch] = {}
    for mutation in mutations:
        if catch := workshop.alone(mutation):
            caught[mutation] = catch
        print(f"{mutation}\n    {catch or 'not by its own room'}", flush=True)
    names = ["room", *(stage.name for stage in STAGES)]
    for stage in STAGES[: names.index(until)]:
        found = workshop.together([other for other in mutations if other not in caught], stage)
        caught |= found
        for mutation, catch in found.items():
            print(f"{mutation}\n    {catch}", flush=True)
    return caught


if __name__ == "__main__":
    main()
