"""What the tests of the file sinks share: one way to use all kinds, on a disk in memory that fails."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable
from importlib import import_module
from inspect import isabstract, isclass
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol

import attrs
from simulation_storage import FINE, Disk, Killed, Operation, Process, Verdict

from pyflinkstate import FileSink, RunHistory
from pyflinkstate.runtime import sinks
from pyflinkstate.runtime.sinks.joined_files import FileCompactStrategy
from pyflinkstate.runtime.sinks.text_file_sink import (
    BucketAssigner,
    OutputFileConfig,
    RowFormatFileSink,
    RowFormatSettings,
)

JOB = "a" * 32
OUT = "/data/out"
#: Records that are visible, each with how often.
Seen = Counter[str]


class UsedSink(Protocol):
    """What all of these sinks have."""

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None: ...
    def writer(self, epoch: int) -> Any: ...
    def prepare(self, epoch: int, results: list[Any]) -> None: ...
    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


@attrs.define
class Flushed:
    """Notes what was flushed, by what it is on the disk."""

    inodes: list[int] = attrs.Factory(list)

    def fsync(self, descriptor: int) -> None:
        self.inodes.append(os.fstat(descriptor).st_ino)

    def has(self, path: Path) -> bool:
        return path.stat().st_ino in self.inodes


def file_sink(place: Disk | Path) -> FileSink:
    path, file_system = _at(place)
    return FileSink(path, "text", file_system=file_system)


def joined_sink(place: Disk | Path) -> FileSink:
    """Return a sink that joins all epochs that become visible with one commit."""
    path, file_system = _at(place)
    strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build()
    return FileSink(path, "text", file_system=file_system, compact=strategy)


def row_format_sink(place: Disk | Path) -> RowFormatFileSink:
    settings = RowFormatSettings(
        bucket_assigner=BucketAssigner("day=%d"), file_config=OutputFileConfig("part", ".txt")
    )
    return RowFormatFileSink(*_at(place, settings))


def _at(place: Disk | Path, *between: Any) -> tuple[Any, ...]:
    """Return the path of a sink and its file system, which is the disk in memory or that of the machine."""
    is_disk = isinstance(place, Disk)
    return (OUT if is_disk else str(place), *between, place.file_system if is_disk else None)


MakeSink = Callable[[Any], Any]
#: Every sink that writes files. This entry is all that a new one needs: each contract test runs with it.
FILE_SINKS: list[MakeSink] = [file_sink, row_format_sink, joined_sink]


class FailingDisk(Disk):
    """A disk on which the operation with a certain number goes wrong, or does something else first."""

    def __init__(self) -> None:
        super().__init__(Process("driver"))
        self.make_folder("/data", recursive=True)
        self.flush("")
        self.operations: list[Operation] = []
        self.at = -1
        self.happens: Callable[[], Verdict] = lambda: FINE
        self.decide = self._decide

    def when(self, at: int, happens: Callable[[], Verdict] = lambda: FINE) -> None:
        """Count operations from now on, and have something happen before the one of a number."""
        self.operations, self.at, self.happens = [], at, happens

    def _decide(self, operation: Operation) -> Verdict:
        self.operations.append(operation)
        return self.happens() if len(self.operations) - 1 == self.at else FINE

    def fail(self, part: float) -> Callable[[], Verdict]:
        """Return what makes an operation fail when so much of it is done."""
        return lambda: Verdict(part, OSError(5, "input/output error"))

    def kill(self) -> Verdict:
        """End the process that does the operation before it is done."""
        self.process.kill()
        return Verdict(0.0, Killed(self.process))


def seen(place: Disk | Path) -> Seen:
    """Return what readers see."""
    if isinstance(place, Path):
        return Seen(line for path in visible_files(place) for line in path.read_text("utf-8").splitlines())
    return Seen(line for _, lines in seen_files(place) for line in lines)


def visible_files(folder: Path) -> list[Path]:
    """Return the files below a folder that readers see: no names with an underscore."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        path for path in files if not any(part.startswith("_") for part in path.relative_to(folder).parts)
    ]


def seen_files(disk: Disk) -> list[tuple[str, list[str]]]:
    """Return the files that readers see below the output's path, each with its lines."""
    paths = [path for path in disk.below(OUT) if "/_" not in path.removeprefix(OUT)]
    return [(path.removeprefix(f"{OUT}/"), lines_of(disk, path)) for path in paths]


def lines_of(disk: Disk, path: str) -> list[str]:
    """Return the records of a file: a sink that does not write them as plain lines is told apart here."""
    return disk.read(path).decode().splitlines()


def lines_aside(disk: Disk, folder: str = "/aside/") -> Seen:
    """Return the records of all files that lie aside."""
    files = [path for path in disk.below(OUT) if folder in path and "/_epochs" not in path]
    return Seen(line for path in files for line in lines_of(disk, path))


def write(sink: UsedSink, epoch: int, *partitions: Iterable[Any], is_pickled: bool = False) -> list[Any]:
    """Run the epoch's tasks, and return what their writers yield; if asked for, they are pickled."""
    writer = sink.writer(epoch)
    if is_pickled:
        writer = pickle.loads(pickle.dumps(writer))
    return [name for number, records in enumerate(partitions) for name in writer.write(number, iter(records))]


def prepare(sink: UsedSink, epoch: int, *records: str) -> None:
    """Run an epoch up to the end of its job: each record in a partition of its own."""
    sink.prepare(epoch, write(sink, epoch, *([record] for record in records)))


def run_epochs(sink: UsedSink, first: int, last: int, name: str) -> None:
    """Run and commit epochs, whose records are ``<name><epoch>a`` and ``...b``."""
    for epoch in range(first, last + 1):
        prepare(sink, epoch, f"{name}{epoch}a", f"{name}{epoch}b")
        sink.commit(epoch)


def records(name: str, first: int, last: int) -> Seen:
    """Return what :func:`run_epochs` makes visible."""
    return Seen(f"{name}{epoch}{letter}" for epoch in range(first, last + 1) for letter in "ab")


def history(*runs: tuple[int, int]) -> RunHistory:
    """Return the history of runs, each by its number and the epoch behind which it began."""
    return RunHistory(tuple((run_id(number), began) for number, began in runs))


def run_id(number: int) -> str:
    return f"{number:06d}-{number:08x}"


def sink_classes(method: str) -> set[type]:
    """Return the classes of the room of sinks that have a method, except for abstract ones."""
    modules = [import_module(f"{sinks.__name__}.{module.name}") for module in iter_modules(sinks.__path__)]
    classes = {cls for module in modules for cls in vars(module).values() if isclass(cls)}
    return {cls for cls in classes if hasattr(cls, method) and not isabstract(cls)}
