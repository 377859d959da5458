"""Key groups: their spread over subtasks, against Flink's numbers, and anew where a hash has changed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from backend_support import MemoryReader, MemoryStreams, contents, make_backend
from golden_tuple_keys import (
    CHANGED,
    COUNT,
    KEY_TYPE,
    KEYS,
    MAX_PARALLELISM,
    PATH,
    REMOVED,
    expected,
)
from hypothesis import given, strategies as st
from tiers import cases

from pyflinkstate.api import Types
from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState, OperatorSubtaskState
from pyflinkstate.backends.heap.backend import (
    HeapKeyedStateBackend,
    HeapRestoreOperation,
    HeapSnapshotStrategy,
)
from pyflinkstate.backends.key_groups import (
    java_hash_of_string,
    key_group_of_hash,
    key_groups_of_longs,
    key_groups_of_strings,
    murmur_hash,
)
from pyflinkstate.backends.keys import (
    KEY_HASH_VERSION,
    UPPER_BOUND_MAX_PARALLELISM,
    KeyGroupRange,
    KeyHasher,
    check_max_parallelism,
    check_parallelism,
    default_max_parallelism,
    hash_has_changed,
    key_group_range,
    operator_index,
)
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.errors import ConfigurationError, ParallelismError

#: name: (Java hash code, murmur, key group of 128, subtask of 4), printed by Flink 2.3.0.
FLINK = {
    "''": (0, 593689054, 94, 2),
    "'a'": (97, 1455541201, 81, 2),
    "'hello'": (99162322, 1715862179, 35, 1),
    "'flink'": (97520992, 1330823394, 98, 3),
    "'user-42'": (-147182656, 1600933524, 20, 0),
    "'été'": (227742, 157703301, 5, 0),
    "1L": (1, 68075478, 86, 2),
    "42L": (42, 1134849565, 29, 0),
    "1234567890123L": (1912276436, 1151597916, 92, 2),
    "Long.MIN": (-2147483648, 1718298732, 108, 3),
    "int -1": (-1, 1982413648, 80, 2),
    "int 128": (128, 132521001, 41, 1),
    "true": (1231, 1090530765, 77, 2),
    "false": (1237, 1530821891, 3, 0),
    "1.5d": (1073217536, 1684538177, 65, 2),
    "Row('a')": (159, 760771008, 64, 2),
    "Row(1L)": (63, 165199404, 44, 1),
    "Row(byte[]{1,2,3})": (30879, 149533724, 28, 0),
}

RANGES_OF_128 = {
    1: ["0..127"],
    3: ["0..42", "43..85", "86..127"],
    5: ["0..25", "26..51", "52..76", "77..102", "103..127"],
    10: [
        *("0..12", "13..25", "26..38", "39..51", "52..63"),
        *("64..76", "77..89", "90..102", "103..115", "116..127"),
    ],
    128: [f"{key_group}..{key_group}" for key_group in range(128)],
}

DEFAULT_MAX_PARALLELISM = {
    1: 128,
    2: 128,
    85: 128,
    86: 256,
    170: 256,
    171: 256,
    200: 512,
    1000: 2048,
    21845: 32768,
    32768: 32768,
}


@st.composite
def parallelisms(draw):
    """A max parallelism, and a parallelism that fits it."""
    max_parallelism = draw(st.one_of(st.integers(1, 300), st.integers(1, UPPER_BOUND_MAX_PARALLELISM)))
    return max_parallelism, draw(st.integers(1, min(max_parallelism, 200)))


@pytest.mark.parametrize(("code", "murmur", "key_group", "subtask"), FLINK.values(), ids=FLINK)
def test_a_hash_code_is_placed_where_flink_places_it(code, murmur, key_group, subtask):
    assert murmur_hash(code & 0xFFFFFFFF) == murmur
    assert key_group_of_hash(code, 128) == key_group
    assert operator_index(128, 4, key_group) == subtask


@pytest.mark.parametrize(
    ("key", "key_type", "key_group"),
    [
        ("flink", Types.STRING(), 98),
        ("\U0001f600", Types.STRING(), 54),
        (-1, Types.LONG(), 94),
        (-1, Types.INT(), 80),
        (-(2**63), Types.LONG(), 108),
        (1.5, Types.DOUBLE(), 65),
        (True, Types.BOOLEAN(), 77),
    ],
    ids=str,
)
def test_a_declared_key_lands_in_flinks_key_group(key, key_type, key_group):
    hasher = KeyHasher(key_type)
    assert hasher.key_groups([key], 128) == [key_group]
    assert key_group_of_hash(*hasher.hashes([key]), 128) == key_group


@given(st.lists(st.text(max_size=6)), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_many_keys_are_in_the_groups_of_their_hash_codes(texts: list[str], numbers: list[int]) -> None:
    assert key_groups_of_strings(texts, 128) == [
        key_group_of_hash(java_hash_of_string(text), 128) for text in texts
    ]
    codes = KeyHasher(Types.LONG()).hashes(numbers)
    assert key_groups_of_longs(numbers, 128) == [key_group_of_hash(code, 128) for code in codes]


@pytest.mark.parametrize(
    ("code", "murmur"),
    [(0x836F0755, 0), (0x6C269A67, 0x7FFFFFFF), (0x3B470D50, 0x7FFFFFFF), (0x77C7F3B4, 1)],
)
def test_the_one_scramble_whose_negation_overflows_becomes_zero(code, murmur):
    """Java's ``-Integer.MIN_VALUE`` is negative, so ``MathUtils.murmurHash`` answers 0.

    These codes are scrambled to 0x80000000, 0x80000001, 0x7FFFFFFF and 0xFFFFFFFF.
    """
    assert murmur_hash(code) == murmur


@pytest.mark.parametrize(("parallelism", "ranges"), RANGES_OF_128.items())
def test_the_ranges_of_128_key_groups_are_flinks(parallelism, ranges):
    assert [str(key_group_range(128, parallelism, index)) for index in range(parallelism)] == ranges


@given(parallelisms())
def test_every_key_group_is_in_exactly_one_subtasks_range(drawn):
    max_parallelism, parallelism = drawn
    ranges = [key_group_range(max_parallelism, parallelism, index) for index in range(parallelism)]
    owned = [key_group for own in ranges for key_group in own]
    assert owned == list(range(max_parallelism))
    assert all(len(own) >= 1 for own in ranges)
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@given(parallelisms(), st.data())
def test_the_operator_index_is_the_subtask_whose_range_holds_the_key_group(drawn, data):
    max_parallelism, parallelism = drawn
    key_group = data.draw(st.integers(0, max_parallelism - 1))
    owner = operator_index(max_parallelism, parallelism, key_group)
    assert 0 <= owner < parallelism
    assert key_group in key_group_range(max_parallelism, parallelism, owner)


@pytest.mark.parametrize(("parallelism", "expected"), DEFAULT_MAX_PARALLELISM.items())
def test_the_default_max_parallelism_is_flinks(parallelism, expected):
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize("max_parallelism", [0, -1, 32769, 1 << 20])
def test_a_max_parallelism_out_of_bounds_is_refused(max_parallelism):
    with pytest.raises(ParallelismError, match=f"{max_parallelism} is out of bounds") as refusal:
        check_max_parallelism(max_parallelism)
    assert refusal.value.context["max_parallelism"] == max_parallelism
    with pytest.raises(ParallelismError):
        check_parallelism(1, max_parallelism)


@pytest.mark.parametrize("parallelism", [0, -1, 129, 32769])
def test_a_parallelism_out_of_bounds_is_refused(parallelism):
    for refused in (
        lambda: check_parallelism(parallelism, 128),
        lambda: key_group_range(128, parallelism, 0),
    ):
        with pytest.raises(ParallelismError, match=f"not within bounds: {parallelism};") as refusal:
            refused()
        assert refusal.value.context == {"parallelism": parallelism, "max_parallelism": 128}


@pytest.mark.parametrize("parallelism", [0, -1, 32769])
def test_no_default_max_parallelism_for_a_parallelism_out_of_bounds(parallelism):
    with pytest.raises(ConfigurationError):
        default_max_parallelism(parallelism)


class TestKeyGroupRange:
    def test_both_ends_are_included(self):
        own = KeyGroupRange(3, 5)
        assert list(own) == [3, 4, 5]
        assert len(own) == 3
        assert 3 in own
        assert 5 in own
        assert 2 not in own
        assert 6 not in own
        assert "3" not in own

    def test_it_is_empty_when_the_end_lies_before_the_start(self):
        for empty in (KeyGroupRange(3, 2), KeyGroupRange(9, 2)):
            assert len(empty) == 0
            assert list(empty) == []
            assert 3 not in empty

    @given(*[st.integers(0, 20)] * 4)
    def test_the_intersection_holds_what_both_hold(self, start, end, other_start, other_end):
        one, other = KeyGroupRange(start, end), KeyGroupRange(other_start, other_end)
        both = one.intersection(other)
        assert set(both) == set(one) & set(other)
        assert len(both) == len(set(both))
        assert set(other.intersection(one)) == set(both)


# --- state whose keys had another hash is spread anew ------------------------------------------------------


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


@pytest.fixture(scope="module")
def golden() -> OperatorState:
    """The state of an operator, as an earlier release wrote it."""
    (operator,) = CheckpointMetadata.decode(PATH.read_bytes(), "golden").operators
    return operator


@pytest.fixture(scope="module")
def whole() -> Any:
    """What all subtasks together have to hold."""
    return contents(expected())


def restored(
    subtasks: tuple[OperatorSubtaskState, ...], parallelism: int, *, async_snapshots: bool = True
) -> list[HeapKeyedStateBackend]:
    """Return the backends of ``parallelism`` subtasks that restore ``subtasks``."""
    backends = []
    for index, assigned in enumerate(assign_state(subtasks, parallelism, MAX_PARALLELISM, KEY_TYPE)):
        own = key_group_range(MAX_PARALLELISM, parallelism, index)
        backend = make_backend(KEY_TYPE, own, MAX_PARALLELISM, async_snapshots=async_snapshots)
        HeapRestoreOperation(backend, MemoryReader()).restore(assigned.managed_keyed)
        backends.append(backend)
    return backends


def written(backend: HeapKeyedStateBackend) -> OperatorSubtaskState:
    strategy = HeapSnapshotStrategy(backend)
    resources = strategy.sync_prepare_resources()
    return OperatorSubtaskState(strategy.async_snapshot(resources, MemoryStreams(), threading.Event()))


def keys_by_group(backend: HeapKeyedStateBackend) -> Iterator[tuple[int, Any]]:
    """Iterate over the key group that each entry and timer lies in, and its key."""
    for queue in backend.registered_queues.values():
        for entries in queue.snapshot().key_groups():
            yield from ((entries.key_group, key) for key in entries.keys)
    for table in backend.registered_kv_states.values():
        for key_group in backend.key_group_range:
            for entry, _ in table.map_of(key_group).items():
                yield key_group, entry[0] if table.meta.is_namespaced else entry


def placed_right(backend: HeapKeyedStateBackend) -> bool:
    """Whether every key lies in the key group of its hash."""
    return all(backend.key_group_of(key) == key_group for key_group, key in keys_by_group(backend))


def test_the_golden_file_is_of_the_first_hash(golden: OperatorState) -> None:
    handles = [subtask.managed_keyed for subtask in golden.subtasks]
    versions = [
        part.key_hash_version for handle in handles if handle for part in (handle, *handle.increments)
    ]
    assert versions == [1, 1, 1, 1]


@pytest.mark.parametrize("async_snapshots", [True, False], ids=["copy on write", "nested maps"])
@pytest.mark.parametrize("parallelism", cases([1, 2, 3, 8], quick=[1, 3]))
def test_nothing_is_lost_and_every_key_meets_its_state(
    golden: OperatorState, whole: Any, parallelism: int, async_snapshots: bool
) -> None:
    """Values, lists, maps, time to live, windows and timers; of files of everything and increments."""
    backends = restored(golden.subtasks, parallelism, async_snapshots=async_snapshots)
    assert all(map(placed_right, backends))
    assert contents(*backends) == whole


def test_each_key_goes_on_from_its_state(golden: OperatorState) -> None:
    (backend,) = restored(golden.subtasks, 1)
    count = backend.get_partitioned_state(COUNT)
    values = {}
    for key in KEYS:
        backend.set_current_key(key)
        values[key] = count.value()
    assert values == {
        key: None if key in REMOVED else key[1][0] + (1_000_000 if key in CHANGED else 0) for key in KEYS
    }


def test_the_next_checkpoint_is_of_the_new_hash_and_is_not_spread_anew(
    golden: OperatorState, whole: Any
) -> None:
    backends = restored(golden.subtasks, 3)
    subtasks = tuple(map(written, backends))
    metadata = CheckpointMetadata(
        3, "0" * 32, "tuples", 3, None, {}, 0, (OperatorState("tuples", 3, MAX_PARALLELISM, subtasks),)
    )
    (again,) = CheckpointMetadata.decode(metadata.encode(), "new").operators
    assert again.subtasks == subtasks
    assert {
        subtask.managed_keyed.key_hash_version for subtask in again.subtasks if subtask.managed_keyed
    } == {KEY_HASH_VERSION}
    assigned = assign_state(again.subtasks, 3, MAX_PARALLELISM, KEY_TYPE)
    assert [len(one.managed_keyed) for one in assigned] == [1, 1, 1]
    assert contents(*restored(again.subtasks, 2)) == whole


def test_other_keys_are_not_read_by_subtasks_that_do_not_own_them(golden: OperatorState) -> None:
    assigned = assign_state(golden.subtasks, 2, MAX_PARALLELISM, Types.STRING())
    assert [len(one.managed_keyed) for one in assigned] == [1, 1]


def test_without_spreading_them_keys_would_not_find_their_state(golden: OperatorState) -> None:
    """What would happen if the version were not looked at."""
    handle = golden.subtasks[0].managed_keyed
    assert handle is not None
    blind = attrs.evolve(handle, increments=(), key_hash_version=KEY_HASH_VERSION)
    backend = make_backend(KEY_TYPE, key_group_range(MAX_PARALLELISM, 1, 0), MAX_PARALLELISM)
    HeapRestoreOperation(backend, MemoryReader()).restore([blind])
    lost = 0
    for key in backend.get_keys("count"):
        backend.set_current_key(key)
        lost += backend.get_partitioned_state(COUNT).value() is None
    assert lost > 0


@pytest.mark.parametrize(
    ("key_type", "changed"),
    [
        (PAIR, True),
        (Types.ROW([PAIR]), True),
        (Types.ROW([Types.LONG()]), False),
        (Types.STRING(), False),
        (Types.PICKLED_BYTE_ARRAY(), False),
    ],
    ids=str,
)
def test_which_types_hashed_otherwise(key_type: object, changed: bool) -> None:
    assert hash_has_changed(key_type, 1) is changed  # type: ignore[arg-type]
    assert not hash_has_changed(key_type, KEY_HASH_VERSION)  # type: ignore[arg-type]
