"""State that may exceed memory: hot entries as objects, the others in RocksDB on local disk."""

from pyflinkstate.backends.rocksdb.backend import RocksDBKeyedStateBackend as RocksDBKeyedStateBackend
from pyflinkstate.backends.rocksdb.native_restore import (
    KeyedRestoreOperation as KeyedRestoreOperation,
    native_chunks as native_chunks,
    native_entries as native_entries,
    native_state as native_state,
    native_store as native_store,
)
from pyflinkstate.backends.rocksdb.state_backend import (
    DEFAULT_MEMORY_BYTES as DEFAULT_MEMORY_BYTES,
    RocksDBStateBackend as RocksDBStateBackend,
)
