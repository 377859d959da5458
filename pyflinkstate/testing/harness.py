"""Runs one subtask of a keyed operator without Spark, on the real backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.key_groups import key_group_range
from pyflinkstate.backends.operator_state.repartition import assign_state
from pyflinkstate.backends.state_handles import OperatorSubtaskState
from pyflinkstate.runtime.context import OperatorContext
from pyflinkstate.runtime.frames import KeyedFrame
from pyflinkstate.runtime.messages import CheckpointTrigger
from pyflinkstate.runtime.operator_state import StreamOperatorState
from pyflinkstate.runtime.operators import Output
from pyflinkstate.runtime.subtask import KeyedSubtask
from pyflinkstate.testing.memory_checkpoints import MemoryCheckpoint


class KeyedOperatorHarness:
    """One subtask of ``function``, open and ready for records.

    Args:
        function: the operator's.
        key_type: the type of keys; without it, any key.
        state_backend: where state lives.
        clock: gives the time in ms that time to live goes by.
        parallelism: how many subtasks there would be.
        subtask: which of them this is.
        max_parallelism: the number of key groups.
        restore: what the subtasks of an earlier run wrote, in order; at any parallelism.

    >>> from pyflinkstate import ValueStateDescriptor
    >>> class Count(KeyedProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.count = runtime_context.get_state(ValueStateDescriptor("count"))
    ...     def process_element(self, value, ctx):
    ...         self.count.update((self.count.value() or 0) + 1)
    ...         yield ctx.get_current_key(), self.count.value()
    >>> harness = KeyedOperatorHarness(Count())
    >>> harness.process_element("a", 1), harness.process_element("a", 1)
    ([('a', 1)], [('a', 2)])
    >>> KeyedOperatorHarness(Count(), restore=[harness.snapshot()]).process_element("a", 1)
    [('a', 3)]
    """

    def __init__(
        self,
        function: KeyedProcessFunction,
        *,
        key_type: TypeInformation | None = None,
        state_backend: HashMapStateBackend | None = None,
        clock: Callable[[], int] = lambda: 0,
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int = 128,
        restore: Sequence[OperatorSubtaskState] = (),
    ) -> None:
        state_backend = state_backend or HashMapStateBackend()
        owned = key_group_range(max_parallelism, parallelism, subtask)
        self._key_type = key_type or Types.PICKLED_BYTE_ARRAY()
        self.backend = state_backend.create_keyed_state_backend(self._key_type, owned, max_parallelism, clock)
        state = StreamOperatorState(
            self.backend,
            state_backend.create_operator_state_backend(),
            state_backend.snapshot_compression,
            1 if restore else None,
        )
        if restore:
            assignment = assign_state(restore, parallelism, max_parallelism)[subtask]
            state.restore(assignment, MemoryCheckpoint())
        context = OperatorContext(
            type(function).__name__, subtask, parallelism, max_parallelism, 0, self.backend
        )
        self._subtask = KeyedSubtask(function, context, state)
        self._subtask.open()
        self._checkpoints = 0

    def process_element(self, key: Any, value: Any) -> list[Any]:
        """Process one record and return its results."""
        group = np.array([self.backend.key_group_of(key)], dtype="<u2").tobytes()
        output = Output()
        self._subtask.process_frame(KeyedFrame(group, [key], [value]), output)
        return output.values

    def snapshot(self) -> OperatorSubtaskState:
        """Take a snapshot, written to memory."""
        self._checkpoints += 1
        trigger = CheckpointTrigger(self._checkpoints, 0, "memory")
        return self._subtask.snapshot(trigger, MemoryCheckpoint()).futures.finish()

    def close(self) -> None:
        """Close the function."""
        self._subtask.close()
