"""Snapshots, restores and rescaling: rows G13, G14 and G20 to G22 of the semantics."""

from operator import itemgetter

import pytest
from backend_support import (
    PICKLED,
    MemoryStreams,
    make_backend,
    prepare,
    rescale,
    restore,
    state_of,
    take_snapshot,
    write,
)
from contract_backends import KINDS, LONG, STRING, ScriptFunction, lives
from tiers import cases

from pyflinkstate.api import ValueStateDescriptor
from pyflinkstate.backends.heap.backend import snapshot_runner
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import key_group_range, operator_index
from pyflinkstate.backends.snapshots import SnapshotCancelledError
from pyflinkstate.testing import KeyedOneInputOperatorHarness

SPEND = ValueStateDescriptor("spend", LONG)

every_kind = pytest.mark.parametrize("kind", KINDS)
either_table = pytest.mark.parametrize("is_async", [True, False], ids=["copy-on-write", "plain"])


class TestStateThatIsNotAskedFor:
    """G13."""

    @every_kind
    @pytest.mark.parametrize("ttl", [False, True], ids=["for ever", "for a time"])
    def test_g13_it_survives_the_next_snapshots(self, everywhere, kind, ttl):
        descriptor = KINDS[kind].describe("spend")
        if ttl:
            lives(descriptor, 1000)
        for number, key in enumerate(("a", "b", "c")):
            everywhere.run(descriptor, lambda state, number=number: KINDS[kind].store(state, number), key)
        restarted = everywhere.restarted().restarted().restarted()
        assert restarted.entries() == 3
        read = [restarted.run(descriptor, KINDS[kind].read, key) for key in ("a", "b", "c")]
        assert read == [0, 1, 2]

    @either_table
    def test_g13_timers_that_are_not_asked_for_survive(self, is_async):
        backend = make_backend(async_snapshots=is_async)
        timers = backend.create_timer_queue("event_timers", STRING)
        timers.add(Timer(5, "k", "w"), backend.key_group_of("k"))
        for _ in range(2):
            backend = restore([take_snapshot(backend)], async_snapshots=is_async)
        assert backend.create_timer_queue("event_timers", STRING).poll(5) == Timer(5, "k", "w")


class TestEmptyBackend:
    """G14."""

    @either_table
    def test_g14_a_backend_without_state_makes_no_file(self, is_async):
        streams = MemoryStreams()
        backend = make_backend(async_snapshots=is_async)
        assert write(backend, prepare(backend), streams) is None
        assert streams.created == []

    @either_table
    def test_g14_none_is_restored_to_a_backend_without_state(self, is_async):
        backend = restore([None, None], async_snapshots=is_async)
        assert backend.registered_kv_states == {}
        state_of(backend, SPEND, "k").update(1)
        assert state_of(backend, SPEND, "k").value() == 1

    def test_g14_none_is_restored_beside_the_file_of_another_subtask(self):
        full = make_backend()
        state_of(full, SPEND, "k").update(1)
        assert state_of(restore([None, take_snapshot(full)]), SPEND, "k").value() == 1

    def test_g14_an_operator_that_never_asked_for_state_restarts(self, everywhere):
        restarted = everywhere.restarted().restarted()
        assert restarted.state(SPEND).value() is None
        assert restarted.entries() == 0

    def test_g14_a_state_without_entries_stays_registered(self, everywhere):
        everywhere.state(SPEND).value()
        assert list(everywhere.restarted().restarted().backend.registered_kv_states) == ["spend"]


class TestParallelSnapshots:
    """G20, G21. Each task is what a thread of its own would run."""

    @staticmethod
    def take(backend, streams=None):
        return snapshot_runner(backend).snapshot(streams or MemoryStreams())

    @every_kind
    def test_g20_snapshots_may_be_written_in_any_order(self, kind):
        backend = make_backend()
        descriptor = KINDS[kind].describe("spend")
        tasks = []
        for number in range(6):
            KINDS[kind].store(state_of(backend, descriptor, "k"), number)
            KINDS[kind].store(state_of(backend, descriptor, f"k{number}"), number)
            tasks.append(self.take(backend))
        KINDS[kind].store(state_of(backend, descriptor, "k"), 99)
        for index in (3, 5, 0, 4, 1, 2):
            tasks[index].run()
        for number, task in enumerate(tasks):
            restored = restore([task.result()])
            assert KINDS[kind].read(state_of(restored, descriptor, "k")) == number
            assert restored.num_key_value_state_entries() == number + 2
        assert KINDS[kind].read(state_of(backend, descriptor, "k")) == 99

    def test_g20_a_snapshot_may_be_taken_and_written_while_another_is_written(self):
        backend = make_backend()
        state_of(backend, SPEND, "k").update(1)
        inner = []

        def write_another():
            if not inner:
                inner.append(self.take(backend))
                state_of(backend, SPEND, "k").update(3)
                inner[0].run()

        outer = self.take(backend, MemoryStreams(on_write=write_another))
        state_of(backend, SPEND, "k").update(2)
        outer.run()
        assert inner[0].is_done
        written = [state_of(restore([task.result()]), SPEND, "k").value() for task in (outer, inner[0])]
        assert written == [1, 2]

    def test_g20_closing_the_backend_cancels_what_is_being_written(self):
        backend = make_backend()
        for key in range(50):
            state_of(backend, SPEND, key).update(key)
        streams = MemoryStreams()
        streams.on_write = lambda: len(streams.created[0].events) > 5 and backend.dispose()
        task = self.take(backend, streams)
        task.run()
        with pytest.raises(SnapshotCancelledError):
            task.result()
        assert streams.created[0].events[-1] == "abort"
        assert not any(held._snapshot_versions for held in backend.registered_kv_states["spend"].maps)

    def test_g20_a_closed_backend_takes_no_more_snapshots(self):
        backend = make_backend()
        state_of(backend, SPEND, "k").update(1)
        backend.dispose()
        with pytest.raises(SnapshotCancelledError, match="closed"):
            self.take(backend)
        assert not any(held._snapshot_versions for held in backend.registered_kv_states["spend"].maps)

    @every_kind
    @either_table
    def test_g21_what_comes_after_the_synchronous_part_is_live_but_not_in_the_snapshot(self, kind, is_async):
        backend = make_backend(async_snapshots=is_async)
        descriptor = KINDS[kind].describe("spend")
        for key in ("changed", "cleared", "kept"):
            KINDS[kind].store(state_of(backend, descriptor, key), 1)
        task = self.take(backend)
        assert task.is_done is not is_async
        KINDS[kind].store(state_of(backend, descriptor, "changed"), 2)
        KINDS[kind].store(state_of(backend, descriptor, "added"), 2)
        state_of(backend, descriptor, "cleared").clear()
        state_of(backend, ValueStateDescriptor("later", LONG), "k").update(2)
        task.run()
        restored = restore([task.result()], async_snapshots=is_async)
        assert {
            key: KINDS[kind].read(state_of(restored, descriptor, key)) for key in restored.get_keys("spend")
        } == {"changed": 1, "cleared": 1, "kept": 1}
        assert "later" not in restored.registered_kv_states
        assert {
            key: KINDS[kind].read(state_of(backend, descriptor, key)) for key in backend.get_keys("spend")
        } == {"changed": 2, "added": 2, "kept": 1}


PARALLELISMS = [(4, 2), (2, 4), (2, 2), (15, 77), (77, 15), (1, 128), (128, 1)]
KEYS = [f"key-{number}" for number in range(300)]


def fill_subtask(backend, index, keys):
    """Give every key a number in a state that all subtasks have, in one that this one has, and a timer."""
    kind = list(KINDS)[index % len(KINDS)]
    descriptors = {name: KINDS[name].describe(name) for name in KINDS}
    shared = backend.create_timer_queue("event_shared")
    own = backend.create_timer_queue(f"event_own-{index}", STRING)
    for key in keys:
        number = KEYS.index(key)
        for name, descriptor in descriptors.items():
            KINDS[name].store(state_of(backend, descriptor, key), number)
        KINDS[kind].store(state_of(backend, KINDS[kind].describe(f"own-{index}"), key), -number)
        shared.add(Timer(number, key), backend.key_group_of(key))
        own.add(Timer(-number, key, "w"), backend.key_group_of(key))


class TestRescaling:
    """G22: each key is found in the one backend that owns its key group, whatever its neighbours had."""

    @pytest.mark.parametrize(
        ("before", "after", "is_async"),
        cases(
            [(*pair, is_async) for pair in PARALLELISMS for is_async in (True, False)],
            quick=[(4, 2, False), (15, 77, True)],
        ),
        ids=str,
    )
    def test_g22_state_and_timers_go_where_their_key_group_goes(self, before, after, is_async):
        group_of = dict(zip(KEYS, map(make_backend().key_group_of, KEYS), strict=True))
        old_owner = {key: operator_index(128, before, group) for key, group in group_of.items()}
        new_owner = {key: operator_index(128, after, group) for key, group in group_of.items()}
        handles = []
        for index in range(before):
            backend = make_backend(own=key_group_range(128, before, index), async_snapshots=is_async)
            fill_subtask(backend, index, [key for key in KEYS if old_owner[key] == index])
            handles.append(take_snapshot(backend))

        for index, backend in enumerate(rescale(handles, after, async_snapshots=is_async)):
            mine = [key for key in KEYS if new_owner[key] == index]
            for name in KINDS:
                assert sorted(backend.get_keys(name)) == sorted(mine), name
                descriptor = KINDS[name].describe(name)
                read = [KINDS[name].read(state_of(backend, descriptor, key)) for key in mine]
                assert read == [KEYS.index(key) for key in mine], name
            for key in mine:
                kind = list(KINDS)[old_owner[key] % len(KINDS)]
                descriptor = KINDS[kind].describe(f"own-{old_owner[key]}")
                assert KINDS[kind].read(state_of(backend, descriptor, key)) == -KEYS.index(key)
            assert backend.num_key_value_state_entries() == len(mine) * (len(KINDS) + 1)

            shared = backend.create_timer_queue("event_shared")
            fired = iter(lambda: shared.poll(1000), None)  # noqa: B023 - used at once
            assert list(fired) == [Timer(KEYS.index(key), key) for key in mine]
            own = [
                timer
                for name, queue in backend.registered_queues.items()
                if "own-" in name
                for timer in queue.timers()
            ]
            assert sorted(own, key=str) == sorted((Timer(-KEYS.index(k), k, "w") for k in mine), key=str)

    @pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (2, 2)], ids=str)
    def test_g22_operators_are_rescaled(self, before, after):
        def harnesses(parallelism, restore=()):
            return [
                KeyedOneInputOperatorHarness(
                    ScriptFunction(), itemgetter(0), parallelism=parallelism, subtask=index, restore=restore
                )
                for index in range(parallelism)
            ]

        old = harnesses(before)
        groups = {key: make_backend().key_group_of(key) for key in KEYS}
        for number, key in enumerate(KEYS):
            owner = old[operator_index(128, before, groups[key])]
            owner.process_element(
                (key, lambda function, number=number: function.state_of(SPEND).update(number))
            )
        new = harnesses(after, [harness.snapshot() for harness in old])
        for number, key in enumerate(KEYS):
            owner = new[operator_index(128, after, groups[key])]
            assert owner.process_element((key, lambda function: [function.state_of(SPEND).value()])) == [
                number
            ]
        assert sum(harness.num_keyed_state_entries() for harness in new) == len(KEYS)

    @pytest.mark.parametrize("way", cases(["15 77 3 128 2 1", "3 1"], quick=["3 1"]))
    def test_g22_there_and_back_again_nothing_is_lost_or_doubled(self, way):
        backend = make_backend()
        fill_subtask(backend, 0, KEYS)
        handles = [take_snapshot(backend)]
        for parallelism in map(int, way.split()):
            handles = [take_snapshot(subtask) for subtask in rescale(handles, parallelism, PICKLED)]
        (whole,) = rescale(handles, 1)
        for name, table in backend.registered_kv_states.items():
            assert sorted(whole.registered_kv_states[name].items()) == sorted(table.items()), name
        for name, queue in backend.registered_queues.items():
            assert sorted(map(str, whole.registered_queues[name].timers())) == sorted(
                map(str, queue.timers())
            )
