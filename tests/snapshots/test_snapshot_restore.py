"""Snapshot and restore of a heap backend: all kinds, all types, and what was never asked for again."""

import datetime
import decimal
import math

import pytest
from backend_support import (
    PICKLED,
    entries,
    fill,
    make_backend,
    one_of_each_kind,
    prepare,
    read,
    restore,
    state_of,
    take_snapshot,
)
from hypothesis import given, settings, strategies as st

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import StateValueError

LONG, STRING = Types.LONG(), Types.STRING()
WHEN = datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)

#: Values with parts; ``tests/types/test_types_in_state.py`` has those of each type.
VALUES = [
    (STRING, ["", "日本 \x00 \U0001f600", "a" * 10_000]),
    (Types.LIST(Types.BIG_DEC()), [[], [decimal.Decimal("1.50")]]),
    (Types.LIST(Types.LIST(STRING)), [[], [[], ["a"]]]),
    (Types.MAP(STRING, Types.MAP(LONG, Types.BIG_INT())), [{}, {"a": {1: 10**30, 2: None}, "b": None}]),
    (Types.MAP(Types.TUPLE([LONG, STRING]), Types.LIST(LONG)), [{(1, "a"): [1], (2, None): []}]),
    (Types.TUPLE([LONG, Types.SQL_DATE(), PICKLED]), [(1, datetime.date.min, {1}), (None, None, None)]),
    (Types.LIST(Types.TUPLE([Types.BIG_INT(), Types.LIST(LONG)])), [[(10**20, [1]), (None, None)]]),
    (Types.MAP(PICKLED, PICKLED), [{None: None, (1, 2): {1}}]),
    (PICKLED, [0, "", [], {"a": {1, 2}}, 1j, frozenset([1]), WHEN, "\ud800", 10**5000]),
]


def type_name(part):
    return str(part) if isinstance(part, TypeInformation) else ""


COUNT = ValueStateDescriptor("count", LONG)


class TestRoundTrip:
    def test_all_five_kinds_come_back(self, declared):
        backend, descriptors = make_backend(), one_of_each_kind(declared)
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
        backend, descriptors = make_backend(), one_of_each_kind(declared)
        fill(backend, descriptors, "k", 1)
        restored = restore([take_snapshot(backend)])
        state_of(restored, descriptors["reducing"], "k").add(10)
        state_of(restored, descriptors["list"], "k").add("more")
        state_of(restored, descriptors["map"], "k").remove("n")
        state_of(restored, descriptors["aggregating"], "k").add(11)
        expected = (1, ["é1", "", "\U0001f600", "more"], {"nothing": None, "": -1}, 14, 5.0)
        assert read(restored, descriptors, "k") == expected
        assert read(backend, descriptors, "k")[3] == 4

    @pytest.mark.parametrize(("type_info", "values"), VALUES, ids=type_name)
    def test_values_of_every_type_come_back(self, type_info, values):
        backend, descriptor = make_backend(LONG), ValueStateDescriptor("v", type_info)
        for key, value in enumerate(values):
            state_of(backend, descriptor, key).update(value)
        restored = restore([take_snapshot(backend)], LONG)
        for key, value in enumerate(values):
            back = state_of(restored, descriptor, key).value()
            assert back == value
            assert type(back) is type(value)

    def test_an_integer_of_any_size_comes_back(self):
        backend, descriptor = make_backend(), ValueStateDescriptor("v", Types.BIG_INT())
        state_of(backend, descriptor, "k").update(1 << 20_000)
        assert state_of(restore([take_snapshot(backend)]), descriptor, "k").value() == 1 << 20_000

    def test_nan_comes_back(self):
        backend, descriptor = make_backend(), ListStateDescriptor("v", Types.DOUBLE())
        state_of(backend, descriptor, "k").add_all([math.nan, 1.0])
        first, second = state_of(restore([take_snapshot(backend)]), descriptor, "k")
        assert math.isnan(first)
        assert second == 1.0

    @settings(max_examples=40)
    @given(st.dictionaries(st.text(), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)))
    def test_any_lists_come_back(self, model):
        backend, descriptor = make_backend(), ListStateDescriptor("v", LONG)
        for key, elements in model.items():
            state_of(backend, descriptor, key).update(elements)
        assert dict(entries(restore([take_snapshot(backend)]), "v")) == model

    def test_cleared_entries_do_not_come_back(self, declared):
        backend, descriptors = make_backend(), one_of_each_kind(declared)
        fill(backend, descriptors, "gone", 1)
        fill(backend, descriptors, "stays", 2)
        backend.set_current_key("gone")
        for descriptor in descriptors.values():
            backend.get_partitioned_state(descriptor).clear()
        restored = restore([take_snapshot(backend)])
        assert read(restored, descriptors, "gone") == (None, [], {}, None, None)
        assert restored.num_key_value_state_entries() == 5

    def test_a_registered_state_without_entries_comes_back_registered(self):
        backend = make_backend()
        backend.get_partitioned_state(COUNT)
        handle = take_snapshot(backend)
        assert handle.sections == {"count": {}}
        assert set(restore([handle]).registered_kv_states) == {"count"}


@pytest.mark.parametrize(
    "field", [Types.BIG_INT(), Types.BIG_DEC(), PICKLED, Types.LIST(PICKLED), Types.LONG()]
)
def test_what_lies_under_a_none_of_a_tuple_is_not_decoded(field):
    """Arrow fills the fields of a null struct with values that mean nothing."""
    whole = {"BIG_INT": 1, "BIG_DEC": decimal.Decimal(1), "LONG": 1}.get(field.name, [set()])
    descriptor = MapStateDescriptor("m", Types.STRING(), Types.TUPLE([Types.TUPLE([field]), Types.STRING()]))
    backend = make_backend()
    stored = {"none": None, "inner": (None, "x"), "field": ((None,), None), "whole": ((whole,), "y")}
    state_of(backend, descriptor, "k").put_all(stored)
    again = restore([take_snapshot(backend)])
    assert dict(state_of(again, descriptor, "k").items()) == stored


def test_a_value_that_cannot_be_pickled_names_its_state():
    backend = make_backend()
    state_of(backend, ListStateDescriptor("mine"), "k").add(lambda: 0)
    with pytest.raises(
        StateValueError, match=r"state 'mine': a value of builtins\.function cannot be stored"
    ):
        take_snapshot(backend)


def test_a_synchronous_part_that_fails_half_way_leaves_nothing_frozen():
    def broken_clock():
        raise OSError("no clock")

    backend = make_backend(clock=broken_clock)
    plain = state_of(backend, ValueStateDescriptor("plain"), "k")
    plain.update([1])
    kept = plain.value()
    expiring = ValueStateDescriptor("expiring")
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).cleanup_full_snapshot().build())
    state_of(backend, expiring, "k")
    with pytest.raises(OSError, match="no clock"):
        prepare(backend)
    assert plain.value() is kept
