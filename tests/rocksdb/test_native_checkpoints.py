"""Native checkpoints: their files, who may refer to them, restores, damage, and what is refused."""

import datetime
import os
import re
import struct
import sys
import threading
from decimal import Decimal
from functools import partial
from pathlib import Path

import attrs
import pytest
from backend_support import PICKLED, contents, state_of
from golden_metadata import V5
from operator_support import HookedStreams
from tiered_support import tiered_queue
from type_samples import SAMPLES

from pyflinkstate import MapStateDescriptor, Types, ValueStateDescriptor
from pyflinkstate.api import CountWindow, GlobalWindow, Instant, TimeWindow
from pyflinkstate.backends.format import ByteStreamStateHandle, CheckpointMetadata, NativeBase, NativeFile
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.rocksdb import KeyedRestoreOperation, RocksDBKeyedStateBackend
from pyflinkstate.backends.rocksdb.cold_bytes import (
    REFUSE,
    canonical_bytes,
    decoded,
    is_portable,
    value_bytes,
)
from pyflinkstate.backends.rocksdb.cold_store import ColdStore
from pyflinkstate.backends.rocksdb.entry_forms import TypeForm
from pyflinkstate.backends.rocksdb.tiered_timer_queue import QUEUES
from pyflinkstate.backends.types import dump_pickle, has_pickles
from pyflinkstate.errors import (
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    PickledStateError,
    SnapshotCancelledError,
    StateValueError,
)
from pyflinkstate.runtime.storage import CheckpointFolders, FileSystemCheckpointStorage

pytest.importorskip("rocksdict")

JOB_ID = "0" * 32
MOST = 8
KEYS = 600
MOST_TIMERS = 50
COUNTS = ValueStateDescriptor("counts", Types.LONG())
BAGS = MapStateDescriptor("bags", Types.STRING(), PICKLED)


@attrs.define
class Place:
    """A directory for checkpoints of one job, and backends whose stores are closed at the end."""

    folder: Path
    storage: CheckpointFolders
    made: list = attrs.field(factory=list)

    def streams(self, checkpoint_id):
        uri = self.storage.begin(JOB_ID, checkpoint_id, shared=True)
        return self.storage.streams(uri, checkpoint_id, "a" * 8)

    def backend(self, parallelism=1, index=0, key_type=PICKLED, objects_bytes=5_000):
        own = key_group_range(MOST, parallelism, index)
        store = ColdStore(str(self.folder / "scratch"), 1 << 20)
        made = RocksDBKeyedStateBackend(
            key_type, own, MOST, clock=lambda: 0, store=store, objects_bytes=objects_bytes
        )
        made.new_queue = partial(tiered_queue, store=store, most_timers=MOST_TIMERS)
        self.made.append(made)
        return made

    def restored(self, handles, make=None, **options):
        backend = (make or self.backend)(**options)
        KeyedRestoreOperation(backend, self.storage.streams(self.storage.uri_of(JOB_ID, 1))).restore(handles)
        return backend

    def shared(self):
        return {f"../shared/{path.name}" for path in (self.folder / "c" / JOB_ID / "shared").iterdir()}


@pytest.fixture
def place(tmp_path):
    settings = FileSystemCheckpointStorage(str(tmp_path / "c"), 0, write_buffer_size=0)
    made = Place(tmp_path, CheckpointFolders(settings))
    yield made
    for backend in made.made:
        backend.dispose()
    assert list((tmp_path / "scratch").iterdir()) == []


def on_heap(parallelism=1, index=0):
    return HeapKeyedStateBackend(PICKLED, key_group_range(MOST, parallelism, index), MOST, clock=lambda: 0)


def fill(backend, keys=range(KEYS), number=1):
    """Put something under keys, and let most of it go to disk."""
    for key in keys:
        state_of(backend, COUNTS, key).update(number)
        state_of(backend, BAGS, key).put("a", {number, str(key)})
        timers_of(backend).add(Timer(key * 7 % 100, key), backend.key_group_of(key))
        if key % 50 == 49:
            backend.clear_current_key()
            backend.make_room()


def timers_of(backend):
    return backend.create_timer_queue("event_timers")


def native(backend, streams, is_later=False):
    handle = backend.base_snapshot(streams, "zstd", is_later).finish()
    assert handle.native is not None
    return handle


def tables_of(handle):
    return {file.name: file.stream.path for file in handle.native.files if file.name.endswith(".sst")}


# --- bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"PICKLED_BYTE_ARRAY"}))
def test_values_of_declared_types_are_never_pickled(name):
    form = TypeForm(SAMPLES[name].type_info)
    assert (form.pickles, form.is_portable) == (REFUSE, True)
    for value in [*SAMPLES[name].fits, *(becomes for _, becomes in SAMPLES[name].nearly)]:
        stored = SAMPLES[name].type_info.check(value)
        assert repr(form.of_bytes(form.to_bytes(stored))) == repr(stored)


def test_bytes_stay_as_they_are():
    """Checkpoints have these bytes: others need a new version."""
    value = [None, True, False, -1, 2**64, 1.5, "é", b"\xff", (1,), {"a": 2}, Decimal("1.50")]
    value += [datetime.date(2020, 1, 2), datetime.time(1, 2, 3), datetime.datetime(2020, 1, 2, 3)]
    value += [[-1, 2], [1.5], [2**63], Instant(1, 2), TimeWindow(1, 2), CountWindow(3), GlobalWindow.get()]
    parts = [
        *(b"n", b"T", b"F", b"q" + b"\xff" * 8, b"i\x01" + bytes(8), b"f" + struct.pack(">d", 1.5)),
        *(b"s\xc3\xa9", b"b\xff", b"t\x00\x00\x00\x09q" + bytes(7) + b"\x01"),
        *(b"d\x00\x00\x00\x02sa\x00\x00\x00\x09q" + bytes(7) + b"\x02", b"c1.50"),
        *(b"D2020-01-02", b"M01:02:03", b"S2020-01-02T03:00:00"),
        *(b"Q" + struct.pack(">qq", -1, 2), b"E" + struct.pack(">d", 1.5)),
        b"l\x00\x00\x00\x0ai\x00\x80" + bytes(7),
        *(b"I" + struct.pack(">qq", 1, 2), b"w" + struct.pack(">qq", 1, 2), b"Cq" + bytes(7) + b"\x03", b"G"),
    ]
    expected = b"l" + b"".join(struct.pack(">I", len(part)) + part for part in parts)
    assert value_bytes(value, 3, REFUSE) == expected
    assert decoded(expected, 0, REFUSE) == value


@attrs.frozen
class Key:
    name: str


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        *[(key, True) for key in (1, True, 2.5, Decimal("2.5"), (1, ("a", 2.5)), "a", None)],
        *[(key, True) for key in (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), GlobalWindow())],
        *[(key, False) for key in (Key("a"), ("a", Key("a")), float("nan"))],
    ],
)
def test_keys_that_other_processes_would_not_find_are_known(key, expected):
    assert is_portable(key) is expected


def test_equal_times_have_equal_bytes():
    class Moment(datetime.datetime):
        """Equal to those of the library."""

    times = [(2020, 1, 2, 3), (2020, 1, 2, 4)]
    equal = [[datetime.datetime(*of), datetime.datetime(*of, fold=1), Moment(*of)] for of in times]
    assert [len(set(map(canonical_bytes, same))) for same in equal] == [1, 1]
    assert canonical_bytes(equal[0][0]) != canonical_bytes(equal[1][0])


# --- files ------------------------------------------------------------------------------------------------


def test_a_later_base_refers_to_files_that_are_there(place):
    backend = place.backend()
    fill(backend)
    first = native(backend, place.streams(1))
    before = place.shared()
    fill(backend, range(100, 103), 2)
    later = native(backend, place.streams(2), is_later=True)
    assert set(tables_of(first).values()) & set(tables_of(later).values())
    assert {file.path for file in later.files()} >= place.shared() - before
    folder = place.folder / "c" / JOB_ID / "chk-1"
    new = sum((folder / path).stat().st_size for path in place.shared() - before)
    assert new < first.size_bytes / 4
    assert contents(place.restored([later])) == contents(backend)


@pytest.mark.parametrize("is_of_another_job", [False, True])
def test_the_first_base_after_a_restore_refers_to_what_was_restored(place, tmp_path, is_of_another_job):
    backend = place.backend()
    fill(backend)
    first = native(backend, place.streams(1))
    restored = place.restored([first])
    fill(restored, range(100, 103), 2)
    streams = place.streams(2)
    if is_of_another_job:
        streams = attrs.evolve(streams, folder=streams.folder.replace(JOB_ID, "1" * 32))
        (tmp_path / "c" / ("1" * 32) / "shared").mkdir(parents=True)
    paths = set(tables_of(native(restored, streams)).values())
    assert set(tables_of(first).values()).isdisjoint(paths) is is_of_another_job


def test_which_of_several_first_bases_completed_is_not_known_so_nothing_refers_to_them(place):
    backend = place.backend()
    fill(backend)
    first, second = (native(backend, place.streams(number)) for number in (1, 2))
    third = native(backend, place.streams(3), is_later=True)
    fourth = native(backend, place.streams(4), is_later=True)
    paths = [set(tables_of(handle).values()) for handle in (first, second, third, fourth)]
    assert paths[0].isdisjoint(paths[1])
    assert paths[2].isdisjoint(paths[0] | paths[1])
    assert paths[2] == paths[3]


@pytest.mark.parametrize(("is_later", "fails_at"), [(False, 1), (False, 2), (True, 1), (True, 4)])
def test_a_base_that_fails_leaves_no_file_and_no_link(place, is_later, fails_at):
    """In a table file, in another one; the overlay is written last, after files to which it only refers."""

    def on_write(number):
        if number == fails_at:
            raise CheckpointStorageError("no space left")

    backend = place.backend()
    fill(backend)
    for number in (1, 2) if is_later else ():
        native(backend, place.streams(number), is_later=number > 1)
    streams = place.streams(3)
    before = place.shared()
    task = backend.base_snapshot(HookedStreams(streams, on_write), "zstd", is_later)
    with pytest.raises(CheckpointStorageError):
        task.finish()
    assert place.shared() == before
    assert not list((place.folder / "scratch").glob("*/frozen-*"))
    state_of(backend, COUNTS, 5).update(7)  # and the store is not frozen
    assert contents(place.restored([native(backend, place.streams(4))])) == contents(backend)


def test_a_cancelled_base_leaves_no_file(place):
    backend = place.backend()
    fill(backend)
    tasks = []

    def on_write(number):
        if number == 2:
            tasks[0].cancel()

    streams = HookedStreams(place.streams(1), on_write)
    tasks.append(backend.base_snapshot(streams, "zstd", is_later=False))
    with pytest.raises(SnapshotCancelledError):
        tasks[0].finish()
    backend.base_snapshot(place.streams(2), "zstd", is_later=False).cancel()
    assert place.shared() == set()
    assert not backend._store.is_frozen
    assert not list((place.folder / "scratch").glob("*/frozen-*"))


def test_the_owner_does_not_age_while_a_base_is_frozen_unless_memory_runs_out(place):
    backend = place.backend()
    fill(backend)
    expected = contents(backend)
    task = backend.base_snapshot(place.streams(1), "zstd", is_later=False)
    assert backend._store.is_frozen
    in_memory = sum(table.bytes_in_memory() for table in backend._tables())
    backend._objects_bytes = in_memory * 9 // 10
    backend.make_room()
    assert backend._store.is_frozen, "there is room for a quarter more"
    backend._objects_bytes = in_memory // 2
    backend.make_room()
    assert not backend._store.is_frozen, "the owner has linked the files itself"
    assert contents(place.restored([task.finish()])) == expected


def test_keys_with_a_hash_of_this_process_are_written_in_full(place):
    backend = place.backend()
    fill(backend)
    state_of(backend, COUNTS, Key("a")).update(1)
    for _ in range(3):
        backend._objects_bytes = 0
        backend.clear_current_key()
        backend.make_room()
    handle = backend.base_snapshot(place.streams(1), "zstd", is_later=False).finish()
    assert handle.native is None
    assert contents(place.restored([handle])) == contents(backend)


def test_a_forged_name_of_a_file_leads_nowhere():
    for name in ("../1.sst", "1.sst/../../x", "LOCK", "", 7):
        base = NativeBase((NativeFile(name, ByteStreamStateHandle(b""), 0),), {})
        (operator,) = V5.operators
        (subtask,) = operator.subtasks
        subtask = attrs.evolve(subtask, managed_keyed=attrs.evolve(subtask.managed_keyed, native=base))
        forged = attrs.evolve(V5, operators=(attrs.evolve(operator, subtasks=(subtask,)),))
        with pytest.raises(CorruptCheckpointError, match="a name that RocksDB does not give"):
            CheckpointMetadata.decode(forged.encode(), "chk-42")


# --- restores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["disk", "heap"])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (2, 3), (3, 1)])
def test_rescaling(place, make, before, after):
    olds = [place.backend(before, index) for index in range(before)]
    for key in range(KEYS):
        for old in olds:
            if old.key_group_range.start <= _group_of(old, key) <= old.key_group_range.end:
                fill(old, [key], key)
                old.clear_current_key()
                old.make_room()
    handles = [native(old, place.streams(number)) for number, old in enumerate(olds, start=1)]
    make_new = {"disk": place.backend, "heap": on_heap}[make]
    news = [place.restored(handles, make_new, parallelism=after, index=index) for index in range(after)]
    assert contents(*news) == contents(*olds)
    assert sum(map(HeapKeyedStateBackend.num_key_value_state_entries, news)) == 2 * KEYS
    assert sum(len(timers_of(new)) for new in news) == KEYS
    for new in news:
        if make == "disk":
            for table in new.registered_kv_states.values():
                for state_map in table.maps:
                    state_map._check()


def test_timers_that_have_fired_or_were_deleted_do_not_come_back_with_the_files(place):
    backend = place.backend()
    fill(backend)
    for name in ("b", "c"):  # the number of the last one becomes that of the first one
        for key in range(KEYS):
            queue = backend.create_timer_queue(name)
            queue.add(Timer(key * 7 % 100, key), _group_of(backend, key))
    native(backend, place.streams(1))  # all that was on disk is in files now
    timers = timers_of(backend)
    gone = [timers.poll(99) for _ in range(KEYS // 3)]
    late = [timer for timer in timers.timers() if timer.timestamp_ms > 80]
    assert all(timers.remove(timer, _group_of(backend, timer.key)) for timer in late)
    restored = place.restored([native(backend, place.streams(2))])
    assert timers_of(restored).timers_in_memory <= MOST_TIMERS
    assert len(timers_of(restored)) == KEYS - len(gone) - len(late)
    assert fired(restored) == fired(backend) != []


def fired(backend):
    return list(iter(partial(timers_of(backend).poll, 99), None))


def test_the_owner_writes_no_timers_while_a_base_is_frozen_unless_memory_runs_out(place):
    backend = place.backend()
    fill(backend)
    expected = contents(backend)
    task = backend.base_snapshot(place.streams(1), "zstd", is_later=False)
    timers, key_group = timers_of(backend), backend.key_group_of(0)
    numbers = iter(range(1000, 2000))
    while timers.timers_in_memory < MOST_TIMERS * 5 // 4 - 1:
        timers.add(Timer(next(numbers), 0), key_group)
    assert backend._store.is_frozen, "there is room for a quarter more"
    timers.add(Timer(next(numbers), 0), key_group)
    assert (backend._store.is_frozen, timers.timers_in_memory <= MOST_TIMERS) == (False, True)
    assert contents(place.restored([task.finish()])) == expected


def _group_of(backend, key):
    return HeapKeyedStateBackend(PICKLED, key_group_range(MOST, 1, 0), MOST).key_group_of(key)


def missing(path):
    path.unlink()
    return "is missing"


def truncated(path):
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])
    return f"has {len(data) - 1} bytes, and the checkpoint says {len(data)}"


def altered(path):
    """A bit in the first block, which is read with its entries."""
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.unlink()  # the links that a living store has keep their bytes
    path.write_bytes(data)
    return "is damaged"


@pytest.mark.parametrize("make", ["disk", "heap"])
@pytest.mark.parametrize("damage", [missing, truncated, altered])
def test_a_damaged_file_is_named(place, make, damage):
    backend = place.backend()
    fill(backend)
    handle = native(backend, place.streams(1))
    path = max(tables_of(handle).values())
    said = damage(Path(os.path.normpath(place.folder / "c" / JOB_ID / "chk-1" / path)))
    with pytest.raises(CorruptCheckpointError, match=re.escape(Path(path).name) + f".*{said}"):
        contents(place.restored([handle], {"disk": place.backend, "heap": on_heap}[make]))


def test_a_forged_record_does_not_make_a_typed_state_be_unpickled(place):
    backend = place.backend()
    fill(backend, range(200))
    forged = b"p" + dump_pickle(print)
    for place_of, _ in list(backend._store.db.items()):
        if place_of < QUEUES.to_bytes(4, "big"):  # the timers in the files are not read
            backend._store.db[place_of] = forged
    handle = native(backend, place.streams(1))
    restored = place.restored([handle])
    with pytest.raises(PickledStateError, match="state 'counts'"):
        list(restored.registered_kv_states["counts"].items())
    with pytest.raises(PickledStateError, match="state 'counts'"):
        place.restored([handle], on_heap)


def test_pickles_are_kept_as_bytes_until_the_program_asks_for_them(place):
    """A class that is gone does no harm to a state that nobody asks for; savepoints keep it."""
    backend = place.backend()
    fill(backend)
    restored = place.restored([native(backend, place.streams(1))])
    assert has_pickles(restored.registered_kv_states["bags"].meta.stored_type) is False
    again = place.restored([native(restored, place.streams(2))], on_heap)
    assert contents(again) == contents(backend)


def test_a_value_that_does_not_fit_is_refused_when_it_is_written(place):
    backend = place.backend(objects_bytes=0)
    bags = ValueStateDescriptor("lists", Types.LIST(Types.LONG()))
    state_of(backend, bags, "k").update([1])
    state_of(backend, bags, "k").value().append({1})
    backend.clear_current_key()
    state_map = backend._tables()[0].tiered_maps()[backend.key_group_of("k")]
    state_map.age()
    with pytest.raises(
        StateValueError, match=r"state 'lists', key 'k': a value of builtins\.set does not fit"
    ):
        state_map.age()


def test_the_async_part_may_run_on_another_thread(place):
    backend = place.backend()
    fill(backend)
    expected = contents(backend)
    task = backend.base_snapshot(place.streams(1), "zstd", is_later=False)
    thread = threading.Thread(target=task.run)
    thread.start()
    fill(backend, range(KEYS), 3)
    thread.join(60)
    assert contents(place.restored([task.result()])) == expected


def test_a_heap_backend_without_rocksdict_says_what_to_install(place, monkeypatch):
    backend = place.backend()
    fill(backend)
    handle = native(backend, place.streams(1))
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyflinkstate\[rocksdb\]'"):
        place.restored([handle], on_heap)
