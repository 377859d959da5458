"""How Flink sees the state of a program: as Java has it, or as PyFlink has it in one of its two modes.

In both modes of PyFlink, the key is the only field of a row, and the namespaces of windows are those of SQL.

*Process mode* (``python.execution-mode: process``): Flink sees bytes only, and only the descriptors of the
program tell their types. The name of a state has a prefix. A value, also that of a reducing or aggregating
state, is a list with one element; an element of a list may hold several values. A map has wrapped bytes as
keys. :class:`Coder` knows the bytes.

*Thread mode*: Flink sees a few types only. Integers are ``LONG``, floats are ``DOUBLE``, characters are
``STRING``, tuples are pickles, and reducing and aggregating state is a value. Flink cannot write the other
types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

import attrs

from pyflinkstate.api import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    Row,
    RowTypeInfo,
    StateKind,
    TimeWindowSerializer,
    TupleTypeInfo,
    TypeInformation,
    Types,
    row_of,
)
from pyflinkstate.backends.flink_format import (
    TABLE_TIME_WINDOW,
    WRAPPED_BYTES,
    Coder,
    FlinkState,
    Serializer,
    fitting,
    located,
    serializer_of,
    timer_serializer,
)
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.types import (
    VOID_NAMESPACE_TYPE,
    RegisteredQueueMeta,
    RegisteredStateMeta,
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
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
_IN_PARTS = (StateKind.LIST, StateKind.MAP)


class Shape:
    """The state of a program in Java."""

    name = "flink"
    is_pyflink = False
    #: With which protocol pickled keys are written, which Flink compares as bytes; on Python 3.9 to 3.12.
    key_protocol = 4

    def key_type(self, key_type: TypeInformation) -> TypeInformation:
        """Return the type that the keys of a program have in Flink, which also decides their key groups."""
        return key_type

    def state(self, meta: StateMeta, key: Serializer) -> FlinkState:
        """Return the state that Flink has for one of a program.

        Args:
            meta: the state of the program.
            key: the serializer of its keys in Flink.

        Raises:
            ConfigurationError: Flink cannot keep its type.
        """
        return FlinkState.of(meta, key)

    def arriving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        """Return the entries as the program sees them; its pickles stay bytes.

        Raises:
            CorruptCheckpointError: the bytes are not those of its types.
        """
        return entries

    def leaving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        """Return the entries as Flink sees them.

        Raises:
            StateValueError: a value does not fit its type.
        """
        return entries


class _PyFlinkShape(Shape):
    """What both modes have in common."""

    is_pyflink = True

    def key_type(self, key_type: TypeInformation) -> TypeInformation:
        return RowTypeInfo([key_type])

    def state(self, meta: StateMeta, key: Serializer) -> FlinkState:
        is_time = isinstance(meta.namespace_type, TimeWindowSerializer)
        namespace = Serializer(TABLE_TIME_WINDOW) if is_time else serializer_of(meta.namespace_type)
        if isinstance(meta, RegisteredQueueMeta):
            return FlinkState(meta.name, None, timer_serializer(key, namespace), namespace)
        return self.value_state(meta, namespace)

    def value_state(self, meta: RegisteredStateMeta, namespace: Serializer) -> FlinkState:
        """Return a state that is not a timer queue."""
        raise NotImplementedError


def with_plain_keys(entries: KeyGroupEntries) -> KeyGroupEntries:
    """Return entries with the keys that the program sees; each key is a row of one field."""
    return attrs.evolve(entries, keys=[cast(Row, key)[0] for key in entries.keys])


def with_row_keys(entries: KeyGroupEntries) -> KeyGroupEntries:
    """Return entries with the keys that Flink sees."""
    return attrs.evolve(entries, keys=[row_of([key], ("f0",)) for key in entries.keys])


def _stored_parts(meta: RegisteredStateMeta) -> tuple[TypeInformation, ...]:
    """Return the types of a value, of an element, or of a key and a value."""
    return meta.stored_type.parts() if meta.kind in _IN_PARTS else (meta.stored_type,)


# --- process mode ---------------------------------------------------------------------------------------


class ProcessShape(_PyFlinkShape):
    """The state of a program of PyFlink in process mode."""

    name = "flink-process"
    key_protocol = 5

    def state(self, meta: StateMeta, key: Serializer) -> FlinkState:
        return super().state(_in_process(meta), key)

    def value_state(self, meta: RegisteredStateMeta, namespace: Serializer) -> FlinkState:
        kind, is_stamped = StateKind.LIST, isinstance(_stored_parts(meta)[-1], TtlTypeInfo)
        item = TtlTypeInfo(_BYTES) if is_stamped else _BYTES
        serializer = serializer_of(ListTypeInfo(item))
        if meta.kind is StateKind.MAP:
            kind, parts = StateKind.MAP, (Serializer(WRAPPED_BYTES), *serializer.parts)
            serializer = attrs.evolve(serializer_of(MapTypeInfo(_BYTES, item)), parts=parts)
        return FlinkState(PREFIX + meta.name, kind, serializer, namespace)

    def arriving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        plain, in_flink = with_plain_keys(entries), _in_process(meta)
        if isinstance(in_flink, RegisteredQueueMeta):
            return plain
        coders = [Coder(part) for part in _stored_parts(in_flink)]
        with located(f"state {meta.name!r}", state=meta.name):
            values = [_decoded(in_flink.kind, coders, stored) for stored in entries.values]
        if meta.name == MERGING_WINDOW_SET:
            values = [list(cast(dict[object, object], windows).items()) for windows in values]
        return attrs.evolve(plain, values=values)

    def leaving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        rows, in_flink = with_row_keys(entries), _in_process(meta)
        if isinstance(in_flink, RegisteredQueueMeta):
            return rows
        values, coders = entries.values, [Coder(part) for part in _stored_parts(in_flink)]
        if meta.name == MERGING_WINDOW_SET:
            values = [dict(cast(list[tuple[object, object]], windows)) for windows in values]
        with fitting(meta.name, "PyFlink's coder"):
            return attrs.evolve(rows, values=[_encoded(in_flink.kind, coders, stored) for stored in values])


def _in_process(meta: StateMeta) -> StateMeta:
    """Return the state that PyFlink has in process mode for one of a window operator."""
    if isinstance(meta, RegisteredQueueMeta):
        return attrs.evolve(meta, name=meta.name.replace(_WINDOW, _USER))
    if meta.name != MERGING_WINDOW_SET:
        return meta
    (pair,) = meta.stored_type.parts()
    return attrs.evolve(meta, kind=StateKind.MAP, stored_type=MapTypeInfo(*pair.parts()))


def _decoded(kind: StateKind, coders: list[Coder], stored: object) -> object:
    *_, coder = coders
    if kind is StateKind.MAP:
        return {
            coders[0].decode(key)[0]: None if item is None else coder.decode(item)[0]
            for key, item in cast(dict[object, object], stored).items()
        }
    values = [value for element in cast(list[object], stored) for value in coder.decode(element)]
    return values if kind is StateKind.LIST else values[0]


def _encoded(kind: StateKind, coders: list[Coder], stored: object) -> object:
    *_, coder = coders
    if kind is StateKind.MAP:
        return {
            coders[0].encode(key): None if item is None else coder.encode(item)
            for key, item in cast(dict[object, object], stored).items()
        }
    return [*map(coder.encode, cast(list[object], stored) if kind is StateKind.LIST else [stored])]


# --- thread mode ----------------------------------------------------------------------------------------

_THREAD_TYPES = {
    **{kind: Types.LONG() for kind in ("BYTE", "SHORT", "INT", "LONG")},
    **{kind: Types.DOUBLE() for kind in ("FLOAT", "DOUBLE")},
    **{kind: Types.STRING() for kind in ("CHAR", "STRING")},
    "BOOLEAN": Types.BOOLEAN(),
    "BIG_DEC": Types.BIG_DEC(),
}


class ThreadShape(_PyFlinkShape):
    """The state of a program of PyFlink in thread mode."""

    name = "flink-thread"

    def value_state(self, meta: RegisteredStateMeta, namespace: Serializer) -> FlinkState:
        if meta.name == MERGING_WINDOW_SET:
            raise ConfigurationError("Flink cannot keep session windows in thread mode; use process mode")
        types = [_thread_type(part) for part in _stored_parts(meta)]
        kind, stored = StateKind.VALUE, types[0]
        if meta.kind in _IN_PARTS:
            kind, stored = meta.kind, meta.stored_type.with_parts(types)
        return FlinkState(meta.name, kind, serializer_of(stored), namespace)

    def arriving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        return each_value(meta, with_plain_keys(entries), load, TupleTypeInfo)

    def leaving(self, meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
        return each_value(meta, with_row_keys(entries), dump_pickle, TupleTypeInfo)


def _thread_type(type_info: TypeInformation) -> TypeInformation:
    if isinstance(type_info, (TupleTypeInfo, PickledBytesTypeInfo)):
        return SealedPickles()
    if isinstance(type_info, (TtlTypeInfo, MapTypeInfo)):
        return type_info.with_parts([_thread_type(part) for part in type_info.parts()])
    if type_info.kind not in _THREAD_TYPES:
        raise ConfigurationError(
            f"PyFlink cannot keep {type_info} in thread mode; use process mode, or Types.PICKLED_BYTE_ARRAY()"
        )
    return _THREAD_TYPES[type_info.kind]


# --- values in values -----------------------------------------------------------------------------------

Change = Callable[[object], object]


#: Returns the value of a pickle of plain values; raises ``PickledStateError`` for others.
load = cast(Change, load_plain)


def each_value(
    meta: StateMeta, entries: KeyGroupEntries, change: Change, of: type[TypeInformation]
) -> KeyGroupEntries:
    """Return entries with the values of one type changed, also in lists, in maps and beside a timestamp."""
    inside = _inside(meta.stored_type, change, of)
    return entries if inside is None else attrs.evolve(entries, values=[*map(inside, entries.values)])


def _inside(type_info: TypeInformation, change: Change, of: type[TypeInformation]) -> Change | None:
    """Return what changes the values of a type in a stored value; None if there are none."""
    if isinstance(type_info, of):
        return change
    inside = _inside(type_info.parts()[-1], change, of) if isinstance(type_info, _AROUND) else None
    if inside is None:
        return None
    if isinstance(type_info, TtlTypeInfo):
        return partial(_stamped, inside)
    if isinstance(type_info, ListTypeInfo):
        return lambda items: [*map(inside, cast(list[object], items))]
    return lambda items: {
        key: None if item is None else inside(item) for key, item in cast(dict[object, object], items).items()
    }


def _stamped(change: Change, stored: object) -> object:
    timestamp_ms, value = cast(tuple[int, object], stored)
    return timestamp_ms, change(value)


_AROUND = (TtlTypeInfo, ListTypeInfo, MapTypeInfo)
JAVA, PROCESS, THREAD = Shape(), ProcessShape(), ThreadShape()
#: By the names that users give.
SHAPES = {shape.name: shape for shape in (JAVA, PROCESS, THREAD)}


def shape_named(name: str) -> Shape:
    """Return the shape with the name that a user gives; raise ``ConfigurationError`` if there is none."""
    if name not in SHAPES:
        raise ConfigurationError(f"state is written for {', '.join(map(repr, SHAPES))}, not for {name!r}")
    return SHAPES[name]


def pickles_instead(typed: StateMeta, pickled: StateMeta) -> bool:
    """Return whether a state has values of a declared type on one side, and their pickles on the other."""
    return typed.stored_type != pickled.stored_type and pickled.stored_type in (
        SealedPickles(),
        ListTypeInfo(SealedPickles()),
    )


def shape_of(key: Serializer, names: list[str], key_type: TypeInformation | None) -> Shape:
    """Return the shape of an operator's keyed state in a savepoint.

    Args:
        key: the serializer of its keys; PyFlink's keys are rows of one field.
        names: the names of its states.
        key_type: the type of keys in the program here, if it is known.
    """
    if len(key.parts) != 1 or (key_type is not None and serializer_of(key_type) == key):
        return JAVA
    return PROCESS if any(name.startswith(PREFIX) for name in names) else THREAD


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
