"""Drives a window operator on a real heap backend: no Spark, no subtask. Only the clock is faked.

The operator is pickled by value first, as it is on its way to a state slot, so a test looks at what is
``harness.operator``, not at what it made.
"""

import threading

import cloudpickle
from slot_functions import Mean as Mean

from pyflinkstate import AggregateFunction, ProcessWindowFunction, TimeWindow, Types, WindowFunction
from pyflinkstate.api import MAX_WATERMARK, NO_WATERMARK
from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.backends.heap import HeapKeyedStateBackend, HeapRestoreOperation, SubtaskTime
from pyflinkstate.backends.heap.backend import HeapSnapshotStrategy
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.runtime.operators import OperatorContext, window_operator
from pyflinkstate.runtime.operators.operators import OperatorSetup, Output

#: The number of key groups; few, as each is a map of its own in every backend.
MAX_PARALLELISM = 16
ALL_KEY_GROUPS = KeyGroupRange(0, MAX_PARALLELISM - 1)


class WindowHarness:
    """One open window operator; calls return what they emitted, as pairs of value and timestamp."""

    def __init__(
        self,
        operator,
        *,
        restore=(),
        own=ALL_KEY_GROUPS,
        watermark=NO_WATERMARK,
        now_ms=0,
        key_type=None,
        is_general=False,
    ):
        self.now_ms = now_ms
        self.time = SubtaskTime(lambda: self.now_ms, watermark)
        self.backend = HeapKeyedStateBackend(key_type or Types.PICKLED_BYTE_ARRAY(), own, MAX_PARALLELISM)
        if restore:
            HeapRestoreOperation(self.backend, MemoryCheckpoint()).restore(restore)
        self.history = ChangeHistory(self.backend)
        self.context = OperatorContext("windows", 0, 1, MAX_PARALLELISM, 0, self.backend)
        self.output = Output()
        self.operator = cloudpickle.loads(cloudpickle.dumps(operator))
        self.operator.open(OperatorSetup(self.context, self.backend, self.time))
        if is_general:
            self.operator.fast_way = None

    def process(self, key, value, timestamp=None):
        """Process one record, in a frame of its own if the operator takes frames."""
        self.backend.set_current_key(key)
        if self.operator.fast_way is None:
            self.operator.process_element(value, timestamp, self.output)
        else:
            columns = [self.backend.key_context.map_index], [key], [value], [timestamp]
            self.operator.fast_way.run(columns, self.output)
        self.backend.clear_current_key()
        return self.taken()

    def advance(self, watermark=MAX_WATERMARK):
        """Advance the watermark and fire what is due, in the order of time."""
        assert watermark >= self.time.watermark
        self.time.watermark = watermark
        queue = self.operator.timers.event.queue
        if self.operator.fast_way is not None and queue is not None:
            self.operator.fast_way.fire_until(queue, watermark, self.output)
        while (timer := self.operator.take_event_time(watermark)) is not None:
            self.backend.set_current_key(timer.key)
            self.operator.on_event_time(timer, self.output)
        self.backend.clear_current_key()
        return self.taken()

    def set_processing_time(self, now_ms):
        """Set the clock and fire what is due, in the order of time."""
        self.now_ms = now_ms
        while (timer := self.operator.take_processing_time(now_ms)) is not None:
            self.backend.set_current_key(timer.key)
            self.operator.on_processing_time(timer, self.output)
        self.backend.clear_current_key()
        return self.taken()

    def set_clock(self, now_ms):
        """Set the clock, and fire nothing."""
        self.now_ms = now_ms

    def taken(self):
        """Take what was emitted."""
        emitted = list(zip(self.output.values, self.output.timestamps, strict=True))
        self.output.values.clear()
        self.output.timestamps.clear()
        return emitted

    def side(self):
        """What went to side outputs so far, as pairs of value and timestamp, by tag."""
        columns = self.output.side
        return {tag: list(zip(*columns[tag], strict=True)) for tag in columns}

    def dropped(self):
        """How many late records were dropped."""
        return self.context.metrics.values()["numLateRecordsDropped"].count

    def entries(self):
        """What is in state, by name."""
        tables = self.backend.registered_kv_states
        return {name: dict(table.items()) for name, table in tables.items() if len(table)}

    def timers(self):
        """All timers, as triples of time, key and window, by name of the queue's kind."""
        return {
            name.split("/")[1].split("_")[0]: sorted(
                (timer.timestamp_ms, timer.key, timer.namespace) for timer in queue.timers()
            )
            for name, queue in self.backend.registered_queues.items()
            if len(queue)
        }

    def assert_empty(self):
        """Nothing is left: neither state nor timers."""
        assert self.entries() == {}
        assert self.backend.num_key_value_state_entries() == 0
        assert [len(queue) for queue in self.backend.registered_queues.values() if len(queue)] == []

    def snapshot(self, changes=None):
        """Write all of the state, or just what changed."""
        strategy = HeapSnapshotStrategy(self.backend, changes=changes)
        resources = strategy.sync_prepare_resources()
        return strategy.async_snapshot(resources, MemoryCheckpoint(), threading.Event())


def play(harness, *steps):
    """Call methods of a harness one after the other.

    A step is the name of a method, its arguments, and what it returns, which may be ``...`` for anything.
    """
    for number, (name, *arguments, expected) in enumerate(steps):
        found = getattr(harness, name)(*arguments)
        assert expected is ... or found == expected, f"step {number}, {name}{(*arguments,)}: {found}"


class Listing(AggregateFunction):
    """All elements, in an accumulator that is changed in place."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Collect(WindowFunction):
    """Gives key, window and elements."""

    def apply(self, key, window, inputs):
        yield key, window, list(inputs)


class CollectInContext(ProcessWindowFunction):
    """The same, by context."""

    def process(self, key, context, elements):
        return [(key, context.window(), list(elements))]


def collecting(assigner, **options):
    """Return the harness of an operator that collects all elements."""
    return WindowHarness(window_operator(assigner, function=Collect(), **options))


def fired(key, start, end, *elements):
    """What :class:`Collect` emits for a time window."""
    return (key, TimeWindow(start, end), list(elements)), end - 1
