"""Runs random programs on this package, for a comparison with PyFlink's answers to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from event_time_functions import Third
from program_interpreter import outputs_of, tagged
from random_programs import Program, in_order, program_of

from pyflinkstate import Duration, StreamExecutionEnvironment, WatermarkStrategy

#: Written by ``scripts/record_pyflink_answers.py``.
ANSWERS = Path(__file__).with_name("pyflink_answers.jsonl.gz")
SEEDS = [seed for seed in range(501) if seed != 264]  # there, the order of two inputs decides on a sum
#: The interval of checkpoints: an epoch is no reason for one.
SELDOM_MS = 1_000_000_000


@cache
def answers() -> list[Any]:
    """Return PyFlink's outputs for each seed."""
    with gzip.open(ANSWERS, "rt") as file:
        return [json.loads(line) for line in file]


def found_for(
    env: StreamExecutionEnvironment, seeds: Iterable[int], folder: Path
) -> dict[int, dict[str, list[list[int]]]]:
    """Run the programs of some seeds in one job, and return the outputs of each.

    If each record is followed by its watermark, each is an epoch, at whose end there are watermarks.
    """
    env.enable_checkpointing(SELDOM_MS, str(folder))
    programs = [program_of(seed) for seed in seeds]
    found: dict[int, dict[str, list[list[int]]]] = {}
    streams: list[Any] = []
    for program in programs:
        outputs: Any = outputs_of(_records(env, program), program)
        found[program["seed"]] = {name: [] for name in outputs}
        streams.append(tagged(outputs, program["seed"]))
    with streams[0].union(*streams[1:]).execute_and_collect() as results:
        for seed, name, record in results:
            found[seed][name].append(record)
    return {program["seed"]: in_order(program, found[program["seed"]]) for program in programs}


def _records(env: StreamExecutionEnvironment, program: Program) -> Any:
    when, delay = program["watermarks"]
    records = [tuple(record) for record in program["records"]]
    stream = env.from_collection(records, records_per_epoch=1 if when == "each" else len(records))
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(delay))
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Third()))
