"""The operator state file: all operator state of one subtask.

::

    head | state 1: schema, one record batch, end of stream | state 2 ...

As in the state file, each state is one Arrow stream, and its batch is a section of its own. A list state
has a column ``value``, a broadcast state has ``key`` and ``value``. Version 1, in which a ``FLOAT`` had 32
bits, can still be read.
"""

from __future__ import annotations

import attrs
import pyarrow as pa

from pyflinkstate.api.types import ListTypeInfo, MapTypeInfo
from pyflinkstate.api.values import JsonObject, StateValue
from pyflinkstate.backends.format.arrow_stream import batch_message, read_batch, schema_message
from pyflinkstate.backends.format.framing import (
    as_name,
    check_section,
    decode_head,
    encode_head,
    making_sense,
    version_of,
)
from pyflinkstate.backends.types import (
    NARROW_FLOAT,
    WIDE_FLOAT,
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    arrow_type,
    decode_column,
    encode_column,
    type_from_json,
    type_to_json,
)

OPERATOR_FILE_MAGIC = b"PFSOPSTA"
VERSION = 2
OPERATOR_FILE_VERSIONS = frozenset({1, VERSION})


def encode_metas(metas: list[RegisteredOperatorStateMeta]) -> bytes:
    """Return the head of a file with these states."""
    states = [
        {"name": meta.name, "mode": meta.mode.value, "type": type_to_json(meta.stored_type)} for meta in metas
    ]
    return encode_head(OPERATOR_FILE_MAGIC, VERSION, {"states": states})


def float_type_of(head: bytes) -> pa.DataType:
    """Return the Arrow type of the ``FLOAT`` numbers in a file."""
    return NARROW_FLOAT if version_of(head) < VERSION else WIDE_FLOAT


def decode_metas(head: bytes, what: str) -> list[RegisteredOperatorStateMeta]:
    """Return the states that were passed to :func:`encode_metas`."""
    content = decode_head(head, OPERATOR_FILE_MAGIC, OPERATOR_FILE_VERSIONS, what)
    with making_sense(what):
        return [_meta_from_json(state) for state in content["states"]]


def _meta_from_json(state: JsonObject) -> RegisteredOperatorStateMeta:
    mode, stored_type = OperatorStateMode(state["mode"]), type_from_json(state["type"])
    if not isinstance(stored_type, MapTypeInfo if mode is OperatorStateMode.BROADCAST else ListTypeInfo):
        raise TypeError(f"a {mode.value} state is not a {stored_type}")
    return RegisteredOperatorStateMeta(as_name(state["name"]), mode, stored_type)


@attrs.frozen
class OperatorStateCodec:
    """Turns the columns of one state into bytes, and back."""

    meta: RegisteredOperatorStateMeta
    compression: str | None = "zstd"
    float_type: pa.DataType = WIDE_FLOAT

    @property
    def schema(self) -> pa.Schema:
        """The schema of the state's stream."""
        columns = self.meta.columns
        return pa.schema([pa.field(name, arrow_type(column, self.float_type)) for name, column in columns])

    def encode(self, columns: tuple[list[StateValue], ...]) -> bytes:
        """Return the section of a state."""
        arrays = [
            encode_column(type_info, values)
            for (_, type_info), values in zip(self.meta.columns, columns, strict=True)
        ]
        schema = self.schema
        return batch_message(
            pa.record_batch(arrays, schema=schema), len(schema_message(schema)), self.compression
        )

    def decode(self, section: bytes, checksum: int, what: str) -> tuple[list[StateValue], ...]:
        """Return the columns that were passed to ``encode``.

        Raises:
            CorruptCheckpointError: the bytes were altered.
        """
        batch = self.read(section, checksum, what)
        with making_sense(what):
            columns = self.meta.columns
            return tuple(decode_column(type_info, batch.column(name)) for name, type_info in columns)

    def read(self, section: bytes, checksum: int, what: str) -> pa.RecordBatch:
        """Return the columns of a section, without making Python objects of them.

        Raises:
            CorruptCheckpointError: the bytes were altered.
        """
        check_section(section, checksum, what)
        with making_sense(what):
            return read_batch(section, self.schema)
