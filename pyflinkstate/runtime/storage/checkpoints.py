"""Checkpoint storage on any file system that ``pyarrow.fs`` knows.

The layout is Flink's: ``<directory>/<job id>/chk-<n>/{_metadata, up to four files per subtask and
operator}``. Next to these folders are ``shared/`` with the files that incremental checkpoints share,
``runs/`` with the claims of drivers, and ``superseded-<run>-chk-<n>/`` with checkpoints that a run has set
aside. These are at the same depth as the others, so that relative paths to shared files are still valid. A
checkpoint exists if its ``_metadata`` does, which is written after everything else. It appears whole: by a
rename, or on an object store as every object does.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
import uuid
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from typing import TypeAlias, TypeVar
from urllib.parse import unquote

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import JsonObject, Position
from pyflinkstate.backends.format import (
    FLINKS_MAGIC,
    SHARED_PREFIX,
    CheckpointMetadata,
    is_file_name,
    is_job_id,
    is_state_path,
    written_by,
)
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    CheckpointStorageError,
    CorruptCheckpointError,
)
from pyflinkstate.runtime.storage.file_systems import (
    MOST_NOTE_BYTES,
    OBJECT_STORES,
    AnyPath,
    absolute,
    below,
    child_uri,
    flush_folder,
    is_uri,
    make_folder,
    name_of_unfinished,
    open_file_system,
    read_note,
    remove_empty,
    split_options,
    write_whole,
)
from pyflinkstate.runtime.storage.runs import RunHistory, TakenOver, is_run_id, sorted_runs
from pyflinkstate.runtime.storage.streams import (
    METADATA,
    CheckpointFolder,
    FileSystemCheckpointStorage,
    storage_errors,
)

SHARED_FOLDER = "shared"
OFFSETS_FOLDER = "offsets"
HISTORY = "checkpoints.json"
RUNS_FOLDER = "runs"
#: The greatest ``_metadata`` that is written and read; state of up to 20 KiB a file is in it.
MOST_METADATA_BYTES = 1 << 28
#: Number of set-aside checkpoints of a job that are kept, and for how long, counted from when each was taken.
MOST_ASIDE = 32
MOST_ASIDE_MS = 30 * 24 * 3600 * 1000
#: Number of further attempts if a listed checkpoint is gone when it is read, as a running job replaced it.
LOOKS = 5

_T = TypeVar("_T")
#: A checkpoint, and the URI or path of its folder.
Located: TypeAlias = tuple[CheckpointMetadata, str]

_log = logging.getLogger("pyflinkstate.checkpoints")

_END_OF_PLAN = b"\n"
_CHECKPOINT_FOLDER = re.compile(r"chk-(\d+)")
_SUPERSEDED_FOLDER = re.compile(r"superseded-.+-chk-(\d+)")


class CheckpointFolders:
    """Reads and writes checkpoints below one directory; ``opened`` is its file system and path, if known."""

    def __init__(
        self,
        settings: FileSystemCheckpointStorage | str,
        opened: tuple[fs.FileSystem, str] | None = None,
    ) -> None:
        if isinstance(settings, str):
            settings = FileSystemCheckpointStorage(settings)
        self.settings = settings
        self.uri = settings.checkpoint_path
        with storage_errors(f"open {self.uri}"):
            file_system, self._root = opened or open_file_system(self.uri)
        self._fs = below(file_system, self._root)

    def check_writable(self) -> None:
        """Write and remove a small file, so that a bad directory is found before any record."""
        path = f"{self._root}/.pyflinkstate-{uuid.uuid4().hex}"
        with storage_errors(f"write to {self.uri}"):
            make_folder(self._fs, self._root)
            try:
                with self._fs.open_output_stream(path) as stream:
                    stream.write(b"writable")
            finally:
                with suppress(FileNotFoundError):
                    self._fs.delete_file(path)

    # --- checkpoints ---------------------------------------------------------------------------

    def uri_of(self, job_id: str, checkpoint_id: int) -> str:
        """Return the URI (or path) of a checkpoint's folder, for another process to open."""
        return child_uri(self.uri, job_id, f"chk-{checkpoint_id}")

    def begin(self, job_id: str, checkpoint_id: int, shared: bool = False) -> str:
        """Create the folder of a new checkpoint and, on request, the ``shared`` one; return its URI."""
        uri = self.uri_of(job_id, checkpoint_id)
        if shared:
            self._make_folder(child_uri(self.uri, job_id, SHARED_FOLDER))
        try:
            self._make_folder(uri)
        except CheckpointStorageError:
            remove_empty(*self._locate(uri))  # it was perhaps created, but may not be durable
            raise
        return uri

    def begin_savepoint(self, directory: str, job_id: str) -> str:
        """Create a new folder for a savepoint below any ``directory``, and return its URI."""
        uri = child_uri(absolute(directory), f"savepoint-{job_id[:6]}-{uuid.uuid4().hex[:12]}")
        self._make_folder(uri)
        return uri

    def _make_folder(self, uri: str) -> None:
        file_system, path = self._locate(uri)
        with storage_errors(f"create {uri}"):
            make_folder(file_system, path)

    def complete(
        self, metadata: CheckpointMetadata, uri: str | None = None, has_shared: bool = False
    ) -> None:
        """Publish ``_metadata``: from now on the checkpoint exists, even after a power cut.

        The subtasks have flushed their files. The folders of these files are flushed here, once for all
        files, before the metadata.

        Args:
            metadata: the metadata of the checkpoint.
            uri: the URI of its folder, if it is not in the job's own.
            has_shared: whether it needs files in the job's shared folder.
        """
        file_system, folder = self._locate(uri or self.uri_of(metadata.job_id, metadata.checkpoint_id))
        with storage_errors(f"complete {folder}"):
            if _exists(file_system, f"{folder}/{METADATA}"):
                raise FileExistsError(f"{folder}/{METADATA} already exists")
            flush_folder(file_system, folder)
            if has_shared:
                flush_folder(self._fs, f"{self._root}/{metadata.job_id}/{SHARED_FOLDER}")
            data = metadata.encode()
            if len(data) > MOST_METADATA_BYTES:
                raise CheckpointStorageError(
                    f"checkpoint storage: {folder}/{METADATA} would have {len(data)} bytes, and no more than "
                    f"{MOST_METADATA_BYTES} are read: lower file_state_size_threshold, so that more state is "
                    f"in files of its own"
                )
            write_whole(file_system, f"{folder}/{METADATA}", data)
            flush_folder(file_system, folder)

    def make_durable(self, uri: str) -> None:
        """Make sure that a checkpoint which exists does so after a power cut too.

        Who published it may have been killed in between. A folder that this program may not open belongs to
        somebody else, who has to answer for it.
        """
        file_system, folder = self._locate(uri)
        for path in (folder, posixpath.dirname(folder)):
            with storage_errors(f"flush {path}"), suppress(PermissionError):
                flush_folder(file_system, path)

    def discard(self, uri: str) -> None:
        """Delete a checkpoint, ``_metadata`` first, so that a half-deleted one does not count as complete."""
        file_system, folder = self._locate(uri)
        with storage_errors(f"delete {folder}"):
            if _exists(file_system, f"{folder}/{METADATA}"):
                file_system.delete_file(f"{folder}/{METADATA}")
            if _exists(file_system, folder):
                flush_folder(file_system, folder)  # even if it was deleted before: that flush may have failed
                file_system.delete_dir(folder)

    def discard_shared(self, job_id: str, paths: Iterable[str]) -> None:
        """Delete files that incremental checkpoints shared; the paths are as in their handles."""
        for path in paths:
            with storage_errors(f"delete {path}"), suppress(FileNotFoundError):
                if not (path.startswith(SHARED_PREFIX) and is_state_path(path)):
                    raise CorruptCheckpointError(
                        f"{path} is not a shared file of a job, so it is not deleted", file=path
                    )
                self._fs.delete_file(
                    f"{self._root}/{job_id}/{SHARED_FOLDER}/{path.removeprefix(SHARED_PREFIX)}"
                )

    def discard_written(self, uri: str, writer: str) -> None:
        """Delete the state files in a folder that ``writer`` has written, and the folder if it is empty then.

        Unlike :meth:`discard`, this leaves the files of any other driver.
        """
        file_system, folder = self._locate(uri)
        with storage_errors(f"delete what was written to {folder}"):
            for info in file_system.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
                if is_file_name(info.base_name) and written_by(info.base_name) == writer:
                    with suppress(FileNotFoundError):
                        file_system.delete_file(info.path)
        remove_empty(file_system, folder)

    def shared_paths(self, job_id: str) -> set[str]:
        """Return the paths of all shared files of a job, as in their handles."""
        return {
            f"{SHARED_PREFIX}{info.base_name}"
            for info in self._list(f"{self._root}/{job_id}/{SHARED_FOLDER}")
            if is_file_name(info.base_name)
        }

    def discard_unfinished(self, job_id: str, run: str) -> None:
        """Delete the notes that were not whole when a driver was killed; those of runs after ``run`` stay."""
        if self._fs.type_name in OBJECT_STORES:
            return  # there a file is whole or not there
        root = f"{self._root}/{job_id}"
        for folder in (root, f"{root}/{OFFSETS_FOLDER}", f"{root}/{RUNS_FOLDER}"):
            for info in self._list(folder):
                name = name_of_unfinished(info.base_name)
                if name is not None and not (is_run_id(name) and sorted_runs([name, run])[0] == run):
                    with storage_errors(f"delete {info.path}"), suppress(FileNotFoundError):
                        self._fs.delete_file(info.path)

    def write_history(self, job_id: str, history: list[JsonObject]) -> None:
        """Write the statistics of the job's checkpoints as JSON, for people and tools."""
        self._write_note(f"{self._root}/{job_id}", HISTORY, json.dumps(history, indent=1).encode())

    def write_planned(self, job_id: str, epoch: int, end: Position) -> None:
        """Write down where an epoch ends before it runs, so that it is cut the same way if it must run again.

        Once this returns, the note survives a power cut.
        """
        folder = f"{self._root}/{job_id}/{OFFSETS_FOLDER}"
        self._write_note(folder, str(epoch), json.dumps(end).encode() + _END_OF_PLAN, is_flushed=True)

    def read_planned(self, job_id: str) -> dict[int, Position]:
        """Return the ends of epochs that :meth:`write_planned` has written.

        A note that is empty or truncated is ignored: :meth:`write_planned` had not returned, so its epoch was
        never run.
        """
        planned: dict[int, Position] = {}
        for epoch in self._planned_epochs(job_id):
            path = f"{self._root}/{job_id}/{OFFSETS_FOLDER}/{epoch}"
            try:
                planned[epoch] = _end_of_epoch(_bytes_of(self._fs, path))
            except (ValueError, RecursionError):
                _log.warning("%s is truncated and is ignored: its epoch was never run", path)
        return planned

    def forget_planned(self, job_id: str, epochs: Container[int]) -> None:
        """Delete the notes of epochs that will not be run again in the same way."""
        for number in self._planned_epochs(job_id):
            if number in epochs:
                with storage_errors(f"delete {OFFSETS_FOLDER}/{number}"):
                    self._fs.delete_file(f"{self._root}/{job_id}/{OFFSETS_FOLDER}/{number}")

    def _planned_epochs(self, job_id: str) -> list[int]:
        return sorted(
            int(info.base_name)
            for info in self._list(f"{self._root}/{job_id}/{OFFSETS_FOLDER}")
            if info.base_name.isdecimal()
        )

    def checkpoint_ids(self, job_id: str) -> list[int]:
        """Return the ids of all checkpoint folders of a job, completed or not, in order."""
        return sorted(_ids_in(self._names(f"{self._root}/{job_id}"), _CHECKPOINT_FOLDER))

    def completed(self, job_id: str) -> list[int]:
        """Return the ids of a job's completed checkpoints, in order."""
        return [
            checkpoint_id
            for checkpoint_id in self.checkpoint_ids(job_id)
            if _type_of(self._fs, f"{self._root}/{job_id}/chk-{checkpoint_id}/{METADATA}")
            not in (fs.FileType.NotFound, fs.FileType.Directory)
        ]

    def load_latest(self, job_name: str, fall_back: bool = False) -> Located:
        """Return from where ``job_name`` goes on: the latest checkpoint of any job with that name.

        Of several jobs it is the one that has completed a checkpoint or was started last.

        Args:
            job_name: the name that the program gave the job.
            fall_back: whether to skip checkpoints whose ``_metadata`` is damaged.

        Raises:
            CheckpointNotFoundError: there is no completed checkpoint, or the savepoint is gone.
            CorruptCheckpointError: a candidate for the newest is damaged.
        """
        found = [
            (located, self._newest_run(job_id).at_ms)
            for job_id in self.job_ids()
            if (located := self.load_latest_of(job_id, job_name, fall_back)) is not None
        ]
        newest = max(found, key=lambda one: max(one[0][0].timestamp_ms, one[1]), default=None)
        if newest is None:
            raise CheckpointNotFoundError(
                f"{self.uri} has no completed checkpoint of job {job_name!r}: start without restore_from()",
                directory=self.uri,
            )
        return newest[0]

    def load_latest_of(self, job_id: str, job_name: str, fall_back: bool = False) -> Located | None:
        """Return from where a job goes on, if it has this name.

        That is its newest completed checkpoint, or the savepoint that it went back to if it has completed
        none since.

        Raises:
            CheckpointNotFoundError: the savepoint is gone.
            CorruptCheckpointError: a candidate is damaged, and ``fall_back`` is not set.
        """
        taken = self._newest_run(job_id)
        newest = self.load_newest(job_id, job_name, fall_back)
        is_begun = newest is not None and taken.line.has_reached(history_of(newest))
        if taken.savepoint is not None and taken.job_name == job_name and not is_begun:
            try:
                return self.load(taken.savepoint), taken.savepoint
            except CorruptCheckpointError as error:
                if not fall_back:
                    raise
                _log.warning("the savepoint that job %s went back to is skipped: %s", job_id, error)
        return None if newest is None else (newest, self.uri_of(job_id, newest.checkpoint_id))

    def job_ids(self) -> list[str]:
        """Return the ids of all jobs that have a folder here, in order."""
        return sorted(filter(is_job_id, self._names(self._root)))

    def load_newest(
        self, job_id: str, job_name: str | None = None, fall_back: bool = False
    ) -> CheckpointMetadata | None:
        """Return the newest completed checkpoint of a job, if there is one and the job has this name or any.

        A checkpoint that a driver published after another one had taken the job over is skipped. So is a
        folder that is not a whole checkpoint of the job: it was never completed, or it holds the checkpoint
        of another job or with another id. If a driver that runs the job deletes what was found, as it has
        published a newer one, that one is looked for.

        Raises:
            CorruptCheckpointError: a candidate for the newest is damaged, and ``fall_back`` is not set.
            CheckpointStorageError: each candidate was gone when it was read.
        """
        return _look_again(
            f"the newest checkpoint of job {job_id}", lambda: self._newest(job_id, job_name, fall_back)
        )

    def _newest(self, job_id: str, job_name: str | None, fall_back: bool) -> CheckpointMetadata | None:
        """See :meth:`load_newest`; raise ``CheckpointNotFoundError`` if a candidate is gone."""
        checkpoint_ids = self.checkpoint_ids(job_id)
        completed = self.completed(job_id)
        line = self.line(job_id) if completed else RunHistory()
        for checkpoint_id in sorted({*checkpoint_ids, *completed}, reverse=True):
            if checkpoint_id not in completed:
                _log.info("checkpoint %d of job %s is skipped: it was never completed", checkpoint_id, job_id)
                continue
            try:
                found = self._own(job_id, checkpoint_id)
            except CorruptCheckpointError as error:
                if not fall_back:
                    raise
                _log.warning("checkpoint %d is skipped: %s", checkpoint_id, error)
                continue
            if found is None:
                continue
            if job_name not in (None, found.job_name):
                return None
            if line.holds(history_of(found), found.epoch):
                return found
        return None

    def load_retained(self, job_name: str) -> Iterator[Located]:
        """Yield the latest checkpoint of ``job_name``, and those that led to it, the newest first.

        Each is read only when it is asked for, so a damaged one is an error only if it is needed.
        """
        try:
            newest = self.load_latest(job_name)
        except CheckpointNotFoundError:
            return
        yield newest
        for older in self.load_older(newest[0]):
            yield older, self.uri_of(older.job_id, older.checkpoint_id)

    def load_older(self, newest: CheckpointMetadata) -> Iterator[CheckpointMetadata]:
        """Yield the older completed checkpoints that led to ``newest``, the newest of them first.

        One that a running job deletes meanwhile is left out.
        """
        line = history_of(newest)
        for older in reversed(self.completed(newest.job_id)):
            if older < newest.checkpoint_id:
                try:
                    found = self._own(newest.job_id, older)
                except CheckpointNotFoundError:
                    continue
                if found is not None and line.holds(history_of(found), found.epoch):
                    yield found

    def _own(self, job_id: str, checkpoint_id: int) -> CheckpointMetadata | None:
        """Return a checkpoint of a job, or None if its folder holds another one, which is logged."""
        metadata, path = self._read_metadata(self.uri_of(job_id, checkpoint_id))
        misplaced = _misplaced(metadata, path)
        if misplaced is not None:
            _log.warning("checkpoint %d of job %s is skipped: %s", checkpoint_id, job_id, misplaced)
        return metadata if misplaced is None else None

    def load(self, uri: str) -> CheckpointMetadata:
        """Return the metadata of the checkpoint in the folder at a URI or path.

        Raises:
            CheckpointNotFoundError: there is no ``_metadata``, so no completed checkpoint.
            CorruptCheckpointError, IncompatibleCheckpointError: it cannot be read, or belongs to another
            folder.
        """
        metadata, path = self._read_metadata(uri)
        misplaced = _misplaced(metadata, path)
        if misplaced is not None:
            raise CorruptCheckpointError(misplaced, file=path)
        return metadata

    def _read_metadata(self, uri: str) -> tuple[CheckpointMetadata, str]:
        """Return the metadata of the checkpoint at a URI, and the path of its file."""
        file_system, folder = self._locate(_folder_of(uri))
        path = f"{folder}/{METADATA}"
        data = _bytes_of(
            file_system, path, ", so there is no completed checkpoint in that folder", MOST_METADATA_BYTES
        )
        metadata = CheckpointMetadata.decode(data, path)
        if not all(is_run_id(run) for run, _ in metadata.runs):
            raise CorruptCheckpointError(
                f"{path} is damaged: {metadata.runs!r} is not a list of runs", file=path
            )
        return metadata, path

    # --- runs --------------------------------------------------------------------------------------

    def runs(self, job_id: str) -> list[str]:
        """Return the ids of the runs that have claimed a job, in any order."""
        return [
            info.base_name
            for info in self._list(f"{self._root}/{job_id}/{RUNS_FOLDER}")
            if is_run_id(info.base_name)
        ]

    def write_run(self, job_id: str, run: str, taken: TakenOver | None = None) -> None:
        """Write a run's claim, or that it has taken the job over."""
        folder = f"{self._root}/{job_id}/{RUNS_FOLDER}"
        content: JsonObject = {}
        if taken is not None:
            content = {**attrs.asdict(taken, recurse=False), "runs": taken.line.runs}
            del content["line"]
        self._write_note(folder, run, json.dumps(content).encode(), is_flushed=True)

    def forget_runs(self, job_id: str, before: str) -> None:
        """Delete the claims of runs that are older than one that has taken the job over.

        Its own claim may already be deleted by a newer run, whose claim must stay.
        """
        runs = sorted_runs([*self.runs(job_id), before])
        for run in runs[: runs.index(before)]:
            with storage_errors(f"delete {RUNS_FOLDER}/{run}"), suppress(FileNotFoundError):
                self._fs.delete_file(f"{self._root}/{job_id}/{RUNS_FOLDER}/{run}")

    def line(self, job_id: str) -> RunHistory:
        """Return the history of the newest run that has taken the job over, or an empty one."""
        return self._newest_run(job_id).line

    def _newest_run(self, job_id: str) -> TakenOver:
        """Return what the newest run that has taken the job over has written down.

        A run that takes the job over meanwhile deletes the claims of older ones.
        """
        return _look_again(
            f"the newest run of job {job_id}", lambda: self._newest_run_of(job_id, self.runs(job_id))
        )

    def _newest_run_of(self, job_id: str, runs: list[str]) -> TakenOver:
        for run in sorted_runs(runs, newest_first=True):
            found = _run_from(_bytes_of(self._fs, f"{self._root}/{job_id}/{RUNS_FOLDER}/{run}"))
            if found is not None:
                return found
        return TakenOver()

    def ids_in_use(self, job_id: str) -> list[int]:
        """Return the ids that no new checkpoint of a job may use, in order."""
        names = self._names(f"{self._root}/{job_id}")
        used = _ids_in(names, _CHECKPOINT_FOLDER) + _ids_in(names, _SUPERSEDED_FOLDER)
        return sorted([self._newest_run(job_id).last_checkpoint_id, *used])

    def set_aside(self, job_id: str, checkpoint_id: int, run: str) -> str:
        """Rename the folder of a checkpoint from which ``run`` does not go on, and return its new URI.

        On an object store it is copied and then deleted, so that one of the two is always complete.
        """
        name = f"superseded-{run}-chk-{checkpoint_id}"
        source, target = f"{self._root}/{job_id}/chk-{checkpoint_id}", f"{self._root}/{job_id}/{name}"
        with storage_errors(f"move {source} to {target}"):
            if self._fs.type_name not in OBJECT_STORES:
                self._fs.move(source, target)
            else:
                self._copy_folder(source, target)
                self.discard(self.uri_of(job_id, checkpoint_id))
            flush_folder(self._fs, f"{self._root}/{job_id}")
        return child_uri(self.uri, job_id, name)

    def _copy_folder(self, source: str, target: str) -> None:
        """Copy the files of a checkpoint, ``_metadata`` last."""
        files = [
            info.base_name
            for info in self._fs.get_file_info(fs.FileSelector(source))
            if info.type == fs.FileType.File
        ]
        self._fs.create_dir(target, recursive=True)
        for name in sorted(files, key=lambda name: name == METADATA):
            self._fs.copy_file(f"{source}/{name}", f"{target}/{name}")

    def superseded(self, job_id: str) -> list[str]:
        """Return the URIs of the checkpoints of a job that were set aside."""
        return [
            child_uri(self.uri, job_id, name)
            for name in self._names(f"{self._root}/{job_id}")
            if _SUPERSEDED_FOLDER.fullmatch(name)
        ]

    def outdated(self, job_id: str, now_ms: int) -> list[str]:
        """Return the URIs of set-aside checkpoints that are too old, or more than are kept."""
        found = [
            (info.mtime_ns or now_ms * 1_000_000, info.base_name)
            for info in self._list(f"{self._root}/{job_id}")
            if _SUPERSEDED_FOLDER.fullmatch(info.base_name)
        ]
        oldest_ns = (now_ms - MOST_ASIDE_MS) * 1_000_000
        return [
            child_uri(self.uri, job_id, name)
            for number, (mtime_ns, name) in enumerate(sorted(found, reverse=True))
            if number >= MOST_ASIDE or mtime_ns < oldest_ns
        ]

    # --- locations ------------------------------------------------------------------------------

    def _write_note(self, folder: str, name: str, data: bytes, is_flushed: bool = False) -> None:
        """Write a small file whole; ``is_flushed``: it survives a power cut."""
        with storage_errors(f"write {folder}/{name}"):
            make_folder(self._fs, folder)
            write_whole(self._fs, f"{folder}/{name}", data)
            if is_flushed:
                flush_folder(self._fs, folder)

    def _list(self, folder: str) -> list[fs.FileInfo]:
        with storage_errors(f"list {folder}"):
            return list(self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True)))

    def _names(self, folder: str) -> list[str]:
        return [info.base_name for info in self._list(folder) if info.type == fs.FileType.Directory]

    def _locate(self, uri: str) -> tuple[fs.FileSystem, str]:
        """Return the file system and path of a URI, which is usually below this storage's own."""
        base, _, options = split_options(self.uri)
        path, _, other_options = split_options(uri)
        if other_options == options and (path == base or path.startswith(f"{base}/")):
            rest = path[len(base) :]
            return self._fs, self._root.rstrip("/") + (unquote(rest) if is_uri(base) else rest)
        with storage_errors(f"open {uri}"):
            file_system, path = open_file_system(uri)
        return below(file_system, posixpath.dirname(path.rstrip("/"))), path

    # --- state files -----------------------------------------------------------------------------

    def streams(self, uri: str, shared_by: int | None = None, writer: str = "") -> CheckpointFolder:
        """Return the folder that makes and reads the streams of the checkpoint at ``uri``.

        With ``shared_by``, the id of the checkpoint, files are created in the job's shared folder. The names
        of new files tell that ``writer`` wrote them.
        """
        settings = self.settings
        return CheckpointFolder(
            *self._locate(uri),
            settings.file_state_size_threshold,
            settings.write_buffer_size,
            "" if shared_by is None else f"../{SHARED_FOLDER}/{shared_by}-",
            writer,
        )


def _misplaced(metadata: CheckpointMetadata, path: str) -> str | None:
    """Return the problem of a checkpoint in a job's folder that is not of that job, or of another id."""
    job_folder, folder = posixpath.split(posixpath.dirname(path))
    number, job_id = _CHECKPOINT_FOLDER.fullmatch(folder), posixpath.basename(job_folder)
    if number is None or not is_job_id(job_id):
        return None
    if (job_id, int(number[1])) == (metadata.job_id, metadata.checkpoint_id):
        return None
    return (
        f"{path} belongs to checkpoint {metadata.checkpoint_id} of job {metadata.job_id}, but is in "
        f"another's folder: put it back, or copy it to a folder of its own"
    )


def history_of(metadata: CheckpointMetadata) -> RunHistory:
    """Return the runs that led to a checkpoint."""
    return RunHistory(metadata.runs)


def _ids_in(names: list[str], pattern: re.Pattern[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := pattern.fullmatch(name))]


def _run_from(data: bytes) -> TakenOver | None:
    """Return what a run wrote when it took the job over, or None if it did not or the file is truncated.

    Earlier versions did not write when that was, nor a savepoint.
    """
    try:
        content = json.loads(data)
        runs = tuple((str(run), int(epoch)) for run, epoch in content["runs"])
        last_checkpoint_id, at_ms = int(content["last_checkpoint_id"]), int(content.get("at_ms", 0))
        name, savepoint = content.get("job_name", ""), content.get("savepoint")
        if not all(is_run_id(run) for run, _ in runs) or not isinstance(savepoint, (str, type(None))):
            return None
        return TakenOver(RunHistory(runs), last_checkpoint_id, name, at_ms, savepoint)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _end_of_epoch(data: bytes) -> Position:
    """Return where an epoch ends; raise ``ValueError`` if the note is not complete."""
    end = json.loads(data)
    if isinstance(end, (int, float)) and not data.endswith(_END_OF_PLAN):
        raise ValueError("a truncated number may still be a number")
    return end


def _look_again(what: str, look: Callable[[], _T]) -> _T:
    """Return what ``look`` returns; call it again if something is gone that it has found before."""
    for _ in range(LOOKS):
        with suppress(FileNotFoundError):
            return look()
    raise CheckpointStorageError(
        f"checkpoint storage: cannot read {what}: {LOOKS} times it was deleted after it had been "
        f"found, and before it was read. A program that runs the job replaces it too quickly: try again"
    )


def _bytes_of(
    file_system: fs.FileSystem, path: str, conclusion: str = "", most_bytes: int = MOST_NOTE_BYTES
) -> bytes:
    """Return the content of a file; ``conclusion`` is what it means if there is no such file."""
    with storage_errors(f"read {path}"):
        try:
            return read_note(file_system, path, most_bytes)
        except FileNotFoundError:
            raise CheckpointNotFoundError(f"{path} does not exist{conclusion}", file=path) from None


def _exists(file_system: fs.FileSystem, path: str) -> bool:
    return bool(_type_of(file_system, path) != fs.FileType.NotFound)


def _type_of(file_system: fs.FileSystem, path: str) -> fs.FileType:
    with storage_errors(f"look for {path}"):
        return file_system.get_file_info(path).type


def _folder_of(uri: str) -> str:
    """Return a checkpoint's folder; ``uri`` may also be that of its ``_metadata``, as in Flink."""
    base, question, options = split_options(uri)
    return base.removesuffix(f"/{METADATA}") + question + options


def is_flink_savepoint(path: AnyPath) -> bool:
    """Return whether a folder has the ``_metadata`` of a savepoint or checkpoint of Flink."""
    file_system, folder = open_file_system(_folder_of(absolute(path)))
    try:
        with file_system.open_input_file(f"{folder}/{METADATA}") as file:
            return bool(file.read(len(FLINKS_MAGIC)) == FLINKS_MAGIC)
    except (OSError, pa.ArrowException):
        return False


def load_checkpoint(path: str) -> tuple[CheckpointMetadata, str]:
    """Return the metadata of the checkpoint at a URI or path, and its folder's URI."""
    storage = CheckpointFolders(_folder_of(path))
    return storage.load(storage.uri), storage.uri
