"""The states of a program: each of its functions is opened once, without state, to see what it asks for."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.api import ListTypeInfo, StateKind, TypeInformation
from pyflinkstate.backends.format import CheckpointMetadata, MemoryCheckpoint
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.types import RegisteredOperatorStateMeta, RegisteredStateMeta, StateMeta, sealed
from pyflinkstate.runtime.plan import JobPlan, SettledOperator
from pyflinkstate.runtime.program import type_of
from pyflinkstate.state_access.keyed_state import sealed_meta
from pyflinkstate.state_access.writing import open_operator


@attrs.frozen
class ProgramOperator:
    """An operator of a program.

    Attributes:
        key_type: the declared type of its keys.
        states: its keyed states and timer queues by name, with pickles sealed.
        operator_states: its operator states by name, with pickles sealed.
        record_type: the declared type of the records of its first input.
    """

    key_type: TypeInformation
    states: dict[str, StateMeta]
    operator_states: dict[str, RegisteredOperatorStateMeta]
    record_type: TypeInformation

    def in_flink(self, meta: RegisteredStateMeta) -> RegisteredStateMeta:
        """Return the state that the program has in Flink for one that it has here.

        In Flink, windows keep records in their declared type; here they are pickled.
        """
        if meta.name != WINDOW_CONTENTS:
            return meta
        stored = meta.stored_type if meta.kind is StateKind.AGGREGATING else sealed(self.record_type)
        return attrs.evolve(meta, stored_type=ListTypeInfo(stored) if meta.kind is StateKind.LIST else stored)


WINDOW_CONTENTS = "window-contents"


@attrs.frozen(kw_only=True)
class _Watched(HashMapStateBackend):
    """Remembers the backends that it has created."""

    keyed: list[HeapKeyedStateBackend] = attrs.field(factory=list)
    of_operators: list[DefaultOperatorStateBackend] = attrs.field(factory=list)

    def create_keyed_state_backend(
        self,
        key_type: TypeInformation,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        clock: Callable[[], int],
    ) -> HeapKeyedStateBackend:
        self.keyed.append(
            super().create_keyed_state_backend(key_type, key_group_range, max_parallelism, clock)
        )
        return self.keyed[-1]

    def create_operator_state_backend(self) -> DefaultOperatorStateBackend:
        self.of_operators.append(super().create_operator_state_backend())
        return self.of_operators[-1]


def operators_of(plan: JobPlan, metadata: CheckpointMetadata) -> dict[str, ProgramOperator]:
    """Return the operators of a program by uid.

    Args:
        plan: the plan of the program.
        metadata: an empty checkpoint.

    Raises:
        PyFlinkStateError: a function cannot be opened.
    """
    return {one.operator_id: _operator(plan, one, metadata) for one in plan.operators}


def _operator(plan: JobPlan, settled: SettledOperator, metadata: CheckpointMetadata) -> ProgramOperator:
    watched, alone = _Watched(), attrs.evolve(plan, operators=(settled,))
    error = open_operator(alone, settled.operator_id, metadata, MemoryCheckpoint(), watched)
    if error is not None:
        raise error
    return ProgramOperator(
        settled.node.key_type,
        {name: sealed_meta(state.meta) for name, state in watched.keyed[-1].registered().items()},
        {
            name: attrs.evolve(state.meta, stored_type=sealed(state.meta.stored_type))
            for name, state in watched.of_operators[-1].registered_states.items()
        },
        type_of(settled.node.parent),
    )
