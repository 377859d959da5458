"""Functions without keys that take part in checkpoints; slot processes import this file, so it is small."""

from __future__ import annotations

from collections.abc import Iterable

from pyflinkstate import (
    CheckpointedFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    ListStateDescriptor,
    MapFunction,
    RuntimeContext,
    Types,
)


class Buffer(FlatMapFunction, CheckpointedFunction):
    """Holds records back, and gives those that it holds when there are enough of them."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.held: list[int] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("held", Types.LONG())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.held = list(self.state.get() or ())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.held)

    def flat_map(self, value: int) -> Iterable[list[int]]:
        self.held.append(value)
        if len(self.held) >= self.enough:
            given, self.held = self.held, []
            yield given


class Where(MapFunction, CheckpointedFunction):
    """Says which subtask a record came to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.place = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def map(self, value: int) -> tuple[int, int]:
        return self.place, value
