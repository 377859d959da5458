"""A snapshot is restored as it was at its synchronous part, whatever the owner does while it is written."""

import decimal

import pytest
from backend_support import (
    PICKLED,
    MemoryStreams,
    fill,
    make_backend,
    one_of_each_kind,
    prepare,
    read,
    restore,
    state_of,
    take_snapshot,
    write,
)

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import StateValueError


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


LONGS = Types.LIST(Types.LONG())


@pytest.mark.parametrize(
    ("type_info", "value", "innermost"),
    [
        (LONGS, [1], lambda value: value),
        (Types.LIST(LONGS), [[1]], lambda value: value[0]),
        (Types.LIST(PICKLED), [[1]], lambda value: value[0]),
        (Types.LIST(Types.TUPLE([LONGS])), [([1],)], lambda value: value[0][0]),
        (Types.MAP(Types.STRING(), LONGS), {"a": [1]}, lambda value: value["a"]),
        (Types.MAP(Types.STRING(), PICKLED), {"a": [1]}, lambda value: value["a"]),
        (Types.TUPLE([Types.LONG(), LONGS]), (1, [1]), lambda value: value[1]),
        (PICKLED, {"a": ([1],)}, lambda value: value["a"][0]),
        (Types.ROW_NAMED(["n", "s"], [Types.LONG(), LONGS]), Row(n=1, s=[1]), lambda value: value.s),
        (PICKLED, Row(n=1, s=[1]), lambda value: value.s),
    ],
    ids=str,
)
def test_a_change_in_place_however_deep_is_not_in_the_snapshot(type_info, value, innermost):
    backend, descriptor = make_backend(), ValueStateDescriptor("v", type_info)
    state = state_of(backend, descriptor, "k")
    state.update(value)
    resources = prepare(backend)
    innermost(state.value()).append(2)
    restored = restore([write(backend, resources)])
    assert innermost(state_of(restored, descriptor, "k").value()) == [1]
    assert innermost(state.value()) == [1, 2]


@pytest.mark.parametrize("max_parallelism", [128, 1])
def test_the_owner_may_go_on_at_every_step_of_the_write(declared, max_parallelism):
    """With a single key group, all 100 keys are in one map, which is amid a rehash."""
    own = KeyGroupRange(0, max_parallelism - 1)
    backend = make_backend(own=own, max_parallelism=max_parallelism)
    descriptors = one_of_each_kind(declared)
    for number in range(100):
        fill(backend, descriptors, number, number)
    before = [read(backend, descriptors, number) for number in range(100)]
    resources, steps = prepare(backend), iter(range(10**6))

    def go_on():
        for _ in range(20):
            step = next(steps)
            fill(backend, descriptors, step % 170, 1000 + step)
            state_of(backend, descriptors["map"], (step + 50) % 100).clear()

    handle = write(backend, resources, MemoryStreams(on_write=go_on))
    assert next(steps) > 100
    restored = restore([handle], own=own, max_parallelism=max_parallelism)
    assert [read(restored, descriptors, number) for number in range(100)] == before
    assert restored.num_key_value_state_entries() == 500
