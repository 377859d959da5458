"""What tests of the backend on disk share: maps in a store of their own; none of it without rocksdict."""

import atexit
from copy import deepcopy
from functools import cache
from importlib.util import find_spec

HAS_ROCKSDB = find_spec("rocksdict") is not None


@cache
def cold_store():
    """The store of all maps of a test run, which gives each its own range of keys."""
    from pyflinkstate.backends.rocksdb.cold_store import ColdStore

    store = ColdStore(None, 1 << 20)
    atexit.register(store.close)
    return store


def tiered_map(copy_value=deepcopy, *table):
    """Return an empty tiered map; ``table`` are the arguments for its buckets."""
    from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, EntrySizes
    from pyflinkstate.backends.rocksdb.tiered_state_map import TieredStateMap

    store = cold_store()
    return TieredStateMap(copy_value, ColdEntries(store, store.new_state_id(), 7, EntrySizes("s")), *table)
