"""The state of PyFlink's programs, which Flink sees in another shape than the program.

In both modes, the key is the only field of a row, and the namespaces of windows are those of Flink SQL.

*Process mode* (``python.execution-mode: process``): Flink sees bytes only, and only the descriptors of the
program tell their types. The name of a state has a prefix. A value, also that of a reducing or aggregating
state, is a list with one element; an element of a list may hold several values. A map has wrapped bytes as
keys. PyFlink's own coders write the bytes, and for some types not as Flink's serializers do. Pickles stay
bytes.

*Thread mode*: Flink sees a few types only. Integers are ``LONG``, floats are ``DOUBLE``, characters are
``STRING``, tuples are pickles, and reducing and aggregating state is a value. Flink cannot write the other
types.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
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
from pyflinkstate.backends.flink_format import forms
from pyflinkstate.backends.flink_format.cursor import Reader
from pyflinkstate.backends.flink_format.errors import fitting, located
from pyflinkstate.backends.flink_format.forms import Form
from pyflinkstate.backends.flink_format.keyed_state import FlinkState
from pyflinkstate.backends.flink_format.serializers import (
    LIST,
    TABLE_TIME_WINDOW,
    WRAPPED_BYTES,
    always,
    nullable_list,
    serializer_of,
    timer_serializer,
)
from pyflinkstate.backends.flink_format.snapshots import MakeForm, Serializer, SerializerRow
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    RegisteredStateMeta,
    SealedPickles,
    StateMeta,
    TtlTypeInfo,
)
from pyflinkstate.errors import ConfigurationError

PREFIX = "python-state-"
_IN_PARTS = (StateKind.LIST, StateKind.MAP)
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


def key_type_in_pyflink(key_type: TypeInformation) -> RowTypeInfo:
    """Return the type that the keys of a program have in Flink, which also decides their key groups."""
    return RowTypeInfo([key_type])


def with_row_keys(entries: KeyGroupEntries) -> KeyGroupEntries:
    """Return entries with the keys that Flink sees."""
    return attrs.evolve(entries, keys=[row_of([key], ("f0",)) for key in entries.keys])


def with_plain_keys(entries: KeyGroupEntries) -> KeyGroupEntries:
    """Return entries with the keys that the program sees; each key is a row of one field."""
    return attrs.evolve(entries, keys=[cast(Row, key)[0] for key in entries.keys])


def _namespace(meta: StateMeta) -> Serializer:
    is_time = isinstance(meta.namespace_type, TimeWindowSerializer)
    return Serializer(TABLE_TIME_WINDOW) if is_time else serializer_of(meta.namespace_type)


def _queue(meta: RegisteredQueueMeta, key: Serializer) -> FlinkState:
    namespace = _namespace(meta)
    return FlinkState(meta.name, None, timer_serializer(key, namespace), namespace)


# --- process mode ---------------------------------------------------------------------------------------

_TEXT = forms.Bytes(lambda value: cast(str, value).encode(), bytes.decode)
_MS = datetime.timedelta(milliseconds=1)
_MIDNIGHT = datetime.datetime(1970, 1, 1)


def _ms_of(moment: datetime.datetime) -> tuple[int, ...]:
    return ((moment - _MIDNIGHT) // _MS,)


#: How PyFlink's coders write types that Flink's serializers write otherwise.
_CODERS: dict[TypeInformation, Form] = {
    Types.STRING(): _TEXT,
    Types.CHAR(): _TEXT,
    Types.BIG_INT(): forms.Number("q"),
    Types.BIG_DEC(): forms.Bytes(lambda value: str(value).encode(), lambda data: Decimal(data.decode())),
    Types.SQL_DATE(): forms.Fields(
        "i", Types.SQL_DATE().from_internal_type, lambda date: (Types.SQL_DATE().to_internal_type(date),)
    ),
    Types.SQL_TIME(): forms.Fields(
        "i",
        lambda ms: (_MIDNIGHT + ms * _MS).time(),
        lambda time: _ms_of(datetime.datetime.combine(_MIDNIGHT, cast(datetime.time, time))),
    ),
    Types.SQL_TIMESTAMP(): forms.Fields(
        "q", lambda ms: _MIDNIGHT + ms * _MS, lambda moment: _ms_of(cast(datetime.datetime, moment))
    ),
    Types.BASIC_ARRAY(Types.STRING()): nullable_list(_TEXT),
    Types.PRIMITIVE_ARRAY(Types.CHAR()): forms.List(_TEXT),
}
_INSTEAD: dict[SerializerRow, MakeForm] = {
    serializer_of(type_info).row: always(form) for type_info, form in _CODERS.items()
}
_INSTEAD[LIST] = lambda _, parts: nullable_list(*parts)


class Coder:
    """The coder of one type in process mode. With time to live, a timestamp goes with the bytes."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._is_stamped = isinstance(type_info, TtlTypeInfo)
        self._form = serializer_of(type_info.parts()[0] if self._is_stamped else type_info).form(_INSTEAD)

    def decode(self, coded: object) -> list[object]:
        """Return the values in an element."""
        if self._is_stamped:
            timestamp_ms, data = cast(tuple[int, bytes], coded)
            return [(timestamp_ms, value) for value in self._values(data)]
        return self._values(cast(bytes, coded))

    def _values(self, data: bytes) -> list[object]:
        source, found = Reader(data), []
        while source.at < source.end:
            found.append(self._form.decode(source))
        return found

    def encode(self, value: object) -> object:
        """Return the element for a value."""
        if self._is_stamped:
            timestamp_ms, user_value = cast(tuple[int, object], value)
            return timestamp_ms, self._form.encode(user_value)
        return self._form.encode(value)


def _bytes_of(type_info: TypeInformation) -> TypeInformation:
    return TtlTypeInfo(_BYTES) if isinstance(type_info, TtlTypeInfo) else _BYTES


def state_in_process_mode(meta: StateMeta, key: Serializer) -> FlinkState:
    """Return the state that Flink sees for one of a program; ``key`` is that of rows."""
    if isinstance(meta, RegisteredQueueMeta):
        return _queue(meta, key)
    kind, value = StateKind.LIST, ListTypeInfo(_bytes_of(_stored_parts(meta)[-1]))
    serializer = serializer_of(value)
    if meta.kind is StateKind.MAP:
        kind, item = StateKind.MAP, serializer.parts[0]
        serializer = attrs.evolve(
            serializer_of(MapTypeInfo(_BYTES, _BYTES)), parts=(Serializer(WRAPPED_BYTES), item)
        )
    return FlinkState(PREFIX + meta.name, kind, serializer, _namespace(meta))


def _stored_parts(meta: RegisteredStateMeta) -> tuple[TypeInformation, ...]:
    """Return the types of a value, of an element, or of a key and a value."""
    return meta.stored_type.parts() if meta.kind in _IN_PARTS else (meta.stored_type,)


def from_process_mode(meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
    """Return entries as the program sees them; ``meta`` has its types.

    Raises:
        CorruptCheckpointError: the bytes are not those of the types.
    """
    plain = with_plain_keys(entries)
    if isinstance(meta, RegisteredQueueMeta):
        return plain
    coders = [Coder(part) for part in _stored_parts(meta)]
    with located(f"state {meta.name!r}", state=meta.name):
        return attrs.evolve(plain, values=[_decoded(meta.kind, coders, stored) for stored in entries.values])


def _decoded(kind: StateKind, coders: list[Coder], stored: object) -> object:
    *_, coder = coders
    if kind is StateKind.MAP:
        return {
            coders[0].decode(key)[0]: None if item is None else coder.decode(item)[0]
            for key, item in cast(dict[object, object], stored).items()
        }
    elements = cast(list[object], stored)
    if kind is StateKind.LIST:
        return [value for element in elements for value in coder.decode(element)]
    return coder.decode(elements[0])[0]


def to_process_mode(meta: StateMeta, entries: KeyGroupEntries) -> KeyGroupEntries:
    """Return entries as Flink sees them; ``meta`` has the types of the program.

    Raises:
        StateValueError: a value does not fit its type.
    """
    rows = with_row_keys(entries)
    if isinstance(meta, RegisteredQueueMeta):
        return rows
    coders = [Coder(part) for part in _stored_parts(meta)]
    with fitting(meta.name, "PyFlink's coder"):
        return attrs.evolve(rows, values=[_encoded(meta.kind, coders, stored) for stored in entries.values])


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


def state_in_thread_mode(meta: StateMeta, key: Serializer) -> FlinkState:
    """Return the state that Flink sees for one of a program; ``key`` is that of rows.

    Raises:
        ConfigurationError: PyFlink does not have this type in thread mode.
    """
    if isinstance(meta, RegisteredQueueMeta):
        return _queue(meta, key)
    types = [_thread_type(part) for part in _stored_parts(meta)]
    if meta.kind in _IN_PARTS:
        kind, stored = meta.kind, meta.stored_type.with_parts(types)
    else:
        kind, stored = StateKind.VALUE, types[0]
    return FlinkState(meta.name, kind, serializer_of(stored), _namespace(meta))
