"""The base of functions that run a user's function and pass every call of their life cycle on to it."""

from __future__ import annotations

from pyflinkstate.api.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.functions import Function, KeyedProcessFunction
from pyflinkstate.api.values import UserFunction
from pyflinkstate.runtime.operators.context import close_function, open_function


class WrappingFunction(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Opens and closes the function inside, and lets it take part in checkpoints if it is of such a class.

    Args:
        func: the function inside; it may be a plain callable.
    """

    def __init__(self, func: UserFunction) -> None:
        self._func = func

    def set_runtime_context(self, runtime_context: RuntimeContext) -> None:
        super().set_runtime_context(runtime_context)
        if isinstance(self._func, Function):
            self._func.set_runtime_context(runtime_context)

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

    def close(self) -> None:
        close_function(self._func)
