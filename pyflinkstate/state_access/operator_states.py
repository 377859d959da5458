"""Operator state as tables: a row an element of a list, or an entry of a broadcast state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeAlias

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.format import (
    OPERATOR_FILE_MAGIC,
    OperatorState,
    OperatorStateCodec,
    OperatorStateHandle,
    StateReader,
    decode_metas,
    float_type_of,
    read_head,
)
from pyflinkstate.backends.types import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    arrow_type,
    common_type,
    decode_column,
    encode_column,
    sealed,
    type_migration,
)
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError
from pyflinkstate.state_access.tables import Column, Read, StateTable


@attrs.frozen
class WrittenState:
    """One operator state in the file of one subtask; ``codec`` reads it with pickles sealed."""

    subtask: int
    handle: OperatorStateHandle
    meta: RegisteredOperatorStateMeta
    codec: OperatorStateCodec


#: Reads the state of some subtasks.
ReadParts: TypeAlias = Callable[[list[WrittenState]], Iterator[pa.RecordBatch]]


@attrs.define(slots=False)
class OperatorStates:
    """All operator state of one operator."""

    operator: OperatorState
    reader: StateReader
    allow_pickle: bool = False

    @cached_property
    def written(self) -> dict[str, list[WrittenState]]:
        """The parts of each state by subtask, in order; of broadcast state only one, as all are the same."""
        found: dict[str, list[WrittenState]] = {}
        for subtask, state in enumerate(self.operator.subtasks):
            handle = state.managed_operator
            for written in () if handle is None else self._of_file(subtask, handle):
                parts = found.setdefault(written.meta.name, [])
                if not parts or written.meta.mode is not OperatorStateMode.BROADCAST:
                    parts.append(written)
        return found

    def _of_file(self, subtask: int, handle: OperatorStateHandle) -> Iterator[WrittenState]:
        what = self.reader.describe(handle.stream)
        head = read_head(self.reader, handle.stream, OPERATOR_FILE_MAGIC)
        metas = {meta.name: meta for meta in decode_metas(head, what)}
        for name in handle.states:
            if name not in metas:
                raise CorruptCheckpointError(
                    f"{what} is damaged: it lacks operator state {name!r}", file=what
                )
            meta = metas[name]
            bare = attrs.evolve(meta, stored_type=sealed(meta.stored_type))
            yield WrittenState(
                subtask, handle, meta, OperatorStateCodec(bare, float_type=float_type_of(head))
            )

    def table(self, name: str) -> StateTable:
        """Return a row for each element or entry of a state."""
        parts = self.written[name]
        types = {column: self._common(name, n) for n, (column, _) in enumerate(parts[0].meta.columns)}
        values = [
            Column(column, arrow_type(sealed(type_info)), type_info) for column, type_info in types.items()
        ]
        columns = (Column("subtask", pa.int32()), Column("position", pa.int64()), *values)
        read = partial(OperatorStates._batches, self, columns=columns)
        return StateTable(columns, partial(read, parts), self.allow_pickle, partial(_split, read, parts))

    def _common(self, name: str, column: int) -> TypeInformation:
        """Return the type that holds the values of all subtasks."""
        types = [part.meta.columns[column][1] for part in self.written[name]]
        found: TypeInformation | None = types[0]
        for type_info in types:
            found = None if found is None else common_type(found, type_info)
        if found is None:
            raise IncompatibleCheckpointError(
                f"operator state {name!r} is of {' and '.join(sorted(set(map(str, types))))} in the files of "
                f"the subtasks",
                state=name,
            )
        return found

    def _batches(self, parts: list[WrittenState], columns: tuple[Column, ...]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(column.name, column.arrow) for column in columns])
        for part in parts:
            batch = self._read(part)
            if batch.num_rows:
                values = [_as(part, column, batch) for column in columns[2:]]
                subtask = pa.repeat(pa.scalar(part.subtask, pa.int32()), batch.num_rows)
                positions = pa.array(range(batch.num_rows), pa.int64())
                yield pa.record_batch([subtask, positions, *values], schema=schema)

    def _read(self, part: WrittenState) -> pa.RecordBatch:
        section = part.handle.states[part.meta.name].section
        what = f"{self.reader.describe(part.handle.stream)}, operator state {part.meta.name!r}"
        data = self.reader.read(part.handle.stream, section.offset, section.length)
        return part.codec.read(data, section.checksum, what)


def _split(read: ReadParts, parts: list[WrittenState], number: int | None) -> list[Read]:
    """Return readers, each of the state of some subtasks."""
    count = min(number or len(parts), len(parts))
    ends = [len(parts) * n // count for n in range(count + 1)]
    return [partial(read, parts[begin:end]) for begin, end in pairwise(ends)]


def _as(part: WrittenState, column: Column, batch: pa.RecordBatch) -> pa.Array:
    """Return a column of a file in the type that it has in the table."""
    was, array = dict(part.codec.meta.columns)[column.name], batch.column(column.name)
    assert column.type_info is not None
    now = sealed(column.type_info)
    if was == now:
        return array.cast(column.arrow)
    convert = type_migration(was, now, lambda: 0, is_key=column.name == "key").convert
    return encode_column(now, [convert(value) for value in decode_column(was, array)])
