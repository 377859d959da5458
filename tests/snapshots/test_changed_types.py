"""State whose type the program has changed: each change, in each kind of state, at another parallelism.

The table is in ``changed_types``. A case is written by the old program, in full or as increments, restored
at another parallelism, asked for with the new type and read; it is written again, which puts increments on
top, and restored once more. Some states are asked for amid a chain of increments, in some subtasks alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from operator import is_ as same_object
from typing import Any

import attrs
import pytest
from backend_support import rows_of
from changed_types import (
    AB,
    BYTE,
    CHANGES,
    INT,
    KEY_CHANGES,
    KEYED,
    LONG,
    PICKLED,
    REFUSED,
    SHORT,
    STRING,
    A,
    B,
    C,
    Change,
    Operator,
    Place,
    named,
    row,
)
from tiers import FULL
from ttl_contract import with_ttl

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.types.internal_types import sealed
from pyflinkstate.backends.types.migration import common_type, keys_may_become, type_migration
from pyflinkstate.errors import IncompatibleCheckpointError, StateMigrationError

KEYS = range(24)
#: From how many subtasks to how many, and then to how many.
SCALES = {"as many": (1, 1, 1), "more": (1, 3, 2), "fewer": (3, 2, 4)}
#: How checkpoints are written.
WAYS = ("full", "increments", "synchronous")


def asked(place: Place, change: Change) -> StateDescriptor:
    """Return the descriptor of the new program."""
    descriptor = place.describe(change.now)
    if change.pickled:
        descriptor.allow_pickled_restore()
    return descriptor


def settings_of(way: str) -> dict[str, Any]:
    return {"async_snapshots": way != "synchronous"}


def begun(operator: Operator, way: str) -> Operator:
    return operator.track_changes() if way == "increments" else operator


def slice_of(every: list[tuple[str, str, str, str]]) -> list[Any]:
    """Each change in one kind of state, and each kind, way and scale with one change, in the quick tier."""
    rows = list(dict.fromkeys(case[0] for case in every))
    kinds, ways, scales = (list(dict.fromkeys(case[index] for case in every)) for index in (1, 2, 3))
    picked = {
        (name, kinds[n % len(kinds)], ways[n % len(ways)], scales[(n // 2) % len(scales)])
        for n, name in enumerate(rows)
    }
    return [case if case in picked else pytest.param(*case, marks=FULL) for case in every]


EVERY = [(name, kind, way, scale) for name in CHANGES for kind in KEYED for way in WAYS for scale in SCALES]


@attrs.frozen
class Written:
    """What is in one state of a program, by key, as the old and as the new program has it."""

    change: Change
    place: Place

    def put(self, operator: Operator, keys: Iterable[int], after: bool) -> None:
        """Put in place of what was there what the old program writes, or the new one ``after`` the change."""
        for key in keys:
            state = operator.state(self.descriptor(after), key)
            state.clear()
            self.place.put(state, self.value(key, after))

    def clear(self, operator: Operator, keys: Iterable[int], after: bool) -> None:
        for key in keys:
            operator.state(self.descriptor(after), key).clear()

    def value(self, key: int, after: bool) -> Any:
        return self.change.values[key % len(self.change.values)][after]

    def descriptor(self, after: bool) -> StateDescriptor:
        return asked(self.place, self.change) if after else self.place.describe(self.change.was)

    def check(
        self, operator: Operator, keys: Iterable[int], descriptor: StateDescriptor | None = None
    ) -> None:
        """Assert that the new program reads what it should under ``keys``, and nothing under any other."""
        there = set(keys)
        for key in KEYS:
            state = operator.state(descriptor or self.descriptor(after=True), key)
            if key not in there:
                assert not state.get_internal()
                continue
            found, expected = self.place.get(state), self.value(key, after=True)
            assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("name", "kind", "way", "scale"), slice_of(EVERY))
def test_keyed_state(name: str, kind: str, way: str, scale: str) -> None:
    written, (first, second, third) = Written(CHANGES[name], KEYED[kind]), SCALES[scale]
    operator = begun(Operator.of(first, **settings_of(way)), way)
    written.put(operator, KEYS[::3], after=False)
    operator.checkpoint()
    written.put(operator, KEYS[::2], after=False)  # some are new, some are there
    written.clear(operator, KEYS[::5], after=False)
    operator = begun(operator.restored(second, **settings_of(way)), way)
    kept = (set(KEYS[::3]) | set(KEYS[::2])) - set(KEYS[::5])
    written.check(operator, kept)
    operator.checkpoint()
    written.put(operator, KEYS[::4], after=True)  # the changed program goes on
    written.clear(operator, KEYS[::7], after=True)
    operator = operator.restored(third, **settings_of(way))
    of_the_new_type_alone = written.place.describe(written.change.now)
    written.check(operator, (kept | set(KEYS[::4])) - set(KEYS[::7]), of_the_new_type_alone)


@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize(
    "name", [name if n % 5 == 1 else pytest.param(name, marks=FULL) for n, name in enumerate(CHANGES)]
)
def test_some_subtasks_ask_for_it_amid_a_chain_of_increments(name: str, kind: str) -> None:
    """A checkpoint then has both types: in one file and its increments, and in the files of two subtasks."""
    written = Written(CHANGES[name], KEYED[kind])
    operator = Operator.of(2)
    written.put(operator, KEYS, after=False)
    operator = operator.restored(2).track_changes()
    operator.checkpoint()
    asking = operator.subtasks[0].keyed
    mine = [key for key in KEYS if operator.keyed(key) is asking]
    assert 3 < len(mine) < len(KEYS)
    written.put(operator, mine[:3], after=True)
    written.clear(operator, mine[3:4], after=True)
    operator.checkpoint()
    for parallelism in (2, 1, 3):
        written.check(operator.restored(parallelism), set(KEYS) - {mine[3]})


@pytest.mark.parametrize("ttl", ["turned on", "turned off", "there before and after"])
@pytest.mark.parametrize("kind", KEYED)
@pytest.mark.parametrize(
    "name", [name if n % 6 == 0 else pytest.param(name, marks=FULL) for n, name in enumerate(CHANGES)]
)
def test_beside_time_to_live(name: str, kind: str, ttl: str) -> None:
    """What was written at 0 and expires after 100 is restored at 50: turned on, that is its last access."""
    change, place, now = CHANGES[name], KEYED[kind], [0]
    (before, after), *_ = change.values
    old, new = place.describe(change.was), asked(place, change)
    if ttl != "turned on":
        with_ttl(old)
    if ttl != "turned off":
        with_ttl(new)
    operator = Operator.of(1, clock=lambda: now[0])
    place.put(operator.state(old, 1), before)
    now[0] = 50
    operator = operator.restored(2, clock=lambda: now[0])
    assert place.get(operator.state(new, 1)) == after
    last = {"turned on": 149, "turned off": 10**12, "there before and after": 99}[ttl]
    now[0] = last
    assert place.get(operator.state(new, 1)) == after
    now[0] = last + 1
    assert place.get(operator.state(new, 1)) == (after if ttl == "turned off" else None)


EVERY_KEY = [
    (name, place, scale) for name in KEY_CHANGES for place in ("map", "broadcast") for scale in SCALES
]


@pytest.mark.parametrize(("name", "place", "scale"), EVERY_KEY)
def test_keys_of_maps(name: str, place: str, scale: str) -> None:
    change, (first, second, third) = KEY_CHANGES[name], SCALES[scale]
    old = MapStateDescriptor("s", change.was, LONG)
    new, plain = (MapStateDescriptor("s", change.now, LONG) for _ in range(2))
    if change.pickled:
        new.allow_pickled_restore()

    def states(operator: Operator, descriptor: MapStateDescriptor) -> Iterator[Any]:
        if place == "broadcast":
            return (store.get_broadcast_state(descriptor) for store in operator.stores())
        return (operator.state(descriptor, key) for key in range(5))

    operator = Operator.of(first)
    for state in states(operator, old):
        state.put_all({key: number for number, (key, _) in enumerate(change.values)})
    for descriptor, parallelism in ((new, second), (plain, third)):
        operator = operator.restored(parallelism)
        for state in states(operator, descriptor):
            assert dict(state.items()) == {key: n for n, (_, key) in enumerate(change.values)}
            for number, (_, key) in enumerate(change.values):
                assert state.get(key) == number


OPERATOR_KINDS = ("list", "union", "broadcast")
EVERY_OPERATOR = [
    (name, kind, "full", scale) for name in CHANGES for kind in OPERATOR_KINDS for scale in SCALES
]


@pytest.mark.parametrize(("name", "kind", "way", "scale"), slice_of(EVERY_OPERATOR))
def test_operator_state(name: str, kind: str, way: str, scale: str) -> None:
    change, (first, second, third) = CHANGES[name], SCALES[scale]

    def state(store: Any, type_info: TypeInformation, allows: bool) -> Any:
        made = MapStateDescriptor if kind == "broadcast" else ListStateDescriptor
        descriptor = made("s", STRING, type_info) if kind == "broadcast" else made("s", type_info)
        if allows:
            descriptor.allow_pickled_restore()
        method = {"list": "get_list_state", "union": "get_union_list_state"}.get(kind, "get_broadcast_state")
        return getattr(store, method)(descriptor)

    operator = Operator.of(first)
    for store in operator.stores():
        values = [before for before, _ in change.values]
        if kind == "broadcast":
            state(store, change.was, False).put_all(
                {**{str(n): value for n, value in enumerate(values)}, "none": None}
            )
        else:
            state(store, change.was, False).add_all(values)
    expected = [after for _, after in change.values]
    written = first
    for parallelism, allows in ((second, change.pickled), (third, False)):
        operator = operator.restored(parallelism)
        found = [state(store, change.now, allows) for store in operator.stores()]
        if kind == "broadcast":
            for one in found:
                assert dict(one.items()) == {
                    **{str(n): value for n, value in enumerate(expected)},
                    "none": None,
                }
            continue
        elements = [element for one in found for element in one.get()]
        times = written * (parallelism if kind == "union" else 1)
        assert sorted(map(repr, elements)) == sorted(map(repr, expected * times))
        written = times


def test_operator_state_of_subtasks_that_asked_at_different_times() -> None:
    old, new = ListStateDescriptor("s", AB), ListStateDescriptor("s", row(B, C))
    operator = Operator.of(2)
    for store in operator.stores():
        store.get_list_state(old).add_all([named(a=1, b="x"), named(a=2, b="y")])
    operator = operator.restored(2)
    next(operator.stores()).get_list_state(new).add(named(b="z", c=5))
    operator = operator.restored(1)
    (store,) = operator.stores()
    found = sorted(map(tuple, store.get_list_state(new).get()))
    assert found == [("x", None), ("x", None), ("y", None), ("y", None), ("z", 5)]


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["value", "list", "map", "reducing", "aggregating", "broadcast", "operator list"]
)
@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_says_why_and_changes_nothing(name: str, kind: str) -> None:
    was, now, value, reason = REFUSED[name]
    operator = Operator.of(1)

    def state(operator: Operator, type_info: TypeInformation) -> Any:
        (store,) = operator.stores()
        if kind == "broadcast":
            return store.get_broadcast_state(MapStateDescriptor("s", STRING, type_info))
        if kind == "operator list":
            return store.get_list_state(ListStateDescriptor("s", type_info))
        return operator.state(KEYED[kind].describe(type_info), 1)

    def content(state: Any) -> Any:
        if kind == "broadcast":
            return state.get("k")
        return list(state.get()) if kind == "operator list" else KEYED[kind].get(state)

    if kind == "broadcast":
        state(operator, was).put("k", value)
    elif kind == "operator list":
        state(operator, was).add(value)
    else:
        KEYED[kind].put(state(operator, was), value)
    before = content(state(operator, was))
    operator = operator.restored(1)
    with pytest.raises(StateMigrationError, match=reason) as caught:
        state(operator, now)
    assert "state 's'" in str(caught.value)
    assert content(state(operator, was)) == before


def misfits(operator: Operator, place: str, type_info: TypeInformation) -> Any:
    """Return a state of the place, whatever it was declared as."""
    (store,) = operator.stores()
    descriptor: Any = {
        "key 7": ValueStateDescriptor("s", type_info),
        "key 'b'": MapStateDescriptor("s", STRING, type_info),
        "element 1": ListStateDescriptor("s", type_info),
    }[place]
    descriptor.allow_pickled_restore()
    if place == "key 7":
        return operator.state(descriptor, 7)
    return store.get_broadcast_state(descriptor) if place == "key 'b'" else store.get_list_state(descriptor)


@pytest.mark.parametrize(
    ("place", "fill", "read"),
    [
        ("key 7", lambda state: state.update("seven"), lambda state: state.value()),
        ("key 'b'", lambda state: state.put_all({"a": 1, "b": "seven"}), lambda state: state.get("b")),
        ("element 1", lambda state: state.add_all([1, "seven"]), lambda state: list(state.get())[1]),
    ],
    ids=["keyed", "broadcast", "list"],
)
def test_a_pickled_value_that_does_not_fit_is_named(place: str, fill: Any, read: Any) -> None:
    operator = Operator.of(1)
    fill(misfits(operator, place, PICKLED))
    operator = operator.restored(1)
    for _ in range(2):
        with pytest.raises(
            StateMigrationError, match=rf"state 's'[,:] {place}: 'seven' \(str\) does not fit LONG"
        ):
            misfits(operator, place, LONG)
    assert read(misfits(operator, place, PICKLED)) == "seven"


def test_pickled_keys_that_would_be_one_are_refused() -> None:
    operator = Operator.of(1)
    operator.state(MapStateDescriptor("s", PICKLED, LONG), 1).put_all({0.1: 1, 0.10000000149011612: 2})
    new = MapStateDescriptor("s", Types.FLOAT(), LONG)
    new.allow_pickled_restore()
    with pytest.raises(StateMigrationError, match="state 's', key 1: two of its 2 keys would be one"):
        operator.restored(1).state(new, 1)


# --- beside Flink ----------------------------------------------------------------------------------------

#: What Flink 2.3 says, ``as is`` or ``incompatible``, by PyFlink's gateway to Java::
#:
#:     config = jvm.org.apache.flink.api.common.serialization.SerializerConfigImpl()
#:     made = [t.get_java_type_info().createSerializer(config) for t in (was, now)]
#:     old, new = (serializer.snapshotConfiguration() for serializer in made)
#:     new.resolveSchemaCompatibility(old).isCompatibleAsIs(), ....isIncompatible()
FLINK = [
    (AB, AB, "as is"),
    (row(A, ("b", INT)), row(("b", INT), A), "as is"),
    (AB, row(B, A), "incompatible"),
    (AB, row(("c", INT), ("d", STRING)), "as is"),
    (AB, row(A, B, C), "incompatible"),
    (AB, row(A), "incompatible"),
    (INT, LONG, "incompatible"),
    (Types.FLOAT(), Types.DOUBLE(), "incompatible"),
    (Types.LIST(INT), Types.BASIC_ARRAY(INT), "incompatible"),
    (Types.PRIMITIVE_ARRAY(INT), Types.BASIC_ARRAY(INT), "incompatible"),
    (Types.TUPLE([INT]), Types.TUPLE([INT, INT]), "incompatible"),
    (PICKLED, LONG, "incompatible"),
    (LONG, PICKLED, "incompatible"),
]
#: Flink takes it by place, and nobody can tell whether that was meant; see ``docs/state.md``.
ALL_RENAMED = (AB, row(("c", INT), ("d", STRING)))


@pytest.mark.parametrize(("was", "now", "flink"), FLINK, ids=str)
def test_what_flink_takes_is_taken(was: TypeInformation, now: TypeInformation, flink: str) -> None:
    if flink == "as is" and (was, now) != ALL_RENAMED:
        type_migration(sealed(was), now, lambda: 0)


# --- the keys of a stream --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "now"),
    [(BYTE, SHORT), (BYTE, INT), (SHORT, INT), (Types.TUPLE([BYTE, STRING]), Types.TUPLE([INT, STRING]))],
    ids=str,
)
def test_keys_may_become_wider_where_java_hashes_them_alike(
    was: TypeInformation, now: TypeInformation
) -> None:
    numbers = [-128, -1, 0, 1, 127]
    keys: list[Any] = [(n, str(n)) for n in numbers] if was.parts() else list(numbers)
    count, operator = ValueStateDescriptor("count", LONG), Operator.of(2, was)
    for number, key in enumerate(keys):
        operator.state(count, key).update(number)
    operator = operator.restored(3, key_type=now)
    operator = operator.restored(1, key_type=now)
    assert [operator.state(count, key).value() for key in keys] == list(range(len(keys)))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (INT, LONG),
        (INT, SHORT),
        (PICKLED, LONG),
        (LONG, PICKLED),
        (AB, row(B, A)),
        (AB, row(("a", INT), ("c", STRING))),
        (Types.PRIMITIVE_ARRAY(BYTE), Types.PRIMITIVE_ARRAY(INT)),
        (Types.TUPLE([INT]), Types.TUPLE([LONG])),
    ],
    ids=str,
)
def test_other_types_of_keys_are_refused(was: TypeInformation, now: TypeInformation) -> None:
    assert not keys_may_become(was, now)
    if was.kind == "BYTES" or now.kind == "":
        return
    operator = Operator.of(1, was)
    operator.state(ValueStateDescriptor("count", LONG), 1).update(1)
    with pytest.raises(
        IncompatibleCheckpointError, match=r"keys of .*cannot change, but BYTE to SHORT to INT"
    ):
        operator.restored(1, key_type=now)


# --- what is told, and what it costs -----------------------------------------------------------------------


def test_a_field_that_is_dropped_is_told(caplog: pytest.LogCaptureFixture) -> None:
    operator = Operator.of(1)
    operator.state(ValueStateDescriptor("s", AB), 1).update((1, "x"))
    with caplog.at_level(logging.WARNING, "pyflinkstate"):
        operator.restored(1).state(ValueStateDescriptor("s", row(B)), 1)
    (record,) = caplog.records
    assert record.message.startswith("state 's': the field 'a' of ROW(a: INT, b: STRING) is dropped: ")
    assert record.message.endswith("the program asks for VALUE of ROW(b: STRING)")


def test_a_wider_number_costs_nothing() -> None:
    """No value is looked at, and none is written again for it."""
    operator = Operator.of(1)
    for key in KEYS:
        operator.state(ListStateDescriptor("s", INT), key).add(key)
    operator = operator.restored(1).track_changes()
    operator.checkpoint()
    (subtask,) = operator.subtasks
    maps = list(subtask.keyed.registered_kv_states["s"].maps)
    operator.state(ListStateDescriptor("s", LONG), 1).add(2**40)
    assert all(map(same_object, maps, subtask.keyed.registered_kv_states["s"].maps))
    (written,) = operator.checkpoint()
    assert written.managed_keyed is not None
    assert rows_of(written.managed_keyed.increments[-1]) == {"s": {1: False}}
    again = operator.restored(1)
    assert list(again.state(ListStateDescriptor("s", LONG), 1).get()) == [1, 2**40]


# --- the type that loses nothing ---------------------------------------------------------------------------

TYPES = list(
    {
        str(type_info): sealed(type_info)
        for change in CHANGES.values()
        for type_info in (change.was, change.now)
    }.values()
)


@pytest.mark.parametrize("one", TYPES, ids=str)
def test_both_types_may_become_the_common_one(one: TypeInformation) -> None:
    for other in TYPES:
        both, again = common_type(one, other), common_type(other, one)
        assert (both is None) == (again is None)
        if both is not None and again is not None:
            for was, now in ((one, both), (other, both), (both, again)):
                assert type_migration(was, now, lambda: 0).dropped == ()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_may_become_another_type_has_one_in_common_with_it(change: Change) -> None:
    was, now = sealed(change.was), sealed(change.now)
    for one, other in ((was, now), (now, was)):
        both = common_type(one, other)
        assert both is not None
        type_migration(both, change.now, lambda: 0, loads_pickles=True)


@attrs.frozen
class Trap:
    """Says that it was unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("loaded, and nobody asked for it",)

    def __deepcopy__(self, memo: Any) -> Trap:
        return self


def test_what_is_restored_of_two_types_is_not_unpickled_for_it() -> None:
    whole, parts = ValueStateDescriptor("s", PICKLED), ValueStateDescriptor("s", Types.TUPLE([PICKLED, LONG]))
    first, second = Operator.of(1), Operator.of(1)
    first.state(whole, 1).update([Trap()])
    second.state(parts, 2).update((Trap(), 1))
    handles = [*first.checkpoint(), *second.checkpoint()]
    operator = Operator.of(1)
    for handle in handles:
        operator.load([handle])
    again = operator.restored(1)
    with pytest.raises(StateMigrationError, match="allow_pickled_restore"):
        again.state(ValueStateDescriptor("s", LONG), 1)
    with pytest.raises(pytest.fail.Exception):
        again.state(whole, 1)
