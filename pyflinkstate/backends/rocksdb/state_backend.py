"""The chosen state backend that keeps cold state on disk, as it is sent to the slots."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.api import EmbeddedRocksDBStateBackend, TypeInformation
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.rocksdb.backend import RocksDBKeyedStateBackend
from pyflinkstate.backends.rocksdb.cold_store import ColdStore, check_installed

DEFAULT_MEMORY_BYTES = 256 << 20
#: The share of the memory that objects get; RocksDB has the rest.
_OBJECTS_SHARE = 0.875


@attrs.frozen(kw_only=True)
class RocksDBStateBackend(HashMapStateBackend):
    """What ``EmbeddedRocksDBStateBackend`` stands for.

    Attributes:
        directories: local directories, of which each slot takes one; empty for the temporary directory.
        memory_bytes: the approximate memory for the state of a slot.
        has_timers_on_disk: whether timers that are not the next ones are on disk too.

    Raises:
        ConfigurationError: rocksdict is not installed.
    """

    directories: tuple[str, ...] = ()
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    has_timers_on_disk: bool = True

    @classmethod
    def of(cls, chosen: EmbeddedRocksDBStateBackend) -> RocksDBStateBackend:
        """Return the backend that a user's object stands for."""
        check_installed()
        return cls(directories=tuple(chosen.get_db_storage_paths()))

    def create_keyed_state_backend(
        self,
        key_type: TypeInformation,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        clock: Callable[[], int],
    ) -> RocksDBKeyedStateBackend:
        at = key_group_range.start % max(len(self.directories), 1)
        return RocksDBKeyedStateBackend(
            key_type,
            key_group_range,
            max_parallelism,
            clock=clock,
            store=ColdStore(self.directories[at] if self.directories else None, self.memory_bytes),
            objects_bytes=int(self.memory_bytes * _OBJECTS_SHARE),
            has_timers_on_disk=self.has_timers_on_disk,
        )
