"""What tests of the backend on disk share: one store for all, maps and backends whose state goes to disk.

With the environment variable ``PYFLINKSTATE_TEST_BACKEND=rocksdb``, the tests of the heap backend use such a
backend instead, and with ``native`` its native snapshots too (``make full-on-disk``).
"""

import atexit
import os
import weakref
from copy import deepcopy
from functools import cache, partial
from importlib.util import find_spec

from pyflinkstate import Types

HAS_ROCKSDB = find_spec("rocksdict") is not None
IS_NATIVE = os.environ.get("PYFLINKSTATE_TEST_BACKEND") == "native"
ON_DISK = IS_NATIVE or os.environ.get("PYFLINKSTATE_TEST_BACKEND") == "rocksdb"


@cache
def cold_store():
    """The store of all maps of a test run, which gives each state its own range of keys."""
    from pyflinkstate.backends.rocksdb.cold_store import ColdStore

    store = ColdStore(None, 1 << 20)
    atexit.register(store.close)
    return store


def tiered_map(copy_value=deepcopy, *table):
    """Return an empty tiered map; ``table`` are the arguments for its buckets."""
    from pyflinkstate.backends.rocksdb.cold_entries import ColdEntries, EntrySizes
    from pyflinkstate.backends.rocksdb.entry_forms import EntryForms, TypeForm
    from pyflinkstate.backends.rocksdb.tiered_state_map import TieredStateMap

    store, pickled = cold_store(), TypeForm(Types.PICKLED_BYTE_ARRAY())
    forms = EntryForms(pickled, pickled)
    cold = ColdEntries(store, store.new_state_id(), 7, EntrySizes("s"), forms)
    return TieredStateMap(copy_value, cold, *table)


def tiered_queue(meta, key_group_range, most_timers=3, store=None):
    """Return an empty queue of timers that keeps next to none in memory."""
    from pyflinkstate.backends.rocksdb.tiered_timer_queue import TieredTimerQueue

    return TieredTimerQueue(meta, key_group_range, store or cold_store(), most_timers)


@cache
def _evicting():
    from pyflinkstate.backends.heap import HeapKeyedStateBackend
    from pyflinkstate.backends.rocksdb import RocksDBKeyedStateBackend

    class EvictingBackend(RocksDBKeyedStateBackend):
        """Treats each record as a frame, and leaves the store open."""

        def set_current_key(self, key):
            self.make_room()
            super().set_current_key(key)
            self.before_frame([self.key_context.map_index], [self.key_context.key])

        def dispose(self):
            HeapKeyedStateBackend.dispose(self)

    return EvictingBackend


def evicting_backend(key_type, own, max_parallelism, clock, objects_bytes=0, has_own_store=IS_NATIVE):
    """Return an empty backend that keeps next to nothing in memory.

    The folder of a store of its own, which native snapshots need, goes when nobody refers to the store.
    """
    from pyflinkstate.backends.rocksdb.cold_store import ColdStore

    store = ColdStore(None, 1 << 20) if has_own_store else cold_store()
    made = _evicting()(key_type, own, max_parallelism, clock=clock, store=store, objects_bytes=objects_bytes)
    made.new_queue = partial(tiered_queue, store=store)
    if has_own_store:
        weakref.finalize(store, store._folder.delete)
    return made
