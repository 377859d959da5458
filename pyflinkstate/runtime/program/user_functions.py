"""Checks what users pass to calls on streams, and names it: functions, and the types of records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

from pyflinkstate.api import (
    AggregateFunction,
    AllWindowFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    Record,
    ReduceFunction,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
    UserFunction,
    WindowFunction,
    safe_repr,
)
from pyflinkstate.backends.values import told_function
from pyflinkstate.errors import BadRecordError, ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.operators import KINDS, Projection, awaits, called, lives_in_slot
from pyflinkstate.runtime.plan import WATERMARKS, ChainNode, Node, PartitionNode, StatefulNode, UnionNode

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
    if isinstance(
        func, (MapFunction, FlatMapFunction, FilterFunction, ProcessFunction, KeyedProcessFunction)
    ):
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
        ConfigurationError: it is something else, a class instead of an instance, takes other
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
                    _check_arguments(
                        method, getattr(func, name), len(inspect.signature(declared).parameters) - 1
                    )


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


def refuse_checkpointed(func: UserFunction, why: str) -> None:
    """Raise ``UnsupportedFeatureError`` for a function that takes part in checkpoints; ``why`` says more."""
    if lives_in_slot(func):
        raise UnsupportedFeatureError(
            f"{type(func).__name__} is a CheckpointedFunction or CheckpointListener, but {why}"
        )


def refuse_checkpointed_in_tasks(func: UserFunction, what: str) -> None:
    """Raise ``UnsupportedFeatureError`` if a function that lives no longer than an epoch is checkpointed.

    Args:
        func: the function.
        what: the functions of its kind, in the plural.
    """
    refuse_checkpointed(
        func,
        f"{what} live in Spark tasks, no longer than an epoch: keep the state in map(), flat_map(), filter() "
        f"or process()",
    )


#: Stateless operators that pass records on unchanged.
_KEEPS_TYPE = frozenset({"filter", WATERMARKS})


def type_of(node: Node) -> TypeInformation:
    """Return the declared type of a node's results, or the pickled type if there is none."""
    projections: list[Projection] = []
    while (before := _has_type_of(node)) is not None:
        if isinstance(node, ChainNode) and isinstance(node.function, Projection):
            projections.append(node.function)
        node = before
    found: TypeInformation = getattr(node, "output_type", None) or Types.PICKLED_BYTE_ARRAY()
    for projection in reversed(projections):
        found = _projected(found, projection.indexes)
    return found


def _has_type_of(node: Node) -> Node | None:
    """Return the node whose results have the same type, or from which some fields are kept."""
    if isinstance(node, UnionNode):
        return node.parents[0]
    if isinstance(node, PartitionNode):
        return node.parent
    if getattr(node, "output_type", None) is not None:
        return None
    if isinstance(node, StatefulNode):
        return node.parent if node.keeps_type else None
    if isinstance(node, ChainNode):
        return node.parent if node.kind in _KEEPS_TYPE or isinstance(node.function, Projection) else None
    return None


def _projected(type_info: TypeInformation, indexes: tuple[int, ...]) -> TypeInformation:
    if not isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return Types.PICKLED_BYTE_ARRAY()
    fields = type_info.get_field_types()
    if max(indexes) >= len(fields):
        raise ConfigurationError(f"project({max(indexes)}): {type_info} has {len(fields)} fields, from 0")
    return Types.TUPLE([fields[index] for index in indexes])


def check_same_type(nodes: tuple[Node, ...]) -> None:
    """Raise ``ConfigurationError`` unless the streams of a union have the same type."""
    first = type_of(nodes[0])
    for node in nodes[1:]:
        if type_of(node) != first:
            raise ConfigurationError(
                f"Cannot union streams of different types: {first!r} and {type_of(node)!r}; map() with an "
                f"output_type gives them the same type"
            )


# --- conversion at a source -------------------------------------------------------------------


def converted_at_source(records: Iterable[Record], type_info: TypeInformation, operator: str) -> list[Record]:
    """Return records in the form of the type; a ``FLOAT`` is rounded to 32 bits.

    Raises:
        BadRecordError: a record does not fit the type.
    """
    converted = []
    for record in records:
        try:
            converted.append(type_info.rounded(type_info.check(record)))
        except ValueError as error:
            shown = safe_repr(record)
            raise BadRecordError(
                f"operator {operator!r}: a record does not fit type_info: {error}; record {shown}",
                operator=operator,
                record=shown,
            ) from None
    return converted
