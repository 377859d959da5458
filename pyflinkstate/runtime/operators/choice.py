"""Chooses the operator that runs a function, once, when a subtask is made."""

from __future__ import annotations

from pyflinkstate.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
)
from pyflinkstate.api.values import UserFunction
from pyflinkstate.runtime.operators.context import awaits
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, TwoInputOperator
from pyflinkstate.runtime.operators.operators import StatefulOperator


def operator_of(function: UserFunction) -> StatefulOperator:
    """Return the operator that runs ``function``, or ``function`` itself if it is an operator."""
    if isinstance(function, StatefulOperator):
        return function
    if isinstance(function, (KeyedCoProcessFunction, CoProcessFunction, CoMapFunction, CoFlatMapFunction)):
        return TwoInputOperator(function)
    if _awaits_with_key(function):
        # Only async functions pay for the import of asyncio.
        from pyflinkstate.runtime.operators.async_operator import AsyncFunctionOperator

        return AsyncFunctionOperator(function)
    return FunctionOperator(function)


def _awaits_with_key(function: UserFunction) -> bool:
    """Return whether ``process_element`` or ``on_timer`` of a keyed function is ``async def``."""
    methods = (getattr(function, name, None) for name in ("process_element", "on_timer"))
    return isinstance(function, KeyedProcessFunction) and any(map(awaits, methods))
