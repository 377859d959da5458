"""State that may exceed memory: hot entries as objects, the others in RocksDB on local disk."""

from pyflinkstate.backends.rocksdb.backend import (
    RocksDBKeyedStateBackend as RocksDBKeyedStateBackend,
)
