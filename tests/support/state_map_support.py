"""What the tests of state maps share: keys with a chosen hash, a copier that counts, and maps."""

from copy import deepcopy
from itertools import count, islice

from tiered_support import HAS_ROCKSDB, tiered_map

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap


class CountingCopier:
    """Copies deep, and keeps what it was given."""

    def __init__(self):
        self.copied = []

    def __call__(self, value):
        self.copied.append(deepcopy(value))
        return deepcopy(value)


def mixed(code):
    """Return what the map makes of a hash: its low bits choose the bucket."""
    mixed = (code & 0xFFFFFFFF) * 0x5BD1E995 + (code >> 32) * 0x31848BAB
    mixed = ((mixed ^ mixed >> 32) & 0xFFFFFFFF) * 0x7FEB352D
    return mixed ^ mixed >> 32


def key_at(place, nth=0):
    """Return the ``nth`` int that lies at ``place`` in a table of 64 buckets, so at ``place % 4`` of 4."""
    return next(islice((key for key in count() if mixed(key) % 64 == place), nth, None))


def small_map(copy_value=deepcopy, capacity=1, bucket_load=1, min_transferred=1):
    """Return a copy-on-write map that doubles often, one bucket an operation."""
    return CopyOnWriteStateMap(copy_value, capacity, bucket_load, min_transferred)


#: The map with its own table, and with others.
MAKERS = {
    "default": lambda: CopyOnWriteStateMap(deepcopy),
    "one entry a bucket": small_map,
    "two entries a bucket": lambda: CopyOnWriteStateMap(deepcopy, 2, 2, 1),
    "all doubled at once": lambda: CopyOnWriteStateMap(deepcopy, 1, 1, 10**6),
}
if HAS_ROCKSDB:
    MAKERS["tiered"] = lambda: tiered_map(deepcopy)
    MAKERS["tiered, one entry a bucket"] = lambda: tiered_map(deepcopy, 1, 1, 1)


def filled(state_map, keys):
    """Put ``[key]`` under each key; return the same as a dict."""
    model = {key: [key] for key in keys}
    for key in model:
        state_map.put(key, [key])
    return model


def entries_of(source):
    """Return the entries of a map or snapshot as a dict, none of them given twice."""
    found = list(source.items())
    assert len(found) == len(source)
    entries = dict(found)
    assert len(entries) == len(found)
    return entries


def advance_to(state_map, rehash_index):
    """Drive a rehash until that many buckets have moved."""
    while state_map._rehash_index < rehash_index:
        assert state_map._rehash is not None
        state_map.contains_key(-1)


def next_entries(visitor):
    """Return keys and values of a visitor's next columns as pairs."""
    return list(zip(*visitor.next_columns(), strict=True))
