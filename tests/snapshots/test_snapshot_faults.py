"""Faults: damaged files, checkpoints of another program, storage that fails, checkpoints cancelled."""

import struct
import threading
import zlib

import pytest
from backend_support import (
    MemoryReader,
    MemoryStreams,
    altered,
    make_backend,
    prepare,
    restore,
    state_of,
    take_snapshot,
    write,
)

from pyflinkstate import ListStateDescriptor, Types, ValueStateDescriptor
from pyflinkstate.backends.format.framing import PREFIX_SIZE
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.errors import (
    CheckpointStorageError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    SnapshotCancelledError,
)

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


def assert_nothing_is_copied_any_more(backend, lists):
    """All versions are released: the very objects of before the snapshot are handed out."""
    for key, value in lists.items():
        assert state_of(backend, VISITS, key).get() is value


def live_lists(backend):
    keys = [f"key-{number}" for number in range(NUMBER_OF_KEYS)]
    return {key: state_of(backend, VISITS, key).get() for key in keys}


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
    def test_another_format_version(self, handle):
        data = handle.stream.data
        size = head_size(data)
        head = data[:8] + struct.pack(">H", 99) + data[10 : size - 4]
        newer = head + struct.pack(">I", zlib.crc32(head)) + data[size:]
        with pytest.raises(
            IncompatibleCheckpointError, match=r"format version 99, and .* version 5"
        ) as error:
            restore([altered(handle, newer)], STRING)
        assert error.value.context == {"file": "chk-1/memory", "version": 99}

    def test_a_state_that_differs_between_subtasks(self):
        handles = []
        for index, descriptor in enumerate([COUNT, ValueStateDescriptor("count", STRING)]):
            backend = make_backend(STRING, key_group_range(128, 2, index))
            backend.get_partitioned_state(descriptor)
            handles.append(take_snapshot(backend))
        with pytest.raises(IncompatibleCheckpointError, match=r"'count' is VALUE of STRING .* VALUE of LONG"):
            restore(handles, STRING)

    def test_a_type_that_is_unknown_here(self, handle):
        data, head = handle.stream.data, head_size(handle.stream.data)
        changed = data[: head - 4].replace(b'"LONG"', b'"LUNG"')
        changed += struct.pack(">I", zlib.crc32(changed)) + data[head:]
        with pytest.raises(
            IncompatibleCheckpointError, match="a type that this release does not know: 'LUNG'"
        ):
            restore([altered(handle, changed)], STRING)

    def test_a_kind_of_state_that_is_unknown_here(self, handle):
        data, head = handle.stream.data, head_size(handle.stream.data)
        changed = data[: head - 4].replace(b'"VALUE"', b'"FOLDS"')
        changed += struct.pack(">I", zlib.crc32(changed)) + data[head:]
        with pytest.raises(IncompatibleCheckpointError):
            restore([altered(handle, changed)], STRING)


class TestCancellation:
    @pytest.mark.parametrize("after", [1, 3, 20, 40])
    def test_it_may_be_cancelled_at_any_piece(self, after):
        backend = filled()
        lists, cancelled, writes = live_lists(backend), threading.Event(), iter(range(1, 10**6))

        def cancel():
            if next(writes) == after:
                cancelled.set()

        streams = MemoryStreams(on_write=cancel)
        with pytest.raises(SnapshotCancelledError):
            write(backend, prepare(backend), streams, cancelled)
        *written, last = streams.created[0].events
        assert last == "abort"
        assert after <= written.count("write") == len(written) <= after + 1
        assert_nothing_is_copied_any_more(backend, lists)


class TestStorageThatFails:
    @pytest.mark.parametrize("at_write", [1, 2, 3, 30, 50])
    def test_a_stream_that_fails_in_the_middle_is_aborted_and_all_is_released(self, at_write):
        backend = filled()
        lists, streams = live_lists(backend), MemoryStreams(fail_at_write=at_write)
        with pytest.raises(CheckpointStorageError, match="no space left"):
            write(backend, prepare(backend), streams)
        assert streams.created[0].events == ["write"] * at_write + ["abort"]
        assert_nothing_is_copied_any_more(backend, lists)

    def test_a_stream_that_fails_to_close_is_aborted_and_all_is_released(self):
        backend = filled()
        lists, streams = live_lists(backend), MemoryStreams(fail_at_close=True)
        with pytest.raises(CheckpointStorageError):
            write(backend, prepare(backend), streams)
        assert streams.created[0].events[-2:] == ["close", "abort"]
        assert_nothing_is_copied_any_more(backend, lists)

    def test_all_is_released_when_no_stream_can_be_made(self):
        backend = filled()
        lists = live_lists(backend)
        with pytest.raises(CheckpointStorageError, match="no such directory"):
            write(backend, prepare(backend), MemoryStreams(fail_at_create=True))
        assert_nothing_is_copied_any_more(backend, lists)


def test_the_reader_of_these_tests_refuses_what_is_not_there(handle):
    with pytest.raises(CorruptCheckpointError):
        MemoryReader().read(handle.stream, len(handle.stream.data) - 1, 2)
