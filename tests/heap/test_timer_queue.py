"""The queue of timers: order, no doubles, deletion, snapshots, restores, and against a sorted list."""

import copy
import pickle
from collections import Counter

import pytest
from backend_support import make_backend, restore, take_snapshot
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tiered_support import HAS_ROCKSDB, tiered_queue

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.heap.timer_queue import SPAN_BITS, Timer, TimerQueue
from pyflinkstate.backends.keys import KeyGroupRange
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
    def test_a_timer_can_be_copied_and_pickled(self):
        timer = Timer(5, "a", "n", 3)
        for copied in (copy.deepcopy(timer), pickle.loads(pickle.dumps(timer))):
            assert (copied, copied.map_index) == (timer, 3)


class TestRemove:
    def test_a_timer_that_is_put_off_again_and_again_leaves_nothing_behind(self, queue):
        """As a timeout that every record moves: what was removed must not wait for its time to come."""
        for step in (1, 1 << SPAN_BITS):
            queue.add(Timer(0, "b"), 4)
            for number in range(3000):
                queue.add(Timer(number * step, "a"), 4)
                queue.remove(Timer((number - 1) * step, "a"), 4)
                assert queue.first_timestamp() == 0
            queue._check()
            assert len(queue) == 2
            assert len(queue._heap) < 500
            assert len(queue._due) < 500
            assert fired(queue) == [Timer(0, "b"), Timer(2999 * step, "a")]


class TestSnapshots:
    @staticmethod
    def held(snapshot):
        return {
            Timer(time, key, space)
            for group in snapshot.key_groups()
            for key, space, time in zip(group.keys, group.namespaces, group.values, strict=True)
        }

    @pytest.mark.skipif(not HAS_ROCKSDB, reason="needs rocksdict")
    def test_timers_on_disk_come_in_the_order_of_adding(self):
        """Their bytes have another order, and restored timers fire in that of the snapshot."""
        queue = tiered_queue(META, KeyGroupRange(4, 7))
        for key in "dacbfe":
            queue.add(Timer(9, key, "n"), 5)
        for time in range(5):
            queue.add(Timer(time, "early", "n"), 4)
        assert queue._size <= 3
        assert [[*group.keys] for group in queue.snapshot().key_groups()][1] == [*"dacbfe"]


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
# Few of each, so that operations meet: times on both sides of the edges of spans, and the first and the last
# one. A key is always in the same key group.
near_edges = st.builds(lambda span, rest: (span << SPAN_BITS) + rest, st.integers(-1, 2), st.integers(-2, 2))
times = near_edges | st.sampled_from([-(2**63), END_OF_TIME])
timers = st.builds(Timer, times, st.integers(0, 7), st.sampled_from(["w", "x"]))


def group_of(timer):
    return GROUPS.start + timer.key % len(GROUPS)


class TimerQueueComparison(RuleBasedStateMachine):
    """Each rule does the same to the queue and to a list in the order of firing."""

    new_queue = TimerQueue
    checks_always = True

    def __init__(self):
        super().__init__()
        self.queue = self.new_queue(META, GROUPS)
        self.queue.track_changes()
        #: What the increments have come to.
        self.folded = set()
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

    @rule(start=near_edges, step=st.sampled_from([1, 1 << SPAN_BITS]), key=st.integers(0, 7))
    def put_off_again_and_again(self, start, step, key):
        """Enough to have spans without timers dropped."""
        for number in range(150):
            self.add(Timer(start + number * step, key, "w"))
            if number:
                self.remove(Timer(start + (number - 1) * step, key, "w"))
            if number % 25 == 0:
                self.queue._check()

    @rule(until_ms=times)
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
    def take_increment(self):
        for group in self.queue.increment(self.queue.take_changes()).key_groups():
            for row in zip(group.values, group.keys, group.namespaces, group.removed, strict=True):
                (self.folded.discard if row[3] else self.folded.add)(Timer(*row[:3]))
        assert self.folded == {entry[3] for entry in self.model}

    @rule()
    def go_on_with_a_restored_queue(self):
        restored = self.new_queue(META, GROUPS)
        for group in self.queue.snapshot().key_groups():
            restored.load(group.key_group, map(Timer, group.values, group.keys, group.namespaces))
        self.queue = restored
        self.queue.track_changes()
        self.folded = {entry[3] for entry in self.model}

    @rule()
    def check(self):
        self.queue._check()

    @invariant()
    def invariants_hold(self):
        assert len(self.queue) == len(self.model)
        if not self.checks_always:
            return
        self.queue._check()
        assert sorted(self.queue.timers(), key=str) == sorted((entry[3] for entry in self.model), key=str)

    def teardown(self):
        for snapshot, expected in self.snapshots:
            assert TestSnapshots.held(snapshot) == expected
        assert fired(self.queue) == [entry[3] for entry in self.model]


TestTimerQueueComparison = TimerQueueComparison.TestCase
TestTimerQueueComparison.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


class TieredQueueComparison(TimerQueueComparison):
    """The same with nearly all timers on disk; checking writes down what is pending, so it is done rarely."""

    new_queue = staticmethod(tiered_queue)
    checks_always = False

    @invariant()
    def memory_is_bounded(self):
        assert self.queue.timers_in_memory <= 3 + most_in_a_unit(self.model)


def most_in_a_unit(model):
    """Return how many timers of one time and key group there are at most."""
    return max(Counter(entry[:2] for entry in model).values(), default=0)


if HAS_ROCKSDB:
    TestTieredQueueComparison = TieredQueueComparison.TestCase
    TestTieredQueueComparison.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
