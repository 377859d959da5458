"""What a function that migrates state sees of values with time to live, and which timestamps stay."""

import pytest
from backend_support import make_backend, state_of
from read_support import UID, checkpoint_with, restored

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.writing import edit

#: Values live for 100 s; what was written at 0 s has expired when the checkpoint is changed, at 150 s.
WRITTEN_MS = (0, 100_000, 120_000)
NOW_MS = 150_000
STRING, LONG = Types.STRING(), Types.LONG()


def lasting(descriptor):
    config = StateTtlConfig.new_builder(Time.seconds(100)).disable_cleanup_in_background().build()
    descriptor.enable_time_to_live(config)
    return descriptor


@pytest.fixture
def checkpoint():
    """One key with a value of each of three moments in a list and in a map; the value is of the first."""
    backend, now = make_backend(STRING, clock=lambda: now[0]), [0]
    for number, now[0] in enumerate(WRITTEN_MS):
        state_of(backend, lasting(ListStateDescriptor("many", LONG)), "a").add(number)
        state_of(backend, lasting(MapStateDescriptor("named", STRING, LONG)), "a").put(f"n{number}", number)
        if number == 0:
            state_of(backend, lasting(ValueStateDescriptor("one", LONG)), "a").update(number)
            state_of(backend, lasting(ListStateDescriptor("old", LONG)), "a").add(number)
    return checkpoint_with(backend, lambda: NOW_MS)


def migrated(checkpoint, tmp_path, name, to, function):
    changed = edit(checkpoint, clock=lambda: NOW_MS).migrate(UID, name, to, function)
    return changed.write(tmp_path / "s")


def entries(savepoint, name, *columns):
    rows = savepoint.entries(UID, name, with_expired=True).rows()
    return [tuple(map(row.get, columns)) for row in rows]


@pytest.mark.parametrize("name", ["one", "old", "many", "named"])
def test_it_sees_what_the_program_sees(checkpoint, tmp_path, name):
    seen = []
    to = ListStateDescriptor("new", LONG)
    written = migrated(checkpoint, tmp_path, name, to, lambda value: seen.append(value) or [7])
    expected = {"one": [], "old": [], "many": [[1, 2]], "named": [{"n1": 1, "n2": 2}]}[name]
    assert seen == expected
    (again,) = restored(written)
    assert list(state_of(again, to, "a").get()) == [7] * len(expected)


def test_the_entries_of_a_map_keep_their_timestamps_by_their_keys(checkpoint, tmp_path):
    to = lasting(MapStateDescriptor("named", STRING, STRING))
    written = migrated(
        checkpoint, tmp_path, "named", to, lambda value: {"new": "x", "n2": "y", "n1": "z", "n0": "old"}
    )
    assert sorted(entries(written, "named", "map_key", "value", "timestamp_ms")) == [
        ("n0", "old", 120_000),
        ("n1", "z", 100_000),
        ("n2", "y", 120_000),
        ("new", "x", 120_000),
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda value: [str(number) for number in value], [("1", 100_000), ("2", 120_000)]),
        (lambda value: ["first"], [("first", 120_000)]),
        (lambda value: ["a", "b", "c"], [("a", 120_000), ("b", 120_000), ("c", 120_000)]),
        (lambda value: [], []),
    ],
    ids=["as many", "fewer", "more", "none"],
)
def test_the_elements_of_a_list_keep_their_timestamps_if_they_are_as_many(
    checkpoint, tmp_path, function, expected
):
    to = lasting(ListStateDescriptor("many", STRING))
    written = migrated(checkpoint, tmp_path, "many", to, function)
    assert entries(written, "many", "value", "timestamp_ms") == expected


@pytest.mark.parametrize("name", ["many", "named"])
def test_another_kind_gets_the_latest_timestamp(checkpoint, tmp_path, name):
    to = lasting(ValueStateDescriptor("one", LONG))
    changed = edit(checkpoint, clock=lambda: NOW_MS).drop_state(UID, "one")
    written = changed.migrate(UID, name, to, len).write(tmp_path / "s")
    assert entries(written, "one", "value", "timestamp_ms") == [(2, 120_000)]


def test_what_no_file_says_to_expire_is_seen(tmp_path):
    backend = make_backend(STRING)
    state_of(backend, ListStateDescriptor("many", LONG), "a").add(5)
    to = lasting(ListStateDescriptor("many", LONG))
    written = migrated(checkpoint_with(backend), tmp_path, "many", to, lambda value: [*value, 6])
    assert entries(written, "many", "value", "timestamp_ms") == [(5, NOW_MS), (6, NOW_MS)]


@pytest.mark.parametrize("is_lasting", [False, True])
def test_keys_of_maps_are_stored_as_a_backend_stores_them(checkpoint, tmp_path, is_lasting):
    to = MapStateDescriptor("named", Types.FLOAT(), LONG)
    if is_lasting:
        lasting(to)
    written = migrated(checkpoint, tmp_path, "named", to, lambda value: {0.1: 1, 0.2: 2})
    state = state_of(*restored(written, clock=lambda: NOW_MS), to, "a")
    assert (state.get(0.1), state.get(0.2), state.contains(0.3)) == (1, 2, False)
    with pytest.raises(StateTableError, match="key 'a': NaN does not equal itself"):
        edit(checkpoint, clock=lambda: NOW_MS).migrate(
            UID, "named", to, lambda value: {float("nan"): 1}
        ).write(tmp_path / "t")
