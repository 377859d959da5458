"""ListState with time to live: elements expire one by one, as iteration comes to them (T9 to T11)."""

import itertools
import pickle

import pytest
from backend_support import entries, prepare, write
from ttl_contract import ClockedBackend, ttl_config

from pyflinkstate.api.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.ttl import StateVisibility, UpdateType
from pyflinkstate.api.types import Types
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConcurrentModificationError, StateValueError
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


def test_elements_of_one_call_expire_together(clocked, declared):
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())))
    state.add_all(["a", "b"])
    clocked.at(99)
    assert list(state) == ["a", "b"]
    clocked.at(100)
    assert list(state) == []


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


def test_the_list_is_removed_when_all_were_seen_to_have_expired(clocked, make):
    """T9."""
    state = make()
    clocked.at(160)
    assert list(state.get()) == []
    assert state.get_internal() is None
    assert clocked.backend.num_key_value_state_entries() == 0


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


def test_where_nothing_is_stored_there_is_nothing_to_iterate(clocked, declared):
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())))
    assert list(state.get()) == []
    assert clocked.backend.num_key_value_state_entries() == 0


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


def test_what_is_read_often_enough_never_expires(clocked, make):
    state = make(update_type=ON_READ)
    for now_ms in range(60, 1000, 99):
        clocked.at(now_ms)
        assert list(state) == ["a", "b", "c"]


# --- what has expired is returned --------------------------------------------------------------------


def test_what_has_expired_is_returned_while_it_is_stored(clocked, make):
    """T11."""
    state = make(visibility=RELAXED)
    clocked.at(130)
    assert list(state.get()) == ["a", "b", "c"]
    assert list(state.get()) == ["a", "b", "c"]


def test_a_list_that_has_expired_altogether_is_returned_once(clocked, make):
    """T11."""
    state = make(visibility=RELAXED)
    clocked.at(160)
    assert list(state.get()) == ["a", "b", "c"]
    assert state.get_internal() is None
    assert list(state.get()) == []


def test_expired_elements_that_reading_drops_are_returned_that_once(clocked, make):
    """T10 with T11."""
    state = make(update_type=ON_READ, visibility=RELAXED)
    clocked.at(110)
    assert list(state.get()) == ["a", "b", "c"]
    assert state.get_internal() == [(110, "b"), (110, "c")]
    assert list(state.get()) == ["b", "c"]


# --- writing -----------------------------------------------------------------------------------------


def test_update_with_an_empty_list_removes_the_entry(clocked, make):
    """L6."""
    state = make()
    state.update([])
    assert state.get_internal() is None
    assert clocked.backend.num_key_value_state_entries() == 0


def test_add_all_of_an_empty_list_is_a_no_op(clocked, declared):
    """L5."""
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())))
    state.add_all([])
    assert clocked.backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("method", ["add_all", "update"])
@pytest.mark.parametrize("values", [None, 5, "text", b"bytes", ["x", None]], ids=repr)
def test_what_is_no_list_of_values_is_refused_and_nothing_changes(clocked, make, method, values):
    """L3, L4."""
    state = make()
    before = list(state.get_internal())
    with pytest.raises(StateValueError, match="key 'k'"):
        getattr(state, method)(values)
    assert state.get_internal() == before


def test_none_is_refused(clocked, declared):
    """L2."""
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())))
    with pytest.raises(StateValueError, match="None cannot be added"):
        state.add(None)
    assert clocked.backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("method", ["add_all", "update"])
def test_values_may_come_out_of_a_generator(clocked, declared, method):
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())))
    getattr(state, method)(letter for letter in "xyz")
    assert list(state) == ["x", "y", "z"]


def test_a_callers_list_is_not_kept(clocked, declared):
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())))
    mine = ["a"]
    state.update(mine)
    mine.append("b")
    assert list(state) == ["a"]


# --- beside a snapshot -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config", [{}, {"update_type": ON_READ}, {"visibility": RELAXED}], ids=["default", "on read", "relaxed"]
)
def test_a_list_that_is_removed_while_a_snapshot_is_open_stays_in_it(declared, config):
    clocked = ClockedBackend(async_snapshots=True)
    state = clocked.state(ListStateDescriptor("l", declared(Types.STRING())), ttl_config(**config))
    state.add_all(["a", "b"])
    stored = entries(clocked.backend, "l")
    clocked.at(100)
    resources = prepare(clocked.backend)
    list(state.get())
    assert entries(clocked.backend, "l") == []
    assert entries(clocked.restored(write(clocked.backend, resources)), "l") == stored


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
