"""Increments of a backend: which changes they have, what is in their files, and what chains restore."""

import threading

import pytest
from backend_support import (
    MemoryStreams,
    Snapshot,
    chained,
    contents,
    make_backend,
    restore,
    rows_of,
    state_of,
    take_snapshot,
)
from ttl_contract import ttl_config, with_ttl

from pyflinkstate import ListStateDescriptor, Types, ValueStateDescriptor
from pyflinkstate.backends.format.metadata import FileStateHandle, KeyGroupsStateHandle
from pyflinkstate.backends.heap.backend import snapshot_runner
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.errors import CheckpointStorageError, SnapshotCancelledError

LONG = Types.LONG()
VALUE = ValueStateDescriptor("value", LONG)
LIST = ListStateDescriptor("list", LONG)
FULL_SNAPSHOT_CLEANUP = ttl_config(
    cleanup=lambda builder: builder.disable_cleanup_in_background().cleanup_full_snapshot()
)


class Tracked:
    """A backend whose changes are noted; its checkpoints are numbered from 1."""

    def __init__(self, backend):
        self.backend = backend
        self.history = ChangeHistory(backend)
        self.last = 0

    def take(self, base_id=None):
        """Both parts of a checkpoint on top of ``base_id``."""
        self.last += 1
        changes = self.history.cut(self.last, base_id)
        assert (changes is None) is (base_id is None)
        return Snapshot.of(self.backend, changes).write()


@pytest.fixture
def tracked():
    return Tracked(make_backend())


class TestHistory:
    """Which changes an increment has: those since its base, whatever became of the checkpoints between."""

    @pytest.fixture
    def history(self, tracked):
        """Five keys, one before each of the barriers 1 to 5; none of them had a base."""
        for key in range(1, 6):
            state_of(tracked.backend, VALUE, key).update(key)
            assert tracked.history.cut(key, None) is None
        return tracked.history

    @staticmethod
    def keys(changes):
        return set().union(*changes["value"])

    @pytest.mark.parametrize("base_id", range(1, 6))
    def test_changes_since_any_earlier_barrier(self, tracked, history, base_id):
        state_of(tracked.backend, VALUE, 6).update(6)
        assert self.keys(history.cut(6, base_id)) == set(range(base_id + 1, 7))

    @pytest.mark.parametrize("base_id", [None, 0, 6, 99])
    def test_without_a_base_that_is_known_everything_must_be_written(self, history, base_id):
        assert history.cut(7, base_id) is None

    def test_it_begins_where_it_is_made(self):
        backend = make_backend()
        state_of(backend, VALUE, "before").update(1)
        tracked = Tracked(backend)
        tracked.take()
        state_of(backend, VALUE, "after").update(1)
        assert self.keys(tracked.history.cut(2, 1)) == {"after"}


class TestIncrementFiles:
    def test_timers_of_one_time_fire_in_the_order_in_which_they_were_added(self):
        """As after a restore of a full snapshot; one that was put off and on again comes last."""
        own = key_group_range(1, 1, 0)
        tracked = Tracked(make_backend(own=own, max_parallelism=1))
        queue = tracked.backend.create_timer_queue("t")
        for key in "abcd":
            queue.add(Timer(1, key), 0)
        full = tracked.take()
        for key in "ghijef":
            queue.add(Timer(1, key), 0)
        for key in "bh":
            queue.remove(Timer(1, key), 0)
            queue.add(Timer(1, key), 0)
        restored = restore([chained(full, tracked.take(1))], own=own, max_parallelism=1)
        fired = restored.create_timer_queue("t")
        assert "".join(fired.poll(1).key for _ in range(len(fired))) == "acdgijefbh"

    def test_where_nothing_changed_no_file_is_made_and_nothing_is_held(self, tracked):
        state_of(tracked.backend, VALUE, "a").update(1)
        tracked.backend.create_timer_queue("t")
        tracked.take()
        streams = MemoryStreams()
        snapshot = Snapshot.of(tracked.backend, tracked.history.cut(2, 1))
        assert snapshot.write(streams) is None
        assert streams.created == []
        assert not any(held._snapshot_versions for held in tracked.backend.registered_kv_states["value"].maps)

    @pytest.mark.parametrize("end", ["written", "refused", "cancelled", "given up"])
    def test_however_it_ends_nothing_stays_held_and_the_next_one_has_the_same_and_more(self, tracked, end):
        state_of(tracked.backend, LIST, "a").add(1)
        full = tracked.take()
        state_of(tracked.backend, LIST, "a").add(2)
        changes, streams, cancelled = tracked.history.cut(2, 1), MemoryStreams(), threading.Event()
        snapshot = Snapshot.of(tracked.backend, changes)
        if end == "written":
            assert rows_of(snapshot.write()) == {"list": {"a": False}}
        elif end == "refused":
            with pytest.raises(CheckpointStorageError):
                snapshot.write(MemoryStreams(fail_at_close=True))
        elif end == "cancelled":
            streams.on_write = cancelled.set
            with pytest.raises(SnapshotCancelledError):
                snapshot.write(streams, cancelled)
        else:
            snapshot.resources.release()
        assert not any(held._snapshot_versions for held in tracked.backend.registered_kv_states["list"].maps)
        state_of(tracked.backend, LIST, "b").add(3)
        tracked.last = 2
        increment = tracked.take(1)
        assert rows_of(increment) == {"list": {"a": False, "b": False}}
        assert contents(restore([chained(full, increment)])) == {"list": {"a": [1, 2], "b": [3]}}

    def test_a_runner_takes_increments_too(self, tracked):
        state_of(tracked.backend, VALUE, "a").update(1)
        tracked.take()
        state_of(tracked.backend, VALUE, "b").update(1)
        changes = tracked.history.cut(2, 1)
        task = snapshot_runner(tracked.backend, None, changes).snapshot(MemoryStreams())
        state_of(tracked.backend, VALUE, "b").update(2)
        task.run()
        assert contents(restore([task.result()])) == {"value": {"b": 1}}


class TestChains:
    @pytest.mark.parametrize("to_ttl", [True, False], ids=["to time to live", "from time to live"])
    def test_a_state_that_is_migrated_is_written_whole_and_restored_as_what_it_became(self, to_ttl):
        plain, expiring = LIST, with_ttl(ListStateDescriptor("list", LONG))
        before, after = (plain, expiring) if to_ttl else (expiring, plain)
        backend = make_backend()
        for key in "abc":
            state_of(backend, before, key).add(1)
        tracked = Tracked(restore([take_snapshot(backend)]))
        full = tracked.take()
        state_of(tracked.backend, after, "a").add(2)
        state_of(tracked.backend, after, "b").clear()
        migrated = tracked.take(1)
        state_of(tracked.backend, after, "c").add(3)
        last = tracked.take(2)
        assert rows_of(migrated) == {"list": {"a": False, "b": True, "c": False}}
        assert rows_of(last) == {"list": {"c": False}}
        restored = restore([chained(full, migrated, last)])
        for key, stored in {"a": [1, 2], "b": [], "c": [1, 3]}.items():
            assert list(state_of(restored, after, key).get()) == stored

    def test_what_a_full_snapshot_cleans_up_is_gone_when_it_changes(self):
        now = [0]
        descriptor = with_ttl(ValueStateDescriptor("value", LONG), FULL_SNAPSHOT_CLEANUP)
        tracked = Tracked(make_backend(clock=lambda: now[0]))
        for key in "ab":
            state_of(tracked.backend, descriptor, key).update(1)
        full = tracked.take()
        state_of(tracked.backend, descriptor, "a").update(2)
        now[0] = 50
        state_of(tracked.backend, descriptor, "c").update(3)
        now[0] = 100
        increment = tracked.take(1)
        assert rows_of(increment) == {"value": {"a": True, "c": False}}
        assert contents(restore([chained(full, increment)])) == {"value": {"b": (0, 1), "c": (50, 3)}}

    def test_the_handle_counts_and_lists_the_files_of_the_whole_chain(self, tracked):
        state_of(tracked.backend, VALUE, "a").update(1)
        full = tracked.take()
        state_of(tracked.backend, VALUE, "a").update(2)
        increment = tracked.take(1)
        handle = chained(full, increment)
        assert handle.size_bytes == full.size_bytes + increment.size_bytes
        assert list(handle.files()) == []
        files = [FileStateHandle(name, 10) for name in "abc"]
        first, *rest = (KeyGroupsStateHandle(increment.key_group_range, file, {}) for file in files)
        assert list(chained(first, increment, *rest).files()) == files
        assert chained(first, increment, *rest).size_bytes == 30 + increment.size_bytes
