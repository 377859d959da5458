"""Writes a savepoint, and finds out whether a program would restore one, without running it.

The state files are written first, and ``_metadata`` last, which makes the folder a savepoint.
What a restore checks is checked by the same code. The plan of the program is fitted to the checkpoint, and
each operator is opened on a backend that knows the checkpoint's states, without their values.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import short_repr
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    OPERATOR_FILE_MAGIC,
    STATE_FILE_MAGIC,
    ByteStreamStateHandle,
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
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import CheckpointStorageError, ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.master import Deployments, RestorePoint, fit
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.slots import SlotHost, SlotService
from pyflinkstate.runtime.storage import (
    AnyPath,
    CheckpointFolder,
    CheckpointFolders,
    absolute,
    below,
    make_folder,
    open_file_system,
)
from pyflinkstate.runtime.wire import SlotId
from pyflinkstate.state_access.writing.bootstrapping import Bootstrap
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


Operator: TypeAlias = OperatorDraft | Bootstrap
#: There is only one.
ATTEMPT = 0


@attrs.frozen
class Mismatch:
    """Why a program would not restore an operator.

    Attributes:
        uid: the operator; None if it concerns the whole job.
        state: the state, if it is about one.
        message: what is wrong, as the restore would say it.
    """

    uid: str | None
    state: str | None
    message: str = attrs.field(repr=short_repr)


@attrs.frozen
class DryRun:
    """The result of trying a program against a checkpoint.

    Attributes:
        mismatches: why it would not restore it; empty if it would.
        new_operators: the operators of the program that would begin without state.
        restored: the operators that would get state back.
    """

    mismatches: tuple[Mismatch, ...] = attrs.field(repr=short_repr)
    new_operators: tuple[str, ...] = attrs.field(repr=short_repr)
    restored: tuple[str, ...] = attrs.field(repr=short_repr)

    @property
    def is_restorable(self) -> bool:
        """Whether the program would restore the checkpoint."""
        return not self.mismatches

    def __str__(self) -> str:
        if self.is_restorable:
            return f"the program would restore {', '.join(self.restored) or 'no operator'}"
        return "\n".join(f"{found.uid or 'the job'}: {found.message}" for found in self.mismatches)


def tried(
    metadata: CheckpointMetadata,
    operators: Mapping[str, Operator],
    reader: StateReader | None,
    program: Any,
    job_name: str | None,
) -> DryRun:
    """Try a program against a savepoint.

    Args:
        metadata: the savepoint, without operators.
        operators: its operators, by uid.
        reader: reads the files of operator state.
        program: the environment in which the program was built.
        job_name: the name with which it would be executed.

    Raises:
        ConfigurationError: the program has no sink, or is not an environment.
    """
    jobs = getattr(program, "jobs", None)
    if jobs is None:
        raise ConfigurationError(
            f"a StreamExecutionEnvironment with the program's streams and sinks is needed, not {program!r}"
        )
    plan, name = jobs.preview(job_name)
    trial = _Trial(plan, name, attrs.evolve(metadata, operators=()), operators, reader or _NoFiles())
    found = tuple(trial.mismatches())
    known = {operator.operator_id for operator in plan.operators}
    restored = tuple(uid for uid in operators if uid in known)
    return DryRun(found, tuple(sorted(known.difference(restored))), restored)


@attrs.frozen
class _Trial:
    plan: JobPlan
    job_name: str
    metadata: CheckpointMetadata
    operators: Mapping[str, Operator]
    reader: StateReader

    def mismatches(self) -> Iterator[Mismatch]:
        whole = self.metadata
        refused = self._fitted(whole)
        if isinstance(refused, str):
            yield Mismatch(None, None, refused)
            whole = attrs.evolve(whole, job_name=self.job_name)
        for uid, operator in self.operators.items():
            state = _without_values(operator)
            alone = attrs.evolve(whole, operators=(state,))
            fitted = self._fitted(alone)
            if isinstance(fitted, str):
                yield Mismatch(uid, None, fitted)
            elif not state.is_empty:
                yield from self._opened(uid, fitted, alone)

    def _fitted(self, metadata: CheckpointMetadata) -> JobPlan | str:
        """Return the plan as a restore fits it to a checkpoint, or why it refuses to."""
        try:
            return fit(self.plan, self.job_name, metadata, allow_non_restored_state=False)
        except PyFlinkStateError as error:
            return error.message

    def _opened(self, uid: str, fitted: JobPlan, metadata: CheckpointMetadata) -> Iterator[Mismatch]:
        """Restore and open the one operator of the metadata, as a slot does."""
        own = tuple(operator for operator in fitted.operators if operator.operator_id == uid)
        if own:
            error = _open(attrs.evolve(fitted, operators=own), uid, metadata, self.reader)
            if error is not None:
                yield Mismatch(uid, error.context.get("state"), error.message)


class _NoFiles:
    """Reads state from the handles; a seeded operator has no files yet."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        assert isinstance(handle, ByteStreamStateHandle)
        return handle.data[offset : offset + length]

    def describe(self, handle: StreamStateHandle) -> str:
        return "the savepoint in the making"


def _open(
    plan: JobPlan, uid: str, metadata: CheckpointMetadata, reader: StateReader
) -> PyFlinkStateError | None:
    deployments = Deployments(plan, HashMapStateBackend(), None, False, None)
    deployments.begin_attempt(ATTEMPT, metadata.epoch, RestorePoint(metadata, ""))
    slot = SlotId(uid, 0)
    host = SlotHost(_ignore, _ignore, lambda: metadata.timestamp_ms, open_folder=lambda _: reader)
    service = SlotService(slot, ATTEMPT, host)
    return service.deploy(deployments.of(slot)) or service.close().error


def _ignore(_: object) -> None:
    """Ignore messages: nothing runs."""


def _without_values(operator: Operator) -> OperatorState:
    """Return an operator's state with only the names and types of its keyed states."""
    if isinstance(operator, Bootstrap):
        return operator.without_rows()
    head = head_of(operator)
    sections: dict[str, dict[int, Section]] = {meta.name: {} for meta in head.states}
    stream = ByteStreamStateHandle(head.encode())
    keyed = KeyGroupsStateHandle(head.key_group_range, stream, sections) if sections else None
    written = operator.origin.subtasks or (OperatorSubtaskState(),)
    subtasks = [
        attrs.evolve(
            subtask,
            managed_keyed=keyed if number == 0 else None,
            managed_operator=kept_states(subtask.managed_operator, operator),
        )
        for number, subtask in enumerate(written)
    ]
    return attrs.evolve(
        operator.origin,
        operator_id=operator.uid,
        max_parallelism=head.max_parallelism,
        subtasks=tuple(subtasks),
    )
