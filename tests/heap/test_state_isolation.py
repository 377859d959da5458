"""Each key owns its state: no object that can change is that of two keys, or of a key and the caller."""

import copy
import threading
from typing import Any

import pytest
from backend_support import ALL_KEY_GROUPS, PICKLED, make_backend, prepare, restore, write

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend

LONGS = Types.LIST(Types.LONG())


class Collected(AggregateFunction):
    """A list of values; what is made first is one object for all keys."""

    def __init__(self) -> None:
        self.first: list[Any] = []

    def create_accumulator(self) -> list[Any]:
        return self.first

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return [*accumulator, value]

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return acc_a + acc_b


def only(values: Any) -> Any:
    (value,) = values
    return value


#: For each kind: its descriptor, how a value is stored, and how it is read again.
KINDS = {
    "value": (
        lambda type_info: ValueStateDescriptor("s", type_info),
        lambda state, value: state.update(value),
        lambda state: state.value(),
    ),
    "list, added": (
        lambda type_info: ListStateDescriptor("s", type_info),
        lambda state, value: state.add(value),
        lambda state: only(state.get()),
    ),
    "list, all added": (
        lambda type_info: ListStateDescriptor("s", type_info),
        lambda state, value: state.add_all([value]),
        lambda state: only(state.get()),
    ),
    "list, updated": (
        lambda type_info: ListStateDescriptor("s", type_info),
        lambda state, value: state.update([value]),
        lambda state: only(state.get()),
    ),
    "map": (
        lambda type_info: MapStateDescriptor("s", Types.STRING(), type_info),
        lambda state, value: state.put("k", value),
        lambda state: state.get("k"),
    ),
    "map, all put": (
        lambda type_info: MapStateDescriptor("s", Types.STRING(), type_info),
        lambda state, value: state.put_all({"k": value}),
        lambda state: only(state.values()),
    ),
    "reducing": (
        lambda type_info: ReducingStateDescriptor("s", lambda old, new: new, type_info),
        lambda state, value: state.add(value),
        lambda state: state.get(),
    ),
    "aggregating": (
        lambda type_info: AggregatingStateDescriptor("s", Collected(), type_info),
        lambda state, value: state.add(value),
        lambda state: state.get(),
    ),
}


@pytest.fixture(params=["copy-on-write", "snapshot open", "plain"])
def backend(request):
    made = make_backend()
    if request.param == "plain":
        made = restore((), PICKLED, ALL_KEY_GROUPS, 128, async_snapshots=False)
    held = []
    if request.param == "snapshot open":
        # Before each key is selected one more is taken, and all are held to the end.
        select = made.set_current_key
        made.set_current_key = lambda key: (held.append(prepare(made)), select(key))
    yield made
    for resources in held:
        resources.release()


@pytest.fixture(params=["without ttl", "with ttl", "refreshed on read"])
def with_ttl(request):
    def of(descriptor):
        if request.param != "without ttl":
            config = StateTtlConfig.new_builder(Time.hours(1))
            if request.param == "refreshed on read":
                config.update_ttl_on_read_and_write()
            descriptor.enable_time_to_live(config.build())
        return descriptor

    return of


@pytest.mark.parametrize("type_info", [PICKLED, Types.LIST(PICKLED), LONGS], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_one_object_put_under_two_keys_is_two(backend, with_ttl, kind, type_info):
    make, store, read = KINDS[kind]
    state = backend.get_partitioned_state(with_ttl(make(type_info)))
    payload: list[Any] = [0]
    if kind == "aggregating" and type_info is LONGS:
        payload = 0  # type: ignore[assignment]  # it is an element then
    for key in ("a", "b"):
        backend.set_current_key(key)
        store(state, payload)
    before = copy.deepcopy(payload)
    backend.set_current_key("a")
    mine = read(state)
    (mine if not isinstance(mine[0], list) else mine[0]).append(1)
    assert payload == before
    backend.set_current_key("b")
    assert read(state) == (payload if kind != "aggregating" else [payload])
    backend.set_current_key("a")
    assert read(state) == mine


def test_what_a_key_has_is_another_object_under_another_key(backend, with_ttl):
    state = backend.get_partitioned_state(with_ttl(ValueStateDescriptor("s", PICKLED)))
    backend.set_current_key("a")
    state.update([1])
    taken = state.value()
    backend.set_current_key("b")
    state.update(taken)
    state.value().append(2)
    backend.set_current_key("a")
    assert state.value() == [1]


# --- what must stay cheap --------------------------------------------------------------------------


class Uncopyable(list):
    """A list that must not be copied; where a snapshot is open, that is what would happen."""

    def __deepcopy__(self, memo):
        raise AssertionError("it was copied")

    def __reduce_ex__(self, protocol):
        raise AssertionError("it was pickled")


def changed(old, new):
    old.append(new)
    return old


class Appended(Collected):
    def create_accumulator(self):
        return Uncopyable()

    def add(self, value, accumulator):
        accumulator.append(value)
        return accumulator


@pytest.mark.parametrize("kept", [lambda mine: mine, lambda mine: (1, mine), lambda mine: ((mine, 2), 3)])
def test_an_object_that_is_stored_again_is_not_copied(with_ttl, kept):
    backend = make_backend()
    state = backend.get_partitioned_state(with_ttl(ValueStateDescriptor("s", PICKLED)))
    backend.set_current_key("a")
    state.update(kept([1]))
    mine = innermost(state.value())
    for number in range(3):
        mine.append(number)
        state.update(kept(mine))
        assert innermost(state.value()) is mine


def innermost(value):
    while isinstance(value, tuple):
        value = next(part for part in value if not isinstance(part, int))
    return value


def test_an_accumulator_that_is_changed_in_place_is_not_copied(with_ttl):
    backend = make_backend()
    reducing = backend.get_partitioned_state(with_ttl(ReducingStateDescriptor("r", changed, PICKLED)))
    aggregating = backend.get_partitioned_state(
        with_ttl(AggregatingStateDescriptor("a", Appended(), PICKLED))
    )
    backend.set_current_key("a")
    reducing.add([0])
    aggregating.add(0)
    reduced, aggregated = reducing.get(), aggregating.get()
    for number in range(1, 4):
        reducing.add(number)
        aggregating.add(number)
    assert reducing.get() is reduced
    assert aggregating.get() is aggregated
    assert reduced == aggregated == [0, 1, 2, 3]


def test_elements_that_stay_in_a_list_are_not_copied(with_ttl):
    backend = make_backend()
    state = backend.get_partitioned_state(with_ttl(ListStateDescriptor("l", PICKLED)))
    backend.set_current_key("a")
    state.add_all([[number] for number in range(5)])
    kept = [element for element in state.get() if element[0] % 2]
    state.update([*kept, [9]])
    assert list(state.get()) == [[1], [3], [9]]
    assert [element is mine for element, mine in zip(state.get(), kept, strict=False)] == [True, True]


def test_an_entry_that_is_put_again_is_not_copied(with_ttl):
    backend = make_backend()
    state = backend.get_partitioned_state(with_ttl(MapStateDescriptor("m", Types.STRING(), PICKLED)))
    backend.set_current_key("a")
    state.put("k", [1])
    mine = state.get("k")
    mine.append(2)
    state.put_all({"k": mine, "other": mine})
    assert state.get("k") is mine
    assert state.get("other") == [1, 2]
    assert state.get("other") is not mine


def test_an_object_that_a_snapshot_has_is_copied_when_it_is_stored_again():
    """A function that kept it from an earlier record would change the snapshot with the next change."""
    backend = make_backend()
    state = backend.get_partitioned_state(ValueStateDescriptor("s", PICKLED))
    backend.set_current_key("a")
    state.update([1])
    kept = state.value()
    resources = prepare(backend)
    state.update(kept)
    state.value().append(2)
    assert state.value() == [1, 2]
    restored = restore([write(backend, resources)])
    restored.set_current_key("a")
    assert restored.get_partitioned_state(ValueStateDescriptor("s", PICKLED)).value() == [1]


#: Tuples so deep that ``deepcopy`` reaches no end, and a pickle does.
DEEP = 700


def nested(levels: int) -> Any:
    """Return a list in tuples, so many levels deep."""
    value: Any = [1]
    for _ in range(levels):
        value = (value,)
    return value


def innermost_list(value: Any) -> list[Any]:
    while isinstance(value[0], (list, tuple)):
        value = value[0]
    return value


@pytest.mark.parametrize("type_info", [PICKLED, Types.LIST(PICKLED), Types.TUPLE([PICKLED])], ids=str)
@pytest.mark.parametrize("kind", ["value", "list, added", "map", "reducing"])
def test_a_deep_value_is_copied_while_a_snapshot_is_open(with_ttl, kind, type_info):
    make, store, read = KINDS[kind]
    backend = make_backend()
    state = backend.get_partitioned_state(with_ttl(make(type_info)))
    backend.set_current_key("a")
    store(state, (nested(DEEP),) if type_info == Types.TUPLE([PICKLED]) else nested(DEEP))
    resources = prepare(backend)
    innermost_list(read(state)).append(2)
    assert innermost_list(read(state)) == [1, 2]
    again = restore([write(backend, resources)])
    again.set_current_key("a")
    assert innermost_list(read(again.get_partitioned_state(with_ttl(make(type_info))))) == [1]


def test_what_nothing_can_copy_is_not_shared_with_a_snapshot():
    backend = make_backend()
    state = backend.get_partitioned_state(ValueStateDescriptor("s", PICKLED))
    backend.set_current_key("a")
    state.update([threading.Lock()])
    resources = prepare(backend)
    with pytest.raises(TypeError, match="cannot pickle"):
        state.value()
    resources.release()
    assert len(state.value()) == 1


def test_a_deep_default_value_is_copied():
    backend = make_backend()
    deep = nested(DEEP)
    state = backend.get_partitioned_state(ValueStateDescriptor("s", PICKLED, default_value=deep))
    backend.set_current_key("a")
    innermost_list(state.value()).append(2)
    assert innermost_list(state.value()) == innermost_list(deep) == [1]


# --- operator state --------------------------------------------------------------------------------


def test_operator_state_owns_what_it_keeps():
    backend = DefaultOperatorStateBackend()
    elements = backend.get_list_state(ListStateDescriptor("l", PICKLED))
    broadcast = backend.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), PICKLED))
    payload = [1]
    elements.add(payload)
    elements.add_all([payload])
    broadcast.put("a", payload)
    broadcast.put_all({"b": payload})
    broadcast.get("a").append(2)
    payload.append(3)
    assert list(elements.get()) == [[1], [1]]
    assert dict(broadcast.items()) == {"a": [1, 2], "b": [1]}
    elements.update([payload])
    payload.append(4)
    assert list(elements.get()) == [[1, 3]]


def test_operator_state_that_is_stored_again_is_not_copied():
    backend = DefaultOperatorStateBackend()
    elements = backend.get_list_state(ListStateDescriptor("l", PICKLED))
    broadcast = backend.get_broadcast_state(MapStateDescriptor("m", Types.STRING(), PICKLED))
    elements.add([1])
    broadcast.put("a", [1])
    element, entry = only(elements.get()), broadcast.get("a")
    elements.update([element])
    broadcast.put("a", entry)
    assert only(elements.get()) is element
    assert broadcast.get("a") is entry
