"""Checks, names and adapts the functions that users pass to streams."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

from pyflinkstate.api.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from pyflinkstate.api.connected import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from pyflinkstate.api.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from pyflinkstate.api.values import UserFunction
from pyflinkstate.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from pyflinkstate.backends.values import told_function
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.operators import KINDS, awaits, called, lives_in_slot

#: The methods of rich functions that must not be ``async def``.
_CALLED: dict[type, tuple[str, ...]] = {
    MapFunction: ("map",),
    FlatMapFunction: ("flat_map",),
    FilterFunction: ("filter",),
    KeySelector: ("get_key",),
    ReduceFunction: ("reduce",),
    AggregateFunction: ("create_accumulator", "add", "get_result", "merge"),
    ProcessFunction: ("process_element",),
    WindowFunction: ("apply",),
    AllWindowFunction: ("apply",),
    ProcessWindowFunction: ("process", "clear"),
    ProcessAllWindowFunction: ("process", "clear"),
    CoMapFunction: ("map1", "map2"),
    CoFlatMapFunction: ("flat_map1", "flat_map2"),
    CoProcessFunction: ("process_element1", "process_element2"),
    KeyedCoProcessFunction: ("process_element1", "process_element2", "on_timer"),
    BroadcastProcessFunction: ("process_element", "process_broadcast_element"),
    KeyedBroadcastProcessFunction: ("process_element", "process_broadcast_element", "on_timer"),
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
    check_function(f"{kind}()", func, (KINDS[kind],), arguments=1)
    call = called(kind, func)
    if kind != "flat_map" and inspect.isgeneratorfunction(call):
        raise ConfigurationError(
            f"{kind}() calls {told_function(call)}, which yields: {kind}() takes what one call returns, "
            f"and flat_map() what it yields"
        )


def check_function(
    method: str,
    func: UserFunction,
    kinds: tuple[type, ...],
    arguments: int | None = None,
    remedy: str = "",
) -> None:
    """Check what a call on a stream is given as its function.

    Args:
        method: the call, such as ``map()``, and on what.
        func: what it is given.
        kinds: the classes of which it may be an object.
        arguments: the number of arguments a plain callable is called with; None if no plain callable will do.
        remedy: what to do about an object of another class, for the error's end.

    Raises:
        ConfigurationError: it is none of these, a class instead of an instance, takes other
            arguments than it will be called with, or is ``async def`` where nobody would await it.
    """
    if isinstance(func, type) and issubclass(func, Function):
        name = func.__name__
        raise ConfigurationError(f"{method} takes an object, and {name} is a class: write {name}()")
    if isinstance(func, kinds):
        _check_methods(method, func)
    elif arguments is not None and callable(func):
        _check_arguments(method, func, arguments)
    else:
        wanted = ("callable", *(kind.__name__ for kind in kinds))[arguments is None :]
        told = f"{method} takes {_either(wanted)}, not {func!r}"
        raise ConfigurationError(f"{told}; {remedy}" if remedy else told)
    refuse_async(func)


def _either(names: Iterable[str]) -> str:
    return " or ".join(f"{'an' if name[0] in 'AEIOU' else 'a'} {name}" for name in names)


def _check_methods(method: str, func: UserFunction) -> None:
    """Check that methods that override one of Flink's classes can be called with its arguments."""
    for base in type(func).__mro__:
        if base.__module__.startswith(Function.__module__.rpartition(".")[0]):
            for name, declared in vars(base).items():
                if inspect.isfunction(declared) and not name.startswith("_"):
                    given = len(inspect.signature(declared).parameters) - 1
                    _check_arguments(method, getattr(func, name), given)


def _check_arguments(method: str, func: Callable[..., object], given: int) -> None:
    """Check that ``func`` can be called with this number of arguments, as far as its signature tells."""
    if isinstance(func, type):
        return
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(given))
    except TypeError as error:
        raise ConfigurationError(
            f"{method}: {told_function(func)} is called with {given} argument{'s' * (given != 1)}, and takes "
            f"{signature}: {error}"
        ) from None


def refuse_async(func: UserFunction) -> None:
    """Raise ``ConfigurationError`` if a function is ``async def`` in a place that does not support it."""
    names = (name for kind, names in _CALLED.items() if isinstance(func, kind) for name in names)
    for method in filter(awaits, (func, *(getattr(func, name) for name in names))):
        raise ConfigurationError(
            f"{method.__qualname__}() is 'async def', and nobody would await it here: that is done with "
            f"async_invoke() of an AsyncFunction (AsyncDataStream), and with process_element() and "
            f"on_timer() of a KeyedProcessFunction"
        )


def refuse_checkpointed(func: UserFunction, what: str) -> None:
    """Raise ``UnsupportedFeatureError`` for a function that takes part in checkpoints.

    Args:
        func: the function.
        what: the functions that live no longer than the task of an epoch, of which it is one.
    """
    if lives_in_slot(func):
        raise UnsupportedFeatureError(
            f"{type(func).__name__} is a CheckpointedFunction or CheckpointListener, but {what} live in "
            f"Spark tasks, no longer than an epoch: keep the state in map(), flat_map(), filter() or "
            f"process()"
        )


def refuse_checkpointed_contents(func: UserFunction) -> None:
    """Raise ``UnsupportedFeatureError`` if the reduce or aggregate function of a window is checkpointed."""
    if lives_in_slot(func):
        raise UnsupportedFeatureError(
            f"{type(func).__name__} is a CheckpointedFunction or CheckpointListener, but the reduce or "
            f"aggregate function of a window is not notified of checkpoints: make the window function one, "
            f"which is called with the combined value"
        )
