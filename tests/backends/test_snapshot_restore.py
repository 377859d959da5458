"""Snapshot and restore of a heap backend: what comes back, what a snapshot sees, and rescaling."""

import datetime
import decimal
import math
import threading

import pytest
from backend_support import (
    PICKLED,
    Mean,
    MemoryStreams,
    make_backend,
    prepare,
    rescale,
    restore,
    state_of,
    take_snapshot,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from pyflinkstate.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from pyflinkstate.api.types import Types
from pyflinkstate.backends.key_groups import KeyGroupRange, key_group_range
from pyflinkstate.errors import StateRegistrationError

LONG, STRING = Types.LONG(), Types.STRING()
WHEN = datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)

#: Values of each type, with the ends of its range.
VALUES = [
    (Types.BOOLEAN(), [True, False]),
    (Types.BYTE(), [-128, 127]),
    (Types.SHORT(), [-32768, 32767]),
    (Types.INT(), [-(2**31), 2**31 - 1]),
    (LONG, [-(2**63), 0, 2**63 - 1]),
    (Types.FLOAT(), [0.5, math.inf, 3.4028234663852886e38]),
    (Types.DOUBLE(), [0.1, -math.inf, 5e-324]),
    (Types.CHAR(), ["a", "é", "\U0001f600"]),
    (STRING, ["", "日本 \x00 \U0001f600", "a" * 10_000]),
    (Types.BIG_INT(), [10**40, -(10**40), 0]),
    (Types.BIG_DEC(), [decimal.Decimal(text) for text in ("1.10", "-1E+50", "0E-10", "Infinity")]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\x00\xff"]),
    (Types.SQL_DATE(), [datetime.date.min, datetime.date.max]),
    (Types.SQL_TIME(), [datetime.time.min, datetime.time.max]),
    (Types.SQL_TIMESTAMP(), [datetime.datetime.min, WHEN, datetime.datetime.max]),
    (Types.LIST(Types.BIG_DEC()), [[], [decimal.Decimal("1.50")]]),
    (Types.LIST(Types.LIST(STRING)), [[], [[], ["a"]]]),
    (Types.MAP(STRING, Types.MAP(LONG, Types.BIG_INT())), [{}, {"a": {1: 10**30, 2: None}, "b": None}]),
    (Types.MAP(Types.TUPLE([LONG, STRING]), Types.LIST(LONG)), [{(1, "a"): [1], (2, None): []}]),
    (Types.TUPLE([LONG, Types.SQL_DATE(), PICKLED]), [(1, datetime.date.min, {1}), (None, None, None)]),
    (Types.LIST(Types.TUPLE([Types.BIG_INT(), Types.LIST(LONG)])), [[(10**20, [1]), (None, None)]]),
    (Types.MAP(PICKLED, PICKLED), [{None: None, (1, 2): {1}}]),
    (PICKLED, [0, "", [], {"a": {1, 2}}, 1j, frozenset([1]), WHEN, "\ud800", 10**5000]),
]

KEYS = [
    (STRING, ["", "é", "\U0001f600", "k"]),
    (LONG, [0, -1, 2**63 - 1, -(2**63)]),
    (Types.BIG_INT(), [10**30, -1]),
    (Types.DOUBLE(), [0.5, math.inf]),
    (Types.BOOLEAN(), [True, False]),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"", b"\xff"]),
    (Types.TUPLE([LONG, STRING]), [(1, "a"), (1, None)]),
    (PICKLED, ["k", 1, 1.5, (1, "a"), b"b", datetime.date.min, WHEN, "\ud800", 2**80]),
]

COUNT = ValueStateDescriptor("count", LONG)
VISITS = ListStateDescriptor("visits", STRING)


def described(declared):
    """A descriptor of each kind, typed or not."""
    return {
        "value": ValueStateDescriptor("value", declared(LONG)),
        "list": ListStateDescriptor("list", declared(STRING)),
        "map": MapStateDescriptor("map", declared(STRING), declared(LONG)),
        "reducing": ReducingStateDescriptor("reducing", lambda old, new: old + new, declared(LONG)),
        "aggregating": AggregatingStateDescriptor("aggregating", Mean(), declared(Types.LIST(LONG))),
    }


def fill(backend, descriptors, key, number):
    """Put something that depends on ``number`` under ``key`` of all five states."""
    states = {kind: state_of(backend, descriptor, key) for kind, descriptor in descriptors.items()}
    states["value"].update(number)
    states["list"].add_all([f"é{number}", "", "\U0001f600"])
    states["map"].put_all({"n": number, "nothing": None, "": -number})
    for state in (states["reducing"], states["aggregating"]):
        state.add(number)
        state.add(number + 2)


def read(backend, descriptors, key):
    """All that the five states hold under ``key``."""
    states = {kind: state_of(backend, descriptor, key) for kind, descriptor in descriptors.items()}
    return (
        states["value"].value(),
        list(states["list"].get()),
        dict(states["map"].items()),
        states["reducing"].get(),
        states["aggregating"].get(),
    )


def counts(backends):
    """What the state ``count`` holds, over all backends; a key in two of them shows twice."""
    return sorted(entry for backend in backends for entry in entries(backend, "count"))


def entries(backend, name):
    table = backend.registered_kv_states.get(name)
    return [] if table is None else list(table.items())


class TestRoundTrip:
    def test_all_five_kinds_come_back(self, declared):
        backend, descriptors = make_backend(), described(declared)
        for number in range(50):
            fill(backend, descriptors, f"key-{number}", number)
        restored = restore([take_snapshot(backend)])
        for number in range(50):
            assert read(restored, descriptors, f"key-{number}") == (
                number,
                [f"é{number}", "", "\U0001f600"],
                {"n": number, "nothing": None, "": -number},
                2 * number + 2,
                number + 1.0,
            )
        assert restored.num_key_value_state_entries() == 250

    def test_restored_state_goes_on(self, declared):
        backend, descriptors = make_backend(), described(declared)
        fill(backend, descriptors, "k", 1)
        restored = restore([take_snapshot(backend)])
        state_of(restored, descriptors["reducing"], "k").add(10)
        state_of(restored, descriptors["list"], "k").add("more")
        state_of(restored, descriptors["map"], "k").remove("n")
        state_of(restored, descriptors["aggregating"], "k").add(11)
        expected = (1, ["é1", "", "\U0001f600", "more"], {"nothing": None, "": -1}, 14, 5.0)
        assert read(restored, descriptors, "k") == expected
        assert read(backend, descriptors, "k")[3] == 4

    @pytest.mark.parametrize(("type_info", "values"), VALUES, ids=lambda part: str(part)[:40])
    def test_values_of_every_type_come_back(self, type_info, values):
        backend, descriptor = make_backend(LONG), ValueStateDescriptor("v", type_info)
        for key, value in enumerate(values):
            state_of(backend, descriptor, key).update(value)
        restored = restore([take_snapshot(backend)], LONG)
        for key, value in enumerate(values):
            back = state_of(restored, descriptor, key).value()
            assert back == value
            assert type(back) is type(value)

    def test_nan_comes_back(self):
        backend, descriptor = make_backend(), ListStateDescriptor("v", Types.DOUBLE())
        state_of(backend, descriptor, "k").add_all([math.nan, 1.0])
        first, second = state_of(restore([take_snapshot(backend)]), descriptor, "k")
        assert math.isnan(first)
        assert second == 1.0

    @pytest.mark.parametrize(("key_type", "keys"), KEYS, ids=lambda part: str(part)[:40])
    def test_keys_of_every_type_come_back(self, key_type, keys):
        backend = make_backend(key_type)
        for number, key in enumerate(keys):
            state_of(backend, COUNT, key).update(number)
        restored = restore([take_snapshot(backend)], key_type)
        assert [state_of(restored, COUNT, key).value() for key in keys] == list(range(len(keys)))
        assert {type(key) for key in restored.get_keys("count")} == {type(key) for key in keys}

    @given(st.dictionaries(st.text(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)))
    def test_any_lists_come_back(self, model):
        backend, descriptor = make_backend(), ListStateDescriptor("v", LONG)
        for key, elements in model.items():
            state_of(backend, descriptor, key).update(elements)
        assert dict(entries(restore([take_snapshot(backend)]), "v")) == model

    def test_cleared_entries_do_not_come_back(self, declared):
        backend, descriptors = make_backend(), described(declared)
        fill(backend, descriptors, "gone", 1)
        fill(backend, descriptors, "stays", 2)
        backend.set_current_key("gone")
        for descriptor in descriptors.values():
            backend.get_partitioned_state(descriptor).clear()
        restored = restore([take_snapshot(backend)])
        assert read(restored, descriptors, "gone") == (None, [], {}, None, None)
        assert restored.num_key_value_state_entries() == 5

    def test_update_with_none_leaves_nothing_that_could_fail_the_snapshot(self):
        """V2."""
        backend = make_backend()
        state_of(backend, COUNT, "k").update(1)
        state_of(backend, COUNT, "k").update(None)
        assert restore([take_snapshot(backend)]).num_key_value_state_entries() == 0

    def test_a_backend_without_state_can_be_taken_and_restored(self):
        """G14."""
        assert restore([take_snapshot(make_backend())]).num_key_value_state_entries() == 0
        assert restore([]).num_key_value_state_entries() == 0

    def test_a_registered_state_without_entries_comes_back_registered(self):
        backend = make_backend()
        backend.get_partitioned_state(COUNT)
        handle = take_snapshot(backend)
        assert handle.sections == {"count": {}}
        assert set(restore([handle]).registered_kv_states) == {"count"}

    def test_state_that_is_never_asked_for_again_survives_the_next_snapshot(self):
        """G13."""
        backend = make_backend()
        state_of(backend, COUNT, "k").update(1)
        for _ in range(3):
            backend = restore([take_snapshot(backend)])
            state_of(backend, VISITS, "k").add("x")
        assert state_of(backend, COUNT, "k").value() == 1
        assert list(state_of(backend, VISITS, "k")) == ["x", "x", "x"]

    @pytest.mark.parametrize(
        "other",
        [
            ListStateDescriptor("count", LONG),
            ReducingStateDescriptor("count", max, LONG),
            ValueStateDescriptor("count", STRING),
            ValueStateDescriptor("count"),
        ],
        ids=lambda descriptor: f"{descriptor.kind.value} {descriptor.stored_type}",
    )
    def test_restored_state_cannot_be_asked_for_as_another_kind_or_type(self, other):
        """G9 and G10."""
        backend = make_backend()
        state_of(backend, COUNT, "k").update(1)
        restored = restore([take_snapshot(backend)])
        with pytest.raises(StateRegistrationError, match="'count' is VALUE of LONG"):
            restored.get_partitioned_state(other)
        assert state_of(restored, COUNT, "k").value() == 1


class TestIsolation:
    def test_writes_after_the_synchronous_part_are_not_in_the_snapshot(self, declared):
        """G21."""
        backend, descriptors = make_backend(), described(declared)
        fill(backend, descriptors, "k", 1)
        before = read(backend, descriptors, "k")
        resources = prepare(backend)
        fill(backend, descriptors, "k", 5)
        fill(backend, descriptors, "new", 7)
        live = read(backend, descriptors, "k")
        restored = restore([write(backend, resources)])
        assert read(restored, descriptors, "k") == before
        assert list(restored.get_keys("value")) == ["k"]
        assert read(backend, descriptors, "k") == live != before

    def test_a_state_registered_after_the_synchronous_part_is_not_in_the_snapshot(self):
        backend = make_backend()
        state_of(backend, COUNT, "k").update(1)
        resources = prepare(backend)
        state_of(backend, VISITS, "k").add("x")
        assert set(write(backend, resources).sections) == {"count"}

    def test_the_owner_may_go_on_at_every_step_of_the_write(self, declared):
        backend, descriptors = make_backend(), described(declared)
        for number in range(100):
            fill(backend, descriptors, number, number)
        before = [read(backend, descriptors, number) for number in range(100)]
        resources, steps = prepare(backend), iter(range(10**6))

        def go_on():
            step = next(steps)
            fill(backend, descriptors, step % 120, 1000 + step)
            state_of(backend, descriptors["map"], (step + 50) % 100).clear()

        restored = restore([write(backend, resources, MemoryStreams(on_write=go_on))])
        assert next(steps) > 100
        assert [read(restored, descriptors, number) for number in range(100)] == before

    def test_the_owner_may_go_on_while_another_thread_writes(self, declared):
        backend, descriptors = make_backend(), described(declared)
        for number in range(100):
            fill(backend, descriptors, number, number)
        before = [read(backend, descriptors, number) for number in range(100)]
        resources, begun, go_on, handles = prepare(backend), threading.Event(), threading.Event(), []

        def on_write():
            begun.set()
            assert go_on.wait(60)

        writer = threading.Thread(
            target=lambda: handles.append(write(backend, resources, MemoryStreams(on_write=on_write)))
        )
        writer.start()
        assert begun.wait(60)
        for number in range(50):
            fill(backend, descriptors, number, 2000)
        go_on.set()
        for number in range(50, 120):
            fill(backend, descriptors, number, 3000)
        writer.join()
        restored = restore(handles)
        assert [read(restored, descriptors, number) for number in range(100)] == before

    def test_a_later_snapshot_may_be_written_before_an_earlier_one(self):
        """G20."""
        backend = make_backend()
        state = state_of(backend, VISITS, "k")
        prepared = []
        for visit in "abc":
            state.add(visit)
            prepared.append(prepare(backend))
        state.add("d")
        for index in (2, 0, 1):
            restored = restore([write(backend, prepared[index])])
            assert list(state_of(restored, VISITS, "k")) == ["a", "b", "c"][: index + 1]
        assert list(state) == ["a", "b", "c", "d"]


class TestRescaling:
    """G22."""

    @pytest.mark.parametrize(
        ("parallelisms", "key_type"),
        [
            ([1, 3, 2, 5], STRING),
            ([1, 3, 2, 5], PICKLED),
            ([4, 2], STRING),
            ([2, 4], PICKLED),
            ([2, 2], STRING),
            ([15, 77, 15], STRING),
            ([128, 1], PICKLED),
        ],
        ids=str,
    )
    def test_every_key_is_in_exactly_the_backend_that_owns_its_key_group(self, parallelisms, key_type):
        whole = make_backend(key_type)
        for number in range(300):
            state_of(whole, COUNT, f"key-{number}").update(number)
        expected = counts([whole])
        handles = [take_snapshot(whole)]
        for parallelism in parallelisms:
            backends = rescale(handles, parallelism, key_type)
            assert counts(backends) == expected
            for backend in backends:
                for key, number in entries(backend, "count"):
                    assert state_of(backend, COUNT, key).value() == number
            handles = [take_snapshot(backend) for backend in backends]
        assert counts([restore(handles, key_type)]) == expected

    def test_subtasks_may_hold_different_states(self):
        low, high = (make_backend(own=key_group_range(128, 2, index)) for index in range(2))
        state_of(low, COUNT, "user-42").update(1)  # key group 20
        state_of(high, VISITS, "flink").add("x")  # key group 98
        restored = restore([take_snapshot(low), take_snapshot(high)])
        assert state_of(restored, COUNT, "user-42").value() == 1
        assert list(state_of(restored, VISITS, "flink")) == ["x"]
        assert restored.num_key_value_state_entries() == 2

    def test_key_groups_of_others_are_left_out(self):
        whole = make_backend(STRING)
        for key in ("user-42", "flink"):
            state_of(whole, COUNT, key).update(1)
        restored = restore([take_snapshot(whole)], STRING, KeyGroupRange(98, 98))
        assert list(restored.get_keys("count")) == ["flink"]

    def test_max_parallelism_may_be_anything(self):
        whole = make_backend(STRING, KeyGroupRange(0, 999), 1000)
        for number in range(300):
            state_of(whole, COUNT, f"key-{number}").update(number)
        backends = rescale([take_snapshot(whole)], 7, STRING, 1000)
        assert counts(backends) == counts([whole])
        assert all(entries(backend, "count") for backend in backends)
