"""Writes a savepoint: its state files first, and ``_metadata`` last, which makes the folder a savepoint."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.backends.format import (
    END_OF_STREAM,
    OPERATOR_FILE_MAGIC,
    STATE_FILE_MAGIC,
    CheckpointMetadata,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    SectionChecks,
    SectionWriter,
    StateCodec,
    StateFileHead,
    StateReader,
    StreamStateHandle,
    decode_metas,
    is_file_name,
    is_job_id,
    read_head,
    read_section,
    write_file,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import CheckpointStorageError, ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.storage import (
    AnyPath,
    CheckpointFolder,
    CheckpointFolders,
    absolute,
    below,
    make_folder,
    open_file_system,
)
from pyflinkstate.state_access.writing.drafts import DraftState, OperatorDraft, in_columns_of

#: A section of a file, and its name for messages.
Checked = tuple[Section, str]

#: The handle of a file, and the function that yields its sections; its second argument is the file's name.
H = TypeVar("H", KeyGroupsStateHandle, OperatorStateHandle, RawOperatorStateHandle)
SectionsOf = Callable[[H, str], Iterator[Checked]]
#: The bytes of a file that are copied at once.
COPY_BYTES = 8 << 20


@contextmanager
def new_folder(path: AnyPath) -> Iterator[tuple[CheckpointFolder, str]]:
    """Make the folder of a savepoint; if what follows fails, what was written there is deleted.

    Yields:
        the folder, and its URI or absolute path.

    Raises:
        ConfigurationError: there is something at that path already, or it is inside of a job's folder.
        CheckpointStorageError: the folder cannot be created.
    """
    uri = absolute(path).rstrip("/")
    try:
        file_system, folder = open_file_system(uri)
        _check_outside_of_jobs(file_system, folder, uri)
        existed = _check_free(file_system, folder, uri)
        make_folder(file_system, folder)
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError(f"the savepoint {uri} cannot be created: {error}", path=uri) from error
    try:
        yield CheckpointFolder(below(file_system, folder), folder), uri
    except BaseException as error:
        _clear(file_system, folder, existed)
        if isinstance(error, PyFlinkStateError) or not isinstance(error, (OSError, pa.ArrowException)):
            raise
        raise CheckpointStorageError(f"the savepoint {uri} cannot be written: {error}", path=uri) from error


def _check_outside_of_jobs(file_system: fs.FileSystem, folder: str, uri: str) -> None:
    """Refuse the folder of a job and all below it, where only the job itself writes."""
    real = os.path.realpath(folder) if isinstance(file_system, fs.LocalFileSystem) else folder
    job_id = next(filter(is_job_id, real.split("/")), None)
    if job_id is not None:
        raise ConfigurationError(
            f"{uri} is inside of the folder of job {job_id}, where only that job writes: choose another path",
            path=uri,
        )


def _check_free(file_system: fs.FileSystem, folder: str, uri: str) -> bool:
    """Return whether the folder exists and is empty; refuse anything else."""
    info = file_system.get_file_info(folder)
    if info.type == fs.FileType.NotFound:
        return False
    if info.type != fs.FileType.Directory or file_system.get_file_info(fs.FileSelector(folder)):
        raise ConfigurationError(
            f"{uri} exists already, and a savepoint is never written over anything: choose another path, or "
            f"delete that yourself",
            path=uri,
        )
    return True


def _clear(file_system: fs.FileSystem, folder: str, existed: bool) -> None:
    with suppress(OSError, pa.ArrowException):
        if existed:
            file_system.delete_dir_contents(folder)
        else:
            file_system.delete_dir(folder)


def publish(metadata: CheckpointMetadata, folder: CheckpointFolder, uri: str) -> None:
    """Make a folder of state files a savepoint, also after a power cut; delete the files of failed tasks."""
    needed = {file.path for state in metadata.operators for sub in state.subtasks for file in sub.files()}
    for info in folder.file_system.get_file_info(fs.FileSelector(folder.folder)):
        if is_file_name(info.base_name) and info.base_name not in needed:
            folder.file_system.delete_file(info.path)
    CheckpointFolders(uri).complete(metadata, uri)


@attrs.frozen
class DraftWriter:
    """Writes operators that come from a checkpoint.

    Attributes:
        source: reads the files of the checkpoint.
        target: makes those of the savepoint.
    """

    source: StateReader
    target: CheckpointFolder
    _copies: dict[StreamStateHandle, StreamStateHandle] = attrs.field(factory=dict, init=False)

    def write(self, draft: OperatorDraft) -> OperatorState:
        """Write the state of an operator and return its handles.

        Raises:
            CorruptCheckpointError: a file of the checkpoint is missing, truncated or altered.
        """
        written = draft.origin.subtasks or (OperatorSubtaskState(),)
        subtasks = [self._copied(subtask, draft) for subtask in written]
        if draft.is_rewritten and draft.states:  # one file, from which every subtask restores its part
            keyed = write_file(self.target, threading.Event(), lambda writer: _write_states(writer, draft))
            subtasks[0] = attrs.evolve(subtasks[0], managed_keyed=keyed)
        return OperatorState(draft.uid, draft.origin.parallelism, draft.keys.max_parallelism, tuple(subtasks))

    def _copied(self, subtask: OperatorSubtaskState, draft: OperatorDraft) -> OperatorSubtaskState:
        """Return a subtask's state with its files copied, without keyed state if that is written anew."""
        keyed = None if draft.is_rewritten else subtask.managed_keyed
        return OperatorSubtaskState(
            self._copy(_unnumbered(keyed), self._keyed_sections),
            self._copy(_unnumbered(subtask.raw_keyed), _raw_keyed_sections),
            self._copy(kept_states(subtask.managed_operator, draft), self._operator_sections),
            self._copy(subtask.raw_operator, _raw_operator_sections),
        )

    def _keyed_sections(self, handle: KeyGroupsStateHandle, what: str) -> Iterator[Checked]:
        head = read_head(self.source, handle.stream, STATE_FILE_MAGIC)
        StateFileHead.decode(head, what)
        yield _whole(head, what)
        for name, sections in handle.sections.items():
            for key_group, section in sections.items():
                yield section, f"{what}, state {name!r}, key group {key_group}"

    def _operator_sections(self, handle: OperatorStateHandle, what: str) -> Iterator[Checked]:
        head = read_head(self.source, handle.stream, OPERATOR_FILE_MAGIC)
        decode_metas(head, what)
        yield _whole(head, what)
        for name, entry in handle.states.items():
            yield entry.section, f"{what}, operator state {name!r}"

    def _copy(self, handle: H | None, sections_of: SectionsOf[H]) -> H | None:
        """Return the handle of a copied file, whose sections were checked while they were copied."""
        if handle is None:
            return None
        stream = handle.stream
        if isinstance(stream, FileStateHandle):  # other bytes are in ``_metadata``, which has been checked
            sections = sections_of(handle, self.source.describe(stream))
            if stream not in self._copies:
                self._copies[stream] = self._copy_of_file(stream, SectionChecks(sections))
            else:
                for section, what in sections:
                    read_section(self.source, stream, section, what)
            stream = self._copies[stream]
        return attrs.evolve(handle, stream=stream)

    def _copy_of_file(self, handle: FileStateHandle, checks: SectionChecks) -> StreamStateHandle:
        def write(writer: SectionWriter) -> StreamStateHandle:
            for offset in range(0, handle.size_bytes, COPY_BYTES):
                data = self.source.read(handle, offset, min(COPY_BYTES, handle.size_bytes - offset))
                checks.take(data)
                writer.append(data)
            checks.finish()
            return writer.close()

        return write_file(self.target, threading.Event(), write)


def _unnumbered(handle: KeyGroupsStateHandle | None) -> KeyGroupsStateHandle | None:
    """Return the handle of a file that belongs to no incremental checkpoint."""
    return None if handle is None else attrs.evolve(handle, checkpoint_id=None)


def _raw_keyed_sections(handle: KeyGroupsStateHandle, what: str) -> Iterator[Checked]:
    groups = handle.sections.values()
    return ((section, f"{what}, raw state,") for sections in groups for section in sections.values())


def _raw_operator_sections(handle: RawOperatorStateHandle, what: str) -> Iterator[Checked]:
    return ((section, f"{what}, raw state,") for section in handle.partitions)


def _whole(head: bytes, what: str) -> Checked:
    """Return the head of a file, which has been checked, as a section."""
    return Section(0, len(head), zlib.crc32(head)), what


def kept_states(handle: OperatorStateHandle | None, draft: OperatorDraft) -> OperatorStateHandle | None:
    """Return the handle of a subtask's operator state without the states that are dropped."""
    if handle is None or draft.dropped.isdisjoint(handle.states):
        return handle
    kept = {name: entry for name, entry in handle.states.items() if name not in draft.dropped}
    return attrs.evolve(handle, states=kept) if kept else None


def head_of(draft: OperatorDraft) -> StateFileHead:
    """Return the head of a file with all keyed state of an operator."""
    metas = tuple(state.meta for state in draft.states.values())
    most = draft.keys.max_parallelism
    return StateFileHead(draft.keys.key_type, KeyGroupRange(0, most - 1), most, metas)


def _write_states(writer: SectionWriter, draft: OperatorDraft) -> KeyGroupsStateHandle:
    head = head_of(draft)
    writer.append(head.encode())
    sections = {name: _write_state(writer, state, draft) for name, state in draft.states.items()}
    return KeyGroupsStateHandle(head.key_group_range, writer.close(), sections)


def _write_state(writer: SectionWriter, state: DraftState, draft: OperatorDraft) -> dict[int, Section]:
    codec = StateCodec(draft.keys.key_type, state.meta)
    writer.append(codec.schema_message)
    sections = {}
    for key_group, batch in state.read():
        if batch.num_rows:
            columns = in_columns_of(state.meta, draft.keys, batch).columns
            message = codec.message(pa.record_batch(columns, schema=codec.schema))
            sections[key_group] = writer.append_section(message)
    writer.append(END_OF_STREAM)
    return sections
