"""MapState with time to live: entries expire one by one (T12 to T14, K7)."""

import pytest
from backend_support import entries, prepare, write
from ttl_contract import ClockedBackend, ttl_config

from pyflinkstate import MapStateDescriptor, Types
from pyflinkstate.api.ttl import StateVisibility, UpdateType
from pyflinkstate.errors import ConcurrentModificationError

ON_READ = UpdateType.OnReadAndWrite
RELAXED = StateVisibility.ReturnExpiredIfNotCleanedUp


@pytest.fixture(params=[True, False], ids=["copy on write", "nested maps"])
def clocked(request):
    return ClockedBackend(request.param)


@pytest.fixture
def empty(clocked, declared):
    """Makes a map state."""

    def made(**config):
        descriptor = MapStateDescriptor("m", declared(Types.STRING()), declared(Types.LONG()))
        return clocked.state(descriptor, ttl_config(**config))

    return made


@pytest.fixture
def make(clocked, empty):
    """Makes a map state of ``"a"`` put at 0, ``"b"`` at 30 and ``"none"`` at 60."""

    def made(**config):
        state = empty(**config)
        for now_ms, key, value in ((0, "a", 1), (30, "b", 2), (60, "none", None)):
            clocked.at(now_ms)
            state.put(key, value)
        return state

    return made


def test_each_entry_expires_for_itself(clocked, make):
    """T12."""
    state = make()
    seen = []
    for now_ms in (99, 100, 130, 159, 160):
        clocked.at(now_ms)
        seen.append(dict(state.items()))
    assert seen == [
        {"a": 1, "b": 2, "none": None},
        {"b": 2, "none": None},
        {"none": None},
        {"none": None},
        {},
    ]


def test_putting_prolongs_only_its_own_entry(clocked, make):
    state = make()
    clocked.at(90)
    state.put("a", 5)
    clocked.at(130)
    assert dict(state.items()) == {"a": 5, "none": None}


def read_by_get(state, key):
    return state.get(key)


def read_by_contains(state, key):
    return state.contains(key) or None


by_key = pytest.mark.parametrize("read", [read_by_get, read_by_contains])


@by_key
def test_reading_an_expired_entry_removes_just_it(clocked, make, read):
    """T12."""
    state = make()
    clocked.at(130)
    assert read(state, "a") is None
    assert state.get_internal() == {"b": (30, 2), "none": (60, None)}


@by_key
def test_an_expired_entry_is_returned_once_where_that_is_configured(clocked, make, read):
    state = make(visibility=RELAXED)
    clocked.at(130)
    assert read(state, "b") in (2, True)
    assert state.get_internal() == {"a": (0, 1), "none": (60, None)}
    assert read(state, "b") is None


@by_key
def test_reading_by_key_prolongs_just_that_entry_where_that_is_configured(clocked, make, read):
    state = make(update_type=ON_READ)
    clocked.at(70)
    assert read(state, "a") == 1
    assert state.get_internal() == {"a": (70, 1), "b": (30, 2), "none": (60, None)}


@pytest.mark.parametrize("update_type", UpdateType)
@pytest.mark.parametrize("value_type", [Types.LIST(Types.LONG()), Types.PICKLED_BYTE_ARRAY()], ids=str)
def test_the_live_object_is_returned(clocked, value_type, update_type):
    """V5, and the same where reading prolongs, or nothing expires."""
    descriptor = MapStateDescriptor("m", Types.STRING(), value_type)
    state = clocked.state(descriptor, ttl_config(update_type=update_type))
    state.put("a", [1])
    state.get("a").append(2)
    next(iter(state.values())).append(3)
    assert state.get("a") == [1, 2, 3]


def test_none_is_a_value_that_expires_like_others(clocked, make):
    """T12."""
    state = make()
    clocked.at(159)
    assert state.get("none") is None
    assert state.contains("none")
    clocked.at(160)
    assert not state.contains("none")


def test_is_empty_looks_at_what_is_stored(clocked, make):
    """T13."""
    state = make()
    clocked.at(160)
    assert not state.is_empty()
    list(state.keys())
    assert state.is_empty()


def test_is_empty_prolongs_nothing(clocked, make):
    state = make(update_type=ON_READ)
    before = dict(state.get_internal())
    clocked.at(70)
    assert not state.is_empty()
    assert state.get_internal() == before


# --- iteration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "expected"),
    [("items", [("b", 2), ("none", None)]), ("keys", ["b", "none"]), ("values", [2, None])],
)
def test_iteration_skips_and_removes_what_has_expired(clocked, make, view, expected):
    """T13."""
    state = make()
    clocked.at(100)
    assert list(getattr(state, view)()) == expected
    assert state.get_internal() == {"b": (30, 2), "none": (60, None)}


@pytest.mark.parametrize("view", ["items", "keys", "values"])
def test_iteration_returns_what_has_expired_once_where_that_is_configured(clocked, make, view):
    state = make(visibility=RELAXED)
    clocked.at(130)
    assert len(list(getattr(state, view)())) == 3
    assert state.get_internal() == {"none": (60, None)}
    assert len(list(getattr(state, view)())) == 1


@pytest.mark.parametrize("view", ["items", "keys", "values"])
def test_iteration_prolongs_what_it_gives_where_that_is_configured(clocked, make, view):
    state = make(update_type=ON_READ)
    clocked.at(110)
    assert len(list(getattr(state, view)())) == 2
    assert state.get_internal() == {"b": (110, 2), "none": (110, None)}


def test_iteration_that_is_left_early_has_touched_what_it_gave(clocked, make):
    state = make(update_type=ON_READ)
    clocked.at(110)
    assert next(iter(state.keys())) == "b"
    assert state.get_internal() == {"b": (110, 2), "none": (60, None)}


def test_entries_are_looked_at_when_iteration_comes_to_them(clocked, make):
    state = make()
    clocked.at(99)
    iterator = iter(state.keys())
    assert next(iterator) == "a"
    clocked.at(130)
    assert list(iterator) == ["none"]
    assert state.get_internal() == {"a": (0, 1), "none": (60, None)}


def test_a_view_sees_what_was_put_before_it_is_iterated(clocked, make):
    state = make()
    view = state.keys()
    state.put("new", 3)
    assert set(view) == set(view) == {"a", "b", "none", "new"}


def test_a_view_belongs_to_the_key_at_which_it_was_asked_for(clocked, make):
    state = make()
    view = state.items()
    clocked.backend.set_current_key("other")
    state.put("x", 9)
    clocked.at(110)
    assert dict(view) == {"b": 2, "none": None}
    assert state.get_internal() == {"x": (60, 9)}


@pytest.mark.parametrize("count", [1000])
def test_many_expired_entries_among_others_are_removed_in_one_iteration(clocked, empty, count):
    state = empty()
    for number in range(count):
        clocked.at(number % 2)
        state.put(str(number), number)
    clocked.at(100)
    assert list(state.values()) == list(range(1, count, 2))
    assert list(state.get_internal().values()) == [(1, number) for number in range(1, count, 2)]


def test_the_iterator_can_remove_beside_what_has_expired(clocked, empty):
    """T14."""
    state = empty()
    for number in range(100):
        clocked.at(number % 3)
        state.put(str(number), number)
    clocked.at(100)  # every third has expired
    iterator = iter(state.values())
    for number in iterator:
        if number % 3 == 1:
            iterator.remove()
    assert sorted(state.values()) == list(range(2, 100, 3))


def test_remove_before_the_first_entry_is_refused(clocked, make):
    """T14."""
    state = make()
    with pytest.raises(ConcurrentModificationError):
        iter(state.items()).remove()
    assert len(state.get_internal()) == 3


def test_remove_twice_is_refused(clocked, make):
    """T14."""
    state = make()
    iterator = iter(state.items())
    next(iterator)
    iterator.remove()
    with pytest.raises(ConcurrentModificationError):
        iterator.remove()
    assert state.get_internal() == {"b": (30, 2), "none": (60, None)}


def test_an_expired_entry_that_was_returned_is_removed_already(clocked, make):
    state = make(visibility=RELAXED)
    clocked.at(100)
    iterator = iter(state.keys())
    assert next(iterator) == "a"
    with pytest.raises(ConcurrentModificationError):
        iterator.remove()
    assert list(iterator) == ["b", "none"]
    assert set(state.get_internal()) == {"b", "none"}


@pytest.mark.parametrize(
    "change", [lambda s: s.put("new", 1), lambda s: s.remove("none")], ids=["put", "remove"]
)
def test_a_change_of_keys_during_iteration_is_noticed(clocked, make, change):
    """K8."""
    state = make()
    iterator = iter(state.keys())
    next(iterator)
    change(state)
    with pytest.raises(ConcurrentModificationError):
        next(iterator)


def test_values_may_be_put_during_iteration(clocked, make):
    state = make()
    clocked.at(90)
    for key in state.keys():  # noqa: SIM118 - not a dict
        state.put(key, 7)
    assert state.get_internal() == {"a": (90, 7), "b": (90, 7), "none": (90, 7)}


# --- writing -----------------------------------------------------------------------------------------


def test_the_operators_of_a_dict_go_by_the_clock_too(clocked, make):
    state = make()
    clocked.at(100)
    assert state["a"] is None
    assert state["b"] == 2
    assert "a" not in state
    assert "none" in state
    assert list(state) == ["b", "none"]
    del state["b"]
    state["c"] = 3
    assert state.get_internal() == {"none": (60, None), "c": (100, 3)}


# --- beside a snapshot -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [{}, {"update_type": ON_READ}, {"visibility": RELAXED}], ids=["default", "on read", "relaxed"]
)
@pytest.mark.parametrize("seen_before", [0, 1])
def test_what_an_iteration_removes_or_prolongs_stays_in_an_open_snapshot(declared, config, seen_before):
    clocked = ClockedBackend(async_snapshots=True)
    descriptor = MapStateDescriptor("m", declared(Types.STRING()), declared(Types.LONG()))
    state = clocked.state(descriptor, ttl_config(**config))
    state.put("first", 0)
    for number in range(1, 6):
        clocked.at(50 * (number % 2))
        state.put(str(number), number)
    clocked.at(60)
    iterator = iter(state.keys())
    for _ in range(seen_before):
        next(iterator)
    stored = [(key, dict(value)) for key, value in entries(clocked.backend, "m")]
    clocked.at(100)
    resources = prepare(clocked.backend)
    list(iterator)
    assert entries(clocked.restored(write(clocked.backend, resources)), "m") == stored
