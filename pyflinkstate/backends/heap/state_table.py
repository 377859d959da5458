"""State tables: all entries of one state in one subtask, as one map for each key group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from pyflinkstate.api import Key, Namespace, Stored, safe_repr
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.heap.copy_on_write_state_map import (
    ABSENT,
    CopyOnWriteStateMap,
    StateMapSnapshot,
    StateSnapshotTransformer,
    StateTableVisitor,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    VOID_NAMESPACE,
    RegisteredStateMeta,
    StateMeta,
    unchanged,
    value_copier,
)
from pyflinkstate.errors import StateMigrationError

#: Makes the transformer for one snapshot, as snapshots must not share one.
SnapshotTransformerFactory = Callable[[], StateSnapshotTransformer]


class StateTable:
    """One map for each key group of ``key_group_range``, in order (Flink: ``StateTable``)."""

    def __init__(self, meta: RegisteredStateMeta, key_group_range: KeyGroupRange) -> None:
        self.meta = meta
        self.key_group_range = key_group_range
        #: Indexed by key group minus the start of the range. Views hold this list, so it stays the same
        #: object.
        self.maps: list[CopyOnWriteStateMap] = self.new_maps(meta)
        #: Makes the transformer with which a snapshot filters or changes values, if any.
        self.snapshot_transformer_factory: SnapshotTransformerFactory | None = None
        self._tracks_changes = False

    def new_maps(self, meta: RegisteredStateMeta) -> list[CopyOnWriteStateMap]:
        """Return an empty map for each key group, for values of ``meta``."""
        copy_value = value_copier(meta.stored_type)
        return [CopyOnWriteStateMap(copy_value) for _ in self.key_group_range]

    def set_meta(
        self,
        meta: RegisteredStateMeta,
        convert: Callable[[Stored], Stored] = unchanged,
        changes_values: bool = True,
    ) -> None:
        """Change the type of the values in all maps.

        Args:
            meta: describes the new type.
            convert: makes a new value of an old one; ``unchanged`` leaves the values alone.
            changes_values: whether a checkpoint would have other values than before, so that each entry is a
                change.

        Raises:
            StateMigrationError: a value does not fit the new type; the table stays as it was.
        """
        copied_alike = value_copier(meta.stored_type) is value_copier(self.meta.stored_type)
        if convert is unchanged and copied_alike:
            self.meta = meta
            return
        changes = [before.take_changes() for before in self.maps]  # reading them may add to these
        try:
            new = [
                self._converted(before, after, convert, changes_values)
                for before, after in zip(self.maps, self.new_maps(meta), strict=True)
            ]
        finally:
            for state_map, changed in zip(self.maps, changes, strict=True):
                state_map.note_changes(changed)
        for state_map, changed in zip(new, changes, strict=True):
            state_map.note_changes(changed)
        self.meta = meta
        self.maps[:] = new

    def _converted(
        self,
        before: CopyOnWriteStateMap,
        after: CopyOnWriteStateMap,
        convert: Callable[[Stored], Stored],
        changes_values: bool,
    ) -> CopyOnWriteStateMap:
        """Fill the map ``after`` with the converted entries of ``before``, and return it."""
        entries = self.entries_to_convert(before)
        values = _converted_values(self.meta, entries, convert)
        if self._tracks_changes and changes_values:
            after.track_changes()
        after.load(list(entries), values)
        if self._tracks_changes:
            after.track_changes()
        return after

    def entries_to_convert(self, state_map: CopyOnWriteStateMap) -> dict[Hashable, Stored]:
        """Return all entries of a map, whose values another map may own."""
        # Iterating copies values that an open snapshot shares, which the new map would not know about.
        return dict(state_map.items())

    def __len__(self) -> int:
        """The number of entries, over all key groups."""
        return sum(map(len, self.maps))

    def map_of(self, key_group: int) -> CopyOnWriteStateMap:
        """Return the map of ``key_group``, which must be in the range."""
        return self.maps[key_group - self.key_group_range.start]

    def items(self) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over entry keys and values; see :meth:`CopyOnWriteStateMap.items`."""
        for state_map in self.maps:
            yield from state_map.items()

    def keys_and_namespaces(self) -> Iterator[tuple[Hashable, Hashable]]:
        """Iterate over all keys and namespaces that have an entry when their key group is reached."""
        namespaced = self.meta.is_namespaced
        for state_map in self.maps:
            for entry_key in state_map.all_keys():
                yield entry_key if namespaced else (entry_key, VOID_NAMESPACE)  # type: ignore[misc]

    def keys(self, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Hashable]:
        """Iterate over the keys that have an entry in ``namespace``; none if it does not fit the type."""
        try:
            namespace = self.meta.namespace_type.check_key(namespace)
        except ValueError:
            return iter(())
        return (key for key, found in self.keys_and_namespaces() if found == namespace)

    def visitor(self, max_positions: int) -> StateTableVisitor:
        """Return a visitor that walks all maps, again and again."""
        return StateTableVisitor(self.maps, max_positions)

    def track_changes(self) -> None:
        """From now on, record which entries change."""
        self._tracks_changes = True
        for state_map in self.maps:
            state_map.track_changes()

    def take_changes(self) -> list[set[Hashable]]:
        """Return, for each key group, the entry keys that changed since the last call, and start again."""
        return [state_map.take_changes() for state_map in self.maps]

    def increment(self, changes: list[set[Hashable]], with_expired: bool = False) -> StateTableSnapshot:
        """Return the present entries of ``changes``, which has one set of entry keys for each key group.

        The sets must not change.
        """
        return StateTableSnapshot(self, changes, with_expired)

    def snapshot(self) -> StateTableSnapshot:
        """Return a snapshot of the table. This takes milliseconds with millions of entries."""
        return StateTableSnapshot(self)


class StateTableSnapshot:
    """The contents of a table at one moment; key groups are released one by one as they are written.

    With ``changes`` it has only these entries, and keeps no map without changes.
    """

    def __init__(
        self, table: StateTable, changes: list[set[Hashable]] | None = None, with_expired: bool = False
    ) -> None:
        self.meta: StateMeta = table.meta
        factory = table.snapshot_transformer_factory
        self._transformer = None if factory is None or with_expired else factory()
        self._groups = [
            (key_group, state_map.snapshot(), None if changes is None else changes[index])
            for index, (key_group, state_map) in enumerate(
                zip(table.key_group_range, table.maps, strict=True)
            )
            if changes is None or changes[index]
        ]

    def key_groups(self) -> Iterator[KeyGroupEntries]:
        """Iterate over the key groups; each is released when the next is asked for."""
        for key_group, snapshot, changed in self._groups:
            with snapshot:
                if changed is None:
                    entry_keys, values = snapshot.columns(self._transformer)
                    yield KeyGroupEntries(key_group, *_split(entry_keys, self.meta), values)
                else:
                    yield self._changed_entries(key_group, list(changed), snapshot)

    def _changed_entries(
        self, key_group: int, changed: list[Hashable], snapshot: StateMapSnapshot
    ) -> KeyGroupEntries:
        found = snapshot.look_up(changed)
        values = [None if value is ABSENT else value for value in found]
        removed = [value is ABSENT for value in found]
        if self._transformer is not None:
            values = [
                None if gone else self._transformer(value)
                for value, gone in zip(values, removed, strict=True)
            ]
            removed = [value is None for value in values]
        keys, namespaces = _split(changed, self.meta)
        return KeyGroupEntries(key_group, keys, namespaces, values, removed)

    def release(self) -> None:
        """Release what is not yet released. Idempotent."""
        for _, snapshot, _ in self._groups:
            snapshot.release()


def _converted_values(
    meta: RegisteredStateMeta, entries: dict[Hashable, Stored], convert: Callable[[Stored], Stored]
) -> list[Stored]:
    if convert is unchanged:
        return list(entries.values())
    converted: list[Stored] = []
    try:
        for value in entries.values():
            converted.append(convert(value))
    except ValueError as error:
        raise _misfit(meta, list(entries)[len(converted)], error) from error
    return converted


def _misfit(meta: RegisteredStateMeta, entry_key: Hashable, error: ValueError) -> StateMigrationError:
    ((key,), namespaces) = _split([entry_key], meta)
    where = f"key {safe_repr(key)}" + (f", namespace {safe_repr(namespaces[0])}" if namespaces else "")
    return StateMigrationError(
        f"state {meta.name!r}, {where}: {error}; nothing has been changed",
        state=meta.name,
        key=safe_repr(key),
    )


def _split(entry_keys: list[Any], meta: StateMeta) -> tuple[list[Key], list[Namespace] | None]:
    """Return the keys and namespaces of entry keys; the namespaces are None if there is only the void one."""
    if not meta.is_namespaced:
        return entry_keys, None
    return [key for key, _ in entry_keys], [namespace for _, namespace in entry_keys]
