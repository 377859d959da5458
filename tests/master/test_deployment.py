"""Which state the slots of a restored job are given, where keys had another hash when it was written."""

from __future__ import annotations

import pytest

from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.backends.format.metadata import FIRST_KEY_HASH, CheckpointMetadata, OperatorState
from pyflinkstate.backends.format.state_handles import (
    RAW_KEYED_STATE,
    ByteStreamStateHandle,
    KeyGroupsStateHandle,
    OperatorSubtaskState,
    Section,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.errors import IncompatibleCheckpointError
from pyflinkstate.runtime.master import RestorePoint
from pyflinkstate.runtime.master.deployment import Deployments, fit
from pyflinkstate.runtime.plan.job_plan import JobPlan, SettledOperator
from pyflinkstate.runtime.plan.nodes import SourceNode, StatefulNode
from pyflinkstate.runtime.sources.sources import CollectionSource
from pyflinkstate.runtime.wire.messages import SlotId

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


def handle(subtask: int, name: str) -> KeyGroupsStateHandle:
    """What one of two subtasks wrote in an earlier release."""
    return KeyGroupsStateHandle(
        key_group_range(128, 2, subtask),
        ByteStreamStateHandle(b"x"),
        {name: {64 * subtask: Section(0, 1, 0)}},
        key_hash_version=FIRST_KEY_HASH,
    )


def metadata(*, raw: bool = False) -> CheckpointMetadata:
    subtasks = tuple(
        OperatorSubtaskState(
            handle(subtask, "count"), raw_keyed=handle(subtask, RAW_KEYED_STATE) if raw else None
        )
        for subtask in range(2)
    )
    return CheckpointMetadata(1, "0" * 32, "job", 1, None, {}, 0, (OperatorState("sums", 2, 128, subtasks),))


def plan(key_type: TypeInformation) -> JobPlan:
    source = SourceNode(CollectionSource([]), "source")
    node = StatefulNode(source, lambda value: value, key_type, function=print, name="sums")
    return JobPlan(source, (), (SettledOperator("sums", "sums", node, 4, 128, False),))


def assigned(key_type: TypeInformation) -> list[int]:
    """How many files each of four slots reads."""
    deployments = Deployments(plan(key_type), HashMapStateBackend(), None, False, None)
    deployments.begin_attempt(0, 1, RestorePoint(metadata(), "uri"))
    return [len(deployments.of(SlotId("sums", subtask)).state.managed_keyed) for subtask in range(4)]


def test_each_slot_reads_all_state_whose_keys_lie_elsewhere_now() -> None:
    assert assigned(PAIR) == [2, 2, 2, 2]
    assert assigned(Types.STRING()) == [1, 1, 1, 1]


def test_raw_keyed_state_that_would_have_to_be_spread_anew_is_refused() -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"'sums' has raw keyed state, and keys of TUPLE"):
        fit(plan(PAIR), "job", metadata(raw=True), False)


@pytest.mark.parametrize(("raw", "key_type"), [(False, PAIR), (True, Types.STRING())], ids=str)
def test_all_other_state_fits(raw: bool, key_type: TypeInformation) -> None:
    program = plan(key_type)
    assert fit(program, "job", metadata(raw=raw), False).operators == program.operators
