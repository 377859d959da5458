"""What the command lines of the examples share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyflinkstate.datastream import StreamExecutionEnvironment


def parse(description: str, *, takes_input: bool = True) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=description)
    if takes_input:
        parser.add_argument("--input", help="a directory of invoices as CSV files; without it, a sample")
        parser.add_argument("--days", type=int, help="read only the first so many files")
    parser.add_argument("--parallelism", type=int, help="how many subtasks a keyed operator has")
    parser.add_argument("--checkpoint-dir", help="take checkpoints, below this directory")
    parser.add_argument("--restore", metavar="latest|PATH", help="a checkpoint or savepoint to start from")
    return parser.parse_args()


def environment(args: argparse.Namespace) -> StreamExecutionEnvironment:
    """Return an environment that is set up as the options say."""
    from pyflinkstate.datastream import StreamExecutionEnvironment  # not in state slots, which need no Spark

    env = StreamExecutionEnvironment.get_execution_environment()
    if args.parallelism is not None:
        env.set_parallelism(args.parallelism)
    if args.checkpoint_dir is not None:
        env.enable_checkpointing(1000, args.checkpoint_dir)
    if args.restore is not None:
        env.restore_from(args.restore)
    return env
