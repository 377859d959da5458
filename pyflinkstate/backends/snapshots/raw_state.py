"""Raw state: bytes that a function writes and reads itself, by key group or by partition."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import attrs

from pyflinkstate.backends.format import (
    RAW_KEYED_STATE,
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    RawOperatorStateHandle,
    Section,
    SectionWriter,
    StateReader,
    StreamStateHandle,
    read_section,
    write_file,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import CheckpointError


class RawKeyedStateBuffer:
    """Collects raw keyed state (Flink: ``KeyedStateCheckpointOutputStream``)."""

    def __init__(self, key_group_range: KeyGroupRange) -> None:
        self.key_group_range = key_group_range
        self.key_groups: dict[int, bytearray] = {}
        self._current: bytearray | None = None

    def start_new_key_group(self, key_group: int) -> None:
        """Start to write a key group."""
        if key_group not in self.key_group_range:
            raise CheckpointError(
                f"raw keyed state: key group {key_group} is not in the subtask's range {self.key_group_range}"
            )
        if key_group in self.key_groups:
            raise CheckpointError(f"raw keyed state: key group {key_group} was started before")
        self._current = self.key_groups[key_group] = bytearray()

    def write(self, data: bytes) -> None:
        """Append to the key group that was started last."""
        if self._current is None:
            raise CheckpointError("raw keyed state: call start_new_key_group() before write()")
        self._current += data

    def snapshot(self) -> RawKeyedStateSnapshot:
        """Return a snapshot of what was written so far; later bytes belong to no snapshot."""
        key_groups = {group: bytes(data) for group, data in self.key_groups.items()}
        return RawKeyedStateSnapshot(self.key_group_range, key_groups)


class RawOperatorStateBuffer:
    """Collects raw operator state (Flink: ``OperatorStateCheckpointOutputStream``)."""

    def __init__(self) -> None:
        self.partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Start a partition."""
        self.partitions.append(bytearray())

    def write(self, data: bytes) -> None:
        """Append to the partition that was started last."""
        if not self.partitions:
            self.start_new_partition()
        self.partitions[-1] += data

    def snapshot(self) -> RawOperatorStateSnapshot:
        """Return a snapshot of what was written so far; later bytes belong to no snapshot."""
        return RawOperatorStateSnapshot(tuple(map(bytes, self.partitions)))


@attrs.frozen
class RawKeyedStateSnapshot:
    """Writes the raw keyed state of one snapshot; the result is None if the function wrote none."""

    key_group_range: KeyGroupRange
    key_groups: dict[int, bytes]

    def write(
        self, streams: CheckpointStreamFactory, cancelled: threading.Event
    ) -> KeyGroupsStateHandle | None:
        """Write the file and return its handle."""
        if not self.key_groups:
            return None

        def sections(writer: SectionWriter) -> KeyGroupsStateHandle:
            found = {group: writer.append_section(data) for group, data in self.key_groups.items()}
            return KeyGroupsStateHandle(self.key_group_range, writer.close(), {RAW_KEYED_STATE: found})

        return write_file(streams, cancelled, sections)


@attrs.frozen
class RawOperatorStateSnapshot:
    """Writes the raw operator state of one snapshot; the result is None if the function wrote none."""

    partitions: tuple[bytes, ...]

    def write(
        self, streams: CheckpointStreamFactory, cancelled: threading.Event
    ) -> RawOperatorStateHandle | None:
        """Write the file and return its handle."""
        if not self.partitions:
            return None

        def sections(writer: SectionWriter) -> RawOperatorStateHandle:
            found = tuple(writer.append_section(data) for data in self.partitions)
            return RawOperatorStateHandle(writer.close(), found)

        return write_file(streams, cancelled, sections)


def read_raw_keyed_state(
    handles: Iterable[KeyGroupsStateHandle], owned: KeyGroupRange, reader: StateReader
) -> Iterator[tuple[int, bytes]]:
    """Iterate over the key groups in ``owned`` and their bytes."""
    for handle in handles:
        for key_group, section in handle.sections.get(RAW_KEYED_STATE, {}).items():
            if key_group in owned:
                yield key_group, _read(reader, handle.stream, section)


def read_raw_operator_state(
    handles: Iterable[RawOperatorStateHandle], reader: StateReader
) -> Iterator[bytes]:
    """Iterate over the partitions of ``handles``."""
    for handle in handles:
        for section in handle.partitions:
            yield _read(reader, handle.stream, section)


def _read(reader: StateReader, stream: StreamStateHandle, section: Section) -> bytes:
    return read_section(reader, stream, section, f"{reader.describe(stream)}, raw state,")
