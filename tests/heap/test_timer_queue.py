"""The queue of timers: order, no doubles, deletion, snapshots, restores, and against a sorted list."""

import copy
import pickle

import pytest
from backend_support import make_backend, prepare, restore, take_snapshot, write
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.heap.timer_queue import Timer, TimerQueue
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE
from pyflinkstate.backends.types.migration import RegisteredQueueMeta
from pyflinkstate.errors import StateMigrationError

LONG, STRING = Types.LONG(), Types.STRING()
META = RegisteredQueueMeta("timers", STRING)
END_OF_TIME = 2**63 - 1


@pytest.fixture
def queue():
    """Owns the key groups 4 to 7."""
    return TimerQueue(META, KeyGroupRange(4, 7))


def fired(queue, until_ms=END_OF_TIME):
    """Take all timers out until ``until_ms``."""
    timers = []
    while (timer := queue.poll(until_ms)) is not None:
        timers.append(timer)
        queue._check()
    return timers


class TestOrder:
    def test_an_empty_queue_has_nothing_to_give(self, queue):
        assert (queue.first_timestamp(), queue.poll(END_OF_TIME)) == (None, None)
        assert (len(queue), list(queue.timers())) == (0, [])

    def test_a_timer_can_be_copied_and_pickled(self):
        timer = Timer(5, "a", "n", 3)
        for copied in (copy.deepcopy(timer), pickle.loads(pickle.dumps(timer))):
            assert (copied, copied.map_index) == (timer, 3)

    def test_a_timer_is_given_as_it_was_added(self, queue):
        queue.add(Timer(1, ("k", 1), "w"), 4)
        queue.add(Timer(2, "k"), 5)
        assert fired(queue) == [Timer(1, ("k", 1), "w"), Timer(2, "k", VOID_NAMESPACE)]


class TestRemove:
    def test_a_timer_that_is_put_off_again_and_again_leaves_nothing_behind(self, queue):
        """As a timeout that every record moves: what was removed must not wait for its time to come."""
        for time in range(5000):
            queue.add(Timer(1000 + time, "a"), 4)
            queue.remove(Timer(999 + time, "a"), 4)
        queue._check()
        assert len(queue) == 1
        assert len(queue._heap) < 500
        assert fired(queue) == [Timer(5999, "a")]


class TestSnapshots:
    @staticmethod
    def held(snapshot):
        return {
            Timer(time, key, space)
            for group in snapshot.key_groups()
            for key, space, time in zip(group.keys, group.namespaces, group.values, strict=True)
        }

    def test_a_snapshot_holds_what_was_there_by_key_group(self, queue):
        queue.add(Timer(2, "a", "w"), 4)
        queue.add(Timer(1, "b", "x"), 6)
        groups = list(queue.snapshot().key_groups())
        assert [(group.key_group, group.keys, group.namespaces, group.values) for group in groups] == [
            (4, ["a"], ["w"], [2]),
            (5, [], [], []),
            (6, ["b"], ["x"], [1]),
            (7, [], [], []),
        ]

    def test_a_file_written_later_does_not_hold_later_changes(self):
        backend = make_backend()
        queue = backend.create_timer_queue("event_timers")
        queue.add(Timer(1, "a"), backend.key_group_of("a"))
        resources = prepare(backend)
        assert queue.poll(1) == Timer(1, "a")
        queue.add(Timer(2, "b"), backend.key_group_of("b"))
        restored = restore([write(backend, resources)]).create_timer_queue("event_timers")
        assert fired(restored) == [Timer(1, "a")]


@pytest.fixture(params=[True, False], ids=["copy-on-write", "plain"])
def is_async(request):
    return request.param


class TestRestore:
    @pytest.mark.parametrize(
        ("namespace_type", "namespaces"),
        [
            (None, [VOID_NAMESPACE]),
            (STRING, ["", "w", "é"]),
            (LONG, [0, -1, 2**63 - 1]),
            (Types.TUPLE([LONG, LONG]), [(0, 10), (10, 20)]),
            (Types.PICKLED_BYTE_ARRAY(), ["w", 1, ("w", 1)]),
        ],
        ids=str,
    )
    def test_timers_come_back_and_fire_in_the_same_order(self, is_async, namespace_type, namespaces):
        arguments = () if namespace_type is None else (namespace_type,)
        backend = make_backend(async_snapshots=is_async)
        queue = backend.create_timer_queue("event_timers", *arguments)
        for number in range(100):
            key = f"key-{number * 7 % 30}"
            for namespace in namespaces:
                queue.add(Timer(number % 10 - 5, key, namespace), backend.key_group_of(key))
        restored = restore([take_snapshot(backend)], async_snapshots=is_async)
        again = restored.create_timer_queue("event_timers", *arguments)
        again._check()
        assert len(again) == len(queue) > 0
        assert fired(again) == fired(queue)


class TestRegistration:
    def test_the_same_name_gives_the_same_queue(self):
        backend = make_backend()
        queue = backend.create_timer_queue("event_timers", STRING)
        assert backend.create_timer_queue("event_timers", STRING) is queue
        assert backend.create_timer_queue("processing_timers", STRING) is not queue

    def test_another_type_of_namespaces_is_refused(self):
        backend = make_backend()
        backend.create_timer_queue("event_timers", STRING)
        with pytest.raises(StateMigrationError, match=r"'event_timers' have namespaces of STRING.*LONG"):
            backend.create_timer_queue("event_timers", LONG)
        restored = restore([take_snapshot(backend)])
        with pytest.raises(StateMigrationError, match=r"'event_timers' have namespaces of STRING.*LONG"):
            restored.create_timer_queue("event_timers", LONG)

    def test_a_state_may_be_called_as_a_queue(self):
        backend = make_backend()
        backend.create_timer_queue("event_timers").add(Timer(1, "k"), backend.key_group_of("k"))
        backend.set_current_key("k")
        backend.get_partitioned_state(ValueStateDescriptor("event_timers")).update(7)
        restored = restore([take_snapshot(backend)])
        restored.set_current_key("k")
        assert restored.get_partitioned_state(ValueStateDescriptor("event_timers")).value() == 7
        assert fired(restored.create_timer_queue("event_timers")) == [Timer(1, "k")]


GROUPS = KeyGroupRange(2, 5)
# Few of each, so that operations meet. A key is always in the same key group.
timers = st.builds(Timer, st.integers(-3, 6), st.integers(0, 7), st.sampled_from(["w", "x"]))


def group_of(timer):
    return GROUPS.start + timer.key % len(GROUPS)


class TimerQueueComparison(RuleBasedStateMachine):
    """Each rule does the same to the queue and to a list in the order of firing."""

    def __init__(self):
        super().__init__()
        self.queue = TimerQueue(META, GROUPS)
        #: (timestamp, key group, when added, timer)
        self.model = []
        self.added = 0
        self.snapshots = []

    def find(self, timer):
        return next((entry for entry in self.model if entry[3] == timer), None)

    @rule(timer=timers)
    def add(self, timer):
        known = self.find(timer) is not None
        assert self.queue.add(timer, group_of(timer)) is not known
        if not known:
            self.added += 1
            self.model.append((timer.timestamp_ms, group_of(timer), self.added, timer))
            self.model.sort(key=lambda entry: entry[:3])

    @rule(timer=timers)
    def remove(self, timer):
        entry = self.find(timer)
        assert self.queue.remove(timer, group_of(timer)) is (entry is not None)
        if entry is not None:
            self.model.remove(entry)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_what_is_there(self, data):
        self.remove(data.draw(st.sampled_from([entry[3] for entry in self.model])))

    @rule(start=st.integers(-3, 3), key=st.integers(0, 7))
    def put_off_again_and_again(self, start, key):
        """Enough to have times without timers dropped."""
        for time in range(start, start + 150):
            self.add(Timer(time, key, "w"))
            if time > start:
                self.remove(Timer(time - 1, key, "w"))
            if time % 25 == 0:
                self.queue._check()

    @rule(until_ms=st.integers(-4, 7))
    def poll(self, until_ms):
        timer = self.queue.poll(until_ms)
        if timer is None:
            assert not self.model or self.model[0][0] > until_ms
        else:
            assert timer == self.model.pop(0)[3]
            assert timer.timestamp_ms <= until_ms

    @rule()
    def look_at_the_first(self):
        assert self.queue.first_timestamp() == (self.model[0][0] if self.model else None)

    @rule()
    def take_snapshot(self):
        self.snapshots.append((self.queue.snapshot(), {entry[3] for entry in self.model}))

    @rule()
    def go_on_with_a_restored_queue(self):
        restored = TimerQueue(META, GROUPS)
        for group in self.queue.snapshot().key_groups():
            restored.load(group.key_group, map(Timer, group.values, group.keys, group.namespaces))
        self.queue = restored

    @invariant()
    def invariants_hold(self):
        self.queue._check()
        assert len(self.queue) == len(self.model)
        assert sorted(self.queue.timers(), key=str) == sorted((entry[3] for entry in self.model), key=str)

    def teardown(self):
        for snapshot, expected in self.snapshots:
            assert TestSnapshots.held(snapshot) == expected
        assert fired(self.queue) == [entry[3] for entry in self.model]


TestTimerQueueComparison = TimerQueueComparison.TestCase
TestTimerQueueComparison.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
