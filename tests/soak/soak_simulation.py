"""More histories of the simulated runtime; see ``tests/simulation/simulation.py``.

    python tests/soak/soak_simulation.py [--histories 10000] [--first 10000]

The program ends with 1 at the first history that goes wrong, and names its seed.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from simulation import Simulation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=10_000)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for seed in range(args.first, args.first + args.histories):
        try:
            Simulation(seed).run()
        except BaseException:
            print(f"seed {seed} goes wrong", flush=True)
            raise
    print(f"{args.histories} histories: OK")


if __name__ == "__main__":
    main()
