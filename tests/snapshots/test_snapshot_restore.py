"""A snapshot is restored as it was at its synchronous part, whatever the owner does while it is written."""

import decimal
import struct
import zlib

import pytest
from backend_support import (
    PICKLED,
    MemoryReader,
    MemoryStreams,
    altered,
    fill,
    make_backend,
    one_of_each_kind,
    prepare,
    read,
    restore,
    state_of,
    take_snapshot,
    write,
)

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format.framing import PREFIX_SIZE
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.errors import (
    CheckpointStorageError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateValueError,
)


@pytest.mark.parametrize(
    "field", [Types.BIG_INT(), Types.BIG_DEC(), PICKLED, Types.LIST(PICKLED), Types.LONG()]
)
def test_what_lies_under_a_none_of_a_tuple_is_not_decoded(field):
    """Arrow fills the fields of a null struct with values that mean nothing."""
    whole = {"BIG_INT": 1, "BIG_DEC": decimal.Decimal(1), "LONG": 1}.get(field.name, [set()])
    descriptor = MapStateDescriptor("m", Types.STRING(), Types.TUPLE([Types.TUPLE([field]), Types.STRING()]))
    backend = make_backend()
    stored = {"none": None, "inner": (None, "x"), "field": ((None,), None), "whole": ((whole,), "y")}
    state_of(backend, descriptor, "k").put_all(stored)
    again = restore([take_snapshot(backend)])
    assert dict(state_of(again, descriptor, "k").items()) == stored


def test_a_value_that_cannot_be_pickled_names_its_state():
    backend = make_backend()
    state_of(backend, ListStateDescriptor("mine"), "k").add(lambda: 0)
    with pytest.raises(
        StateValueError, match=r"state 'mine': a value of builtins\.function cannot be stored"
    ):
        take_snapshot(backend)


def test_a_synchronous_part_that_fails_half_way_leaves_nothing_frozen():
    def broken_clock():
        raise OSError("no clock")

    backend = make_backend(clock=broken_clock)
    plain = state_of(backend, ValueStateDescriptor("plain"), "k")
    plain.update([1])
    kept = plain.value()
    expiring = ValueStateDescriptor("expiring")
    expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).cleanup_full_snapshot().build())
    state_of(backend, expiring, "k")
    with pytest.raises(OSError, match="no clock"):
        prepare(backend)
    assert plain.value() is kept


LONGS = Types.LIST(Types.LONG())


@pytest.mark.parametrize(
    ("type_info", "value", "innermost"),
    [
        (LONGS, [1], lambda value: value),
        (Types.LIST(LONGS), [[1]], lambda value: value[0]),
        (Types.LIST(PICKLED), [[1]], lambda value: value[0]),
        (Types.LIST(Types.TUPLE([LONGS])), [([1],)], lambda value: value[0][0]),
        (Types.MAP(Types.STRING(), LONGS), {"a": [1]}, lambda value: value["a"]),
        (Types.MAP(Types.STRING(), PICKLED), {"a": [1]}, lambda value: value["a"]),
        (Types.TUPLE([Types.LONG(), LONGS]), (1, [1]), lambda value: value[1]),
        (PICKLED, {"a": ([1],)}, lambda value: value["a"][0]),
        (Types.ROW_NAMED(["n", "s"], [Types.LONG(), LONGS]), Row(n=1, s=[1]), lambda value: value.s),
        (PICKLED, Row(n=1, s=[1]), lambda value: value.s),
    ],
    ids=str,
)
def test_a_change_in_place_however_deep_is_not_in_the_snapshot(type_info, value, innermost):
    backend, descriptor = make_backend(), ValueStateDescriptor("v", type_info)
    state = state_of(backend, descriptor, "k")
    state.update(value)
    resources = prepare(backend)
    innermost(state.value()).append(2)
    restored = restore([write(backend, resources)])
    assert innermost(state_of(restored, descriptor, "k").value()) == [1]
    assert innermost(state.value()) == [1, 2]


@pytest.mark.parametrize("max_parallelism", [128, 1])
def test_the_owner_may_go_on_at_every_step_of_the_write(declared, max_parallelism):
    """With a single key group, all 100 keys are in one map, which is amid a rehash."""
    own = KeyGroupRange(0, max_parallelism - 1)
    backend = make_backend(own=own, max_parallelism=max_parallelism)
    descriptors = one_of_each_kind(declared)
    for number in range(100):
        fill(backend, descriptors, number, number)
    before = [read(backend, descriptors, number) for number in range(100)]
    resources, steps = prepare(backend), iter(range(10**6))

    def go_on():
        for _ in range(20):
            step = next(steps)
            fill(backend, descriptors, step % 170, 1000 + step)
            state_of(backend, descriptors["map"], (step + 50) % 100).clear()

    handle = write(backend, resources, MemoryStreams(on_write=go_on))
    assert next(steps) > 100
    restored = restore([handle], own=own, max_parallelism=max_parallelism)
    assert [read(restored, descriptors, number) for number in range(100)] == before
    assert restored.num_key_value_state_entries() == 500


# --- faults ------------------------------------------------------------------------------------------------


STRING = Types.STRING()
COUNT = ValueStateDescriptor("count", Types.LONG())
VISITS = ListStateDescriptor("visits", STRING)

NUMBER_OF_KEYS = 40


def filled():
    """A backend with two states and 40 keys."""
    backend = make_backend(STRING)
    for number in range(NUMBER_OF_KEYS):
        state_of(backend, COUNT, f"key-{number}").update(number)
        state_of(backend, VISITS, f"key-{number}").add("x")
    return backend


@pytest.fixture
def handle():
    return take_snapshot(filled())


def flipped(data, position):
    """``data`` with one bit changed."""
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def head_size(data):
    size: int = PREFIX_SIZE + struct.unpack(">I", data[10:14])[0] + 4
    assert size < len(data)
    return size


def sections_of(handle):
    return [section for sections in handle.sections.values() for section in sections.values()]


class TestDamage:
    def test_the_undamaged_file_is_read(self, handle):
        assert restore([handle], STRING).num_key_value_state_entries() == 2 * NUMBER_OF_KEYS

    def test_any_altered_byte_of_the_head_is_found(self, handle):
        data = handle.stream.data
        for position in range(head_size(data)):
            with pytest.raises(CorruptCheckpointError, match=r"chk-1/memory is (damaged|truncated)"):
                restore([altered(handle, flipped(data, position))], STRING)

    def test_any_altered_section_is_found(self, handle):
        data = handle.stream.data
        sections = sections_of(handle)
        assert len(sections) > 20
        for section in sections:
            for position in (section.offset, section.offset + section.length - 1):
                with pytest.raises(CorruptCheckpointError, match="damaged"):
                    restore([altered(handle, flipped(data, position))], STRING)

    def test_the_message_names_file_and_state(self, handle):
        position = next(iter(handle.sections["visits"].values())).offset
        with pytest.raises(CorruptCheckpointError, match="chk-1/memory, state 'visits' is damaged"):
            restore([altered(handle, flipped(handle.stream.data, position))], STRING)

    def test_a_truncated_file_is_found(self, handle):
        data, head = handle.stream.data, head_size(handle.stream.data)
        last = max(section.offset + section.length for section in sections_of(handle))
        for length in (0, 1, PREFIX_SIZE - 1, PREFIX_SIZE, head - 1, head, last - 1):
            with pytest.raises(CorruptCheckpointError):
                restore([altered(handle, data[:length])], STRING)

    def test_a_file_of_another_kind_is_found(self, handle):
        with pytest.raises(CorruptCheckpointError, match="does not begin like a file of this kind"):
            restore([altered(handle, b"PAR1" * 1000)], STRING)

    def test_damage_in_key_groups_of_other_subtasks_is_not_looked_at(self, handle):
        section = handle.sections["count"][max(handle.sections["count"])]
        damaged = altered(handle, flipped(handle.stream.data, section.offset))
        restored = restore([damaged], STRING, KeyGroupRange(0, 63))
        assert restored.num_key_value_state_entries() > 0


class TestIncompatibility:
    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            (struct.pack(">H", 5), struct.pack(">H", 99), r"format version 99, and .* version 5"),
            (b'"LONG"', b'"LUNG"', "a type that this release does not know: 'LUNG'"),
            (b'"VALUE"', b'"FOLDS"', None),
        ],
        ids=["format version", "type", "kind of state"],
    )
    def test_what_is_unknown_here(self, handle, old, new, reason):
        data, size = handle.stream.data, head_size(handle.stream.data)
        changed = data[:8] + data[8 : size - 4].replace(old, new)
        changed += struct.pack(">I", zlib.crc32(changed)) + data[size:]
        with pytest.raises(IncompatibleCheckpointError, match=reason):
            restore([altered(handle, changed)], STRING)

    def test_a_state_that_differs_between_subtasks(self):
        handles = []
        for index, descriptor in enumerate([COUNT, ValueStateDescriptor("count", STRING)]):
            backend = make_backend(STRING, key_group_range(128, 2, index))
            backend.get_partitioned_state(descriptor)
            handles.append(take_snapshot(backend))
        with pytest.raises(IncompatibleCheckpointError, match=r"'count' is VALUE of STRING .* VALUE of LONG"):
            restore(handles, STRING)


@pytest.mark.parametrize(
    ("streams", "events"),
    [
        (MemoryStreams(fail_at_write=30), ["write", "abort"]),
        (MemoryStreams(fail_at_close=True), ["close", "abort"]),
        (MemoryStreams(fail_at_create=True), None),
    ],
    ids=["writing", "closing", "opening"],
)
def test_a_stream_that_fails_is_aborted_and_all_is_released(streams, events):
    """All versions are released: the very objects of before the snapshot are handed out."""
    backend = filled()
    keys = [f"key-{number}" for number in range(NUMBER_OF_KEYS)]
    lists = [state_of(backend, VISITS, key).get() for key in keys]
    with pytest.raises(CheckpointStorageError, match="no s"):
        write(backend, prepare(backend), streams)
    assert [stream.events[-2:] for stream in streams.created] == ([events] if events else [])
    assert all(state_of(backend, VISITS, key).get() is value for key, value in zip(keys, lists, strict=True))


def test_the_reader_of_these_tests_refuses_what_is_not_there(handle):
    with pytest.raises(CorruptCheckpointError):
        MemoryReader().read(handle.stream, len(handle.stream.data) - 1, 2)
