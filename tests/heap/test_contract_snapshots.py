"""Snapshots, restores and rescaling: rows G14 and G20 to G22 of the semantics."""

import pytest
from backend_support import (
    MemoryStreams,
    make_backend,
    prepare,
    rescale,
    restore,
    state_of,
    take_snapshot,
    write,
)
from contract_backends import KINDS, LONG, STRING
from tiers import cases

from pyflinkstate.api import ValueStateDescriptor
from pyflinkstate.backends.heap.backend import snapshot_runner
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import key_group_range, operator_index

SPEND = ValueStateDescriptor("spend", LONG)

either_table = pytest.mark.parametrize("is_async", [True, False], ids=["copy-on-write", "plain"])


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

    def test_g14_a_state_without_entries_stays_registered(self, everywhere):
        everywhere.state(SPEND).value()
        assert list(everywhere.restarted().restarted().backend.registered_kv_states) == ["spend"]


class TestParallelSnapshots:
    """G20, G21. Each task is what a thread of its own would run."""

    @staticmethod
    def take(backend, streams=None):
        return snapshot_runner(backend).snapshot(streams or MemoryStreams())

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
