"""How Flink sees the state of a program: as Java has it, or as PyFlink has it in one of its two modes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import attrs

from pyflinkstate.api import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    StateKind,
    TupleTypeInfo,
    TypeInformation,
)
from pyflinkstate.backends.flink_format import (
    FlinkState,
    Serializer,
    from_process_mode,
    key_type_in_pyflink,
    serializer_of,
    state_in_process_mode,
    state_in_thread_mode,
    to_process_mode,
    with_plain_keys,
    with_row_keys,
)
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.types import (
    VOID_NAMESPACE_TYPE,
    RegisteredQueueMeta,
    SealedPickles,
    StateMeta,
    TtlTypeInfo,
    dump_pickle,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.state_access.tables import load_plain

PREFIX = "python-state-"
MERGING_WINDOW_SET = "merging-window-set"
_USER, _WINDOW = "user-timers", "window-timers"


class Shape:
    """The state of a program in Java."""

    name = "flink"
    is_pyflink = False
    #: With which protocol pickled keys are written, which Flink compares as bytes; on Python 3.9 to 3.12.
    key_protocol = 4

    def key_type(self, key_type: TypeInformation) -> TypeInformation:
        """Return the type that the keys of a program have in Flink."""
        return key_type

    def state(self, meta: StateMeta, key: Serializer) -> FlinkState:
        """Return the state that Flink has for one of a program.

        Raises:
            ConfigurationError: Flink cannot keep its type.
        """
        return FlinkState.of(meta, key)

    def arriving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        """Return the entries as the program sees them; its pickles stay bytes."""
        return entries

    def leaving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        """Return the entries as Flink sees them."""
        return entries


class ProcessShape(Shape):
    """The state of a program of PyFlink in process mode: bytes, of which only the program knows the types."""

    name = "flink-process"
    is_pyflink = True
    key_protocol = 5

    def key_type(self, key_type: TypeInformation) -> TypeInformation:
        return key_type_in_pyflink(key_type)

    def state(self, meta: StateMeta, key: Serializer) -> FlinkState:
        return state_in_process_mode(_in_process(meta), key)

    def arriving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        found = from_process_mode(_in_process(meta), entries)
        if meta.name != MERGING_WINDOW_SET:
            return found
        maps = cast(list[dict[object, object]], found.values)
        return attrs.evolve(found, values=[list(windows.items()) for windows in maps])

    def leaving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        if meta.name == MERGING_WINDOW_SET:
            pairs = cast(list[list[tuple[object, object]]], entries.values)
            entries = attrs.evolve(entries, values=[dict(windows) for windows in pairs])
        return to_process_mode(_in_process(meta), entries)


def _in_process(meta: StateMeta) -> StateMeta:
    """Return the state that PyFlink has in process mode for one of a window operator."""
    if isinstance(meta, RegisteredQueueMeta):
        return attrs.evolve(meta, name=meta.name.replace(_WINDOW, _USER))
    if meta.name != MERGING_WINDOW_SET:
        return meta
    (pair,) = meta.stored_type.parts()
    return attrs.evolve(meta, kind=StateKind.MAP, stored_type=MapTypeInfo(*pair.parts()))


class ThreadShape(Shape):
    """The state of a program of PyFlink in thread mode, with a tuple as a pickle."""

    name = "flink-thread"
    is_pyflink = True

    def key_type(self, key_type: TypeInformation) -> TypeInformation:
        return key_type_in_pyflink(key_type)

    def state(self, meta: StateMeta, key: Serializer) -> FlinkState:
        if meta.name == MERGING_WINDOW_SET:
            raise ConfigurationError("Flink cannot keep session windows in thread mode; use process mode")
        return state_in_thread_mode(meta, key)

    def arriving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        return _each_value(meta, with_plain_keys(entries), load)

    def leaving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        return _each_value(meta, with_row_keys(entries), dump_pickle)


Change = Callable[[object], object]


def load(pickled: object) -> object:
    """Return the value of a pickle of plain values; raise ``PickledStateError`` for others."""
    return load_plain(cast(bytes, pickled))


def _each_value(meta: StateMeta, entries: KeyGroupEntries, of_tuple: Change) -> KeyGroupEntries:
    change = _inside(meta.stored_type, of_tuple)
    return entries if change is None else attrs.evolve(entries, values=[*map(change, entries.values)])


def _inside(type_info: TypeInformation, of_tuple: Change) -> Change | None:
    """Return what changes the tuples in a value; None if there are none."""
    if isinstance(type_info, TupleTypeInfo):
        return of_tuple
    change = _inside(type_info.parts()[-1], of_tuple) if isinstance(type_info, _AROUND) else None
    if change is None:
        return None
    if isinstance(type_info, TtlTypeInfo):
        return partial(_stamped, change)
    if isinstance(type_info, ListTypeInfo):
        return lambda items: [*map(change, cast(list[object], items))]
    return lambda items: {
        key: None if item is None else change(item) for key, item in cast(dict[object, object], items).items()
    }


def _stamped(change: Change, stored: object) -> object:
    timestamp_ms, value = cast(tuple[int, object], stored)
    return timestamp_ms, change(value)


_AROUND = (TtlTypeInfo, ListTypeInfo, MapTypeInfo)
JAVA, PROCESS, THREAD = Shape(), ProcessShape(), ThreadShape()
#: By the names that users give.
SHAPES = {shape.name: shape for shape in (JAVA, PROCESS, THREAD)}


def pickles_instead(typed: StateMeta, pickled: StateMeta) -> bool:
    """Return whether a state has values of a declared type on one side, and their pickles on the other."""
    return typed.stored_type != pickled.stored_type and pickled.stored_type in (
        SealedPickles(),
        ListTypeInfo(SealedPickles()),
    )


def each_value(meta: StateMeta, entries: KeyGroupEntries, change: Change) -> KeyGroupEntries:
    """Return entries with each value changed, of a list each element."""
    if not isinstance(meta.stored_type, ListTypeInfo):
        return attrs.evolve(entries, values=[*map(change, entries.values)])
    lists = cast(list[list[object]], entries.values)
    return attrs.evolve(entries, values=[[*map(change, items)] for items in lists])


def shape_of(key: Serializer, names: list[str], key_type: TypeInformation | None) -> Shape:
    """Return the shape of an operator's keyed state in a savepoint.

    Args:
        key: the serializer of its keys; PyFlink's keys are rows of one field.
        names: the names of its states.
        key_type: the type of keys in the program here, if it is known.
    """
    if len(key.parts) != 1 or (key_type is not None and serializer_of(key_type) == key):
        return JAVA
    has_prefix = any(name.startswith(PREFIX) for name in names)
    return PROCESS if has_prefix else THREAD


def name_here(state: FlinkState) -> str:
    """Return the name that a state of Flink has here."""
    is_window_timer = state.kind is None and state.namespace.type_info() != VOID_NAMESPACE_TYPE
    return state.name.replace(_USER, _WINDOW) if is_window_timer else state.name.removeprefix(PREFIX)


def key_type_here(shape: Shape, key: Serializer) -> TypeInformation:
    """Return the type of keys here; bytes in PyFlink are taken for pickles, which it writes by default."""
    if not shape.is_pyflink:
        return key.type_info()
    plain = key.parts[0].type_info()
    return PickledBytesTypeInfo() if plain.kind == "BYTES" else plain
