"""Operator state files, of one subtask and operator each.

The handle (``metadata.py``) says where each element of a list begins, and where a broadcast state does::

    i4 6 | bool compressed | u2 n | n x META of lists | u2 n | n x META of broadcast states | elements
    broadcast = i4 n | n x {key, value}

META is described in ``keyed_state.py``. In a compressed file, each element has frames of its own
(``snappy.py``). An element of an unknown serializer stays bytes.

The readers of a source keep its splits as operator state of bytes, one element for each split. Those of the
Kafka source are partitions (``KafkaPartitionSplitSerializer``)::

    i4 0 | i4 n | UTF topic | i4 partition | i8 next offset | i8 where it stops

Until a record was read, the next offset may be negative: -1 is the end of the partition, -2 its begin, and -3
the offset of the consumer group.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import attrs

from pyflinkstate.api import ListTypeInfo, MapTypeInfo
from pyflinkstate.backends.flink_format.cursor import Reader, four_bytes
from pyflinkstate.backends.flink_format.errors import fitting, located
from pyflinkstate.backends.flink_format.keyed_state import Read, read_meta, write_meta
from pyflinkstate.backends.flink_format.metadata import OperatorStateHandle
from pyflinkstate.backends.flink_format.serializers import serializer_of
from pyflinkstate.backends.flink_format.snappy import decompress
from pyflinkstate.backends.flink_format.snapshots import Serializer
from pyflinkstate.backends.types import OperatorStateMode, RegisteredOperatorStateMeta

VERSION = 6
_MODE_OPTION = "OPERATOR_STATE_DISTRIBUTION_MODE"
#: Which serializers a list and a broadcast state have.
_OF_LIST, _OF_BROADCAST = ("VALUE_SERIALIZER",), ("KEY_SERIALIZER", "VALUE_SERIALIZER")
#: The name of the operator state with the splits.
READER_STATE = "SourceReaderState"


@attrs.frozen
class FlinkOperatorState:
    """An operator state and its content.

    Attributes:
        name: the name of its descriptor.
        mode: how it is distributed on a restore.
        parts: the serializer of the elements, or those of the keys and values of a broadcast state.
        columns: the elements, or the keys and the values.
    """

    name: str
    mode: OperatorStateMode
    parts: tuple[Serializer, ...]
    columns: tuple[list[object], ...]

    @staticmethod
    def of(meta: RegisteredOperatorStateMeta, columns: Sequence[list[object]]) -> FlinkOperatorState:
        """Return the state that Flink would have for one of this project."""
        parts = tuple([serializer_of(part) for part in meta.stored_type.parts()])
        return FlinkOperatorState(meta.name, meta.mode, parts, tuple(columns))

    @property
    def meta(self) -> RegisteredOperatorStateMeta:
        """What this project knows of such a state."""
        types = [part.type_info() for part in self.parts]
        make = MapTypeInfo if self.mode is OperatorStateMode.BROADCAST else ListTypeInfo
        return RegisteredOperatorStateMeta(self.name, self.mode, make(*types))


def read_operator_state(handle: OperatorStateHandle, read: Read, where: str) -> list[FlinkOperatorState]:
    """Return all operator states of a subtask.

    Raises:
        CorruptCheckpointError: the file makes no sense. ``where`` names it.
        IncompatibleCheckpointError: another release of Flink wrote it.
    """
    begins = sorted([offset for _, offsets in handle.states.values() for offset in offsets])
    ends = dict(itertools.pairwise([*begins, handle.stream.size_bytes]))
    with located(where, file=where):
        source = Reader(read(0, min(ends, default=handle.stream.size_bytes)))
        source.version("operator state", VERSION, VERSION)
        is_compressed = source.byte() != 0
        parts = {}
        for names in (_OF_LIST, _OF_BROADCAST):
            for _ in range(source.unsigned(2)):
                name, _, _, serializers = read_meta(source)
                parts[name] = [serializers[part] for part in names]
        states = []
        for name, (mode, offsets) in handle.states.items():
            with located(f"state {name!r}", state=name):
                if (mode is OperatorStateMode.BROADCAST) != (len(parts[name]) > 1):
                    raise source.damaged(f"its mode is {mode.value}")
                sections = [Reader(read(offset, ends[offset] - offset), offset) for offset in offsets]
                if is_compressed:
                    sections = [Reader(decompress(section), section.origin) for section in sections]
                columns = _read_columns(parts[name], sections)
                states.append(FlinkOperatorState(name, mode, tuple(parts[name]), columns))
        return states


def _read_columns(parts: list[Serializer], sections: list[Reader]) -> tuple[list[object], ...]:
    forms = [part.form() for part in parts]
    columns: tuple[list[object], ...] = tuple([[] for _ in parts])
    for section in sections:
        for _ in range(section.count() if len(parts) > 1 else 1):
            for form, column in zip(forms, columns, strict=True):
                column.append(form.decode(section))
    return columns


def write_operator_state(
    states: Sequence[FlinkOperatorState], write: Callable[[bytes], object]
) -> dict[str, tuple[OperatorStateMode, tuple[int, ...]]]:
    """Write a file of operator states, and return the mode and the offsets of each for its handle.

    Raises:
        StateValueError: a value does not fit the serializer of its state.
    """
    lists = [state for state in states if state.mode is not OperatorStateMode.BROADCAST]
    broadcasts = [state for state in states if state.mode is OperatorStateMode.BROADCAST]
    head = [four_bytes(VERSION), b"\0"]
    for kind, names, some in ((1, _OF_LIST, lists), (2, _OF_BROADCAST, broadcasts)):
        head.append(len(some).to_bytes(2, "big"))
        for state in some:
            serializers = dict(zip(names, state.parts, strict=True))
            head.append(write_meta(state.name, kind, {_MODE_OPTION: state.mode.value}, serializers))
    start = b"".join(head)
    write(start)
    position, found = len(start), {}
    for state in lists + broadcasts:
        offsets = []
        for section in _sections(state):
            offsets.append(position)
            write(section)
            position += len(section)
        found[state.name] = state.mode, tuple(offsets)
    return found


def _sections(state: FlinkOperatorState) -> list[bytes]:
    with fitting(state.name, ", ".join(map(str, state.parts))):
        columns = [
            [part.form().encode(value) for value in column]
            for part, column in zip(state.parts, state.columns, strict=True)
        ]
    if state.mode is not OperatorStateMode.BROADCAST:
        return columns[0]
    size = four_bytes(len(columns[0]))
    return [size + b"".join([key + value for key, value in zip(*columns, strict=True)])]


def kafka_offsets(splits: Iterable[bytes]) -> dict[tuple[str, int], int]:
    """Return the next offset by topic and partition.

    Raises:
        CorruptCheckpointError: a split makes no sense.
        IncompatibleCheckpointError: another kind of source, or another release of it, wrote a split.
    """
    found = {}
    with located(f"state {READER_STATE!r}", state=READER_STATE):
        for split in splits:
            source = Reader(split)
            source.version("a split of the Kafka source", 0, 0)
            whole = source.enter()
            partition = source.utf(), source.unsigned(4)
            found[partition] = source.long()
            source.long()
            source.leave(whole)
    return found
