"""Small faults drawn by a seed and put into the package, one at a time: which tier of the tests catches each?

    python tests/soak/soak_code_mutations.py [--count 100] [--seed 12] [--only TEXT] [--until STAGE] [--list]

Tests run on a copy of the checkout, not compiled. The tests of a mutation's own room come first, then those
of jobs, then the others. Each stage runs once without a fault, to note which tests reach which mutation;
these run on it until one is red. A test that is red without a fault counts for nothing, and is told of.

There is a line for each mutation, and a table at the end with the numbers for each file. The program ends
with 0 whatever it finds: some mutations make no difference, and only a person can say which.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import hypothesis.stateful  # noqa: F401 - loaded once, not for each run
import psutil
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
import pyspark.sql  # noqa: F401
import pytest
from checkout_copy import ROOT, copy_checkout
from code_mutations import CodeMutation, apply, drawn, place_of

FILES = [
    "runtime/master/coordinator.py",
    "runtime/master/machine.py",
    "runtime/master/epochs.py",
    "runtime/master/checkpoints.py",
    "runtime/master/checkpoint_files.py",
    "runtime/master/takeover.py",
    "runtime/sinks/epoch_folders.py",
    "runtime/sinks/file_sink.py",
    "runtime/sinks/joined_files.py",
    "runtime/sinks/run_area.py",
    "runtime/sinks/two_phase_files.py",
    "runtime/sinks/text_file_sink.py",
    "runtime/storage/checkpoints.py",
    "runtime/storage/file_systems.py",
    "backends/heap/copy_on_write_state_map.py",
    "backends/ttl/rules.py",
    "backends/ttl/states.py",
]
#: A test that runs for so long hangs, one on Spark after more; a run of tests that does not end at all, too.
TEST_LIMIT_S = 60
SPARK_LIMIT_S = 300
RUN_LIMIT_S = 3600
#: A loop that a fault has made endless may fill the memory.
MEMORY_LIMIT_BYTES = 6 * 2**30
QUICK, FULL = "make test", "make test-full"
ALL_QUICK = "not spark and not full and not slow"
#: Rooms whose tests run whole jobs.
JOBS = ("tests/master", "tests/simulation")
#: Names of tests, or folders of them.
Tests = Sequence[str]


@attrs.frozen
class Stage:
    """A part of a tier: tests that are marked so, in these folders, without those."""

    name: str
    tier: str
    marked: str
    folders: Tests = ("tests",)
    without: Tests = ()
    limit_s: int = TEST_LIMIT_S


def own_room(file: str) -> Stage:
    """Return the quick tests of a file's own room."""
    return Stage("room", QUICK, ALL_QUICK, (f"tests/{Path(file).parent.name}",))


#: What follows the own room.
STAGES = (
    Stage("jobs", QUICK, ALL_QUICK, JOBS),
    Stage("quick", QUICK, ALL_QUICK, without=JOBS),
    Stage("spark", QUICK, "spark and not full and not slow", limit_s=SPARK_LIMIT_S),
    Stage("full", FULL, "not spark and full and not slow"),
    Stage("full-spark", FULL, "spark and full and not slow", limit_s=SPARK_LIMIT_S),
)


@attrs.frozen
class TestRun:
    """How tests went: which were red, as far as that is known, and for how long they ran."""

    is_green: bool
    red: Tests
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
        self._notes = self._checkout / "reached.jsonl"
        shutil.copy(Path(__file__).with_name("reached.py"), self._checkout)
        self._originals: dict[str, str] = {}
        self._changed: set[str] = set()
        self._left_out: list[str] = []

    def tests_that_reach(self, mutations: list[CodeMutation], stage: Stage) -> dict[CodeMutation, Tests]:
        """Run a stage without faults; return which of its tests run the statement of each mutation.

        Of each test one case comes first, then the second of each, the quickest first.
        """
        self._write_all({file: self._with_notes(file, mutations) for file in _files_of(mutations)})
        self._notes.unlink(missing_ok=True)
        run = self._run(stage.folders, stage)
        if not run.is_green:
            self._leave_out(run.red)
        seconds, reached = read_notes(self._notes)
        return {
            mutation: _in_turn({test: seconds[test] for test in seconds if (number, test) in reached})
            if _can_be_noted(mutation, self._originals[mutation.file])
            else _in_turn(seconds)
            for number, mutation in enumerate(mutations)
        }

    def _with_notes(self, file: str, mutations: list[CodeMutation]) -> str:
        """Return the text of a file that notes which of the mutations' statements are run."""
        text = self._original(file)
        places = [
            (*place, number)
            for number, mutation in enumerate(mutations)
            if mutation.file == file and (place := place_of(mutation, text)) is not None
        ]
        for start, indent, number in sorted(places, reverse=True):
            text = f"{text[:start]}__import__('reached').note({number})\n{indent}{text[start:]}"
        return text

    def catch(self, mutation: CodeMutation, stage: Stage, tests: Tests) -> Catch | None:
        """Run tests on a mutation until one is red that is green without it."""
        while tests := [test for test in tests if test not in self._left_out]:
            self._write_all({mutation.file: apply(self._original(mutation.file), [mutation])})
            run = self._run(tests, stage, "--maxfail=1")
            if run.is_green:
                return None
            if self._is_green_without_faults(run.red or tests, stage):
                return Catch(stage, run.red[0] if run.red else "", run.seconds)
        return None

    def _is_green_without_faults(self, tests: Tests, stage: Stage) -> bool:
        self._write_all({})
        is_green = self._run(tests, stage).is_green
        if not is_green:
            self._leave_out(tests)
        return is_green

    def _leave_out(self, red: Tests) -> None:
        print(f"red without any fault, and left out: {', '.join(red)}", flush=True)
        self._left_out += red

    def _run(self, tests: Tests, stage: Stage, *options: str) -> TestRun:
        (self._cache / "v" / "cache" / "lastfailed").unlink(missing_ok=True)
        begun = time.monotonic()
        status = _pytest(
            self._checkout,
            *("-o", "addopts=", "-o", f"cache_dir={self._cache}", "-q", "--tb=no", "-m", stage.marked),
            *("-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "reached"),
            *(f"--timeout={stage.limit_s}", *options),
            *(f"--ignore={folder}" for folder in stage.without),
            *tests,
        )
        return TestRun(status in (0, 5), self._red(), time.monotonic() - begun)

    def _red(self) -> Tests:
        noted = self._cache / "v" / "cache" / "lastfailed"
        return list(json.loads(noted.read_text())) if noted.exists() else []

    def _original(self, file: str) -> str:
        return self._originals.setdefault(file, (self._package / file).read_text())

    def _write_all(self, changed: dict[str, str]) -> None:
        """Write these files, and all others as they were."""
        for file, text in ({file: self._originals[file] for file in self._changed} | changed).items():
            path = self._package / file
            path.write_text(text)
            # Two texts of one length, written within a second, would look the same to Python.
            for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
                compiled.unlink()
        self._changed = set(changed)


def read_notes(notes: Path) -> tuple[dict[str, float], set[tuple[int, str]]]:
    """Return for how long each test ran, and which mutations, by their numbers, were reached by which."""
    lines = [json.loads(line) for line in notes.read_text().splitlines()]
    ended = {line["test"]: line for line in lines if "name" in line}
    reached = {
        (line["mutation"], ended[line["test"]]["name"])
        for line in lines
        if "mutation" in line and line["test"] in ended
    }
    return {line["name"]: line["seconds"] for line in ended.values()}, reached


def _files_of(mutations: list[CodeMutation]) -> set[str]:
    return {mutation.file for mutation in mutations}


def _can_be_noted(mutation: CodeMutation, text: str) -> bool:
    return place_of(mutation, text) is not None


def _in_turn(seconds: dict[str, float]) -> Tests:
    """Return the first case of each test, then the second of each, the quickest first."""
    cases: Counter[str] = Counter()
    order: list[tuple[int, float, str]] = []
    for test in sorted(seconds, key=lambda test: seconds[test]):
        name = test.partition("[")[0]
        order.append((cases[name], seconds[test], test))
        cases[name] += 1
    return [_lasting(test) for _, _, test in sorted(order)]


def _lasting(test: str) -> str:
    """Return a test's name; one that has an address in it holds in one process, so all cases stand for it."""
    return test.partition("[")[0] if " at 0x" in test else test


def _pytest(checkout: Path, *arguments: str) -> int:
    """Run pytest in a checkout, with its package instead of one that is installed; returns its status."""
    process = multiprocessing.get_context("fork").Process(target=_pytest_here, args=(checkout, arguments))
    process.start()
    process.join(RUN_LIMIT_S)
    if process.exitcode is None:
        for child in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
            child.kill()
        process.join()
    return int(process.exitcode or 0)


def _pytest_here(checkout: Path, arguments: tuple[str, ...]) -> None:
    """Run pytest in this process, a copy of one that has loaded the libraries but nothing of the package."""
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    os.nice(10)
    os.chdir(checkout)
    os.environ |= {"PYTHONPATH": str(checkout), "PYFLINKSTATE_PURE": "1"}
    sys.path.insert(0, str(checkout))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT_BYTES,) * 2)
    sys.exit(pytest.main(list(arguments)))


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
    parser.add_argument("--most", type=int, help="run no more tests of a stage on each; default: all")
    parser.add_argument("--list", action="store_true", help="show what is drawn, and run nothing")
    args = parser.parse_args()
    found = drawn(ROOT / "pyflinkstate", FILES, args.seed, args.count)[args.first :]
    mutations = [mutation for mutation in found if args.only in str(mutation)]
    if args.list:
        print("\n".join(map(str, mutations)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(_table(mutations, _caught(Workshop(Path(folder)), mutations, args.until, args.most)))


def _caught(
    workshop: Workshop, mutations: list[CodeMutation], until: str, most: int | None
) -> dict[CodeMutation, Catch]:
    """Run the stages; says of each mutation what has caught it."""
    caught: dict[CodeMutation, Catch] = {}
    for room in dict.fromkeys(own_room(mutation.file) for mutation in mutations):
        if room.folders[0] not in JOBS:
            own = [mutation for mutation in mutations if own_room(mutation.file) == room]
            caught |= _caught_in(workshop, room, own, most)
    for stage in STAGES[: ["room", *(stage.name for stage in STAGES)].index(until)]:
        if left := [mutation for mutation in mutations if mutation not in caught]:
            caught |= _caught_in(workshop, stage, left, most)
    return caught


def _caught_in(
    workshop: Workshop, stage: Stage, mutations: list[CodeMutation], most: int | None
) -> dict[CodeMutation, Catch]:
    caught: dict[CodeMutation, Catch] = {}
    for mutation, tests in workshop.tests_that_reach(mutations, stage).items():
        if catch := workshop.catch(mutation, stage, tests[:most]):
            caught[mutation] = catch
        print(f"{mutation}\n    {catch or f'not by {stage.name}, {len(tests)} tests reach it'}", flush=True)
    return caught


if __name__ == "__main__":
    main()
