"""The part of an output directory that belongs to one run: what is not seen yet, and what is seen no more.

::

    <parent>/_runs/<job id>.<run>/
        run.json              whose epochs are visible: the job and its history of runs, and what lies aside
        pending/epoch=<n>/    what tasks write
        prepared/...          what the next checkpoint makes visible
        aside/<run>/...       output of epochs that a restored job went back behind, by the run that made them
        dropped/...           on the way to being deleted

There is one such folder. **A new run takes it over by renaming it to its own name.** From that moment on
the path of the older run is no more, and whatever an older driver could still do to the output is a rename
into that path or out of it. It fails, even if the driver was frozen in the middle and goes on much later. For
the same reason nothing makes that folder anew on its way: tasks write into folders that are there, or fail.

Visible epochs always belong to the history in ``run.json``. A restored run brings the output to its own
history in three steps, each of which may be cut short and be done again: what does not belong is moved aside
(the old history still holds), ``run.json`` is replaced, what belongs and lies aside is brought back (the new
one holds).
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
from pyarrow import fs

from pyflinkstate.errors import JobSupersededError, SinkError
from pyflinkstate.runtime.sinks.sink_errors import sink_errors
from pyflinkstate.runtime.storage import (
    RunHistory,
    flush_file,
    flush_folder,
    is_run_id,
    newest_run,
    run_id_after,
)

_log = logging.getLogger("pyflinkstate.sinks")

RUNS_FOLDER = "_runs"
NOTE = "run.json"
#: The run of epochs whose run nobody noted: an older version made them.
UNNAMED = "000000-00000000"
#: So often a folder is tried to be had while others take it away.
CLAIM_ATTEMPTS = 20
_EPOCH = re.compile(r"epoch=(\d+)(?:-[0-9a-f]+)?")


def epoch_of(name: str) -> int | None:
    """Return the epoch that a file or folder is of, by its name; None if it is of none."""
    match = _EPOCH.fullmatch(name)
    return None if match is None else int(match[1])


def maker_of(history: RunHistory, epoch: int) -> str:
    """Return the run that made an epoch."""
    return history.run_of(epoch) or UNNAMED


@attrs.frozen
class Change:
    """From what is visible to what shall be: two histories, of which the second counts up to an epoch."""

    before: RunHistory
    after: RunHistory
    restored: int

    def stays(self, epoch: int) -> bool:
        """Return whether an epoch is the same in both."""
        return self.is_wanted(maker_of(self.before, epoch), epoch)

    def is_wanted(self, run: str, epoch: int) -> bool:
        """Return whether ``run``'s output of an epoch shall be visible."""
        return epoch <= self.restored and maker_of(self.after, epoch) == run


@attrs.frozen
class Note:
    """What ``run.json`` says.

    Attributes:
        job_id: of the job that the output belongs to.
        history: of the visible epochs.
        aside: what lay aside when it was written, as ``<run>/<name>``.
    """

    job_id: str
    history: RunHistory
    aside: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return it as JSON."""
        runs = [[run, began] for run, began in self.history.runs]
        return json.dumps({"job_id": self.job_id, "runs": runs, "aside": self.aside}).encode()

    @staticmethod
    def decode(data: bytes) -> Note:
        """Read it; raises ``ValueError``, ``KeyError`` or ``TypeError`` where it is damaged."""
        said = json.loads(data)
        runs = tuple((str(run), int(began)) for run, began in said["runs"])
        return Note(str(said["job_id"]), RunHistory(runs), tuple(map(str, said["aside"])))


@attrs.frozen
class Owner:
    """Who has the folder, which is named so."""

    job_id: str
    run: str

    @property
    def folder(self) -> str:
        """The name of the folder."""
        return f"{self.job_id}.{self.run}"

    @staticmethod
    def of(folder: str) -> Owner | None:
        """Return whose folder it is; None where it is nobody's."""
        job_id, _, run = folder.rpartition(".")
        return Owner(job_id, run) if is_run_id(run) else None

    def is_newer_than(self, other: Owner) -> bool:
        """Return whether it is a later run of the same job."""
        return self.job_id == other.job_id and newest_run([self.run, other.run]) != other.run


class RunArea:
    """The folder of a run below ``parent``; see the top of the file.

    Args:
        file_system: where it is.
        parent: the path of the folder above ``_runs``, which has to be there.
        folders: those that the sink needs inside, each with the path where an older version had it.
    """

    def __init__(self, file_system: fs.FileSystem, parent: str, folders: dict[str, str]) -> None:
        self._fs = file_system
        self._parent = parent
        self._runs = f"{parent}/{RUNS_FOLDER}"
        self._folders = folders
        self._owner: Owner | None = None

    # --- whose it is -------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner:
        """The run that this sink is of."""
        if self._owner is None:
            raise SinkError(f"file sink: {self._parent}: it is not open: only a job can write to it")
        return self._owner

    def found(self) -> Owner | None:
        """Return who has the folder now."""
        infos = self._fs.get_file_info(fs.FileSelector(self._runs, allow_not_found=True))
        owners = filter(None, (Owner.of(info.base_name) for info in infos))
        return max(owners, key=lambda owner: owner.run, default=None)

    def claim(self, job_id: str, run: str) -> None:
        """Take the folder for a run, from whoever had it.

        Raises:
            JobSupersededError: a newer run of the job has it.
        """
        self._owner = wanted = Owner(job_id, run)
        for _ in range(CLAIM_ATTEMPTS):
            found = self.found()
            if found == wanted:
                self.sync(self._parent, self._runs)
                self._make_folders()
                return
            if found is not None and found.is_newer_than(wanted):
                raise self._superseded(found)
            self._found_it(wanted) if found is None else self._take_over(found, wanted)
        raise SinkError(f"file sink: {self._runs}: others take it again and again: stop them")

    def _found_it(self, owner: Owner) -> None:
        """Make the folder, unless somebody else is first: of two renames to one name the second fails."""
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

    def _make_folders(self) -> None:
        for name, legacy in self._folders.items():
            self.make(name)
            self.sync(self.path())
            for child in self.names_in(legacy):
                if not self.exists(self.path(name, child)):
                    self._fs.move(f"{legacy}/{child}", self.path(name, child))
            if self.exists(legacy):
                self.drop(legacy)

    def check(self) -> None:
        """Check that the folder is still this run's.

        Raises:
            JobSupersededError: a newer run of the job has it.
            SinkError: another job has it, or it is gone.
        """
        if not self.exists(self.path()):
            raise self._superseded(self.found())

    def _superseded(self, found: Owner | None) -> SinkError | JobSupersededError:
        own = self.owner
        if found is None:
            return SinkError(f"file sink: {self.path()} is gone: somebody has deleted it", run=own.run)
        is_same_job = found.job_id == own.job_id
        who = f"the newer run {found.run}" if is_same_job else f"job {found.job_id}"
        error = JobSupersededError if is_same_job else SinkError
        return error(
            f"file sink: {self._parent} belongs to {who} now, so run {own.run} of job {own.job_id} publishes "
            f"nothing there any more, and ends. Let one program at a time write there",
            run=own.run,
            owner=found.folder,
        )

    @contextmanager
    def guarded(self, what: str) -> Iterator[None]:
        """Do something only while the folder is this run's, and say so where it is not."""
        with sink_errors(what):
            self.check()
            try:
                yield
            except OSError:
                self.check()
                raise

    # --- what is in it -------------------------------------------------------------------------------

    def path(self, *names: str) -> str:
        """Return the path of something in the folder."""
        return "/".join([self._runs, self.owner.folder, *names])

    def below_parent(self, *names: str) -> str:
        """Return the path as from ``parent`` on, for a URI."""
        return "/".join([RUNS_FOLDER, self.owner.folder, *names])

    def exists(self, path: str) -> bool:
        """Return whether there is something at a path."""
        return bool(self._fs.get_file_info(path).type != fs.FileType.NotFound)

    def make(self, *names: str) -> str:
        """Make a folder in it, if it is not there; what is above it has to be there."""
        path = self.path(*names)
        self._fs.create_dir(path, recursive=False)
        return path

    def names_in(self, path: str) -> list[str]:
        """Return the names in a folder; none where it is not there."""
        infos = self._fs.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in infos)

    def epochs(self, *names: str) -> list[tuple[int, str]]:
        """Return the epochs in one of its folders, in order, each with its file's or folder's name."""
        infos = self._fs.get_file_info(fs.FileSelector(self.path(*names)))
        found = ((epoch_of(info.base_name), info.base_name) for info in infos)
        return sorted((epoch, name) for epoch, name in found if epoch is not None)

    def drop(self, path: str) -> None:
        """Take a file or folder out of sight at once; :meth:`sweep` deletes it, perhaps in several tries."""
        self.make("dropped")
        self._fs.move(path, self.path("dropped", uuid.uuid4().hex))

    def sweep(self) -> None:
        """Delete what was dropped."""
        if self.exists(self.path("dropped")):
            self._fs.delete_dir(self.path("dropped"))

    def write_file(self, path: str, data: bytes) -> None:
        """Write a file anywhere, whole or not at all."""
        unfinished = self.path(uuid.uuid4().hex)
        with self._fs.open_output_stream(unfinished) as stream:
            stream.write(data)
        flush_file(self._fs, unfinished)
        self._fs.move(unfinished, path)
        self.sync(path.rpartition("/")[0])

    def sync(self, *folders: str) -> None:
        """Make durable what was renamed in these folders."""
        for folder in folders:
            flush_folder(self._fs, folder)

    # --- the history -----------------------------------------------------------------------------------

    def note(self, history: RunHistory) -> None:
        """From now on all visible epochs are of ``history``."""
        aside = [f"{run}/{name}" for run in self.runs_aside() for _, name in self.epochs("aside", run)]
        self.write_file(self.path(NOTE), Note(self.owner.job_id, history, tuple(aside)).encode())

    def noted(self) -> Note | None:
        """Return what ``run.json`` says; None where there is none, or none that can be read."""
        if not self.exists(self.path(NOTE)):
            return None
        with self._fs.open_input_stream(self.path(NOTE)) as stream:
            data = stream.read()
        try:
            return Note.decode(data)
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("file sink: %s is damaged, and passed over: %s", self.path(NOTE), error)
            return None

    def next_history(self, job_id: str, restored: int) -> RunHistory:
        """Return the history of a further run behind an epoch, going by what is noted here alone."""
        self._owner = found = self.found()
        noted = None if found is None else self.noted()
        known = noted.history if noted is not None and noted.job_id == job_id else RunHistory()
        runs = [run for run, _ in known.runs] + ([] if found is None else [found.run])
        return known.continued(restored, run_id_after(runs, uuid.uuid4().hex[:8]))

    def change_to(self, history: RunHistory, restored: int) -> Change:
        """Return what is to be done so that the output is that of ``history`` up to an epoch.

        Where nobody noted whose the visible epochs are, those up to ``restored`` are taken for the history's.

        Raises:
            SinkError: output that the history needs was moved aside, and is not there any more.
        """
        noted = self.noted()
        if noted is None or noted.job_id != self.owner.job_id:
            return Change(RunHistory((*history.runs[:-1], (UNNAMED, restored))), history, restored)
        change = Change(noted.history, history, restored)
        self._check_nothing_is_lost(change, noted.aside)
        return change

    def _check_nothing_is_lost(self, change: Change, aside: tuple[str, ...]) -> None:
        for entry in aside:
            run, _, name = entry.partition("/")
            epoch = epoch_of(name) or 0
            is_needed = change.is_wanted(run, epoch) and not change.stays(epoch)
            path = self.path("aside", run, name)
            if is_needed and not self.exists(path):
                raise SinkError(
                    f"file sink: the checkpoint covers epoch {epoch} as run {run} made it. Its output was "
                    f"moved to {path}, and somebody has deleted it there: put it back, restore another "
                    f"checkpoint, or give an empty directory",
                    file=path,
                )

    def runs_aside(self) -> list[str]:
        """Return the runs of which something lies aside."""
        return [name for name in self.names_in(self.path("aside")) if is_run_id(name)]

    def free_name_aside(self, run: str, name: str) -> str:
        """Return the path that something of a run gets when it is moved aside.

        A run that went back within itself may have made an epoch twice; the second gets another name, which
        nobody brings back.
        """
        self.make("aside", run)
        self.sync(self.path("aside"))
        path = self.path("aside", run, name)
        return path if not self.exists(path) else f"{path}.{uuid.uuid4().hex}"

    def bring_back(self, change: Change, take: Callable[[str, str], None]) -> None:
        """Call ``take(run, name)`` for all that lies aside and shall be visible."""
        for run in self.runs_aside():
            for epoch, name in self.epochs("aside", run):
                if change.is_wanted(run, epoch):
                    take(run, name)
            self.sync(self.path("aside", run))
