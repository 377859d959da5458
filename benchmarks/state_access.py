"""Reading a checkpoint: one key, all entries as Arrow, and the difference of two checkpoints.

    python benchmarks/state_access.py [--json] [--entries N] [--changes N]

A state of 5 million entries (str -> int) in 128 key groups, in a full checkpoint of one subtask, and a second
checkpoint in which 100 keys differ. Each figure is of a process of its own, after its imports.

    one_key_s                open the checkpoint and read one key (mark: 0.5 s)
    one_key_read_share       the share of the state file that was read for it (mark: 0.02)
    to_arrow_entries_per_s   all entries as an Arrow table (mark: 2 million)
    diff_s                   all differences of the two (mark: 15 s)
    diff_peak_mb             the most memory of that process (mark: 600 MB)

Beside each time there is the processor time of the process, ``*_cpu_s``, which tells more on a busy machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pyflinkstate.api import StateKind, Types
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    CheckpointMetadata,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorSubtaskState,
    SectionWriter,
    StateFileHead,
)
from pyflinkstate.backends.key_groups import key_groups_of_strings
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.state_access import diff, open_checkpoint

# pyarrow imports pandas, if it is there, when it converts something for the first time.
pa.array(np.arange(1))

JOB_ID, KEY_GROUPS, UID, STATE = 32 * "0", 128, "counts", "count"


def main() -> None:
    """Write the checkpoints, measure, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--entries", type=int, default=5_000_000)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        print(json.dumps(_MEASURES[chosen.measure[0]](*chosen.measure[1:])))
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = write_checkpoints(folder, chosen.entries, chosen.changes)
        found: dict[str, float] = {}
        for name in _MEASURES:
            found |= measured(name, paths)
    if chosen.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:26} {value:,.4g}")


def measured(name: str, paths: list[str]) -> dict[str, float]:
    """Return the figures of one measure, taken in a new process."""
    command = [sys.executable, __file__, "--measure", name, *paths]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


# --- measures ------------------------------------------------------------------------------------------


def one_key(path: str, _: str) -> dict[str, float]:
    """Read one key."""
    wall, cpu = time.perf_counter(), time.process_time()
    checkpoint = open_checkpoint(path)
    rows = checkpoint.keyed(UID, ["key-0000007"]).to_arrow()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert rows.to_pylist() == [{"key": "key-0000007", "count": _count(7)}]
    size = checkpoint.operators()[0].size_bytes
    return {"one_key_s": wall, "one_key_cpu_s": cpu, "one_key_read_share": checkpoint.bytes_read / size}


def to_arrow(path: str, _: str) -> dict[str, float]:
    """Read all entries."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = open_checkpoint(path).keyed(UID).to_arrow().num_rows
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"to_arrow_entries_per_s": count / wall, "to_arrow_entries_per_cpu_s": count / cpu}


def difference(path: str, other: str) -> dict[str, float]:
    """Compare the two."""
    wall, cpu = time.perf_counter(), time.process_time()
    (found,) = diff(path, other)
    changed = sum(batch.num_rows for batch in found.table.to_batches())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak_mb = _peak_kb() / 1024
    return {"diff_s": wall, "diff_cpu_s": cpu, "diff_peak_mb": peak_mb, "diff_rows": changed}


def _peak_kb() -> int:
    """Return the most memory of this program; ``ru_maxrss`` would count that of the parent before it, too."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


_MEASURES: dict[str, Any] = {"one_key": one_key, "to_arrow": to_arrow, "diff": difference}


# --- checkpoints ---------------------------------------------------------------------------------------


def write_checkpoints(folder: str, entries: int, changes: int) -> list[str]:
    """Write the two checkpoints; return their paths."""
    keys = [f"key-{number:07}" for number in range(entries)]
    groups = np.array(key_groups_of_strings(keys, KEY_GROUPS))
    order = np.argsort(groups, kind="stable")
    rows = pa.record_batch(
        [pa.array(keys, pa.large_string()), pa.array(_count(np.arange(entries)))], ["key", "value"]
    ).take(pa.array(order))
    bounds = np.searchsorted(groups[order], np.arange(KEY_GROUPS + 1))
    changed = rows.column("value").to_numpy(zero_copy_only=False).copy()
    changed[np.linspace(0, entries - 1, changes).astype(int)] += 1
    other = pa.record_batch([rows.column("key"), pa.array(changed)], ["key", "value"])
    return [_write(folder, n, batch, bounds) for n, batch in enumerate((rows, other), 1)]


def _count(number: Any) -> Any:
    return number * 7_919 % 1_000_003


def _write(folder: str, checkpoint_id: int, rows: pa.RecordBatch, bounds: Any) -> str:
    storage = CheckpointFolders(folder)
    path = storage.begin(JOB_ID, checkpoint_id)
    meta = RegisteredStateMeta(STATE, StateKind.VALUE, Types.LONG())
    head = StateFileHead(Types.STRING(), KeyGroupRange(0, KEY_GROUPS - 1), KEY_GROUPS, (meta,))
    codec = head.codec(meta)
    writer = SectionWriter(storage.streams(path).create(), threading.Event())
    writer.append(head.encode())
    writer.append(codec.schema_message)
    sections = {}
    for key_group, (begin, end) in enumerate(itertools.pairwise(bounds)):
        if end > begin:
            batch = pa.record_batch(rows.slice(begin, end - begin).columns, schema=codec.schema)
            sections[key_group] = writer.append_section(codec.message(batch))
    writer.append(END_OF_STREAM)
    handle = KeyGroupsStateHandle(head.key_group_range, writer.close(), {STATE: sections})
    operator = OperatorState(UID, 1, KEY_GROUPS, (OperatorSubtaskState(handle),))
    metadata = CheckpointMetadata(checkpoint_id, JOB_ID, "benchmark", checkpoint_id, None, {}, 0, (operator,))
    storage.complete(metadata)
    return str(Path(path))


if __name__ == "__main__":
    main()
