"""Checks all of a checkpoint: every file, every checksum, and files that nobody needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from contextlib import contextmanager

import attrs
from pyarrow import fs

from pyflinkstate.api import short_repr
from pyflinkstate.backends.format import (
    SHARED_PREFIX,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorSubtaskState,
    Section,
    StateReader,
    StreamStateHandle,
    read_section,
)
from pyflinkstate.errors import CheckpointError, CheckpointNotFoundError, CorruptCheckpointError
from pyflinkstate.runtime.storage import (
    METADATA,
    AnyPath,
    CheckpointFolder,
    CheckpointFolders,
    child_uri,
    open_folder,
    path_text,
)
from pyflinkstate.state_access.checkpoint import CountingReader, Located, OnRead, jobs_at, locate
from pyflinkstate.state_access.keyed_state import opened_file
from pyflinkstate.state_access.tables import OperatorStates


@attrs.define
class Verification:
    """The result of :func:`verify`.

    Attributes:
        checkpoints: the folders that were checked.
        files: the number of files, without ``_metadata``.
        bytes_read: the number of bytes of state that were read.
        problems: what is damaged, missing or of another version, in words; the state cannot be restored from
            there.
        unneeded: files and folders that no completed checkpoint needs, such as those of one that is being
            written.
    """

    checkpoints: list[str] = attrs.field(factory=list, repr=short_repr)
    files: int = 0
    bytes_read: int = 0
    problems: list[str] = attrs.field(factory=list, repr=short_repr)
    unneeded: list[str] = attrs.field(factory=list, repr=short_repr)

    @property
    def is_sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def verify(path: AnyPath, on_read: OnRead | None = None) -> Verification:
    """Read every byte of a checkpoint, or of all checkpoints in a job's folder, and check it.

    Args:
        path: the folder of a checkpoint, a savepoint or a job, or a checkpoint directory.
        on_read: called with the number of bytes of each read.

    Raises:
        CheckpointNotFoundError: there is no completed checkpoint.
        ConfigurationError: ``path`` is not a path.
    """
    path, result = path_text(path), Verification()
    try:
        storage, job_ids = jobs_at(path)
    except CheckpointError:
        job_ids = []
    if not job_ids:
        with _noted(result.problems):
            _check(locate(path), result, on_read)
        return result
    for job_id in job_ids:
        _verify_job(storage, job_id, result, on_read)
    if not result.checkpoints and not result.problems:
        raise CheckpointNotFoundError(f"{path} has no completed checkpoint", path=path)
    return result


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Add the error of a block to the problems, unless it means that there is no checkpoint."""
    try:
        yield
    except CheckpointNotFoundError:
        raise
    except CheckpointError as error:
        if error.message not in problems:
            problems.append(error.message)


def _verify_job(
    storage: CheckpointFolders, job_id: str, result: Verification, on_read: OnRead | None
) -> None:
    needed: set[str] = set()
    completed, before = storage.completed(job_id), len(result.problems)
    uris = [storage.uri_of(job_id, checkpoint_id) for checkpoint_id in completed]
    for uri in (*uris, *storage.superseded(job_id)):
        needed |= _checked(storage, uri, result, on_read)
    if len(result.problems) == before:  # a damaged checkpoint does not say what it needs
        shared = [name.removeprefix(SHARED_PREFIX) for name in sorted(storage.shared_paths(job_id) - needed)]
        result.unneeded += [child_uri(storage.uri, job_id, "shared", name) for name in shared]
    for checkpoint_id in storage.checkpoint_ids(job_id):
        if checkpoint_id not in completed:
            result.unneeded.append(storage.uri_of(job_id, checkpoint_id))


def _checked(storage: CheckpointFolders, uri: str, result: Verification, on_read: OnRead | None) -> set[str]:
    """Check a checkpoint of a job; return the paths of its files."""
    try:
        with _noted(result.problems):
            return _check((storage.load(uri), uri), result, on_read)
    except CheckpointNotFoundError:
        result.unneeded.append(uri)  # one that was set aside before it was complete
    return set()


def _check(located: Located, result: Verification, on_read: OnRead | None) -> set[str]:
    metadata, uri = located
    folder = open_folder(uri)
    reader = CountingReader(folder, on_read=on_read)
    result.checkpoints.append(uri)
    files: dict[str, FileStateHandle] = {}
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            _check_subtask(operator, subtask, reader, result.problems)
        files |= {file.path: file for subtask in operator.subtasks for file in subtask.files()}
    result.files += len(files)
    result.problems += filter(None, (_wrong_size(folder, handle) for handle in files.values()))
    result.bytes_read += reader.bytes_read
    result.unneeded += _strangers(folder, files)
    return set(files)


def _check_subtask(
    operator: OperatorState, subtask: OperatorSubtaskState, reader: StateReader, problems: list[str]
) -> None:
    """Read all files of a subtask, and note what is wrong with them."""
    keyed, lists = subtask.managed_keyed, subtask.managed_operator
    for handle in () if keyed is None else (keyed, *keyed.increments):
        with _noted(problems):
            _check_keyed(operator, handle, reader, problems)
    if lists is not None:
        with _noted(problems):
            alone = OperatorSubtaskState(managed_operator=lists)
            states = OperatorStates(attrs.evolve(operator, subtasks=(alone,)), reader)
            for name in states.written:
                deque(states.table(name).to_batches(), maxlen=0)
    for stream, sections in _raw(subtask):
        for section in sections:
            with _noted(problems):
                read_section(reader, stream, section, f"{reader.describe(stream)}, raw state,")


def _check_keyed(
    operator: OperatorState, handle: KeyGroupsStateHandle, reader: StateReader, problems: list[str]
) -> None:
    file = opened_file(operator, handle, reader)
    for name, sections in handle.sections.items():
        with _noted(problems):
            meta = file.meta_of(name)
            if meta is None:
                raise CorruptCheckpointError(f"{file.what} is damaged: it lacks state {name!r}")
            codec = file.head.codec(meta)
            for key_group, section in sections.items():
                with _noted(problems):
                    data = reader.read(handle.stream, section.offset, section.length)
                    codec.read(data, section.checksum, f"{file.what}, state {name!r}, key group {key_group}")


def _raw(subtask: OperatorSubtaskState) -> Iterator[tuple[StreamStateHandle, list[Section]]]:
    if subtask.raw_keyed is not None:
        groups = subtask.raw_keyed.sections.values()
        yield subtask.raw_keyed.stream, [section for group in groups for section in group.values()]
    if subtask.raw_operator is not None:
        yield subtask.raw_operator.stream, list(subtask.raw_operator.partitions)


def _wrong_size(folder: CheckpointFolder, handle: FileStateHandle) -> str | None:
    """Return the problem with the size of a file. Missing files were found before."""
    what = folder.describe(handle)
    info = folder.file_system.get_file_info(what)
    if info.type == fs.FileType.NotFound or info.size == handle.size_bytes:
        return None
    return f"{what} has {info.size} bytes, and the checkpoint says {handle.size_bytes}"


def _strangers(folder: CheckpointFolder, files: Container[str]) -> list[str]:
    """Return the files in a checkpoint's folder that are not its own."""
    infos = folder.file_system.get_file_info(fs.FileSelector(folder.folder))
    return sorted(info.path for info in infos if info.base_name not in files and info.base_name != METADATA)
