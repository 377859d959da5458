"""The state files of one subtask and operator: one of all keyed state, one of all operator state.

::

    head | state 1: schema, one record batch per key group that has entries, end of stream | state 2 ...

The columns of keyed state are ``key``, ``namespace`` (only of state that has one) and ``value``, which for a
timer is its timestamp. In an increment a column ``removed`` says which entries were removed. Version 1 had
neither namespaces nor timers, version 2 had no increments, up to version 3 a ``FLOAT`` had 32 bits, and up to
version 4 the head did not say how long the values of a state live; all versions can still be read.

Operator state has one record batch for each state. A list state has a column ``value``, a broadcast state has
``key`` and ``value``. Version 1, in which a ``FLOAT`` had 32 bits, can still be read.

Each state is one Arrow IPC stream, so any Arrow reader opens it at its offset. Each record batch is
also a section of its own, with offset and checksum in the handle, so that a subtask that restores part
of the key groups reads only their bytes. The file is ordered by state, where Flink's files are ordered by key
group, so that each state has its schema once and is one readable table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Protocol

import attrs
import pyarrow as pa

from pyflinkstate.api import (
    JsonObject,
    Key,
    ListTypeInfo,
    MapTypeInfo,
    Namespace,
    StateKind,
    StateValue,
    Stored,
    T,
    TypeInformation,
    Types,
)
from pyflinkstate.backends.format.arrow_stream import batch_message, read_batch, schema_message
from pyflinkstate.backends.format.framing import (
    as_name,
    check_section,
    decode_head,
    encode_head,
    making_sense,
    version_of,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    NARROW_FLOAT,
    VOID_NAMESPACE_TYPE,
    WIDE_FLOAT,
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    arrow_type,
    decode_column,
    encode_column,
    type_from_json,
    type_to_json,
)
from pyflinkstate.errors import IncompatibleCheckpointError


@attrs.frozen
class KeyGroupEntries:
    """The entries of one state and key group; ``namespaces`` is None for the void namespace.

    In an increment ``removed`` says which entries were removed; their values mean nothing.
    """

    key_group: int
    keys: list[Key]
    namespaces: list[Namespace] | None
    values: list[Stored]
    removed: list[bool] | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def entry_keys(self) -> list[Key]:
        """Return the entry keys, under which a state map finds each entry."""
        return self.keys if self.namespaces is None else list(zip(self.keys, self.namespaces, strict=True))

    def picked(self, key_group: int, rows: list[int]) -> KeyGroupEntries:
        """Return the entries of ``rows``, which belong to ``key_group``."""

        def of(column: list[T]) -> list[T]:
            return [column[row] for row in rows]

        return KeyGroupEntries(
            key_group,
            of(self.keys),
            None if self.namespaces is None else of(self.namespaces),
            of(self.values),
            None if self.removed is None else of(self.removed),
        )


class KeyedStateSnapshot(Protocol):
    """The contents of one state at one moment."""

    @property
    def meta(self) -> StateMeta:
        """The name, kind and types of the state."""

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the key groups; each may be released when the next is asked for."""

    def release(self) -> None:
        """Release what is not yet released. Idempotent."""


# --- keyed state ---------------------------------------------------------------------------------------

STATE_FILE_MAGIC = b"PFSSTATE"
VERSION = 5
STATE_FILE_VERSIONS = frozenset({1, 2, 3, 4, VERSION})
#: From this version on a ``FLOAT`` has 64 bits.
_WIDE_FLOATS = 4

#: The kind of a timer queue in place of a state's (Flink: ``BackendStateType``).
QUEUE_KIND = "PRIORITY_QUEUE"


@attrs.frozen
class StateFileHead:
    """The head of a state file."""

    key_type: TypeInformation
    key_group_range: KeyGroupRange
    max_parallelism: int
    states: tuple[StateMeta, ...]
    #: Whether the file has only what changed since another file, to be applied on top of it.
    is_increment: bool = False
    #: Whether the file was written when a ``FLOAT`` had 32 bits.
    has_narrow_floats: bool = False

    def encode(self) -> bytes:
        """Return the head's bytes."""
        content: JsonObject = {
            "key_type": type_to_json(self.key_type),
            "key_groups": [self.key_group_range.start, self.key_group_range.end],
            "max_parallelism": self.max_parallelism,
            "states": [_meta_to_json(meta) for meta in self.states],
        }
        if self.is_increment:
            content["increment"] = True
        return encode_head(STATE_FILE_MAGIC, VERSION, content)

    @classmethod
    def decode(cls, head: bytes, what: str) -> StateFileHead:
        """Return the head that ``encode`` was called on."""
        content = decode_head(head, STATE_FILE_MAGIC, STATE_FILE_VERSIONS, what)
        with making_sense(what):
            return cls(
                key_type=type_from_json(content["key_type"]),
                key_group_range=KeyGroupRange(*content["key_groups"]),
                max_parallelism=content["max_parallelism"],
                states=tuple(_meta_from_json(state, what) for state in content["states"]),
                is_increment=content.get("increment", False) is True,
                has_narrow_floats=version_of(head) < _WIDE_FLOATS,
            )

    def codec(self, meta: StateMeta) -> StateCodec:
        """Return the reader of the state of ``meta``, or of its sealed form, in this file."""
        float_type = NARROW_FLOAT if self.has_narrow_floats else WIDE_FLOAT
        return StateCodec(self.key_type, meta, is_increment=self.is_increment, float_type=float_type)


def _meta_to_json(meta: StateMeta) -> JsonObject:
    kind = meta.kind.value if isinstance(meta, RegisteredStateMeta) else QUEUE_KIND
    content = {"name": meta.name, "kind": kind, "type": type_to_json(meta.stored_type)}
    if meta.is_namespaced:
        content["namespace"] = type_to_json(meta.namespace_type)
    if isinstance(meta, RegisteredStateMeta) and meta.ttl_ms is not None:
        content["ttl_ms"] = meta.ttl_ms
    return content


def _meta_from_json(content: JsonObject, what: str) -> StateMeta:
    name, spaced = as_name(content["name"]), content.get("namespace")
    namespace_type = VOID_NAMESPACE_TYPE if spaced is None else type_from_json(spaced)
    kind = content["kind"]
    if kind == QUEUE_KIND:
        return RegisteredQueueMeta(name, namespace_type)
    if kind not in {known.value for known in StateKind}:
        raise IncompatibleCheckpointError(
            f"{what} holds a kind of state that this release does not know: {kind}", file=what
        )
    stored_type, ttl_ms = type_from_json(content["type"]), content.get("ttl_ms")
    if ttl_ms is not None and (type(ttl_ms) is not int or ttl_ms < 0):
        raise ValueError(f"{str(ttl_ms)[:50]} is not a length of time in ms")
    return RegisteredStateMeta(name, StateKind(kind), stored_type, namespace_type, ttl_ms)


class _SectionCodec:
    """Turns the columns of one state into the bytes of a section, and back."""

    meta: StateMeta | RegisteredOperatorStateMeta
    compression: str | None
    float_type: pa.DataType

    def _fields(self) -> list[pa.Field]:
        """Return the columns of the state's stream."""
        raise NotImplementedError

    def _field(self, name: str, type_info: TypeInformation, nullable: bool = True) -> pa.Field:
        return pa.field(name, arrow_type(type_info, self.float_type), nullable=nullable)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the state's stream."""
        return pa.schema(self._fields())

    @cached_property
    def schema_message(self) -> bytes:
        """The first message of the state's stream; every batch needs its size."""
        return schema_message(self.schema)

    def message(self, batch: pa.RecordBatch) -> bytes:
        """Return the section of columns."""
        return batch_message(batch, len(self.schema_message), self.compression)

    def read(self, section: bytes | memoryview, checksum: int, what: str) -> pa.RecordBatch:
        """Return the columns of a section, without making Python objects of them.

        Raises:
            CorruptCheckpointError: the bytes were altered.
        """
        check_section(section, checksum, what)
        with making_sense(what):
            return read_batch(section, self.schema)


@attrs.frozen(slots=False)
class StateCodec(_SectionCodec):
    """Turns the entries of one keyed state and key group into bytes, and back."""

    key_type: TypeInformation
    meta: StateMeta
    compression: str | None = "zstd"
    is_increment: bool = False
    float_type: pa.DataType = WIDE_FLOAT

    def _fields(self) -> list[pa.Field]:
        fields = [self._field("key", self.key_type, nullable=False)]
        if self.meta.is_namespaced:
            fields.append(self._field("namespace", self.meta.namespace_type, nullable=False))
        fields.append(self._field("value", self.meta.stored_type))
        if self.is_increment:
            fields.append(pa.field("removed", pa.bool_(), nullable=False))
        return fields

    def encode(self, entries: KeyGroupEntries) -> bytes:
        """Return the section of one key group."""
        return self.message(self.to_batch(entries))

    def to_batch(self, entries: KeyGroupEntries) -> pa.RecordBatch:
        """Return the entries of one key group as Arrow columns."""
        columns = [encode_column(self.key_type, entries.keys)]
        if entries.namespaces is not None:
            columns.append(encode_column(self.meta.namespace_type, entries.namespaces))
        columns.append(encode_column(self.meta.stored_type, entries.values))
        if self.is_increment:
            columns.append(encode_column(Types.BOOLEAN(), entries.removed or []))
        return pa.record_batch(columns, schema=self.schema)

    def decode(
        self, key_group: int, section: bytes | memoryview, checksum: int, what: str
    ) -> KeyGroupEntries:
        """Return the entries that were passed to ``encode``.

        Raises:
            CorruptCheckpointError: the bytes were altered.
        """
        batch = self.read(section, checksum, what)
        with making_sense(what):
            namespaces = None
            if self.meta.is_namespaced:
                namespaces = decode_column(self.meta.namespace_type, batch.column("namespace"))
            return KeyGroupEntries(
                key_group,
                decode_column(self.key_type, batch.column("key")),
                namespaces,
                decode_column(self.meta.stored_type, batch.column("value")),
                batch.column("removed").to_pylist() if self.is_increment else None,
            )


# --- operator state ------------------------------------------------------------------------------------

OPERATOR_FILE_MAGIC = b"PFSOPSTA"
OPERATOR_FILE_VERSION = 2
OPERATOR_FILE_VERSIONS = frozenset({1, OPERATOR_FILE_VERSION})


def encode_metas(metas: list[RegisteredOperatorStateMeta]) -> bytes:
    """Return the head of a file with these operator states."""
    states = [
        {"name": meta.name, "mode": meta.mode.value, "type": type_to_json(meta.stored_type)} for meta in metas
    ]
    return encode_head(OPERATOR_FILE_MAGIC, OPERATOR_FILE_VERSION, {"states": states})


def float_type_of(head: bytes) -> pa.DataType:
    """Return the Arrow type of the ``FLOAT`` numbers in a file of operator state."""
    return NARROW_FLOAT if version_of(head) < OPERATOR_FILE_VERSION else WIDE_FLOAT


def decode_metas(head: bytes, what: str) -> list[RegisteredOperatorStateMeta]:
    """Return the states that were passed to :func:`encode_metas`."""
    content = decode_head(head, OPERATOR_FILE_MAGIC, OPERATOR_FILE_VERSIONS, what)
    with making_sense(what):
        return [_operator_meta_from_json(state) for state in content["states"]]


def _operator_meta_from_json(state: JsonObject) -> RegisteredOperatorStateMeta:
    mode, stored_type = OperatorStateMode(state["mode"]), type_from_json(state["type"])
    if not isinstance(stored_type, MapTypeInfo if mode is OperatorStateMode.BROADCAST else ListTypeInfo):
        raise TypeError(f"a {mode.value} state is not a {stored_type}")
    return RegisteredOperatorStateMeta(as_name(state["name"]), mode, stored_type)


@attrs.frozen(slots=False)
class OperatorStateCodec(_SectionCodec):
    """Turns the columns of one operator state into bytes, and back."""

    meta: RegisteredOperatorStateMeta
    compression: str | None = "zstd"
    float_type: pa.DataType = WIDE_FLOAT

    def _fields(self) -> list[pa.Field]:
        return [self._field(*column) for column in self.meta.columns]

    def encode(self, columns: tuple[list[StateValue], ...]) -> bytes:
        """Return the section of a state."""
        types = [type_info for _, type_info in self.meta.columns]
        return self.message(pa.record_batch(list(map(encode_column, types, columns)), schema=self.schema))

    def decode(self, section: bytes, checksum: int, what: str) -> tuple[list[StateValue], ...]:
        """Return the columns that were passed to ``encode``.

        Raises:
            CorruptCheckpointError: the bytes were altered.
        """
        batch = self.read(section, checksum, what)
        with making_sense(what):
            return tuple(
                decode_column(type_info, batch.column(name)) for name, type_info in self.meta.columns
            )
