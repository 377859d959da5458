"""A sink into a folder of Parquet files, exactly once, also on object stores, which cannot rename.

::

    <directory>/day=2024-01-01/part-<sink>-<epoch>-<run>-...parquet     what readers see
    <directory>/_pyflinkstate/<job id>/<name>/<run>/                    what a run of the job has staged
        committed.json                                                  the marker
        epoch=<n>/day=2024-01-01/part-...parquet.staged                 what tasks have written

Spark and pyarrow skip names with an underscore. The suffix of staged files is for readers that do not, such
as DuckDB with ``**/*.parquet``.

The commit renames each file of an epoch to where readers see it, or lets the object store copy it. The name
contains the epoch and the run whose tasks wrote the file, so a commit that is repeated gives the same files.
Then the marker is set, and finally the staged files are deleted. If the driver is killed in between, readers
see some of the epoch's files, each complete, until the next driver publishes the others.

A folder has no transaction that fails because a newer run has begun. Instead, **a new run deletes what older
runs have staged before it writes anything**. A frozen driver that continues after this has nothing left to
rename or copy, even if it had checked for newer runs before. For the same reason the driver never writes
where readers look: files are joined while they are staged. After this deletion the new run deletes the
visible files of later epochs. Each run has a marker of its own, and the newest run's marker counts.

Two gaps remain, each as long as a request: a copy that the store is making when its source is deleted, and
the deletions of a driver that is frozen while it goes back to an older epoch. Both matter only if the job
goes back to an older epoch at that moment.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api import K, Reported, V
from pyflinkstate.errors import ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.sink_files import opened, real_folder, sink_errors
from pyflinkstate.runtime.sinks.staged_files import (
    FILE_BYTES,
    OpenFolder,
    PathOf,
    StagedFile,
    StagedFilesSink,
    name_of_target,
)
from pyflinkstate.runtime.sinks.staging import StagingArea
from pyflinkstate.runtime.sinks.text_file_sink import OWN_FOLDER
from pyflinkstate.runtime.storage import (
    OBJECT_STORES,
    AnyPath,
    RunHistory,
    absolute,
    child_uri,
    flush_file,
    flush_folder,
    make_folder,
    newest_run,
)

_MARKER = "committed.json"
_STAGED = ".staged"
#: S3 copies objects of at most 5 GB, and joined files may get twice as large as they are to be.
MOST_FILE_BYTES = 2 << 30
#: Number of files that the driver publishes, joins or deletes at the same time.
MOST_THREADS = 16
#: The characters that Hive and Spark escape in the names of folders.
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
_NULL = "__HIVE_DEFAULT_PARTITION__"


class ParquetSink(StagedFilesSink):
    """Writes Parquet files into a folder on a local disk, HDFS or an object store, each record exactly once.

    When a checkpoint covers an epoch, its files become visible one by one, as those of Flink's file sink. If
    the driver is killed meanwhile, readers see some of them, each complete, until the job is restarted. Use a
    table of Delta Lake or Iceberg if readers must see an epoch at once, or if visible files are to be
    compacted.

    A job that goes back to an older checkpoint deletes the files of later epochs. Other jobs and programs may
    write into the folder too: the sink changes only its own files. Staged files and the marker are in
    ``_pyflinkstate`` there; do not delete it while the job may continue. Each start lists the folder once.

    Tested on local disks and with the S3 protocol.

    Args:
        directory: a path or URI that driver and executors reach, such as ``s3://BUCKET/PATH?region=...``.
        schema: the columns. Records are dicts with these fields, or tuples or lists in their order.
        partition_by: the columns whose values divide the files into folders such as ``day=2024-01-01/``, as
            in Hive and Spark. Readers take these columns from the folders' names, and infer their types
            unless they are given a schema. An empty string is read as null.
        name: the name of the sink in its marker. Default: made of ``directory``.
        file_bytes: a task begins a new file when one has about this size in bytes, at most 2 GiB. Default:
            128 MiB.
        join_files: whether the driver joins the files of an epoch in each folder, up to about ``file_bytes``.
            It reads and writes them again before the checkpoint completes. Default: no, each task's files
            stay.
        staging: see :class:`StagedSink`; only notes are kept there.

    Raises:
        ConfigurationError: the arguments do not go together.
    """

    has_partition_columns = False

    def __init__(
        self,
        directory: AnyPath,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] = (),
        name: str | None = None,
        file_bytes: int = FILE_BYTES,
        join_files: bool = False,
        staging: AnyPath | None = None,
    ) -> None:
        self.directory = absolute(directory)
        super().__init__(
            name_of_target("parquet", self.directory) if name is None else name,
            schema,
            partition_by,
            file_bytes=file_bytes,
            staging=staging,
        )
        if self._file_bytes > MOST_FILE_BYTES:
            raise ConfigurationError(f"sink {self.name!r}: file_bytes must be at most {MOST_FILE_BYTES}")
        self._joins = join_files
        columns = ", ".join(f"{field.name} {field.type}" for field in schema)
        self._columns = f"{columns}; partitioned by {list(self.partition_by)}"
        with sink_errors(f"open {self.directory}"):
            self._fs, root = opened(self.directory, None)
        self._root = root.rstrip("/")
        self._is_store = self._fs.type_name in OBJECT_STORES

    @property
    def owned(self) -> tuple[str, ...]:
        """The name, and the folder, into which no other sink of the job may write."""
        return (*super().owned, f"the folder {real_folder(self.directory, self._fs, self._root)}")

    # --- tasks ---------------------------------------------------------------------------------------

    def open_folder(self) -> OpenFolder:
        """See :class:`StagedFilesSink`: what tasks write is staged first."""
        return partial(opened, self._staged.uri, None)

    def path_of(self, epoch: int) -> PathOf:
        """See :class:`StagedFilesSink`."""
        return partial(_staged_path, f"{self.area.run}/epoch={epoch}")

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`StagedSink`."""
        files = [StagedFile.of(result) for result in results]
        if self._joins:
            files = _in_threads(self._joined, self._groups(files))
        self._flush(self._own(file.name) for file in files)
        super().prepare(epoch, [attrs.asdict(file) for file in files])

    def _groups(self, files: Iterable[StagedFile]) -> list[list[StagedFile]]:
        """Divide files into those that are joined: of one folder, and up to a size."""
        groups: dict[tuple[str, int], list[StagedFile]] = {}
        sizes: Counter[str] = Counter()
        for file in files:
            folder = posixpath.dirname(file.name)
            groups.setdefault((folder, sizes[folder] // self._file_bytes), []).append(file)
            sizes[folder] += file.size_bytes
        return list(groups.values())

    def _joined(self, files: list[StagedFile]) -> StagedFile:
        """Write the rows of files into one file, and return it."""
        if len(files) == 1:
            return files[0]
        name = f"{posixpath.dirname(files[0].name)}/part-joined-{uuid.uuid4().hex}.parquet{_STAGED}"
        path = self._own(name)
        schema = pa.schema([field for field in self.schema if field.name not in self.partition_by])
        with sink_errors(f"join files to {path}"):
            with pq.ParquetWriter(path, schema, filesystem=self._fs) as writer:
                for file in files:
                    with pq.ParquetFile(self._own(file.name), filesystem=self._fs) as source:
                        for batch in source.iter_batches():
                            writer.write_batch(batch)
            flush_file(self._fs, path)
            size_bytes = self._fs.get_file_info(path).size
        return StagedFile(name, size_bytes, sum(file.rows for file in files), files[0].partition)

    def _flush(self, paths: Iterable[str]) -> None:
        for folder in {posixpath.dirname(path) for path in paths}:
            with sink_errors(f"flush {folder}"):
                flush_folder(self._fs, folder)

    # --- the marker ------------------------------------------------------------------------------------

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """See :class:`StagedSink`."""
        self._staged = StagingArea(child_uri(self.directory, OWN_FOLDER, job_id, self.name))
        self._staged.begin(history.runs[-1][0])
        super().open_run(job_id, history, restored_epoch)
        self._mark(self._committed)
        self._staged.clear(self._committed)  # first, so that no older driver publishes anything any more
        self._delete_after(self._committed)

    def committed_epoch(self) -> int | None:
        """See :class:`StagedSink`."""
        self._staged.check()
        run = newest_run([run for run in self._staged.runs() if self._staged.has(f"{run}/{_MARKER}")])
        if run is None:
            return None
        epoch, runs, columns = self._staged.read(f"{run}/{_MARKER}")
        self._check_fits(epoch, RunHistory(tuple(map(tuple, runs))), columns)
        return int(epoch)

    def _own(self, *names: str) -> str:
        """Return the path of something in the part of the folder that belongs to the sink."""
        return "/".join([self._root, OWN_FOLDER, self.job_id, self.name, *names])

    def _check_fits(self, epoch: int, history: RunHistory, columns: str) -> None:
        """Check that the files up to an epoch have the sink's columns, and belong to the job's history."""
        if columns != self._columns:
            raise SinkError(
                f"sink {self.name!r}: its files in {self.directory} have other columns: {columns}; not "
                f"{self._columns}. Write into another folder; or give the sink another name, if readers can "
                f"read both",
                sink=self.name,
            )
        epoch = min(epoch, self._history.runs[-1][1])
        maker, own = history.run_of(epoch), self._history.run_of(epoch)
        if maker and own and maker != own:
            raise SinkError(
                f"sink {self.name!r}: epoch {epoch} in {self.directory} is not that of the restored "
                f"checkpoint: the job had gone back behind it and has written it anew. Restore a checkpoint "
                f"that was taken since then",
                sink=self.name,
                epoch=epoch,
            )

    def _mark(self, epoch: int) -> None:
        marker = [epoch, self._history.runs, self._columns]
        self._staged.write(f"{self.run}/{_MARKER}", json.dumps(marker).encode())

    # --- publication -----------------------------------------------------------------------------------

    def add_files(self, epoch: int, files: list[StagedFile]) -> None:
        """See :class:`StagedFilesSink`."""
        self._staged.check()
        places = {self._own(file.name): self._place_of(file) for file in files}
        with sink_errors(f"publish epoch {epoch} in {self.directory}"):
            for folder in {posixpath.dirname(place) for place in places.values() if not self._is_store}:
                make_folder(self._fs, folder)
            _in_threads(self._bring, places.items())
        self._flush(places.values())
        self._mark(epoch)

    def _place_of(self, file: StagedFile) -> str:
        """Return where readers see a file; its run and epoch are in the path of the staged file."""
        run, epoch, path = file.name.split("/", 2)
        folder, name = posixpath.split(path.removesuffix(_STAGED))
        own = f"{self._prefix}{epoch.removeprefix('epoch=')}-{run}-{name.removeprefix('part-')}"
        return posixpath.join(self._root, folder, own)

    @property
    def _prefix(self) -> str:
        """What the names of this sink's files begin with, and no others."""
        return f"part-{hashlib.blake2s(f'{self.job_id}/{self.name}'.encode(), digest_size=8).hexdigest()}-"

    def _bring(self, places: tuple[str, str]) -> None:
        """Rename or copy a staged file to where readers see it, unless that was done before."""
        source, place = places
        try:
            (self._fs.copy_file if self._is_store else self._fs.move)(source, place)
        except (OSError, pa.ArrowException) as error:
            if self._fs.get_file_info(source).is_file:
                raise
            if not self._fs.get_file_info(place).is_file:
                self._staged.check()
                raise SinkError(
                    f"sink {self.name!r}: {source} was deleted before it was published, and the checkpoint "
                    f"covers it. Put it back, or restore an older checkpoint",
                    sink=self.name,
                    file=source,
                ) from error

    def commit(self, epoch: int) -> None:
        """See :class:`StagedSink`."""
        super().commit(epoch)
        for done in self._staged.begun_epochs():
            if done <= self._committed:
                self._staged.drop(done)

    # --- going back --------------------------------------------------------------------------------------

    def rewind(self, epoch: int) -> None:
        """See :class:`StagedSink`."""
        super().rewind(epoch)
        self._delete_after(epoch)

    def take_back(self, epoch: int) -> None:
        """Set the marker to an epoch. Whoever calls this deletes the files of later epochs then.

        If the driver is killed in between, the marker does not count files that are deleted.
        """
        self._history = self._history.continued(epoch, self.run)
        self._mark(epoch)

    def _delete_after(self, epoch: int) -> None:
        """Delete the visible files of later epochs, but not those of newer runs."""
        pattern = re.compile(rf"{self._prefix}(\d+)-(\d+-[0-9a-f]+)-.+\.parquet")
        with sink_errors(f"delete what came after epoch {epoch} in {self.directory}"):
            selector = fs.FileSelector(self._root, recursive=True)
            found = [
                (info.path, pattern.fullmatch(info.base_name)) for info in self._fs.get_file_info(selector)
            ]
            later = [
                path
                for path, match in found
                if match and int(match[1]) > epoch and newest_run([match[2], self.run]) == self.run
            ]
            self._staged.check()
            _in_threads(self._fs.delete_file, later)
        self._flush(later)


def _in_threads(call: Callable[[K], V], items: Iterable[K]) -> list[V]:
    """Return the results of a function for each item; several threads call it."""
    with ThreadPoolExecutor(MOST_THREADS) as threads:
        return list(threads.map(call, items))


def _staged_path(folder: str, name: str, partition: Mapping[str, str | None]) -> str:
    """Return where a file is staged."""
    folders = (f"{_escaped(column)}={_escaped(value)}" for column, value in partition.items())
    return posixpath.join(folder, *folders, name + _STAGED)


def _escaped(text: str | None) -> str:
    """Return the name of a column, or a value, as Hive and Spark write it in the name of a folder."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text) if text else _NULL
