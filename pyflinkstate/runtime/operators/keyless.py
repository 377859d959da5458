"""Functions without keys that take part in checkpoints: they live in a slot, for as long as the job runs.

What has no state runs in the Spark tasks of an epoch. A function that keeps operator state, or hears of
checkpoints, must last longer, so it is an operator of its own, with subtasks in state slots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from pyflinkstate.api.checkpointed import CheckpointedFunction, CheckpointListener
from pyflinkstate.api.functions import FilterFunction, FlatMapFunction, MapFunction, ProcessFunction
from pyflinkstate.api.values import UserFunction
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, Process

#: The kinds of functions with one input, by what a plan calls their operators.
KINDS: dict[str, type] = {
    "map": MapFunction,
    "flat_map": FlatMapFunction,
    "filter": FilterFunction,
    "process": ProcessFunction,
}


def lives_in_slot(function: UserFunction) -> bool:
    """Return whether a function must outlive the tasks of an epoch, with or without keys."""
    return isinstance(function, (CheckpointedFunction, CheckpointListener))


class KeylessOperator(FunctionOperator):
    """Runs a function of one input without keys; keyed state and timers are refused.

    Args:
        kind: ``"map"``, ``"flat_map"``, ``"filter"`` or ``"process"``.
        function: of the user.
    """

    def __init__(self, kind: str, function: UserFunction) -> None:
        super().__init__(function, is_keyed=False)
        self._kind = kind

    def _process_first(self) -> Process:
        return _PROCESSES[self._kind](self.function)


def _mapping(function: UserFunction) -> Process:
    apply = function.map if isinstance(function, MapFunction) else function
    return wraps(apply)(lambda value, _: (apply(value),))


def _flat_mapping(function: UserFunction) -> Process:
    apply = function.flat_map if isinstance(function, FlatMapFunction) else function
    return wraps(apply)(lambda value, _: apply(value))


def _filtering(function: UserFunction) -> Process:
    keeps = function.filter if isinstance(function, FilterFunction) else function
    return wraps(keeps)(lambda value, _: (value,) if keeps(value) else None)


def _processing(function: UserFunction) -> Process:
    process: Process = function.process_element
    return process


_PROCESSES: dict[str, Callable[[UserFunction], Process]] = {
    "map": _mapping,
    "flat_map": _flat_mapping,
    "filter": _filtering,
    "process": _processing,
}
