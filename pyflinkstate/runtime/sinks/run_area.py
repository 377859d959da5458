"""The part of an output directory that belongs to one run: output that is not yet, or no longer, visible.

::

    <parent>/_runs/<job id>.<run>/
        run.json              the job and the history of runs whose epochs are visible, and what is aside
        pending/epoch=<n>/    what tasks write
        prepared/...          what the next checkpoint makes visible
        aside/<run>/...       output that a restored job went back behind, by the run that made it
        dropped/...           about to be deleted

There is only one such folder. **A new run takes it over by renaming it to its own name.** From then on the
path of the older run does not exist, and everything that an older driver could still do to the output is a
rename into that path or out of it. Such a rename fails, even if the driver was frozen in the middle and
resumes much later. For the same reason nothing creates that folder implicitly: tasks write into existing
folders, or fail.

Visible epochs always belong to the history in ``run.json``. A restored run makes the output match its
own history in three steps, each of which can be interrupted and repeated: epochs that do not belong are moved
aside (the old history is still valid), ``run.json`` is replaced, and epochs that belong but are aside are
brought back (the new history is valid).
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from itertools import zip_longest

import attrs
from pyarrow import fs

from pyflinkstate.errors import JobSupersededError, SinkError
from pyflinkstate.runtime.sinks.sink_files import sink_errors
from pyflinkstate.runtime.storage import (
    MOST_ASIDE_MS,
    RunHistory,
    child_uri,
    flush_file,
    flush_folder,
    is_run_id,
    newest_run,
    read_note,
    run_id_after,
    sorted_runs,
)

_log = logging.getLogger("pyflinkstate.sinks")

RUNS_FOLDER = "_runs"
NOTE = "run.json"
#: Stands for the unknown run of visible epochs, if ``run.json`` is damaged or gone.
UNNAMED = "000000-00000000"
#: Number of runs whose output is kept aside, and for how long since it was moved there.
MOST_RUNS_ASIDE = 32
#: Number of attempts to take the folder while others take it as well.
CLAIM_ATTEMPTS = 20
_EPOCH = re.compile(r"epoch=(\d+)(?:-[0-9a-f]+)?")


def epoch_of(name: str) -> int | None:
    """Return the epoch in the name of a file or folder, or None if there is none."""
    match = _EPOCH.fullmatch(name)
    return None if match is None else int(match[1])


def maker_of(history: RunHistory, epoch: int) -> str:
    """Return the run that made an epoch."""
    return history.run_of(epoch) or UNNAMED


@attrs.frozen
class Change:
    """The change from the visible history to a new one, which is valid up to an epoch."""

    before: RunHistory
    after: RunHistory
    restored: int

    def stays(self, epoch: int) -> bool:
        """Return whether an epoch is the same in both histories."""
        return self.is_wanted(maker_of(self.before, epoch), epoch)

    def is_wanted(self, run: str, epoch: int) -> bool:
        """Return whether ``run``'s output of an epoch belongs to the new history."""
        return epoch <= self.restored and maker_of(self.after, epoch) == run


@attrs.frozen
class Note:
    """The content of ``run.json``.

    Attributes:
        job_id: the id of the job that owns the output.
        history: the history of the visible epochs.
        aside: what was aside when the file was written, as ``<run>/<name>``.
        expired: the runs whose output was aside and has been deleted.
    """

    job_id: str
    history: RunHistory
    aside: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the note as JSON."""
        runs = [[run, began] for run, began in self.history.runs]
        said = {"job_id": self.job_id, "runs": runs, "aside": self.aside, "expired": self.expired}
        return json.dumps(said).encode()

    @staticmethod
    def decode(data: bytes) -> Note:
        """Read it from JSON; raise ``ValueError``, ``KeyError`` or ``TypeError`` if it is damaged."""
        said = json.loads(data)
        return Note(
            str(said["job_id"]),
            RunHistory(tuple((str(run), int(began)) for run, began in said["runs"])),
            tuple(map(str, said["aside"])),
            tuple(map(str, said.get("expired", ()))),
        )


@attrs.frozen
class Owner:
    """The owner of the folder, after whom it is named."""

    job_id: str
    run: str

    @property
    def folder(self) -> str:
        """The name of the folder."""
        return f"{self.job_id}.{self.run}"

    @staticmethod
    def of(folder: str) -> Owner | None:
        """Return the owner of a folder, or None if it has none."""
        job_id, _, run = folder.rpartition(".")
        return Owner(job_id, run) if is_run_id(run) else None

    def is_newer_than(self, other: Owner) -> bool:
        """Return whether it is a later run of the same job."""
        return self.job_id == other.job_id and newest_run([self.run, other.run]) != other.run


class RunArea:
    """The folder of a run below ``parent``; see the top of the file.

    Args:
        file_system: the file system.
        parent: the path of the folder above ``_runs``, which must exist.
        parent_uri: the URI of that folder, or its path, for tasks.
        folders: the names of the folders that the sink needs inside.
    """

    def __init__(
        self, file_system: fs.FileSystem, parent: str, parent_uri: str, folders: tuple[str, ...]
    ) -> None:
        self._fs = file_system
        self.parent = parent
        self._parent_uri = parent_uri
        self._runs = f"{parent}/{RUNS_FOLDER}"
        self._folders = folders
        self._owner: Owner | None = None

    # --- ownership -------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        """The run to which this sink belongs."""
        if self._owner is None:
            raise SinkError(f"file sink: {self.parent}: the sink is not open; only a job can open it")
        return self._owner

    def found(self) -> Owner | None:
        """Return the present owner of the folder."""
        infos = self._fs.get_file_info(fs.FileSelector(self._runs, allow_not_found=True))
        return max(
            filter(None, (Owner.of(info.base_name) for info in infos)),
            key=lambda owner: owner.run,
            default=None,
        )

    def claim(self, job_id: str, run: str) -> None:
        """Take the folder for a run from its owner.

        Raises:
            JobSupersededError: a newer run of the job has it.
        """
        self._owner = wanted = Owner(job_id, run)
        for _ in range(CLAIM_ATTEMPTS):
            found = self.found()
            if found == wanted:
                self.sync(self.parent, self._runs)
                for name in self._folders:
                    self.make(name)
                self.sync(self.path())
                return
            if found is not None and found.is_newer_than(wanted):
                raise self._superseded(found)
            self._found_it(wanted) if found is None else self._take_over(found, wanted)
        raise SinkError(f"file sink: {self._runs}: other programs take it again and again: stop them")

    def _found_it(self, owner: Owner) -> None:
        """Create the folder unless another program is first: of two renames to one name the second fails."""
        unfinished = f"{self._runs}.{uuid.uuid4().hex}"
        self._fs.create_dir(f"{unfinished}/{owner.folder}", recursive=True)
        self.sync(unfinished)
        try:
            self._fs.move(unfinished, self._runs)
        except OSError:
            if self.exists(unfinished):
                self._fs.delete_dir(unfinished)
            if not self.exists(self._runs):
                raise

    def _take_over(self, found: Owner, wanted: Owner) -> None:
        source = f"{self._runs}/{found.folder}"
        try:
            self._fs.move(source, f"{self._runs}/{wanted.folder}")
        except OSError:
            if self.exists(source):
                raise

    def check(self) -> None:
        """Check that the folder still belongs to this run.

        Raises:
            JobSupersededError: a newer run of the job has it.
            SinkError: another job has it, or it no longer exists.
        """
        if not self.exists(self.path()):
            raise self._superseded(self.found())

    def _superseded(self, found: Owner | None) -> SinkError | JobSupersededError:
        own = self.owner
        if found is None:
            return SinkError(
                f"file sink: {self.path()} is gone: it was deleted. Start the job again, and let nothing "
                f"delete folders of a sink while a job writes there",
                run=own.run,
            )
        is_same_job = found.job_id == own.job_id
        who = f"the newer run {found.run}" if is_same_job else f"job {found.job_id}"
        error = JobSupersededError if is_same_job else SinkError
        return error(
            f"file sink: {self.parent} belongs to {who} now, so run {own.run} of job {own.job_id} publishes "
            f"nothing there any more, and ends. Let only one program at a time write there",
            run=own.run,
            owner=found.folder,
        )

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Run a block; if it fails because the folder no longer belongs to this run, say so in the error."""
        with sink_errors(what):
            self.check()
            try:
                yield
            except OSError:
                self.check()
                raise

    # --- contents -------------------------------------------------------------------------------

    def path(self, *names: str) -> str:
        """Return the path of something in the folder."""
        return "/".join([self._runs, self.owner.folder, *names])

    def uri(self, *names: str) -> str:
        """Return the URI of something in the folder."""
        return child_uri(self._parent_uri, RUNS_FOLDER, self.owner.folder, *names)

    def exists(self, path: str) -> bool:
        """Return whether a path exists."""
        return bool(self._fs.get_file_info(path).type != fs.FileType.NotFound)

    def make(self, *names: str) -> str:
        """Create a folder in it if there is none; the folder above must exist."""
        path = self.path(*names)
        self._fs.create_dir(path, recursive=False)
        return path

    def epochs(self, *names: str) -> list[tuple[int, str]]:
        """Return the epochs in one of its folders, in order, each with the path of its file or folder."""
        return self.epochs_in(self.path(*names))

    def epochs_in(self, folder: str) -> list[tuple[int, str]]:
        """Return the epochs in a folder, in order, each with the path of its file or folder."""
        found = (
            (epoch_of(info.base_name), f"{folder}/{info.base_name}")
            for info in self._fs.get_file_info(fs.FileSelector(folder))
        )
        return sorted((epoch, path) for epoch, path in found if epoch is not None)

    def drop(self, path: str) -> None:
        """Remove a file or folder from view at once; :meth:`sweep` deletes it later."""
        self.make("dropped")
        self._fs.move(path, self.path("dropped", uuid.uuid4().hex))

    def sweep(self) -> None:
        """Delete what was dropped."""
        if self.exists(self.path("dropped")):
            self._fs.delete_dir(self.path("dropped"))

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file anywhere, completely or not at all."""
        unfinished = self.path(uuid.uuid4().hex)
        with self._fs.open_output_stream(unfinished) as stream:
            stream.write(data)
        flush_file(self._fs, unfinished)
        self._fs.move(unfinished, path)
        self.sync(path.rpartition("/")[0])

    def sync(self, *folders: str) -> None:
        """Make renames in these folders durable."""
        for folder in folders:
            flush_folder(self._fs, folder)

    # --- the history -----------------------------------------------------------------------------------

    def note(self, history: RunHistory, expired: Iterable[str] = ()) -> None:
        """Write down that all visible epochs belong to ``history`` from now on.

        Args:
            history: the history.
            expired: runs whose output that is aside is about to be deleted.
        """
        noted = self.noted()
        paths = [path for run in self.runs_aside() for _, path in self.epochs("aside", run)]
        aside = [path.removeprefix(self.path("aside", "")) for path in paths]
        runs = (*(() if noted is None else noted.expired), *expired)
        self.write_file(self.path(NOTE), Note(self.owner.job_id, history, tuple(aside), runs).encode())

    def noted(self) -> Note | None:
        """Return the content of ``run.json``, or None if it does not exist or cannot be read."""
        if not self.exists(self.path(NOTE)):
            return None
        data = read_note(self._fs, self.path(NOTE))
        try:
            return Note.decode(data)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("file sink: %s is damaged, and passed over: %s", self.path(NOTE), error)
            return None

    def next_history(self, job_id: str, restored: int) -> RunHistory:
        """Return the history of a new run after an epoch, based only on ``run.json``."""
        self._owner = found = self.found()
        noted = None if found is None else self.noted()
        known = noted.history if noted is not None and noted.job_id == job_id else RunHistory()
        runs = [run for run, _ in known.runs] + ([] if found is None else [found.run])
        return known.continued(restored, run_id_after(runs, uuid.uuid4().hex[:8]))

    def change_to(self, history: RunHistory, restored: int) -> Change:
        """Return the change that makes the output that of ``history`` up to an epoch.

        If it is not recorded which run made the visible epochs, those up to ``restored`` count as the
        history's.

        Raises:
            SinkError: output that the history needs was moved aside and no longer exists.
        """
        noted = self.noted()
        if noted is None or noted.job_id != self.owner.job_id:
            return Change(RunHistory((*history.runs[:-1], (UNNAMED, restored))), history, restored)
        change = Change(noted.history, history, restored)
        ends = {restored, *(began for _, began in history.runs)}
        gone = [f"{run}/epoch={end}" for end in ends if (run := maker_of(history, end)) in noted.expired]
        self._check_nothing_is_lost(change, (*noted.aside, *gone))
        return change

    def _check_nothing_is_lost(self, change: Change, aside: tuple[str, ...]) -> None:
        for entry in aside:
            run, _, name = entry.partition("/")
            epoch = epoch_of(name) or 0
            is_needed = change.is_wanted(run, epoch) and not change.stays(epoch)
            path = self.path("aside", run, name)
            if is_needed and not self.exists(path):
                raise SinkError(
                    f"file sink: the checkpoint covers epoch {epoch} of run {run}. Its output was "
                    f"moved to {path} and has been deleted there: put it back, restore another "
                    f"checkpoint, or choose an empty directory",
                    file=path,
                )

    def forget_aside(self, history: RunHistory, now_ms: int) -> None:
        """Delete output that was moved aside long ago, or by more runs than are kept."""
        runs = sorted_runs(self.runs_aside(), newest_first=True)
        infos = self._fs.get_file_info([self.path("aside", run) for run in runs])
        oldest_ns = (now_ms - MOST_ASIDE_MS) * 1_000_000
        is_new = [info.mtime_ns is None or info.mtime_ns >= oldest_ns for info in infos[:MOST_RUNS_ASIDE]]
        old = [run for run, stays in zip_longest(runs, is_new) if not stays]
        if old:
            self.note(history, old)
            for run in old:
                self.drop(self.path("aside", run))
            self.sweep()

    def runs_aside(self) -> list[str]:
        """Return the runs whose output is aside."""
        return sorted(
            info.base_name
            for info in self._fs.get_file_info(fs.FileSelector(self.path("aside"), allow_not_found=True))
            if is_run_id(info.base_name)
        )

    def name_aside(self, run: str, name: str) -> str:
        """Return the path for output of a run that is moved aside.

        A run that restarted may have made an epoch twice; the second output gets another name and is never
        brought back.
        """
        self.make("aside", run)
        self.sync(self.path("aside"))
        path = self.path("aside", run, name)
        return path if not self.exists(path) else f"{path}.{uuid.uuid4().hex}"

    def wanted_aside(self, change: Change, visible: Container[int]) -> Iterator[str]:
        """Yield the paths of all output that is aside and should be visible.

        An epoch that is visible stays as it is: its run had moved an earlier try of it aside.
        """
        for run in self.runs_aside():
            for epoch, path in self.epochs("aside", run):
                if epoch not in visible and change.is_wanted(run, epoch):
                    yield path
            self.sync(self.path("aside", run))
