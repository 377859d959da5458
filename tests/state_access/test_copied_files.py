"""Files that a savepoint takes over from a checkpoint are copied whole, and checked on the way."""

import os
import threading
from pathlib import Path

import pytest
from backend_support import fill, make_backend, one_of_each_kind
from operator_support import NUMBERS, RULES, prepare
from read_support import JOB_ID, UID, metadata_of, operator_of, state_file, write

from pyflinkstate import Types
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.heap import snapshot_runner
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import RawKeyedStateBuffer, RawOperatorStateBuffer
from pyflinkstate.errors import CorruptCheckpointError
from pyflinkstate.runtime.storage import CheckpointFolders, FileSystemCheckpointStorage
from pyflinkstate.state_access import open_checkpoint, verify
from pyflinkstate.state_access.writing import edit, saving

FILES = ["managed_keyed", "raw_keyed", "managed_operator", "raw_operator"]


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of one subtask with a file of each kind."""
    storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path), file_state_size_threshold=0))
    path, never = storage.begin(JOB_ID, 1), threading.Event()
    streams = storage.streams(path)
    backend, lists = make_backend(Types.STRING()), DefaultOperatorStateBackend()
    for number in range(30):
        fill(backend, one_of_each_kind(lambda declared: declared), f"k{number}", number)
    lists.get_list_state(NUMBERS).add_all([*range(1000)])
    lists.get_broadcast_state(RULES).put("rule", 1)
    tasks = [snapshot_runner(backend).snapshot(streams), prepare(lists, streams=streams)]
    for task in tasks:
        task.run()
    keyed, partitioned = RawKeyedStateBuffer(KeyGroupRange(0, 127)), RawOperatorStateBuffer()
    for key_group, data in {3: b"raw " * 50, 5: b"", 9: b"keyed"}.items():
        keyed.start_new_key_group(key_group)
        keyed.write(data)
    for data in (b"raw " * 50, b"", b"operator"):
        partitioned.start_new_partition()
        partitioned.write(data)
    state = OperatorSubtaskState(
        tasks[0].result(),
        keyed.snapshot().write(streams, never),
        tasks[1].result(),
        partitioned.snapshot().write(streams, never),
    )
    storage.complete(metadata_of([operator_of([state])]))
    return path


def sections_of(folder, name):
    """Return the sections of a file, by its attribute in a subtask's state."""
    (state,) = open_checkpoint(folder).operator(UID).subtasks
    handle = getattr(state, name)
    if name == "raw_operator":
        return handle.partitions
    if name == "managed_operator":
        return [entry.section for entry in handle.states.values()]
    return [section for sections in handle.sections.values() for section in sections.values()]


def content(checkpoint, name):
    (state,) = checkpoint.metadata.operators[0].subtasks
    stream = getattr(state, name).stream
    return checkpoint.reader.read(stream, 0, stream.size_bytes)


def alter(folder, name, place):
    (state,) = open_checkpoint(folder).operator(UID).subtasks
    file = Path(folder) / getattr(state, name).stream.path
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    return file.name


@pytest.mark.parametrize("copy_bytes", [7, 1000, saving.COPY_BYTES])
def test_files_are_copied_as_they_are(tmp_path, monkeypatch, folder, copy_bytes):
    monkeypatch.setattr(saving, "COPY_BYTES", copy_bytes)
    written = edit(folder).rename_uid(UID, "other").write(tmp_path / "s")
    for name in FILES:
        assert content(written, name) == content(open_checkpoint(folder), name)
    assert verify(written.uri).is_sound


@pytest.mark.parametrize("copy_bytes", [100, saving.COPY_BYTES])
@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("name", FILES)
def test_a_section_that_was_altered_is_not_copied(tmp_path, monkeypatch, folder, name, which, copy_bytes):
    monkeypatch.setattr(saving, "COPY_BYTES", copy_bytes)
    section = sections_of(folder, name)[which]
    changed = edit(folder)
    file = alter(folder, name, section.offset + section.length // 2)
    with pytest.raises(CorruptCheckpointError, match=f"{file}.* is damaged: its bytes were altered"):
        changed.write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["managed_keyed", "managed_operator"])
def test_a_head_that_was_altered_is_not_copied(tmp_path, folder, name):
    changed = edit(folder)
    file = alter(folder, name, 30)
    with pytest.raises(CorruptCheckpointError, match=f"{file} is damaged: its head was altered"):
        changed.write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_what_is_dropped_needs_no_check(tmp_path, folder):
    names = list(open_checkpoint(folder).operator(UID).subtasks[0].managed_operator.states)
    first = sections_of(folder, "managed_operator")[0]
    changed = edit(folder).drop_state(UID, names[0])
    alter(folder, "managed_operator", first.offset + first.length // 2)
    written = changed.write(tmp_path / "s")
    assert list(written.operator(UID).subtasks[0].managed_operator.states) == names[1:]


@pytest.mark.parametrize("change", ["altered", "cut", "gone", "a link", "a pipe"])
def test_a_file_that_changes_after_it_was_verified_is_found_out_when_it_is_read(tmp_path, change):
    folder = write(tmp_path, {"a": 1, "b": 2})
    checkpoint = open_checkpoint(folder)
    assert verify(folder).is_sound
    file = state_file(folder)
    data = file.read_bytes()
    file.unlink()
    if change == "altered":
        file.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    elif change == "cut":
        file.write_bytes(data[:-30])
    elif change == "a link":
        (tmp_path / "elsewhere").write_bytes(data)
        file.symlink_to(tmp_path / "elsewhere")
    elif change == "a pipe":
        os.mkfifo(file)
    with pytest.raises(CorruptCheckpointError):
        checkpoint.keyed(UID).to_arrow()
