"""ListState with time to live: elements expire one by one, as iteration comes to them (T9 to T11)."""

import itertools
import pickle

import pytest
from ttl_contract import ClockedBackend, ttl_config

from pyflinkstate import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api.ttl import StateVisibility, UpdateType
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConcurrentModificationError
from pyflinkstate.testing import KeyedOneInputOperatorHarness

ON_READ = UpdateType.OnReadAndWrite
RELAXED = StateVisibility.ReturnExpiredIfNotCleanedUp


@pytest.fixture(params=[True, False], ids=["copy on write", "nested maps"])
def clocked(request):
    return ClockedBackend(request.param)


@pytest.fixture
def make(clocked, declared):
    """Makes a list state of ``"a"`` written at 0, ``"b"`` at 30 and ``"c"`` at 60."""

    def made(**config):
        state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())), ttl_config(**config))
        for now_ms, element in ((0, "a"), (30, "b"), (60, "c")):
            clocked.at(now_ms)
            state.add(element)
        return state

    return made


def test_each_element_expires_for_itself(clocked, make):
    """T9."""
    state = make()
    seen = []
    for now_ms in (99, 100, 130, 159, 160):
        clocked.at(now_ms)
        seen.append(list(state.get()))
    assert seen == [["a", "b", "c"], ["b", "c"], ["c"], ["c"], []]


def test_adding_prolongs_none_of_the_others(clocked, make):
    state = make()
    clocked.at(129)
    state.add("d")
    clocked.at(131)
    assert list(state) == ["c", "d"]


def test_update_stamps_all_anew(clocked, make):
    state = make()
    clocked.at(90)
    state.update(["x", "y"])
    assert state.get_internal() == [(90, "x"), (90, "y")]


def test_what_has_expired_stays_stored_while_others_live(clocked, make):
    """T9."""
    state = make()
    clocked.at(130)
    assert list(state.get()) == ["c"]
    assert state.get_internal() == [(0, "a"), (30, "b"), (60, "c")]


def test_get_alone_removes_nothing(clocked, make):
    """T9."""
    state = make()
    clocked.at(160)
    state.get()
    assert len(state.get_internal()) == 3


@pytest.mark.parametrize("seen", [0, 1, 2, 3])
def test_an_iteration_that_is_left_early_removes_nothing(clocked, make, seen):
    """T9."""
    state = make(visibility=RELAXED)
    clocked.at(160)
    assert len(list(itertools.islice(state.get(), seen))) == seen
    assert len(state.get_internal()) == 3


def test_elements_are_looked_at_when_iteration_comes_to_them(clocked, make):
    state = make()
    clocked.at(99)
    view = state.get()
    iterator = iter(view)
    assert next(iterator) == "a"
    clocked.at(130)
    assert list(iterator) == ["c"]
    assert list(view) == ["c"]


def test_a_view_may_expire_as_a_whole_before_it_is_looked_at(clocked, make):
    state = make()
    clocked.at(99)
    view = state.get()
    clocked.at(160)
    assert list(view) == []
    assert state.get_internal() is None


def test_a_view_can_be_iterated_twice(clocked, make):
    state = make()
    clocked.at(100)
    view = state.get()
    assert list(view) == list(view) == ["b", "c"]


def test_a_view_belongs_to_the_key_at_which_it_was_asked_for(clocked, make):
    """Its end must not remove another key's list."""
    state = make()
    view = state.get()
    clocked.backend.set_current_key("other")
    state.add("x")
    clocked.at(160)
    assert list(view) == []
    assert state.get_internal() == [(60, "x")]


def test_a_view_does_not_remove_a_list_written_meanwhile(clocked, make):
    state = make()
    clocked.at(160)
    view = state.get()
    state.update(["new"])
    assert list(view) == []
    assert list(state) == ["new"]


# --- reading prolongs --------------------------------------------------------------------------------


def test_reading_stamps_the_living_and_drops_the_others(clocked, make):
    """T10."""
    state = make(update_type=ON_READ)
    clocked.at(110)
    state.get()
    assert state.get_internal() == [(110, "b"), (110, "c")]


def test_reading_what_has_expired_altogether_stamps_nothing(clocked, make):
    """T10."""
    state = make(update_type=ON_READ)
    clocked.at(160)
    view = state.get()
    assert state.get_internal() == [(0, "a"), (30, "b"), (60, "c")]
    assert list(view) == []
    assert state.get_internal() is None


def test_iterating_prolongs_no_further_than_get_did(clocked, make):
    """T10: ``get`` stamps, whether or not one iterates."""
    state = make(update_type=ON_READ)
    view = state.get()
    clocked.at(90)
    assert list(view) == ["a", "b", "c"]
    assert state.get_internal() == [(60, "a"), (60, "b"), (60, "c")]


# --- what has expired is returned --------------------------------------------------------------------


def test_what_has_expired_is_returned_while_it_is_stored(clocked, make):
    """T11."""
    state = make(visibility=RELAXED)
    clocked.at(130)
    assert list(state.get()) == ["a", "b", "c"]
    assert list(state.get()) == ["a", "b", "c"]


def test_expired_elements_that_reading_drops_are_returned_that_once(clocked, make):
    """T10 with T11."""
    state = make(update_type=ON_READ, visibility=RELAXED)
    clocked.at(110)
    assert list(state.get()) == ["a", "b", "c"]
    assert state.get_internal() == [(110, "b"), (110, "c")]
    assert list(state.get()) == ["b", "c"]


# --- writing -----------------------------------------------------------------------------------------


# --- beside a snapshot -------------------------------------------------------------------------------


def test_a_list_that_has_expired_can_be_read_to_its_end_with_no_key_set(clocked, make):
    elements = iter(make().get())
    clocked.at(1000)
    clocked.backend.clear_current_key()
    assert list(elements) == []


# --- views beyond the function -------------------------------------------------------------------------


def test_an_iterator_is_fail_fast_also_where_reading_prolongs(clocked, make):
    state = make(update_type=ON_READ)
    clocked.at(110)  # "a" has expired
    iterator = iter(state)
    assert next(iterator) == "b"
    state.add("d")
    with pytest.raises(ConcurrentModificationError, match="state 'l'"):
        next(iterator)


@pytest.mark.parametrize("read_at", [60, 110])
def test_a_list_that_expires_before_it_is_looked_at_is_removed_also_where_reading_prolongs(
    clocked, make, read_at
):
    state = make(update_type=ON_READ)
    clocked.at(read_at)
    view = state.get()
    clocked.at(read_at + 100)
    assert list(view) == []
    assert state.get_internal() is None


def test_a_view_that_is_kept_or_pickled_is_a_list(clocked, make):
    state = make()
    clocked.at(110)
    for made in (isolated(state.get()), pickle.loads(pickle.dumps(state.get()))):
        assert made == ["b", "c"]
        assert type(made) is list


def test_a_view_can_be_stored(clocked, make):
    state = make()
    kept = clocked.backend.get_partitioned_state(ValueStateDescriptor("kept"))
    kept.update(state.get())
    state.add("d")
    assert kept.value() == ["a", "b", "c"]


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
