"""Restore of a heap backend: read the owned key groups of any number of state handles."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pyflinkstate.backends.format.framing import PREFIX_SIZE, head_size
from pyflinkstate.backends.format.state_file import MAGIC, VERSION, StateCodec, StateFileHead
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.state_table import CopyOnWriteStateTable
from pyflinkstate.backends.state_handles import KeyGroupsStateHandle, Section
from pyflinkstate.backends.state_meta import RegisteredStateMeta
from pyflinkstate.backends.streams import StateReader
from pyflinkstate.errors import IncompatibleCheckpointError


@attrs.frozen
class HeapRestoreOperation:
    """Fills a new backend with state (Flink: ``HeapRestoreOperation``)."""

    backend: HeapKeyedStateBackend
    reader: StateReader

    def restore(self, handles: Iterable[KeyGroupsStateHandle]) -> None:
        """Load the backend's own key groups from ``handles``, whatever ranges those have.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
            IncompatibleCheckpointError: key type, max parallelism or a state's type differ.
        """
        for handle in handles:
            wanted = handle.key_group_range.intersection(self.backend.key_group_range)
            if len(wanted):
                self._restore_handle(handle)

    def _restore_handle(self, handle: KeyGroupsStateHandle) -> None:
        head = self._read_head(handle)
        self._check_head(head, self.reader.describe(handle.stream))
        for meta in head.states:
            table = self._table_for(meta)
            codec = StateCodec(head.key_type, meta.stored_type)
            for key_group, section in handle.sections[meta.name].items():
                if key_group in self.backend.key_group_range:
                    self._load(table, codec, handle, key_group, section)

    def _read_head(self, handle: KeyGroupsStateHandle) -> StateFileHead:
        what = self.reader.describe(handle.stream)
        prefix = self.reader.read(handle.stream, 0, PREFIX_SIZE)
        size = head_size(prefix, MAGIC, VERSION, what)
        return StateFileHead.decode(self.reader.read(handle.stream, 0, size), what)

    def _check_head(self, head: StateFileHead, what: str) -> None:
        backend = self.backend
        if head.key_type != backend.key_type:
            raise IncompatibleCheckpointError(
                f"{what} has keys of {head.key_type}, and the program declares {backend.key_type}",
                file=what,
            )
        if head.max_parallelism != backend.max_parallelism:
            raise IncompatibleCheckpointError(
                f"{what} has max parallelism {head.max_parallelism}, and the program "
                f"{backend.max_parallelism}: it cannot change once there is state",
                file=what,
            )

    def _table_for(self, meta: RegisteredStateMeta) -> CopyOnWriteStateTable:
        table = self.backend.registered_kv_states.get(meta.name)
        if table is None:
            return self.backend.create_table(meta)
        if table.meta != meta:
            raise IncompatibleCheckpointError(
                f"state {meta.name!r} is {meta.kind.value} of {meta.stored_type} in one subtask's "
                f"file and {table.meta.kind.value} of {table.meta.stored_type} in another's",
                state=meta.name,
            )
        return table

    def _load(
        self,
        table: CopyOnWriteStateTable,
        codec: StateCodec,
        handle: KeyGroupsStateHandle,
        key_group: int,
        section: Section,
    ) -> None:
        data = self.reader.read(handle.stream, section.offset, section.length)
        what = f"{self.reader.describe(handle.stream)}, state {table.meta.name!r}"
        state_map = table.map_of(key_group)
        for key, value in zip(*codec.decode(data, section.checksum, what), strict=True):
            state_map.put(key, value)
