"""A program that a supervisor starts again and again: it numbers the lines of files, an epoch for each file.

    python supervised_program.py FOLDER RESTORE [dies | upgraded]

``FOLDER`` has the files in ``in``, and gets everything else. ``RESTORE`` is what it starts from: a savepoint,
or ``latest``, which is the beginning if there is no checkpoint. It prints the address of its page, and a line
for each checkpoint. One that ``dies`` is killed when it has run an epoch, before the checkpoint of that. The
``upgraded`` program has another parallelism, and a function more.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflinkstate import (
    CheckpointStats,
    EpochStats,
    FileSink,
    JobListener,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import CheckpointNotFoundError


class Number(KeyedProcessFunction):
    """Emits each line with the number of lines of its key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Iterator[str]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value} {count}"


class Tells(JobListener):
    """Prints checkpoints."""

    def on_epoch(self, stats: EpochStats) -> None:
        if sys.argv[3:] == ["dies"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        print("savepoint" if stats.is_savepoint else "checkpoint", stats.epoch, flush=True)

    def on_checkpoint_failed(self, stats: CheckpointStats) -> None:
        print("failed", stats.epoch, flush=True)


def main() -> None:
    folder, restore, is_upgraded = Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["upgraded"]
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(3 if is_upgraded else 2)
    env.enable_checkpointing(0, folder / "checkpoints")
    env.set_default_savepoint_directory(folder / "savepoints")
    env.enable_web_page(token_file=folder / "token")
    env.add_listener(Tells())
    lines = env.from_files(folder / "in", "text", files_per_epoch=1)
    lines = lines.map(str.strip) if is_upgraded else lines
    numbered = lines.key_by(lambda line: int(line) % 7, key_type=Types.LONG()).process(Number())
    numbered.uid("number").sink_to(FileSink(folder / "out"))
    print(env.get_web_page_address(), flush=True)
    env.restore_from(restore)
    try:
        env.execute("supervised")
    except CheckpointNotFoundError:
        env.restore_from(None)
        env.execute("supervised")


if __name__ == "__main__":
    main()
