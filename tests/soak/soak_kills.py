"""Kill rounds, many of them; see ``tests/spark/kill_rounds.py``.

    python tests/soak/soak_kills.py [--rounds 20] [--seed 1000]

Every other round runs on ``local-cluster``, with executors that are killed as well.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "spark"))

from kill_rounds import KillRound

LOCAL = ("local[2]", ("slot", "worker", "jvm", "driver"))
CLUSTER = ("local-cluster[2,1,1024]", ("executor", "slot", "worker", "jvm", "driver"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1000)
    args = parser.parse_args()
    for number in range(args.rounds):
        master, kinds = (LOCAL, CLUSTER)[number % 2]
        started = time.monotonic()
        with tempfile.TemporaryDirectory() as directory:
            this = KillRound(args.seed + number, Path(directory), master, kinds)
            this.run()
        kills = [line for line in this.log if line.startswith("kill")]
        print(f"seed {this.seed}, {master}: OK after {time.monotonic() - started:.0f} s, {kills}", flush=True)


if __name__ == "__main__":
    main()
