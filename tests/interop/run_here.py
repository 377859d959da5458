"""Runs ``interop_program.py`` here, on Spark: ``run_here.py LINES OUTPUT PARALLELISM SESSIONS FROM|- CHECKPOINTS``.

FROM is a savepoint of Flink, from which the job starts once it is converted into a folder beside the output.
CHECKPOINTS is the folder of the job's checkpoints. Lines that end with a watermark are one epoch, and the last of
them again is another one: the first checkpoint has the state after the lines, before the end of the input.
"""

from __future__ import annotations

import sys
from pathlib import Path

from interop_program import build

from pyflinkstate import StreamExecutionEnvironment
from pyflinkstate.common import Duration, TimestampAssigner, WatermarkStrategy
from pyflinkstate.datastream import DataStream
from pyflinkstate.state_access import convert_savepoint


class Timestamps(TimestampAssigner):
    """A line begins with its timestamp."""

    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return int(value.split(",", 1)[0])


def built(
    lines: str, parallelism: str, sessions: str, checkpoints: str
) -> tuple[StreamExecutionEnvironment, DataStream]:
    """Return the program, without a sink."""
    records = [line for line in Path(lines).read_text().splitlines() if not line.startswith("w,")]
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(int(parallelism)).set_max_parallelism(128)
    env.enable_checkpointing(0, storage=checkpoints, num_retained=10)
    strategy = WatermarkStrategy.no_watermarks()
    epoch = len(records)
    if any(line.startswith("w,") for line in Path(lines).read_text().splitlines()):
        # Behind the first part's last record by less than the distance of all that is due from it.
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1500))
        records.append(records[-1])
    read = env.from_collection(records, records_per_epoch=epoch)
    timed = read.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Timestamps()))
    return env, build(timed, with_sessions=sessions == "True")


def main(lines: str, output: str, parallelism: str, sessions: str, given: str, checkpoints: str) -> None:
    """Run the job to its end."""
    env, written = built(lines, parallelism, sessions, checkpoints)
    if given != "-":
        other, same = built(lines, parallelism, sessions, checkpoints)
        same.print()
        convert_savepoint(given, f"{output}-savepoint", program=other)
        env.restore_from(f"{output}-savepoint")
    with written.execute_and_collect() as results, Path(output).open("w") as file:
        file.writelines(f"{line}\n" for line in results)


if __name__ == "__main__":
    main(*sys.argv[1:])
