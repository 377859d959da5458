"""Many fresh histories of the simulated runtime; see ``tests/simulation/simulation.py``.

    python tests/soak/soak_simulation.py [--engine PIPELINED] [--histories 100000] [--first SEED]
        [--focus NAME] [--at-once CORES]

Each kind of trouble has the same number of histories, and so have those with any trouble. The program prints
how many histories of each kind take a second of CPU time, and what happened in them. At the first history
that goes wrong it ends with 1, and says how to run that one again.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from simulation_focuses import NAMES_BY_ENGINE, make_history, replay_line

#: How many histories a process runs before it reports.
AT_A_TIME = 20
HISTORIES = 100_000


@attrs.define
class Report:
    """What has become of some histories of one name."""

    name: str
    histories: int = 0
    #: CPU time.
    seconds: float = 0.0
    #: How many of what happened, and of which faults struck.
    happened: Counter[str] = attrs.Factory(Counter)
    #: What went wrong, and how to run it again.
    failure: str | None = None

    def add(self, other: Report) -> None:
        """Add what has become of others."""
        self.histories += other.histories
        self.seconds += other.seconds
        self.happened += other.happened

    def __str__(self) -> str:
        rate = self.histories / max(self.seconds, 0.001)
        happened = ", ".join(f"{what} {times}" for what, times in sorted(self.happened.items()))
        return f"{self.name}: {self.histories} histories, {rate:.1f} a second of CPU time: {happened}"


def run_some(name: str, first: int, histories: int) -> Report:
    """Run histories one after the other, up to the first that goes wrong."""
    report, began_s = Report(name), time.process_time()
    for seed in range(first, first + histories):
        history = make_history(name, seed)
        try:
            history.run()
        except BaseException:  # noqa: BLE001 - whatever it is, it is what went wrong
            report.failure = (
                f"{traceback.format_exc()}\n{name!r}, seed {seed}, goes wrong. To run it again:\n"
                f"{replay_line(name, seed)}"
            )
            break
        report.histories += 1
        report.happened += history.notes + history.chaos.struck
    report.seconds = time.process_time() - began_s
    return report


def prepare() -> None:
    """Prepare a process: Ctrl-C is for the one that waits for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)


def processes(at_once: int) -> Executor:
    """Return processes that run histories."""
    return ProcessPoolExecutor(at_once, get_context("spawn"), prepare)


def submitted(pool: Executor, names: Sequence[str], first: int, histories: int) -> list[Future[Report]]:
    """Let the pool run so many histories, of all names in turn."""
    each = -(-histories // len(names))
    return [
        pool.submit(run_some, name, first + begin, min(AT_A_TIME, each - begin))
        for begin in range(0, each, AT_A_TIME)
        for name in names
    ]


def collect(futures: list[Future[Report]], names: Sequence[str]) -> str | None:
    """Print what comes of all histories; return the first failure, if there is one."""
    totals, began_s = {name: Report(name) for name in names}, time.perf_counter()
    failure = None
    for number, future in enumerate(as_completed(futures), start=1):
        report = future.result()
        totals[report.name].add(report)
        failure = report.failure
        if failure is not None:
            break
        if number % (10 * len(names)) == 0:
            print(f"{number} of {len(futures)} parts are done", flush=True)
    for total in totals.values():
        print(total)
    done = sum(total.histories for total in totals.values())
    print(f"{done} histories, {done / (time.perf_counter() - began_s):.1f}/s", flush=True)
    return failure


def main(arguments: list[str] | None = None, make_pool: Callable[[int], Executor] = processes) -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", choices=NAMES_BY_ENGINE, default="STAGES", help="what runs the jobs")
    parser.add_argument("--histories", type=int, default=HISTORIES)
    parser.add_argument("--first", type=int, default=secrets.randbelow(2**40), help="the first seed of each")
    parser.add_argument("--focus", help="only histories of this name")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="how many processes")
    args = parser.parse_args(arguments)
    names = NAMES_BY_ENGINE[args.engine]
    if args.focus is not None:
        if args.focus not in names:
            parser.error(f"--focus is one of {', '.join(map(repr, names))}")
        names = (args.focus,)
    print(f"{args.histories} histories, from seed {args.first}, {args.at_once} at once", flush=True)
    pool = make_pool(args.at_once)
    try:
        failure = collect(submitted(pool, names, args.first, args.histories), names)
    except KeyboardInterrupt:
        failure = "it was interrupted"
    except BrokenProcessPool as error:
        failure = f"a process has died: {error}"
    finally:
        pool.shutdown(cancel_futures=True)
    print("OK" if failure is None else failure, flush=True)
    return failure is not None


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # its processes end with it
        signal.signal(number, signal.default_int_handler)
    sys.exit(main())
