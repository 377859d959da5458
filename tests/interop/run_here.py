"""Runs ``interop_program.py`` here: ``LINES OUTPUT MODE PARALLELISM SESSIONS SAVEPOINT CHECKPOINTS``.

If MODE is ``continue``, the job starts from the SAVEPOINT of Flink, which is converted, and reads the lines
to their end. Otherwise MODE is a format of Flink's savepoints. The lines are one epoch, and the last of them
again is another one, so the first checkpoint has the state after the lines, before the end of the input. It
is written as a SAVEPOINT of Flink. CHECKPOINTS is a folder for the job's own.
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
    lines: str, is_continued: bool, parallelism: str, sessions: str, checkpoints: str
) -> tuple[StreamExecutionEnvironment, DataStream]:
    """Return the program, without a sink."""
    records = [line for line in Path(lines).read_text().splitlines() if not line.startswith("w,")]
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(int(parallelism)).set_max_parallelism(128)
    env.enable_checkpointing(0, storage=checkpoints, num_retained=2)
    strategy = WatermarkStrategy.no_watermarks()
    if not is_continued:
        # It makes due what Lines.java's watermark at the end of the lines makes due, and no more.
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(1500))
    read = env.from_collection(
        records if is_continued else [*records, records[-1]], records_per_epoch=len(records)
    )
    timed = read.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Timestamps()))
    return env, build(timed, with_sessions=sessions == "True")


def main(lines: str, output: str, mode: str, *settings: str) -> None:
    """Run the job to its end."""
    parallelism, sessions, savepoint, checkpoints = settings
    arguments = lines, mode == "continue", parallelism, sessions, checkpoints
    env, written = built(*arguments)
    program, same = built(*arguments)
    same.print()
    if mode == "continue":
        convert_savepoint(savepoint, f"{output}-savepoint", program=program)
        env.restore_from(f"{output}-savepoint")
    with written.execute_and_collect() as results, Path(output).open("w") as file:
        file.writelines(f"{line}\n" for line in results)
    if mode != "continue":
        (first,) = Path(checkpoints).glob("*/chk-1")
        convert_savepoint(first, savepoint, mode, program=program)


if __name__ == "__main__":
    main(*sys.argv[1:])
