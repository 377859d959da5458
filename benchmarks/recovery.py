"""How fast a job with millions of keys is back, and how much of a checkpoint a rescaled subtask reads.

    python benchmarks/recovery.py [--json] [--keys N]

* ``first_output_s``: from SIGKILL of a state slot until the next epoch's output is committed; the restart's
  own delay is none. All slots start anew and read their state from the last checkpoint.
* ``restore_entries_per_s``: what one process restores from local files, 4 subtasks one after the other.
* ``rescale_read_ratio``: 4 subtasks' state restored by 3; bytes read against bytes of state.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from typing import Any

import attrs
import epoch_cost
from epoch_cost import PARTITIONS, PacedJob
from local_session import local_session, tell

from pyflinkstate import HashMapStateBackend, RestartStrategies, StreamExecutionEnvironment, Types
from pyflinkstate.backends.heap.backend import HeapRestoreOperation
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.runtime.storage.checkpoints import load_checkpoint
from pyflinkstate.runtime.storage.streams import CheckpointFolder, open_folder


@attrs.define
class CountingReader:
    """Reads a checkpoint and counts the bytes."""

    folder: CheckpointFolder
    bytes_read: int = 0

    def read(self, handle: Any, offset: int, length: int) -> bytes:
        self.bytes_read += length
        return self.folder.read(handle, offset, length)

    def describe(self, handle: Any) -> str:
        return self.folder.describe(handle)


def first_output_s(keys: int, directory: str) -> float:
    """Return the seconds from killing a slot until output flows again."""
    job = PacedJob(SESSION, keys, 1_000, directory, RestartStrategies.fixed_delay_restart(3, 0))
    for _ in range(3):
        job.epoch()
    victim = next(iter(job.client.slot_pids().values()))
    started = time.perf_counter()
    os.kill(victim, signal.SIGKILL)
    job.epoch()
    seconds = time.perf_counter() - started
    job.end()
    return seconds


def checkpoint_of_four(keys: int, directory: str) -> str:
    """Return a checkpoint of ``keys`` keys in 4 subtasks."""
    env = StreamExecutionEnvironment(SESSION).set_parallelism(4)
    env.enable_checkpointing(0, directory)
    numbers = SESSION.sparkContext.range(keys, numSlices=PARTITIONS)
    stream = env.from_rdd(numbers.map(lambda i: f"customer-{i}"))
    stream.key_by(lambda key: key, key_type=Types.STRING()).process(epoch_cost.Count()).sink_to(
        epoch_cost.Discard()
    )
    uri = env.execute("four").checkpoints[-1].uri
    assert uri is not None
    return uri


def restored(uri: str, parallelism: int) -> tuple[float, int, int]:
    """Restore all subtasks, one after the other; return seconds, entries and bytes read."""
    metadata, folder = load_checkpoint(uri)
    operator = metadata.operators[0]
    reader = CountingReader(open_folder(folder))
    seconds, entries = 0.0, 0
    for subtask, state in enumerate(assign_state(operator.subtasks, parallelism, operator.max_parallelism)):
        owned = key_group_range(operator.max_parallelism, parallelism, subtask)
        backend = HashMapStateBackend().create_keyed_state_backend(
            Types.STRING(), owned, operator.max_parallelism, lambda: 0
        )
        started = time.perf_counter()
        HeapRestoreOperation(backend, reader).restore(state.managed_keyed)
        seconds += time.perf_counter() - started
        entries += backend.num_key_value_state_entries()
    return seconds, entries, reader.bytes_read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keys", type=int, default=2_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        first = first_output_s(args.keys, f"{directory}/killed")
        uri = checkpoint_of_four(args.keys, f"{directory}/four")
        metadata, _ = load_checkpoint(uri)
        state_bytes = sum(subtask.size_bytes for subtask in metadata.operators[0].subtasks)
        seconds, entries, _ = restored(uri, 4)
        _, rescaled_entries, bytes_read = restored(uri, 3)
    if not entries == rescaled_entries == args.keys:
        raise AssertionError(f"restored {entries} and {rescaled_entries} of {args.keys} entries")
    figures = {
        "first_output_s": round(first, 2),
        "restore_entries_per_s": round(entries / seconds),
        "rescale_read_ratio": round(bytes_read / state_bytes, 4),
    }
    tell(figures, args.json)


if __name__ == "__main__":
    # Workers import the function from beside this file.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
    SESSION = local_session(PARTITIONS)
    main()
