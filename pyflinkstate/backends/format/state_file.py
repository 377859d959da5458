"""The state file: all keyed state of one subtask and operator.

::

    head | state 1: schema, one record batch per key group that has entries, end of stream | state 2 ...

Each state is one Arrow IPC stream, so any Arrow reader opens it at its offset. Each record batch is
also a section of its own, with offset and checksum in the handle, so that a subtask that restores part
of the key groups reads just those bytes. States come one after the other, not key groups as in Flink's
files: that way a state has its schema once, and is one readable table.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import attrs
import pyarrow as pa

from pyflinkstate.api.descriptors import StateKind
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.format.framing import decode_head, encode_head
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.serializers import (
    arrow_type,
    decode_column,
    encode_column,
    type_from_json,
    type_to_json,
)
from pyflinkstate.backends.state_meta import RegisteredStateMeta
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError

MAGIC = b"PFSSTATE"
VERSION = 1

#: Arrow's end-of-stream marker: the continuation marker and a zero length.
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)


@attrs.frozen
class StateFileHead:
    """What leads a state file."""

    key_type: TypeInformation
    key_group_range: KeyGroupRange
    max_parallelism: int
    states: tuple[RegisteredStateMeta, ...]

    def encode(self) -> bytes:
        """Return the head's bytes."""
        content = {
            "key_type": type_to_json(self.key_type),
            "key_groups": [self.key_group_range.start, self.key_group_range.end],
            "max_parallelism": self.max_parallelism,
            "states": [
                {
                    "name": meta.name,
                    "kind": meta.kind.value,
                    "type": type_to_json(meta.stored_type),
                }
                for meta in self.states
            ],
        }
        return encode_head(MAGIC, VERSION, content)

    @classmethod
    def decode(cls, head: bytes, what: str) -> StateFileHead:
        """Return the head that ``encode`` was called on."""
        content = decode_head(head, MAGIC, VERSION, what)
        unknown = {state["kind"] for state in content["states"]} - {kind.value for kind in StateKind}
        if unknown:
            raise IncompatibleCheckpointError(f"{what} holds a state kind unknown here: {unknown}", file=what)
        return cls(
            key_type=type_from_json(content["key_type"]),
            key_group_range=KeyGroupRange(*content["key_groups"]),
            max_parallelism=content["max_parallelism"],
            states=tuple(
                RegisteredStateMeta(state["name"], StateKind(state["kind"]), type_from_json(state["type"]))
                for state in content["states"]
            ),
        )


@attrs.frozen
class StateCodec:
    """Turns the entries of one state and key group into bytes, and back."""

    key_type: TypeInformation
    stored_type: TypeInformation
    compression: str | None = "zstd"
    schema: pa.Schema = attrs.field(init=False, eq=False, repr=False)

    @schema.default
    def _schema_of_types(self) -> pa.Schema:
        return pa.schema(
            [
                pa.field("key", arrow_type(self.key_type), nullable=False),
                pa.field("value", arrow_type(self.stored_type)),
            ]
        )

    #: The message that leads the state's stream.
    schema_message: bytes = attrs.field(init=False, eq=False, repr=False)

    @schema_message.default
    def _message_of_schema(self) -> bytes:
        return bytes(self.schema.serialize())

    def encode(self, keys: Sequence[Any], values: Sequence[Any]) -> bytes:
        """Return the section of one key group."""
        columns = [encode_column(self.key_type, keys), encode_column(self.stored_type, values)]
        batch = pa.record_batch(columns, schema=self.schema)
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression=self.compression)
        with pa.ipc.new_stream(sink, self.schema, options=options) as stream:
            stream.write_batch(batch)
        message = sink.getvalue()
        return bytes(message[len(self.schema_message) : -len(END_OF_STREAM)])

    def decode(self, section: bytes, checksum: int, what: str) -> tuple[list[Any], list[Any]]:
        """Return the keys and values that ``encode`` was given.

        Raises:
            CorruptCheckpointError: the bytes are not those that were written.
        """
        if zlib.crc32(section) != checksum:
            raise CorruptCheckpointError(f"{what} is damaged: its bytes were altered", file=what)
        batch = pa.ipc.read_record_batch(pa.py_buffer(section), self.schema)
        keys = decode_column(self.key_type, batch.column(0))
        values = decode_column(self.stored_type, batch.column(1))
        return keys, values
