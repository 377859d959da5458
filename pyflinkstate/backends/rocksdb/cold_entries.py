"""The entries of one state and key group in the cold store: a range of its keys.

A key is the number of the state, the key group, both big-endian, and the bytes of the entry key
(``cold_bytes.py``). Native checkpoints keep all of it. mypyc compiles this file.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final

from pyflinkstate.api import Stored, safe_repr
from pyflinkstate.backends.heap.copy_on_write_state_map import ABSENT
from pyflinkstate.backends.rocksdb.cold_bytes import (
    SHARED,
    Pairs,
    canonical_bytes,
    exact_bytes,
    is_portable,
    shared_bytes,
    shared_parts,
)
from pyflinkstate.backends.rocksdb.entry_forms import EntryForms
from pyflinkstate.errors import (
    CorruptCheckpointError,
    PickledStateError,
    StateStorageError,
    StateValueError,
)

if TYPE_CHECKING:
    from rocksdict import Rdict, RdictIter

    from pyflinkstate.backends.rocksdb.cold_store import ColdStore

#: The size of a prefix: 4 bytes for the state, and 2 for the key group.
_PREFIX_SIZE: Final = 6
#: RocksDB holds the interpreter lock while it writes a batch.
MOST_ENTRIES_IN_A_BATCH: Final = 10_000
MOST_BYTES_IN_A_BATCH: Final = 8 << 20
#: How many entries the average size is over, about.
_REMEMBERED: Final = 10_000


class EntrySizes:
    """The average size of the entries of one state, as bytes, over those that were written and read last.

    Args:
        name: the state.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: How many entries were read that were not in memory.
        self.misses = 0
        self._entries = 0
        self._bytes = 0

    def note(self, size_bytes: int) -> None:
        """Take the size of an entry into account."""
        self._entries += 1
        self._bytes += size_bytes
        if self._entries > _REMEMBERED:
            self._entries //= 2
            self._bytes //= 2

    def average(self) -> int:
        """Return the average size of an entry, in bytes."""
        return self._bytes // max(self._entries, 1)


class ColdEntries:
    """Reads and writes the entries of a state in one key group.

    Args:
        store: the store of the subtask.
        state_id: the number of the state.
        key_group: the key group.
        sizes: is told the sizes of entries.
        forms: how they are written.
    """

    def __init__(
        self, store: ColdStore, state_id: int, key_group: int, sizes: EntrySizes, forms: EntryForms
    ) -> None:
        self.sizes = sizes
        self.forms = forms
        self.prefix = state_id.to_bytes(4, "big") + key_group.to_bytes(2, "big")
        self._store = store
        self._db: Rdict = store.db

    def key_bytes(self, key: Hashable) -> bytes:
        """Return the bytes under which the entry of ``key`` is stored, if there is one."""
        exact = exact_bytes(key)
        return self.prefix + (exact if exact else canonical_bytes(key))

    def get(self, key: Hashable) -> Stored:
        """Return the value of ``key``, or :data:`ABSENT`."""
        self.sizes.misses += 1
        return self.value_of(key, self._read(self.key_bytes(key)))

    def value_of(self, key: Hashable, record: bytes | None) -> Stored:
        """Return the value of ``key`` in the record that is stored under its bytes, or :data:`ABSENT`."""
        if record is None:
            return ABSENT
        self.sizes.note(len(record))
        if record[0] != SHARED:
            return self.decoded_value(record)
        for other, value in self._shared(record):
            if other == key:
                return self.decoded_value(value)
        return ABSENT

    def decoded_value(self, record: bytes) -> Stored:
        """Return the value of a record; raise ``PickledStateError`` if it has a pickle that may not be."""
        try:
            return self.forms.values.of_bytes(record)
        except PickledStateError as error:
            raise self._refusal(error) from error

    def decoded_key(self, place: bytes) -> Hashable:
        """Return the key that is stored under its own bytes."""
        return self.forms.keys.of_bytes(place, _PREFIX_SIZE)

    def _shared(self, record: bytes) -> list[tuple[Hashable, bytes]]:
        """Return the keys of a shared record, each with the bytes of its value."""
        parts = shared_parts(record)
        try:
            keys: list[Hashable] = [self.forms.keys.of_bytes(part) for part in parts[::2]]
        except PickledStateError as error:
            raise self._refusal(error) from error
        return list(zip(keys, parts[1::2]))  # noqa: B905 - mypyc knows no strict

    def _refusal(self, error: PickledStateError) -> PickledStateError:
        name = self.sizes.name
        return PickledStateError(f"state {name!r}: the checkpoint is damaged: {error.message}", state=name)

    def get_records(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the records under many bytes at once."""
        try:
            found: list[bytes | None] = self._db.get(keys)
            return found
        except Exception as error:
            raise self._store.failure(error) from error

    def contains(self, key: Hashable) -> bool:
        """Return whether there is an entry of ``key``."""
        record = self._read(self.key_bytes(key))
        if record is None:
            return False
        return record[0] != SHARED or any(other == key for other, _ in self._shared(record))

    def _read(self, key: bytes) -> bytes | None:
        try:
            record: bytes | None = self._db.get(key)
            return record
        except Exception as error:
            raise self._store.failure(error) from error

    def write(self, entries: dict[Hashable, Stored]) -> None:
        """Set values, and remove the entries whose value is :data:`ABSENT`.

        Raises:
            StateValueError: a value cannot be pickled.
            StateStorageError: RocksDB failed.
        """
        batch = self._store.new_batch()
        shared: dict[bytes, list[tuple[Hashable, bytes]]] = {}
        written = size_bytes = 0
        for key, value in entries.items():
            exact = exact_bytes(key)
            if not exact:
                self._change_shared(shared, key, value)
            elif value is ABSENT:
                batch.delete(self.prefix + exact)
            else:
                record = self._record(key, value)
                batch.put(self.prefix + exact, record)
                size_bytes += len(record)
            written += 1
            if written == MOST_ENTRIES_IN_A_BATCH or size_bytes > MOST_BYTES_IN_A_BATCH:
                self._store.write(batch)
                batch, written, size_bytes = self._store.new_batch(), 0, 0
        for place, pairs in shared.items():
            if pairs:
                batch.put(place, shared_bytes(self._parts_of(pairs)))
            else:
                batch.delete(place)
        if len(batch):
            self._store.write(batch)

    def _record(self, key: Hashable, value: Stored) -> bytes:
        try:
            record = self.forms.values.to_bytes(value)
        except StateValueError as error:
            name = self.sizes.name
            raise StateValueError(
                f"state {name!r}, key {safe_repr(key)}: {error}", state=name, key=safe_repr(key)
            ) from error
        self.sizes.note(len(record))
        return record

    def _change_shared(
        self, changed: dict[bytes, list[tuple[Hashable, bytes]]], key: Hashable, value: Stored
    ) -> None:
        place = self.prefix + canonical_bytes(key)
        pairs = changed.get(place)
        if pairs is None:
            record = self._read(place)
            pairs = self._shared(record) if record is not None and record[0] == SHARED else []
        pairs = [pair for pair in pairs if pair[0] != key]
        if value is not ABSENT:
            pairs.append((key, self._record(key, value)))
            if not is_portable(key):
                self._store.is_portable = False
        changed[place] = pairs

    def shared_entries(self, record: bytes) -> Pairs:
        """Return the entries of a shared record."""
        return [(key, self.decoded_value(value)) for key, value in self._shared(record)]

    def _parts_of(self, pairs: list[tuple[Hashable, bytes]]) -> list[bytes]:
        parts: list[bytes] = []
        for key, record in pairs:
            parts.append(self.forms.keys.to_bytes(key))
            parts.append(record)
        return parts

    def failure(self, error: Exception) -> StateStorageError | CorruptCheckpointError:
        """Return the error for a failure of RocksDB."""
        return self._store.failure(error)

    def sample(self, key: Hashable, value: Stored) -> None:
        """Take the size of an entry into account; raise ``StateValueError`` if it cannot be pickled."""
        self._record(key, value)

    def drop(self) -> None:
        """Delete all entries."""
        after = int.from_bytes(self.prefix, "big") + 1
        self._store.delete_range(self.prefix, after.to_bytes(_PREFIX_SIZE, "big"))

    def entries_from(self, place: bytes, most: int) -> tuple[Pairs, bytes]:
        """Return the entries from a key of the store on, of about ``most`` keys, and where to go on.

        That is empty at the end.
        """
        found: Pairs = []
        for at, pairs in self.freeze().records(place):
            if len(found) >= most:
                return found, at
            found += pairs
        return found, b""

    def freeze(self) -> FrozenColdEntries:
        """Return the entries as they are now. O(1)."""
        return FrozenColdEntries(self, self._db.iter())


class FrozenColdEntries:
    """The entries of a state and key group at one moment, for one thread at a time.

    They are an iterator of RocksDB, which reads what was there when it was made. The iterators of rocksdict's
    snapshots do not: they read what is there now.
    """

    def __init__(self, entries: ColdEntries, iterator: RdictIter) -> None:
        self._entries = entries
        self._iterator = iterator

    def get(self, key: Hashable) -> Stored:
        """Return the value of ``key``, or :data:`ABSENT`."""
        place, iterator = self._entries.key_bytes(key), self._iterator
        iterator.seek(place)
        is_there = self._is_valid() and iterator.key() == place
        return self._entries.value_of(key, iterator.value() if is_there else None)

    def entries(self, with_values: bool = True) -> Iterator[tuple[Hashable, Stored]]:
        """Iterate over keys and values; without values these are None."""
        for _, pairs in self.records(self._entries.prefix, with_values):
            yield from pairs

    def records(self, begin: bytes, with_values: bool = True) -> Iterator[tuple[bytes, Pairs]]:
        """Iterate over the keys of the store from ``begin`` on, and the entries under each."""
        prefix, iterator = self._entries.prefix, self._iterator
        iterator.seek(begin)
        while self._is_valid():
            place: bytes = iterator.key()
            if not place.startswith(prefix):
                return
            record: bytes = iterator.value()
            entries = self._entries
            if record[0] != SHARED:
                value = entries.decoded_value(record) if with_values else None
                yield place, [(entries.decoded_key(place), value)]
            else:
                yield place, entries.shared_entries(record)
            iterator.next()

    def _is_valid(self) -> bool:
        if self._iterator.valid():
            return True
        try:
            self._iterator.status()
        except Exception as error:
            raise self._entries.failure(error) from error
        return False
