"""What is printed of a checkpoint and of all that reads it fits on a screen."""

from __future__ import annotations

from typing import Any

import pytest
from read_support import UID, filled, in_memory, metadata_of, operator_of

from pyflinkstate import CheckpointStats, JobExecutionResult
from pyflinkstate.state_access import Checkpoint, KeyHistory, Moment, Verification, diff, edit
from pyflinkstate.state_access.writing import DryRun, Mismatch

#: 80 columns and 24 lines.
SCREEN = 80 * 24
MANY = [f"name number {number}" for number in range(1_000)]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    """Five states with something in every key group, in each of many operators."""
    subtasks = filled(range(500)).operator(UID).subtasks
    metadata = metadata_of([operator_of(subtasks, uid) for uid in (UID, *MANY)])
    source = [{"path": name, "offset": 1} for name in MANY]
    counts = dict.fromkeys(MANY, 1)
    object.__setattr__(metadata, "source_position", source)
    object.__setattr__(metadata, "counters", counts)
    return in_memory(metadata)


def shown(checkpoint: Checkpoint) -> list[Any]:
    """Return an object of each kind that programs print."""
    table = checkpoint.keyed(UID)
    moments = tuple(Moment(number, number, number, table) for number in range(100))
    stats = tuple(CheckpointStats(number, number, uri=f"/checkpoints/chk-{number}") for number in range(100))
    return [
        checkpoint,
        checkpoint.metadata,
        checkpoint.operator(UID),
        checkpoint.operators()[0],
        checkpoint.states(UID)[0],
        checkpoint.offsets(),
        checkpoint.keyed_state(UID),
        table,
        checkpoint.entries(UID, "value"),
        table.parts(2)[0],
        moments[0],
        KeyHistory(moments),
        diff(checkpoint, checkpoint, UID)[0],
        Verification(MANY, 1, 1, MANY, MANY),
        DryRun(tuple(Mismatch(name, None, "it does not fit") for name in MANY), tuple(MANY), tuple(MANY)),
        edit(checkpoint),
        JobExecutionResult("0" * 32, dict.fromkeys(MANY, 1), (), stats, 1, 0),
    ]


def test_whatever_is_printed_fits_on_a_screen(checkpoint: Checkpoint) -> None:
    lengths = [(type(one).__name__, len(repr(one))) for one in shown(checkpoint)]
    assert [(name, length) for name, length in lengths if length > SCREEN] == []


def test_a_checkpoint_says_where_it_is_and_of_which_job(checkpoint: Checkpoint) -> None:
    text = str(checkpoint)
    assert text.startswith("Checkpoint(metadata=<checkpoint 1 of job 'job', epoch 1, operators ['op', ")
    assert "uri='memory'" in text


def test_a_table_says_its_columns(checkpoint: Checkpoint) -> None:
    assert repr(checkpoint.entries(UID, "value")).startswith(
        "StateTable(columns={'key': 'large_string', 'value': 'int64'}"
    )
