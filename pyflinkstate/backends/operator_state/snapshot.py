"""Snapshot and restore of operator state (Flink: ``DefaultOperatorStateBackendSnapshotStrategy``)."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import attrs

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    OPERATOR_FILE_MAGIC,
    CheckpointStreamFactory,
    OperatorStateCodec,
    OperatorStateEntry,
    OperatorStateHandle,
    SectionWriter,
    StateReader,
    decode_metas,
    encode_metas,
    float_type_of,
    read_head,
    schema_message,
    write_file,
)
from pyflinkstate.backends.operator_state.backend import DefaultOperatorStateBackend
from pyflinkstate.backends.operator_state.migration import (
    Columns,
    OperatorStateMigration,
    common_operator_meta,
)
from pyflinkstate.backends.operator_state.states import HeapOperatorState
from pyflinkstate.backends.types import MISFITS, RegisteredOperatorStateMeta, sealed
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError, StateValueError


@attrs.frozen
class OperatorStateResources:
    """Copies of all operator state, which is small enough to copy in the synchronous part, as in Flink."""

    states: tuple[tuple[RegisteredOperatorStateMeta, tuple[list[StateValue], ...]], ...]

    def release(self) -> None:
        """Do nothing: the copies need no release."""


@attrs.frozen
class OperatorStateSnapshotStrategy:
    """Takes and writes snapshots of operator state."""

    backend: DefaultOperatorStateBackend
    compression: str | None = "zstd"

    def sync_prepare_resources(self) -> OperatorStateResources:
        """Run the synchronous part: copy all state."""
        states = self.backend.registered_states.values()
        return OperatorStateResources(tuple((state.meta, state.columns()) for state in states))

    def async_snapshot(
        self,
        resources: OperatorStateResources,
        streams: CheckpointStreamFactory,
        cancelled: threading.Event,
    ) -> OperatorStateHandle | None:
        """Run the asynchronous part: write the copies. Return None if there is no operator state."""
        if not resources.states:
            return None
        return write_file(streams, cancelled, lambda writer: self._write(writer, resources))

    def _write(self, writer: SectionWriter, resources: OperatorStateResources) -> OperatorStateHandle:
        writer.append(encode_metas([meta for meta, _ in resources.states]))
        entries: dict[str, OperatorStateEntry] = {}
        for meta, columns in resources.states:
            codec = OperatorStateCodec(meta, self.compression)
            writer.append(schema_message(codec.schema))
            section = writer.append_section(_encoded(codec, columns))
            entries[meta.name] = OperatorStateEntry(meta.mode, section, len(columns[0]))
            writer.append(END_OF_STREAM)
        return OperatorStateHandle(writer.close(), entries)


def _encoded(codec: OperatorStateCodec, columns: tuple[list[StateValue], ...]) -> bytes:
    try:
        return codec.encode(columns)
    except StateValueError as error:
        name = codec.meta.name
        raise StateValueError(f"operator state {name!r}: {error}", state=name) from error
    except MISFITS as error:
        raise _misfit(codec.meta, columns) or error from error


def _misfit(
    meta: RegisteredOperatorStateMeta, columns: tuple[list[StateValue], ...]
) -> StateValueError | None:
    """Return the error of the first value that does not fit, or None if all do.

    A state checks each value that it is given, but a value can be changed in place afterwards.
    """
    check = meta.columns[-1][1].check
    for number, (*key, value) in enumerate(zip(*columns, strict=True)):
        try:
            if value is not None:
                check(value)
        except ValueError as error:
            where = f"entry {safe_repr(key[0])}" if key else f"element {number}"
            return StateValueError(
                f"operator state {meta.name!r}, {where}: {error}; it was changed in place after it was "
                f"checked: call update(), or put(), after changing a value",
                state=meta.name,
            )
    return None


@attrs.frozen
class OperatorStateRestoreOperation:
    """Fills a new backend with a subtask's assigned state (Flink: ``OperatorStateRestoreOperation``)."""

    backend: DefaultOperatorStateBackend
    reader: StateReader

    def restore(self, handles: Iterable[OperatorStateHandle]) -> None:
        """Load the elements that ``handles`` select.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
            IncompatibleCheckpointError: two files do not agree on a state.
        """
        for handle in handles:
            codecs = self._codecs(handle)
            for name, entry in handle.states.items():
                if name not in codecs:
                    what = self.reader.describe(handle.stream)
                    raise CorruptCheckpointError(
                        f"{what} is damaged: it lacks operator state {name!r}", file=what
                    )
                self._restore_state(handle, codecs[name], entry)

    def _codecs(self, handle: OperatorStateHandle) -> dict[str, OperatorStateCodec]:
        head = read_head(self.reader, handle.stream, OPERATOR_FILE_MAGIC)
        metas = decode_metas(head, self.reader.describe(handle.stream))
        float_type = float_type_of(head)
        return {
            meta.name: OperatorStateCodec(
                attrs.evolve(meta, stored_type=sealed(meta.stored_type)), float_type=float_type
            )
            for meta in metas
        }

    def _restore_state(
        self, handle: OperatorStateHandle, codec: OperatorStateCodec, entry: OperatorStateEntry
    ) -> None:
        meta = codec.meta
        what = f"{self.reader.describe(handle.stream)}, operator state {meta.name!r}"
        data = self.reader.read(handle.stream, entry.section.offset, entry.section.length)
        columns = codec.decode(data, entry.section.checksum, what)
        self._load(meta, tuple(column[entry.start : entry.stop] for column in columns))

    def _load(self, meta: RegisteredOperatorStateMeta, columns: Columns) -> None:
        """Add restored columns. Subtasks may have migrated the state at different times."""
        state = self.backend.registered_states.get(meta.name)
        if state is None:
            state = self.backend.create_state(meta)
        elif state.meta != meta:
            state, columns = _united(state, meta, columns)
            self.backend.registered_states[meta.name] = state
        state.load(columns)


def _united(
    state: HeapOperatorState, meta: RegisteredOperatorStateMeta, columns: Columns
) -> tuple[HeapOperatorState, Columns]:
    """Return the restored state and the columns to be added to it, both converted to their common type."""
    try:
        both = common_operator_meta(state.meta, meta)
        of_state, of_columns = (OperatorStateMigration.of(was, both) for was in (state.meta, meta))
        return of_state.moved(state), of_columns.converted(columns)
    except ValueError as error:
        raise IncompatibleCheckpointError(
            f"operator state {meta.name!r} is {meta} in one subtask's file and {state.meta} in another's",
            state=meta.name,
        ) from error
