"""States with time to live in snapshots: what has expired is not written, and what all states share.

Rows C3, T1, T5 and G13; the model draws what else full snapshots leave out.
"""

import pyarrow as pa
import pytest
from backend_support import (
    PICKLED,
    Mean,
    entries,
    make_backend,
    one_of_each_kind,
    state_of,
    take_snapshot,
)
from ttl_contract import CONTEXTS, ClockedBackend, ttl_config, with_ttl

from pyflinkstate import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import UpdateType
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE, TtlTypeInfo
from pyflinkstate.backends.types.table import arrow_type
from pyflinkstate.errors import StateRegistrationError, StateValueError

FULL_SNAPSHOT = ttl_config(
    cleanup=lambda builder: builder.disable_cleanup_in_background().cleanup_full_snapshot()
)


@pytest.fixture(params=[True, False], ids=["copy on write", "nested maps"])
def async_snapshots(request):
    return request.param


@pytest.fixture
def clocked(async_snapshots):
    return ClockedBackend(async_snapshots)


every_context = pytest.mark.parametrize("context", CONTEXTS, ids=lambda context: context.name)


def test_only_the_state_that_says_so_is_filtered(clocked):
    filtered = clocked.state(ValueStateDescriptor("filtered"), FULL_SNAPSHOT)
    kept = clocked.state(ValueStateDescriptor("kept"))
    plain = clocked.backend.get_partitioned_state(ValueStateDescriptor("plain"))
    for state in (filtered, kept, plain):
        state.update(1)
    clocked.at(100)
    restored = clocked.restored(take_snapshot(clocked.backend))
    assert [len(entries(restored, name)) for name in ("filtered", "kept", "plain")] == [0, 1, 1]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_restored_state_is_filtered_once_it_is_asked_for(clocked, is_asked_for):
    """G13: before that its configuration is not known."""
    descriptor = with_ttl(ValueStateDescriptor("v"), FULL_SNAPSHOT)
    clocked.backend.get_partitioned_state(descriptor).update(1)
    restored = clocked.restored(take_snapshot(clocked.backend))
    if is_asked_for:
        restored.get_partitioned_state(descriptor)
    clocked.at(100)
    left = [] if is_asked_for else [("k", (0, 1))]
    assert entries(clocked.restored(take_snapshot(restored)), "v") == left


def test_state_migrated_from_plain_is_filtered(clocked):
    clocked.backend.get_partitioned_state(ValueStateDescriptor("v")).update(1)
    restored = clocked.restored(take_snapshot(clocked.backend))
    restored.get_partitioned_state(with_ttl(ValueStateDescriptor("v"), FULL_SNAPSHOT))
    clocked.at(99)
    assert entries(clocked.restored(take_snapshot(restored)), "v") == [("k", (0, 1))]
    clocked.at(100)
    assert entries(clocked.restored(take_snapshot(restored)), "v") == []


LONG, STRING = Types.LONG(), Types.STRING()


def test_a_reduce_function_that_raises_leaves_value_and_timestamp(clocked):
    def broken(old, new):
        raise ZeroDivisionError

    state = clocked.state(ReducingStateDescriptor("r", broken, LONG))
    state.add(1)
    clocked.at(60)
    with pytest.raises(ZeroDivisionError):
        state.add(2)
    assert state.get_internal() == (0, 1)


# --- what all share ----------------------------------------------------------------------------------


@every_context
@pytest.mark.parametrize("first_with_ttl", [True, False])
def test_a_name_in_use_with_ttl_is_refused_without_and_the_reverse(
    clocked, declared, context, first_with_ttl
):
    backend = clocked.backend
    plain, expiring = context.descriptor(declared), with_ttl(context.descriptor(declared))
    first, second = (expiring, plain) if first_with_ttl else (plain, expiring)
    state = backend.get_partitioned_state(first)
    context.update(state, context.first)
    with pytest.raises(StateRegistrationError, match="in use"):
        backend.get_partitioned_state(second)
    assert context.get(state) == context.read_first


@every_context
def test_a_configuration_that_is_disabled_makes_plain_state(clocked, declared, context):
    """T5."""
    config = ttl_config(update_type=UpdateType.Disabled)
    state = clocked.state(context.descriptor(declared), config)
    context.update(state, context.first)
    clocked.at(10**12)
    assert context.get(state) == context.read_first
    assert clocked.backend.get_partitioned_state(context.descriptor(declared)) is state


def test_a_value_of_another_type_is_refused_and_nothing_changes(clocked):
    states = {
        kind: clocked.state(descriptor)
        for kind, descriptor in one_of_each_kind(lambda type_info: type_info).items()
    }
    for refused in (
        lambda: states["value"].update("text"),
        lambda: states["list"].add(5),
        lambda: states["list"].add_all(["a", 5]),
        lambda: states["list"].update(["a", 5]),
        lambda: states["map"].put("a", "b"),
        lambda: states["map"].put_all({"a": 1, "b": "c"}),
        lambda: states["map"].put(5, 5),
        lambda: states["reducing"].add("text"),
    ):
        with pytest.raises(StateValueError, match="key 'k'"):
            refused()
    assert clocked.backend.num_key_value_state_entries() == 0


def test_all_keys_can_be_visited_and_what_has_expired_is_seen_as_empty(clocked):
    descriptor = with_ttl(ValueStateDescriptor("v", LONG))
    for number in range(20):
        clocked.at(number)
        clocked.backend.set_current_key(number)
        clocked.backend.get_partitioned_state(descriptor).update(number)
    clocked.at(109)
    seen = {}
    clocked.backend.apply_to_all_keys(
        VOID_NAMESPACE,
        VOID_NAMESPACE_TYPE,
        descriptor,
        lambda key, state: seen.__setitem__(key, state.value()),
    )
    assert seen == {number: None if number < 10 else number for number in range(20)}
    assert sorted(clocked.backend.get_keys("v")) == list(range(10, 20))


# --- the stored form ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value_type", [LONG, Types.LIST(STRING), Types.PICKLED_BYTE_ARRAY()], ids=str)
def test_the_timestamp_is_stored_before_the_value(value_type):
    """T1."""
    stored = arrow_type(TtlTypeInfo(value_type))
    assert [stored[index].name for index in range(2)] == ["timestamp_ms", "value"]
    assert stored[0].type == pa.int64()
    assert stored[1].type == arrow_type(value_type)


@pytest.mark.parametrize("declared_type", [PICKLED, Types.LIST(Types.LONG())], ids=str)
def test_a_result_of_none_is_refused_with_time_to_live_too(declared_type):
    class Forgetful(Mean):
        def add(self, value, accumulator):
            super().add(value, accumulator)

    mean = AggregatingStateDescriptor("mean", Forgetful(), declared_type)
    last = ReducingStateDescriptor("last", lambda old, new: None, declared_type)
    backend = make_backend()
    for descriptor in (mean, last):
        descriptor.enable_time_to_live(ttl_config())
    with pytest.raises(StateValueError, match="the aggregate function returned None"):
        state_of(backend, mean, "k").add(1)
    state = state_of(backend, last, "k")
    state.add([1])
    with pytest.raises(StateValueError, match="the reduce function returned None"):
        state.add([2])
    assert state.get() == [1]
