"""Runs the benchmarks several times and records all runs, with their conditions, as JSON.

    python benchmarks/record.py [NAME ...] [--runs N] [--rounds N] [--again] [--list]
    python benchmarks/record.py --small [NAME ...]

Without names all benchmarks are recorded, one after the other, into ``benchmarks/results/NAME.json``; then
``draw.py`` puts them into the documents. A result has the figures of each run, the worst, the median and the
spread of each figure, the commit, the versions and the machine.

It can be stopped at any time and called again: a benchmark that is recorded for this commit, these
arguments, these versions and this machine is left out (unless ``--again`` is given), and one that was
interrupted goes on after its last whole run. The code that is measured must be committed. A benchmark that
fails does not keep the others from being recorded.

With ``--small`` each program runs once with little work, into ``build/benchmarks/small``: this shows that all
of them work. Such figures mean nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
from engines import owned
from report import conditions
from report.programs import BENCHMARKS, Benchmark
from report.results import RESULTS, Result, Run, read, write

import pyflinkstate

HERE = Path(__file__).parent
UNFINISHED = HERE.parent / "build" / "benchmarks"
SMALL = UNFINISHED / "small"


class BenchmarkFailed(Exception):
    """A program ended with an error, or printed something else than its figures."""


@attrs.frozen
class Recorder:
    """Records benchmarks.

    Attributes:
        runs: how many runs a result has.
        results: the folder of whole results.
        unfinished: the folder of results that lack runs.
        programs: the folder of the programs.
        again: whether to record what is recorded already.
    """

    runs: int
    results: Path = RESULTS
    unfinished: Path = UNFINISHED
    programs: Path = HERE
    again: bool = False

    def record(self, benchmark: Benchmark, begun: Result) -> None:
        """Run a benchmark until all runs are there; ``begun`` is the result that still has none."""
        if not self.again and self._is_recorded(begun):
            tell(f"{benchmark.name}: recorded already for this commit and these conditions")
            return
        part = self.unfinished / f"{benchmark.name}.json"
        result = read(part) or begun
        if not result.can_go_on_as(begun):
            result = begun
        while len(result.runs) < self.runs:
            tell(f"{benchmark.name}: run {len(result.runs) + 1} of {self.runs}")
            result = result.with_run(run_once(benchmark, begun.arguments, self.programs))
            write(result, self.unfinished)
        tell(f"{benchmark.name}: written to {write(result, self.results).name}")
        part.unlink()

    def _is_recorded(self, begun: Result) -> bool:
        recorded = read(self.results / f"{begun.benchmark}.json")
        return recorded is not None and recorded.can_go_on_as(begun) and len(recorded.runs) >= self.runs


def run_once(benchmark: Benchmark, arguments: tuple[str, ...], programs: Path) -> Run:
    """Call the program once; what it says beside its figures is shown."""
    command = [sys.executable, str(programs / f"{benchmark.program}.py"), "--json", *arguments]
    busy, load = conditions.busy_share(), conditions.load_average()
    with one_core() if benchmark.is_on_one_core else contextlib.nullcontext():
        done = owned.run(command, cwd=programs.parent, stdout=subprocess.PIPE)
    if done.returncode:
        raise BenchmarkFailed(f"{benchmark.name}: exit {done.returncode}\n{done.stdout[-4000:]}")
    try:
        figures = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise BenchmarkFailed(f"{benchmark.name}: no figures in\n{done.stdout[-4000:]}") from None
    return Run(figures, load, conditions.load_average(), busy)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep all processes that are started meanwhile on one core, as ``taskset`` does."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def arguments_of(benchmark: Benchmark, small: bool, rounds: int | None) -> tuple[str, ...]:
    """Return what the program is called with beside ``--json``."""
    if small:
        return benchmark.always + benchmark.small
    if rounds and benchmark.has_rounds:
        return (*benchmark.always, "--rounds", str(rounds))
    return benchmark.always


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", nargs="*", metavar="NAME", help="; ".join(BENCHMARKS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="rounds inside a run, of the programs that have rounds")
    parser.add_argument("--again", action="store_true", help="record also what is recorded already")
    parser.add_argument("--small", action="store_true", help="only see whether all programs work")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    args = parser.parse_args()
    if unknown := set(args.name) - set(BENCHMARKS):
        parser.error(
            f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}"
        )
    if args.runs < 1:
        parser.error("--runs must be at least 1")
    return args


def need_a_commit() -> None:
    """End where figures would belong to no commit, or to code that is not compiled."""
    if changes := conditions.uncommitted():
        sys.exit("commit these changes first, as figures belong to a commit:\n" + "\n".join(changes))
    if not pyflinkstate.compiled:
        sys.exit("the core is not compiled: pip install the package with a C compiler at hand, and no PURE")


def record_all(recorder: Recorder, names: list[str], small: bool, rounds: int | None) -> list[str]:
    """Record benchmarks one after the other; return what went wrong."""
    where = conditions.commit(), conditions.machine(), conditions.versions()
    failures = []
    for name in names:
        benchmark = BENCHMARKS[name]
        arguments = arguments_of(benchmark, small, rounds)
        try:
            recorder.record(benchmark, Result(name, arguments, benchmark.is_on_one_core, *where))
        except BenchmarkFailed as error:
            tell(str(error))
            failures.append(name)
    return failures


def main() -> None:
    args = command_line()
    if args.list:
        print("\n".join(BENCHMARKS))
        return
    recorder = Recorder(args.runs, again=args.again)
    if args.small:
        recorder = Recorder(1, SMALL, SMALL / "unfinished", again=True)
    else:
        need_a_commit()
    failures = record_all(recorder, args.name or list(BENCHMARKS), args.small, args.rounds)
    drawing = ["--results", str(SMALL), "--into", str(SMALL / "drawn")] if args.small else []
    subprocess.run([sys.executable, str(HERE / "draw.py"), *drawing], check=True)
    if failures:
        sys.exit(f"not recorded: {', '.join(failures)}")


if __name__ == "__main__":
    main()
