"""The kinds of functions with one input, and the operator in a slot that runs them.

Without keys and state, they run in the Spark tasks of an epoch. On a keyed stream they have keyed state. A
function that keeps operator state, or that listens to checkpoints, must outlive an epoch's tasks. Both are
operators of their own, with subtasks in state slots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from pyflinkstate.api.context import CheckpointedFunction, CheckpointListener
from pyflinkstate.api.functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from pyflinkstate.api.values import UserFunction
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, Process

#: The kinds of functions with one input, by the names of their operators in a plan.
KINDS: dict[str, type] = {
    "map": MapFunction,
    "flat_map": FlatMapFunction,
    "filter": FilterFunction,
    "process": ProcessFunction,
}


def called(kind: str, function: UserFunction) -> UserFunction:
    """Return the callable that an operator calls: a method of the function, or the plain callable itself."""
    if kind == "process":
        return function.process_element
    return getattr(function, kind) if isinstance(function, KINDS[kind]) else function


def lives_in_slot(function: UserFunction) -> bool:
    """Return whether a function must outlive the tasks of an epoch, with or without keys."""
    return isinstance(function, (CheckpointedFunction, CheckpointListener))


class OneInputOperator(FunctionOperator):
    """Runs a function of one of the :data:`KINDS`.

    Args:
        kind: the kind.
        function: the user function; a plain callable unless it is of the kind's class.
        is_keyed: whether its records have keys; without them keyed state and timers are refused.
    """

    def __init__(self, kind: str, function: UserFunction, is_keyed: bool = False) -> None:
        super().__init__(function, is_keyed)
        self._kind = kind

    def _process_first(self) -> Process:
        call = called(self._kind, self.function)
        process: Process = call if self._kind == "process" else wraps(call)(_PROCESSES[self._kind](call))
        return process


_PROCESSES: dict[str, Callable[[UserFunction], Process]] = {
    "map": lambda call: lambda value, _: (call(value),),
    "flat_map": lambda call: lambda value, _: call(value),
    "filter": lambda call: lambda value, _: (value,) if call(value) else None,
}
