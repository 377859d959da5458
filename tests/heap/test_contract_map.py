"""MapState by rows K1 to K7 and K10 to K12 of the semantics, however it is run; K8, K9 are with the views.

Other than Flink's heap state (K5, K6), a map state never keeps an entry without anything in it.
"""

import pytest
from contract_backends import LONG, PICKLED, STRING, lives

from pyflinkstate import MapStateDescriptor, Types
from pyflinkstate.errors import DescriptorTypeError, StateValueError


@pytest.fixture(params=["for ever", "for a time"])
def counts(everywhere, request):
    """A map state, also one that expires: what a user sees of both is the same."""
    descriptor = MapStateDescriptor("counts", STRING, LONG)
    return everywhere.state(descriptor if request.param == "for ever" else lives(descriptor, 1000))


def items(state):
    return state.run(lambda counts: dict(counts.items()))


def test_k3_none_is_a_user_key_where_none_is_declared(everywhere):
    state = everywhere.state(MapStateDescriptor("any"))
    state.put(None, 1)
    state.put("a", 2)
    assert (state.get(None), state.contains(None)) == (1, True)
    assert items(everywhere.restarted().state(MapStateDescriptor("any"))) == {None: 1, "a": 2}
    state.remove(None)
    assert items(state) == {"a": 2}


def test_k3_none_is_no_user_key_of_a_declared_type(everywhere, counts):
    with pytest.raises(StateValueError, match="user key: None"):
        counts.put(None, 1)
    assert everywhere.entries() == 0


def test_k7_put_all_of_none_is_refused(everywhere):
    state = everywhere.state(MapStateDescriptor("counts", STRING, LONG))
    state.put("a", 1)
    with pytest.raises(StateValueError, match="'counts', key 'k': put_all takes a dict, not None"):
        state.put_all(None)
    assert items(state) == {"a": 1}


def test_k7_put_all_of_none_is_nothing_with_time_to_live(everywhere):
    state = everywhere.state(lives(MapStateDescriptor("counts", STRING, LONG), 1000))
    state.put_all(None)
    assert everywhere.entries() == 0
    state.put("a", 1)
    state.put_all(None)
    assert items(state) == {"a": 1}


@pytest.mark.parametrize("entries", [[("a", 1)], "ab", 1], ids=repr)
def test_k7_put_all_takes_a_dict(everywhere, counts, entries):
    with pytest.raises(StateValueError, match="put_all takes a dict"):
        counts.put_all(entries)
    assert everywhere.entries() == 0


@pytest.mark.parametrize("refused", [{"c": "wrong"}, {1: 1}, {None: 1}], ids=str)
def test_k7_put_all_puts_all_or_nothing(everywhere, counts, refused):
    with pytest.raises(StateValueError):
        counts.put_all({"a": 9, **refused})
    assert everywhere.entries() == 0
    counts.put("a", 1)
    with pytest.raises(StateValueError):
        counts.put_all({"a": 9, "b": 2, **refused})
    assert items(counts) == {"a": 1}


def test_k7_the_callers_dict_stays_the_callers(counts):
    mine = {"a": 1}
    counts.put_all(mine)
    mine["b"] = 2
    counts.put("c", 3)
    assert items(counts) == {"a": 1, "c": 3}
    assert mine == {"a": 1, "b": 2}


def test_it_is_used_like_a_dict(counts):
    def use(state):
        state["a"] = 1
        state["b"] = None
        assert (state["a"], state["b"], state["missing"]) == (1, None, None)
        assert ("a" in state, "b" in state, "missing" in state) == (True, True, False)
        del state["a"]
        del state["missing"]
        return sorted(state)

    assert counts.run(use) == ["b"]


def test_user_keys_and_values_are_converted_on_the_way_in(everywhere):
    state = everywhere.state(MapStateDescriptor("ratios", Types.DOUBLE(), Types.DOUBLE()))
    state.put(1, 2)
    state.put_all({3: 4})
    assert {type(part) for item in items(state).items() for part in item} == {float}


def test_a_float_user_key_is_found_under_the_number_it_was_put_with(everywhere):
    state = everywhere.state(MapStateDescriptor("ratios", Types.FLOAT(), LONG))
    state.put(0.1, 1)
    assert (state.get(0.1), state.contains(0.1)) == (1, True)
    state.remove(0.1)
    assert everywhere.entries() == 0


@pytest.mark.parametrize("method", ["get", "put", "remove", "contains"])
@pytest.mark.parametrize("key", [1, b"a", [1], None], ids=repr)
def test_a_user_key_that_cannot_be_one_is_refused_by_every_method(everywhere, counts, method, key):
    with pytest.raises(StateValueError, match="'counts', key 'k': user key"):
        getattr(counts, method)(*([key, 1] if method == "put" else [key]))
    assert everywhere.entries() == 0


@pytest.mark.parametrize("key_type", [Types.LIST(LONG), Types.MAP(LONG, LONG)], ids=str)
def test_a_user_key_type_without_a_hash_is_refused_by_the_descriptor(key_type):
    with pytest.raises(DescriptorTypeError, match="not hashable"):
        MapStateDescriptor("counts", key_type, PICKLED)
