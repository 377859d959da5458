"""The scratch folder: whose it is, when it is deleted, and what is said if it cannot be used."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from operator import attrgetter
from pathlib import Path

import attrs
import pytest
from backend_support import PICKLED
from tiered_support import tiered_map

from pyflinkstate import ValueStateDescriptor
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.rocksdb import RocksDBKeyedStateBackend
from pyflinkstate.backends.rocksdb.cold_store import PROPERTIES, ColdStore, ScratchFolder
from pyflinkstate.errors import StateStorageError, StateValueError

pytest.importorskip("rocksdict")

DIES = """
import os, sys
from pyflinkstate.backends.rocksdb.cold_store import ColdStore
store = ColdStore(sys.argv[1], 1 << 20)
os.kill(os.getpid(), 9)
"""


def test_a_folder_is_deleted_with_its_store(tmp_path):
    store = ColdStore(str(tmp_path / "new"), 1 << 20)
    assert len(list((tmp_path / "new").iterdir())) == 2
    store.close()
    store.close()
    assert list((tmp_path / "new").iterdir()) == []


def test_the_folder_of_a_killed_process_is_deleted_by_the_next_and_that_of_a_living_one_is_not(tmp_path):
    living = ColdStore(str(tmp_path), 1 << 20)
    subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 4
    ColdStore(str(tmp_path), 1 << 20).close()
    assert len(list(tmp_path.iterdir())) == 2
    living.db[b"a"] = b"1"
    living.close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StateStorageError, match=f"{tmp_path}/file.*state.backend.rocksdb.localdir"):
        ColdStore(str(tmp_path / "file"), 1 << 20)


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "mkdir", lambda path, **_: None if path == tmp_path else os.mkdir(tmp_path))
    with pytest.raises(StateStorageError):
        ColdStore(str(tmp_path), 1 << 20)
    assert list(tmp_path.iterdir()) == []


def batch_of(store, numbers):
    batch = store.new_batch()
    for number in numbers:
        batch.put(number.to_bytes(4, "big"), bytes(100))
    return batch


def test_writes_that_rocksdb_refuses_for_now_are_tried_again(tmp_path):
    with closing(ColdStore(str(tmp_path), 1 << 10)) as store:
        for begin in range(0, 20_000, 1_000):  # faster than such small buffers get into files
            store.write(batch_of(store, range(begin, begin + 1_000)))
        keys = [number.to_bytes(4, "big") for number in range(20_000)]
        assert store.db.get(keys) == [bytes(100)] * 20_000


class Refusing:
    """A database that cannot write its files."""

    def write(self, batch):
        raise Exception("Result incomplete: Write stall")

    def property_int_value(self, name):
        return int(name == "rocksdb.background-errors")

    def close(self):
        raise Exception("No space left on device")


def test_writes_are_not_tried_again_for_ever(tmp_path):
    store = ColdStore(str(tmp_path), 1 << 20)
    store.db.close()
    store.db = Refusing()
    with pytest.raises(StateStorageError, match=r"cannot write its files \(\d+ bytes are free\)"):
        store.write(batch_of(store, range(1)))
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_cannot_be_pickled_is_named():
    state_map = tiered_map()
    state_map.put("k", open(os.devnull))  # noqa: SIM115
    state_map.age()
    with pytest.raises(StateValueError, match="state 's', key 'k': a value of"):
        state_map.age()
    state_map.get("k").close()


def test_a_backend_tells_what_is_in_memory_and_how_many_keys_were(tmp_path):
    own = key_group_range(8, 1, 0)
    with closing(ColdStore(str(tmp_path), 1 << 20)) as store:
        backend = RocksDBKeyedStateBackend(PICKLED, own, 8, store=store, objects_bytes=0)
        state = backend.get_partitioned_state(ValueStateDescriptor("sums", PICKLED))
        assert backend.disk_status().hit_rates == {"sums": None}

        def index_of(key):
            backend.set_current_key(key)
            return backend.key_context.map_index

        def frame(keys):
            backend.before_frame([index_of(key) for key in keys], keys)
            for key in keys:
                backend.set_current_key(key)
                state.update((state.value() or 0) + 1)

        frame(["a", "b", "c", "d"])
        in_memory = backend.disk_status().memory_bytes["sums"]
        assert in_memory > 4 * 100
        frame(["a", "a", "b", "b"])
        backend.make_room()
        # The four keys that were new are not in memory, and the other four are.
        assert backend.disk_status().hit_rates == {"sums": 0.0}
        status = backend.disk_status()
        assert status.memory_bytes == {"sums": 0}
        assert set(status.properties) == set(PROPERTIES)
        assert status.properties["cur-size-all-mem-tables"] > 0
        frame(["a", "b", "c", "d", "d", "d", "d", "d"])
        frame(["a", "b", "c", "d"])
        assert backend.disk_status().hit_rates == {"sums": 1 - 4 / 12}


def test_a_few_large_values_are_not_taken_for_small_ones(tmp_path):
    own = key_group_range(128, 1, 0)
    with closing(ColdStore(str(tmp_path), 1 << 20)) as store:
        backend = RocksDBKeyedStateBackend(PICKLED, own, 128, store=store, objects_bytes=3 << 20)
        state = backend.get_partitioned_state(ValueStateDescriptor("large", PICKLED))
        most = 0
        for key in range(8):
            backend.set_current_key(key)
            state.update(bytes(1 << 20))
            backend.make_room()
            maps = backend.registered_kv_states["large"].maps
            most = max(most, sum(map(attrgetter("entries_in_memory"), maps)))
        assert most <= 2


@attrs.frozen
class Key:
    """Keys of the same hash."""

    name: str

    def __hash__(self):
        return 1


def test_keys_of_the_same_hash_share_a_record():
    state_map, keys = tiered_map(), [Key("a"), Key("b"), Key("c")]
    for key in keys:
        state_map.put(key, key.name)
        state_map.age()
    state_map.age()
    state_map.remove(keys[1])
    state_map.age()
    state_map.age()
    state_map._check()
    assert [state_map.get(key) for key in keys] == ["a", None, "c"]


def test_a_folder_to_which_a_file_is_added_while_it_is_deleted_goes(tmp_path, monkeypatch):
    """RocksDB's own threads add files until the process ends."""
    folder, added, rmtree = ScratchFolder(str(tmp_path)), [], shutil.rmtree

    def rmtree_too_early(path, ignore_errors):
        rmtree(path, ignore_errors=ignore_errors)
        if not added:
            path.mkdir()
            added.append((path / "1.sst").write_bytes(b"compacted"))

    monkeypatch.setattr(shutil, "rmtree", rmtree_too_early)
    folder.delete()
    assert added
    assert list(tmp_path.iterdir()) == []
