"""What differs of timers and operator state between two checkpoints."""

import pytest
from backend_support import make_backend, state_of, take_snapshot
from operator_support import snapshot
from read_support import checkpoint_of, in_memory, metadata_of, operator_of

from pyflinkstate import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access import diff
from pyflinkstate.testing import KeyedOneInputOperatorHarness, harness_of

STRING, LONG = Types.STRING(), Types.LONG()


class Reminders(KeyedProcessFunction):
    """Registers a timer of each kind."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
        ctx.timer_service().register_processing_time_timer(value[1])


def reminded(*records, max_parallelism=128):
    harness = KeyedOneInputOperatorHarness(
        Reminders(), lambda value: value[0], STRING, max_parallelism=max_parallelism
    )
    for record in records:
        harness.process_element(record, 0)
    return checkpoint_of(harness.snapshot().state, max_parallelism=max_parallelism)


def told(found):
    """Return the rows of what differs, without key groups, in order."""
    rows = [tuple(value for name, value in row.items() if name != "key_group") for row in found.table.rows()]
    return sorted(rows, key=repr)


class TestTimers:
    @pytest.mark.parametrize("max_parallelism", [128, 16])
    def test_those_that_only_one_has(self, max_parallelism):
        old = reminded(("a", 10), ("b", 20))
        new = reminded(("a", 10), ("b", 30), ("c", 10), max_parallelism=max_parallelism)
        event, processing = diff(old, new)
        assert [(one.state, one.kind) for one in (event, processing)] == [
            ("user-timers, event_time", "timers"),
            ("user-timers, processing_time", "timers"),
        ]
        for one in (event, processing):
            assert told(one) == [("b", 20, "removed"), ("b", 30, "added"), ("c", 10, "added")]
            assert one.counts() == {"added": 2, "removed": 1, "changed": 0}

    def test_an_operator_without_timers_before(self):
        backend = make_backend(STRING)
        state_of(backend, ValueStateDescriptor("count", LONG), "a").update(1)
        found = {one.state: one for one in diff(checkpoint_of(take_snapshot(backend)), reminded(("a", 10)))}
        assert told(found["user-timers, event_time"]) == [("a", 10, "added")]
        assert told(found["count"]) == [("a", "removed", 1, None)]

    def test_those_of_windows(self):
        def counted(*times):
            harness = harness_of(
                lambda stream: (
                    stream.key_by(lambda value: value[0], key_type=STRING)
                    .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
                    .reduce(lambda one, other: other)
                )
            )
            for time in times:
                harness.process_element(("a", time), time)
            return checkpoint_of(harness.snapshot().state)

        found = diff(counted(1), counted(1, 11))
        (timers,) = (one for one in found if one.kind == "timers" and told(one))
        assert told(timers) == [("a", TimeWindow(10, 20), 19, "added")]


def kept(**states):
    """Return a checkpoint with operator state of one subtask for each element."""
    backend = DefaultOperatorStateBackend()
    for name, content in states.items():
        if isinstance(content, dict):
            backend.get_broadcast_state(MapStateDescriptor(name, STRING, LONG)).put_all(content)
        else:
            backend.get_list_state(ListStateDescriptor(name, STRING)).add_all(content)
    return checkpoint_of(OperatorSubtaskState(managed_operator=snapshot(backend)))


class TestOperatorState:
    def test_elements_of_lists_without_regard_to_order(self):
        (found,) = diff(kept(listed=["a", "b", "b", "c"]), kept(listed=["c", "b", "a", "d", "d"]))
        assert (found.state, found.kind) == ("listed", "operator_state")
        assert told(found) == [("added", "d"), ("added", "d"), ("removed", "b")]

    def test_entries_of_broadcast_state(self):
        (found,) = diff(kept(rules={"a": 1, "b": 2, "c": 3}), kept(rules={"a": 1, "b": 7, "d": 4}))
        assert told(found) == [
            ("b", "changed", 2, 7),
            ("c", "removed", 3, None),
            ("d", "added", None, 4),
        ]

    def test_a_state_or_an_operator_that_only_one_has(self):
        nothing = in_memory(metadata_of([operator_of([OperatorSubtaskState()], "other")]))
        for old, new, change in (
            (nothing, kept(listed=["a"]), "added"),
            (kept(listed=["a"]), nothing, "removed"),
        ):
            (found,) = diff(old, new)
            assert told(found) == [(change, "a")]

    def test_nothing_differs(self):
        both = kept(listed=["a"], rules={"a": 1})
        assert [one.counts() for one in diff(both, both)] == [{"added": 0, "removed": 0, "changed": 0}] * 2

    def test_other_types_are_refused(self):
        with pytest.raises(StateTableError, match="'one' is of STRING and of STRING to LONG"):
            diff(kept(one=["a"]), kept(one={"a": 1}))

    def test_pickles_are_told_apart_without_running_code(self):
        def pickled(*values):
            backend = DefaultOperatorStateBackend()
            backend.get_list_state(ListStateDescriptor("any")).add_all(values)
            return checkpoint_of(OperatorSubtaskState(managed_operator=snapshot(backend)))

        (found,) = diff(pickled(1, [2], {3}), pickled(1.0, [2], {4}), allow_pickle=True)
        assert told(found) == [("added", {4}), ("removed", {3})]
