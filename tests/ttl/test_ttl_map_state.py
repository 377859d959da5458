"""Maps and lists with time to live: each entry and element expires for itself (T9 to T11)."""

import pickle

import pytest
from backend_support import entries, prepare, write
from ttl_contract import ClockedBackend, ttl_config

from pyflinkstate import KeyedProcessFunction, ListStateDescriptor, MapStateDescriptor, Types
from pyflinkstate.api import StateVisibility, UpdateType
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConcurrentModificationError
from pyflinkstate.testing import KeyedOneInputOperatorHarness

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


# --- iteration ---------------------------------------------------------------------------------------


def test_entries_are_looked_at_when_iteration_comes_to_them(clocked, make):
    state = make()
    clocked.at(99)
    iterator = iter(state.keys())
    assert next(iterator) == "a"
    clocked.at(130)
    assert list(iterator) == ["none"]
    assert state.get_internal() == {"a": (0, 1), "none": (60, None)}


def test_a_view_belongs_to_the_key_at_which_it_was_asked_for(clocked, make):
    state = make()
    view = state.items()
    clocked.backend.set_current_key("other")
    state.put("x", 9)
    clocked.at(110)
    assert dict(view) == {"b": 2, "none": None}
    assert state.get_internal() == {"x": (60, 9)}


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


@pytest.fixture
def make_list(clocked, declared):
    """Makes a list state of ``"a"`` written at 0, ``"b"`` at 30 and ``"c"`` at 60."""

    def made(**config):
        state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())), ttl_config(**config))
        for now_ms, element in ((0, "a"), (30, "b"), (60, "c")):
            clocked.at(now_ms)
            state.add(element)
        return state

    return made


def test_elements_are_looked_at_when_iteration_comes_to_them(clocked, make_list):
    state = make_list()
    clocked.at(99)
    view = state.get()
    iterator = iter(view)
    assert next(iterator) == "a"
    clocked.at(130)
    assert list(iterator) == ["c"]
    assert list(view) == ["c"]


def test_a_view_may_expire_as_a_whole_before_it_is_looked_at(clocked, make_list):
    state = make_list()
    clocked.at(99)
    view = state.get()
    clocked.at(160)
    assert list(view) == []
    assert state.get_internal() is None


def test_a_list_view_belongs_to_the_key_at_which_it_was_asked_for(clocked, make_list):
    """Its end must not remove another key's list."""
    state = make_list()
    view = state.get()
    clocked.backend.set_current_key("other")
    state.add("x")
    clocked.at(160)
    assert list(view) == []
    assert state.get_internal() == [(60, "x")]


def test_a_view_does_not_remove_a_list_written_meanwhile(clocked, make_list):
    state = make_list()
    clocked.at(160)
    view = state.get()
    state.update(["new"])
    assert list(view) == []
    assert list(state) == ["new"]


# --- beside a snapshot -------------------------------------------------------------------------------


def test_a_list_that_has_expired_can_be_read_to_its_end_with_no_key_set(clocked, make_list):
    elements = iter(make_list().get())
    clocked.at(1000)
    clocked.backend.clear_current_key()
    assert list(elements) == []


# --- views beyond the function -------------------------------------------------------------------------


def test_an_iterator_is_fail_fast_also_where_reading_prolongs(clocked, make_list):
    state = make_list(update_type=ON_READ)
    clocked.at(110)  # "a" has expired
    iterator = iter(state)
    assert next(iterator) == "b"
    state.add("d")
    with pytest.raises(ConcurrentModificationError, match="state 'l'"):
        next(iterator)


def test_a_view_that_is_kept_or_pickled_is_a_list(clocked, make_list):
    state = make_list()
    clocked.at(110)
    for made in (isolated(state.get()), pickle.loads(pickle.dumps(state.get()))):
        assert made == ["b", "c"]
        assert type(made) is list


class Remembered(KeyedProcessFunction):
    """Emits what a state shows of all values so far."""

    def open(self, runtime_context):
        elements, entries = ListStateDescriptor("l"), MapStateDescriptor("m")
        for descriptor in (elements, entries):
            descriptor.enable_time_to_live(ttl_config())
        self.elements = runtime_context.get_list_state(elements)
        self.entries = runtime_context.get_map_state(entries)

    def process_element(self, value, ctx):
        self.elements.add(value)
        self.entries.put(value, None)
        yield self.elements.get()
        yield self.entries.keys()


def test_a_view_can_be_emitted():
    with KeyedOneInputOperatorHarness(Remembered(), key_selector=lambda value: 0) as harness:
        for value in "ab":
            harness.process_element(value)
        emitted = harness.extract_output_values()
    assert emitted == [["a"], ["a"], ["a", "b"], ["a", "b"]]
    assert pickle.loads(pickle.dumps(emitted)) == emitted
