"""Rescaling (G22): each key is found in the one backend that owns its key group, whatever it was before."""

import pytest
from backend_support import PICKLED, entries, make_backend, rescale, restore, state_of, take_snapshot

from pyflinkstate.api.descriptors import ListStateDescriptor, ValueStateDescriptor
from pyflinkstate.api.types import Types
from pyflinkstate.backends.keys.key_groups import KeyGroupRange, key_group_range

STRING = Types.STRING()
COUNT = ValueStateDescriptor("count", Types.LONG())
VISITS = ListStateDescriptor("visits", STRING)


def counts(backends):
    """What the state ``count`` holds, over all backends; a key in two of them shows twice."""
    return sorted(entry for backend in backends for entry in entries(backend, "count"))


@pytest.mark.parametrize(
    ("parallelisms", "key_type"),
    [
        ([1, 3, 2, 5], STRING),
        ([1, 3, 2, 5], PICKLED),
        ([4, 2], STRING),
        ([2, 4], PICKLED),
        ([2, 2], STRING),
        ([15, 77, 15], STRING),
        ([128, 1], PICKLED),
    ],
    ids=str,
)
def test_every_key_is_in_exactly_the_backend_that_owns_its_key_group(parallelisms, key_type):
    whole = make_backend(key_type)
    for number in range(300):
        state_of(whole, COUNT, f"key-{number}").update(number)
    expected = counts([whole])
    handles = [take_snapshot(whole)]
    for parallelism in parallelisms:
        backends = rescale(handles, parallelism, key_type)
        assert counts(backends) == expected
        for backend in backends:
            for key, number in entries(backend, "count"):
                assert state_of(backend, COUNT, key).value() == number
        handles = [take_snapshot(backend) for backend in backends]
    assert counts([restore(handles, key_type)]) == expected


def test_subtasks_may_hold_different_states():
    low, high = (make_backend(own=key_group_range(128, 2, index)) for index in range(2))
    state_of(low, COUNT, "user-42").update(1)  # key group 20
    state_of(high, VISITS, "flink").add("x")  # key group 98
    restored = restore([take_snapshot(low), take_snapshot(high)])
    assert state_of(restored, COUNT, "user-42").value() == 1
    assert list(state_of(restored, VISITS, "flink")) == ["x"]
    assert restored.num_key_value_state_entries() == 2


def test_key_groups_of_others_are_left_out():
    whole = make_backend(STRING)
    for key in ("user-42", "flink"):
        state_of(whole, COUNT, key).update(1)
    restored = restore([take_snapshot(whole)], STRING, KeyGroupRange(98, 98))
    assert list(restored.get_keys("count")) == ["flink"]


def test_max_parallelism_may_be_anything():
    whole = make_backend(STRING, KeyGroupRange(0, 999), 1000)
    for number in range(300):
        state_of(whole, COUNT, f"key-{number}").update(number)
    backends = rescale([take_snapshot(whole)], 7, STRING, 1000)
    assert counts(backends) == counts([whole])
    assert all(entries(backend, "count") for backend in backends)
