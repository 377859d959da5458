"""Checks, names and adapts the functions that users pass to streams."""

from __future__ import annotations

from collections.abc import Iterable

from pyflinkstate.api.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
)
from pyflinkstate.api.values import Record, UserFunction
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.operators import close_function, lives_in_slot, open_function

_RICH: dict[str, type] = {
    "map": MapFunction,
    "flat_map": FlatMapFunction,
    "filter": FilterFunction,
}


def name_of(func: UserFunction, kind: str) -> str:
    """Return the default name of an operator."""
    if isinstance(func, (MapFunction, FlatMapFunction, FilterFunction, ProcessFunction)):
        return type(func).__name__
    if isinstance(func, KeyedProcessFunction):
        return type(func).__name__
    name = getattr(func, "__name__", kind)
    return kind if name == "<lambda>" else name


def check_callable(kind: str, func: UserFunction) -> None:
    """Raise ``ConfigurationError`` unless ``func`` can be the function of a ``kind``, such as ``map``."""
    if not isinstance(func, _RICH[kind]) and not callable(func):
        raise ConfigurationError(f"{kind}() takes a callable or a {_RICH[kind].__name__}, not {func!r}")


def refuse_checkpointed(func: UserFunction) -> None:
    """Raise ``UnsupportedFeatureError`` for a key selector or partitioner that takes part in checkpoints."""
    if lives_in_slot(func):
        raise UnsupportedFeatureError(
            f"{type(func).__name__} is a CheckpointedFunction or CheckpointListener, but key selectors "
            f"and partitioners live in Spark tasks, no longer than an epoch: keep the state in map(), "
            f"flat_map(), filter() or process()"
        )


class KeyedAdapter(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Runs ``map``, ``flat_map`` or ``filter`` on a keyed stream, with the state of the record's key."""

    def __init__(self, kind: str, func: UserFunction) -> None:
        self._kind = kind
        self._func = func

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        if isinstance(self._func, CheckpointedFunction):
            self._func.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if isinstance(self._func, CheckpointedFunction):
            self._func.snapshot_state(context)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if isinstance(self._func, CheckpointListener):
            self._func.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if isinstance(self._func, CheckpointListener):
            self._func.notify_checkpoint_aborted(checkpoint_id)

    def open(self, runtime_context: RuntimeContext) -> None:
        open_function(self._func, runtime_context)
        rich = isinstance(self._func, _RICH[self._kind])
        self._call = getattr(self._func, self._kind) if rich else self._func

    def close(self) -> None:
        close_function(self._func)

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context) -> Iterable[Record] | None:
        result = self._call(value)
        if self._kind == "map":
            return (result,)
        if self._kind == "filter":
            return (value,) if result else None
        flat: Iterable[Record] | None = result
        return flat
