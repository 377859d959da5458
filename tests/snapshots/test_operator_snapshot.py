"""Snapshots of all state of a subtask: four results in one, all of them or none, on local storage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from operator_support import HookedStreams, Pause, in_thread, join
from pyarrow import fs

from pyflinkstate import (
    HashMapStateBackend,
    ListStateDescriptor,
    MapStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format.metadata import (
    OperatorSubtaskState,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.backends.snapshots import OperatorSnapshotFutures, SnapshotCancelledError, SnapshotTask
from pyflinkstate.errors import CheckpointStorageError, ConfigurationError
from pyflinkstate.runtime.operators.operators import RawOutputs, StreamOperatorState
from pyflinkstate.runtime.storage.streams import CheckpointFolder

KINDS = ("managed_keyed", "raw_keyed", "managed_operator", "raw_operator")

VALUES = ValueStateDescriptor("values", Types.LIST(Types.LONG()))
OFFSETS = ListStateDescriptor("offsets", Types.LIST(Types.LONG()))
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
ANYTHING = ListStateDescriptor("anything")


@attrs.define
class Subtask:
    """One subtask's state of all four kinds, and what it wrote of them."""

    settings: HashMapStateBackend = attrs.Factory(HashMapStateBackend)
    state: StreamOperatorState = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        keyed = self.settings.create_keyed_state_backend(
            Types.STRING(), KeyGroupRange(0, 127), 128, lambda: 0
        )
        operator = self.settings.create_operator_state_backend()
        self.state = StreamOperatorState(keyed, operator, self.settings.snapshot_compression)

    def value(self, key: str) -> Any:
        self.state.keyed.set_current_key(key)
        return self.state.keyed.get_partitioned_state(VALUES)

    def fill(self) -> Subtask:
        for number in range(200):
            self.value(f"key-{number}").update([number] * 20)
        self.state.operator.get_list_state(OFFSETS).update([[number] for number in range(200)])
        self.state.operator.get_broadcast_state(RULES).put("limit", 10)
        return self

    def outputs(self) -> RawOutputs:
        outputs = self.state.raw_outputs()
        outputs.keyed.start_new_key_group(5)
        outputs.keyed.write(b"raw keyed" * 20)
        outputs.operator.write(b"raw operator" * 20)
        return outputs

    def begin(self, streams: Any) -> OperatorSnapshotFutures:
        return self.state.snapshot(self.outputs(), streams)

    def restore(self, written: OperatorSubtaskState, reader: Any) -> Subtask:
        (assignment,) = assign_state([written], 1, 128)
        self.state.restore(assignment, reader)
        return self

    def content(self) -> dict[str, Any]:
        operator = self.state.operator
        return {
            "keyed": {key: self.value(key).value() for key in self.state.keyed.get_keys("values")},
            "offsets": list(operator.get_list_state(OFFSETS).get()),
            "rules": dict(operator.get_broadcast_state(RULES).items()),
            "raw": (self.state.raw_keyed, self.state.raw_operator),
        }


FILLED = {
    "keyed": {f"key-{number}": [number] * 20 for number in range(200)},
    "offsets": [[number] for number in range(200)],
    "rules": {"limit": 10},
    "raw": (((5, b"raw keyed" * 20),), (b"raw operator" * 20,)),
}


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    """Storage that keeps nothing inline and writes at once."""
    return CheckpointFolder(fs.LocalFileSystem(), str(tmp_path), 0, 0)


def files(folder: CheckpointFolder) -> dict[str, int]:
    """Return the sizes of all files, by name."""
    return {path.name: path.stat().st_size for path in Path(folder.folder).iterdir()}


# --- all of them -----------------------------------------------------------------------------------


def test_four_results_become_one_and_are_restored(folder: CheckpointFolder) -> None:
    written = Subtask().fill().begin(folder).finish()
    streams = [getattr(written, kind).stream for kind in KINDS]
    assert {stream.path: stream.size_bytes for stream in streams} == files(folder)
    assert len(files(folder)) == 4
    assert written.size_bytes == sum(files(folder).values())
    assert Subtask().restore(written, folder).content() == FILLED


def test_a_subtask_without_state_writes_nothing(folder: CheckpointFolder) -> None:
    state = Subtask().state
    written = state.snapshot(state.raw_outputs(), folder).finish()
    assert written == OperatorSubtaskState()
    assert written.size_bytes == 0
    assert files(folder) == {}


def test_what_changes_after_the_synchronous_part_is_not_in_the_snapshot(folder: CheckpointFolder) -> None:
    subtask = Subtask().fill()
    snapshot = subtask.begin(folder)
    subtask.value("key-1").value().append(99)
    subtask.value("key-2").clear()
    next(iter(subtask.state.operator.get_list_state(OFFSETS).get())).append(99)
    subtask.state.operator.get_broadcast_state(RULES).clear()
    assert Subtask().restore(snapshot.finish(), folder).content() == FILLED


# --- one fails -------------------------------------------------------------------------------------


def fail_in(kind: str) -> Callable[[OperatorSnapshotFutures], None]:
    """Return what has one of the four raise when it is written."""

    def fail(cancelled: threading.Event) -> None:
        raise CheckpointStorageError(f"no space left for {kind}")

    return lambda snapshot: object.__setattr__(snapshot, kind, SnapshotTask(fail, lambda: None))


@pytest.mark.parametrize("failing", KINDS)
def test_when_one_fails_its_error_is_raised_and_the_others_are_ended_and_leave_no_file(
    folder: CheckpointFolder, failing: str
) -> None:
    subtask = Subtask().fill()
    snapshot = subtask.begin(folder)
    fail_in(failing)(snapshot)
    with pytest.raises(CheckpointStorageError, match=f"no space left for {failing}"):
        snapshot.finish()
    assert all(getattr(snapshot, kind).is_done for kind in KINDS)
    for kind in KINDS[KINDS.index(failing) + 1 :]:
        with pytest.raises(SnapshotCancelledError):
            getattr(snapshot, kind).result()
    assert files(folder) == {}
    assert Subtask().restore(subtask.begin(folder).finish(), folder).content() == FILLED, "the next is whole"


def test_files_that_cannot_be_deleted_do_not_hide_why_the_snapshot_failed(folder: CheckpointFolder) -> None:
    def fail(cancelled: threading.Event) -> None:
        for path in Path(folder.folder).iterdir():
            path.unlink()
        raise CheckpointStorageError("no space left")

    snapshot = Subtask().fill().begin(folder)
    object.__setattr__(snapshot, "raw_operator", SnapshotTask(fail, lambda: None))
    with pytest.raises(CheckpointStorageError, match="no space left"):
        snapshot.finish()


@pytest.mark.parametrize("write", [1, 2, 4, 40])
def test_storage_that_fails_at_any_write_leaves_no_half_of_a_file(
    folder: CheckpointFolder, write: int
) -> None:
    def fail(number: int) -> None:
        if number == write:
            raise CheckpointStorageError("no space left")

    subtask = Subtask().fill()
    kept = subtask.value("key-1").value()
    streams = HookedStreams(folder, fail)
    with pytest.raises(CheckpointStorageError, match="no space left"):
        subtask.begin(streams).finish()
    assert streams.writes == write
    assert files(folder) == {}
    assert subtask.value("key-1").value() is kept, "the snapshot was released"


def test_a_synchronous_part_that_fails_leaves_no_keyed_snapshot_open(folder: CheckpointFolder) -> None:
    subtask = Subtask().fill()
    kept = subtask.value("key-1").value()
    subtask.state.operator.get_list_state(ANYTHING).add(threading.Lock())  # cannot even be copied
    with pytest.raises(Exception, match="lock"):
        subtask.begin(folder).finish()
    assert subtask.value("key-1").value() is kept
    assert files(folder) == {}


# --- cancelled -------------------------------------------------------------------------------------


def test_cancelled_before_it_is_written_it_leaves_no_file_and_no_open_snapshot(
    folder: CheckpointFolder,
) -> None:
    subtask = Subtask().fill()
    kept = subtask.value("key-1").value()
    snapshot = subtask.begin(folder)
    snapshot.cancel()
    snapshot.cancel()
    with pytest.raises(SnapshotCancelledError):
        snapshot.finish()
    assert files(folder) == {}
    assert subtask.value("key-1").value() is kept


def test_disposing_of_the_state_cancels_what_is_managed_and_takes_no_more(folder: CheckpointFolder) -> None:
    subtask = Subtask().fill()
    snapshot = subtask.begin(folder)
    subtask.state.dispose()
    for task in (snapshot.managed_keyed, snapshot.managed_operator):
        assert task.is_done
        with pytest.raises(SnapshotCancelledError):
            task.result()
    with pytest.raises(SnapshotCancelledError):
        subtask.begin(folder)


@pytest.mark.parametrize("files_begun", range(4))
@pytest.mark.parametrize("end", ["cancel", "dispose"])
def test_stopped_while_it_is_written_it_leaves_no_file(
    folder: CheckpointFolder, end: str, files_begun: int
) -> None:
    subtask, pause, ended = Subtask().fill(), Pause(), []

    def reach_the_moment(_: int) -> None:
        if len(files(folder)) == files_begun:
            pause.pass_through()

    snapshot = subtask.begin(HookedStreams(folder, reach_the_moment))

    def finish() -> None:
        with pytest.raises(SnapshotCancelledError) as caught:
            snapshot.finish()
        ended.append(caught.value)

    writer = in_thread(finish)
    pause.await_reached()
    if end == "cancel":
        snapshot.cancel()
    else:
        subtask.state.dispose()
    pause.go_on()
    join(writer)
    assert len(ended) == 1
    assert files(folder) == {}
    assert all(getattr(snapshot, kind).is_done for kind in KINDS)


# --- settings of the state backend -----------------------------------------------------------------


@pytest.mark.parametrize("async_snapshots", [True, False])
def test_keyed_state_is_written_when_the_settings_say(
    folder: CheckpointFolder, async_snapshots: bool
) -> None:
    subtask = Subtask(HashMapStateBackend(async_snapshots=async_snapshots)).fill()
    snapshot = subtask.begin(folder)
    assert snapshot.managed_keyed.is_done is not async_snapshots
    assert len(files(folder)) == (0 if async_snapshots else 1)
    subtask.value("key-1").update([99])
    subtask.value("new").update([99])
    assert Subtask().restore(snapshot.finish(), folder).content() == FILLED


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_every_compression_is_used_for_managed_state_and_restored_under_every_other(
    folder: CheckpointFolder, compression: str | None
) -> None:
    written = Subtask(HashMapStateBackend(snapshot_compression=compression)).fill().begin(folder).finish()
    magic = {"zstd": b"\x28\xb5\x2f\xfd", "lz4": b"\x04\x22\x4d\x18"}
    for kind in ("managed_keyed", "managed_operator"):
        data = Path(folder.folder, getattr(written, kind).stream.path).read_bytes()
        assert [name for name, mark in magic.items() if mark in data] == [compression] * bool(compression)
    for other in ("zstd", "lz4", None):
        again = Subtask(HashMapStateBackend(snapshot_compression=other))
        assert again.restore(written, folder).content() == FILLED


@pytest.mark.parametrize("name", ["gzip", "ZSTD", "", 3, ["zstd"]], ids=repr)
def test_a_compression_that_there_is_not_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be 'zstd', 'lz4' or None"):
        HashMapStateBackend(snapshot_compression=name)
