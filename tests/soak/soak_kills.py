"""Kill rounds, many of them; see ``tests/support/kill_rounds.py``.

    python tests/soak/soak_kills.py [--rounds 200] [--first 1000] [--at-once 1] [--target kafka]
        [--engine PIPELINED] [--backend rocksdb]

Round ``n`` has seed ``--first + n``, so ``--rounds 1 --first SEED`` is one round again: the same troubles in
the same order, at about the same moments. Every fifth seed runs on ``local-cluster``, with executors that are
killed as well. With ``--backend rocksdb`` a disk fills up in another fifth, as root. What a round has written
that failed is kept, and its folder is named.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import attrs

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from kill_rounds import CLUSTER_KINDS, LOCAL_KINDS, KillRound, Outcome, Plan, kind_of
from killed_connectors import TARGETS
from processes import make_archive

CLUSTER_EVERY = 5
#: Rounds between two summaries.
TELL_EVERY = 20


@attrs.define
class Summary:
    """The figures of all rounds so far, and of those with each kind of trouble."""

    rounds: Counter[str] = attrs.Factory(Counter)
    failed: Counter[str] = attrs.Factory(Counter)
    totals: Counter[str] = attrs.Factory(Counter)
    seconds: float = 0.0

    def add(self, kinds: list[str], outcome: Outcome, seconds: float) -> None:
        self.rounds.update(["all", *kinds])
        self.failed.update(["all", *kinds] if outcome.problems() else [])
        self.totals.update(lost=outcome.lost, doubled=outcome.doubled, hangs=int(outcome.hang is not None))
        self.totals.update(left=len(outcome.left), strange=len(outcome.strange))
        self.seconds += seconds

    def __str__(self) -> str:
        figures = ", ".join(f"{self.totals[name]} {name}" for name in ("lost", "doubled", "hangs", "left"))
        kinds = [f"{kind} {self.rounds[kind]}" for kind in sorted(self.rounds) if kind != "all"]
        failed = [f"{kind} {count}" for kind, count in sorted(self.failed.items()) if kind != "all"]
        return (
            f"{self.rounds['all']} rounds, {self.failed['all']} failed: {figures}, "
            f"{self.totals['strange']} drivers that ended by themselves; "
            f"{self.seconds / max(1, self.rounds['all']):.0f} s a round; rounds with: {', '.join(kinds)}"
            + (f"; failed with: {', '.join(failed)}" if failed else "")
        )


def run_one(
    seed: int,
    archive: Path | None,
    target: str | None = None,
    engine: str = "STAGES",
    backend: str = "hashmap",
) -> tuple[KillRound, Outcome, float]:
    """Run a round and say how it went."""
    is_cluster = seed % CLUSTER_EVERY == 0
    plan = Plan.drawn(seed, CLUSTER_KINDS if is_cluster else LOCAL_KINDS)
    if target is not None:
        plan = plan.into(target, seed)
    if backend == "rocksdb":
        plan = plan.on_disk(seed)
    if engine != "STAGES":
        plan = attrs.evolve(plan, engine=engine, is_dataframe=False)
    folder = Path(tempfile.mkdtemp(prefix=f"kill-round-{seed}-"))
    master = "local-cluster[2,1,1024]" if is_cluster else "local[2]"
    with TARGETS[target].serve() if target else nullcontext() as server:
        this = KillRound(seed, folder, master, plan, archive=archive, server=server)
        started = time.monotonic()
        outcome = this.run()
    seconds = time.monotonic() - started
    problems = outcome.problems()
    word, (silence_s, before) = "FAILED" if problems else "OK", this.longest_silence
    print(
        f"seed {seed}, {master}: {word} after {seconds:.0f} s (longest silence {silence_s:.0f} s, before "
        f"{before[:60]!r}): {', '.join(this.troubles())}",
        flush=True,
    )
    if problems:
        lines = [*problems, *this.log, f"kept: {folder}"]
        print("\n".join(f"    {line}" for line in lines), flush=True)
    else:
        shutil.rmtree(folder)
    return this, outcome, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1000, metavar="SEED")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--target", choices=TARGETS, help="write into a connector's target, and not files")
    parser.add_argument("--engine", choices=["STAGES", "PIPELINED"], default="STAGES")
    parser.add_argument("--backend", choices=["hashmap", "rocksdb"], default="hashmap")
    args = parser.parse_args()
    summary, seeds = Summary(), range(args.first, args.first + args.rounds)
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(args.at_once) as pool:
        archive = Path(directory, "spark.jsa")
        make_archive(archive, Path(directory))
        one = partial(run_one, archive=archive, target=args.target, engine=args.engine, backend=args.backend)
        for this, outcome, seconds in pool.map(one, seeds):
            summary.add(sorted(set(map(kind_of, this.troubles()))), outcome, seconds)
            if summary.rounds["all"] % TELL_EVERY == 0 or summary.rounds["all"] == args.rounds:
                print(summary, flush=True)
    sys.exit(1 if summary.failed["all"] else 0)


if __name__ == "__main__":
    main()
