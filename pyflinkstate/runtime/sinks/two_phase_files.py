"""The commit protocol of the sinks that write files.

The output of an epoch is *pending* while tasks write it, *prepared* when the epoch has ended, and *visible*
when the epoch is committed. A job that goes back moves later output *aside*, from where a run that needs it
again brings it back. Each step is a rename, see ``run_area``.

What an epoch's output consists of is left to the sink: a folder that readers see as a whole, or a list of
files. Here it is an epoch and a path: that of the folder or of the list.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyarrow import fs

from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import SinkError
from pyflinkstate.runtime.sinks.run_area import Change, RunArea, maker_of
from pyflinkstate.runtime.sinks.sink_files import opened, sink_errors
from pyflinkstate.runtime.storage import AnyPath, RunHistory, absolute, is_local, make_folder, path_text


class TwoPhaseFileSink(ABC):
    """A sink whose output becomes visible below a directory by renaming.

    Args:
        directory: a path or URI that driver and executors can reach.
        file_system: the file system of ``directory``, if that is not a URI.

    Raises:
        SinkError: the storage cannot rename folders.
    """

    def __init__(self, directory: AnyPath, file_system: fs.FileSystem | None) -> None:
        self.directory = (absolute(directory) if file_system is None else path_text(directory)).rstrip("/")
        with sink_errors(f"open {directory}"):
            self._fs, root = opened(self.directory, file_system)
        if file_system is None and not (is_local(self._fs) or isinstance(self._fs, fs.HadoopFileSystem)):
            raise SinkError(
                f"file sink: {directory}: output is made visible by renaming, which {self._fs.type_name} "
                f"storage cannot do; write to a local or HDFS directory, or use ParquetSink"
            )
        self._root = root.rstrip("/")
        self._own_file_system = file_system
        self._area = self._area_of("")

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Open the sink if the job's runs are not known: begin a new run after the recorded ones.

        Raises:
            SinkError: see :meth:`open_run`.
        """
        with sink_errors(f"use {self.directory}"):
            history = self._area_of(job_id).next_history(job_id, restored_epoch or 0)
        self.open_run(job_id, history, restored_epoch)

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """Take over the output of earlier runs of the job, and make what is visible match the run's history.

        Epochs that do not belong to the history are moved aside. Epochs that it needs and that were moved
        aside or prepared are made visible.

        Raises:
            JobSupersededError: a newer run of the job has it.
            SinkError: the directory belongs to another job, or output that the restored checkpoint covers was
                moved aside and no longer exists.
        """
        self._area = self._area_of(job_id)
        with sink_errors(f"use {self.directory}"):
            self._make_folders()
            self._check_owner(job_id, restored_epoch)
            self._area.claim(job_id, history.runs[-1][0])
        with self._area.guarded(f"use {self.directory}"):
            self._check_owner(job_id, restored_epoch)
            self._take_ownership(job_id)
            change = self._area.change_to(history, restored_epoch or 0)
            self._retract(change)
            self._area.note(history)
            self._bring_all_back(change)
            self._complete(change)
            self._area.forget_aside(history, wall_clock_ms())
            self._clear()

    def _make_folders(self) -> None:
        folder = self._area.parent
        make_folder(self._fs, folder)
        while len(folder) >= len(self._root) > 0:  # an earlier attempt may have failed before this
            folder = folder.rpartition("/")[0]
            self._area.sync(folder)

    def _retract(self, change: Change) -> None:
        """Move aside epochs that are not in the new history, and publish prepared ones that are."""
        for epoch, path in self._visible():
            if not change.stays(epoch):
                self._put_aside(epoch, path, maker_of(change.before, epoch))
        for epoch, path in self._area.epochs("prepared"):
            if change.stays(epoch):
                self._publish(epoch, path)
            elif (maker := maker_of(change.before, epoch)) == self._area.owner.run:
                self._drop(path)
            else:
                self._put_aside(epoch, path, maker)
        self._area.sync(self._root, self._area.path("prepared"))

    def commit(self, epoch: int) -> None:
        """Make visible what is prepared; the next commit completes one that was interrupted."""
        with self._area.guarded(f"commit epoch {epoch}"):
            for number, path in self._area.epochs("prepared"):
                if number <= epoch:
                    self._publish(number, path)
            self._area.sync(self._root, self._area.path("prepared"))
            self._committed(epoch)

    def rewind(self, epoch: int) -> None:
        """Delete what was prepared after an epoch, and move aside what was already committed."""
        with self._area.guarded(f"rewind to epoch {epoch}"):
            for number, path in self._area.epochs("prepared"):
                if number > epoch:
                    self._drop(path)
            self._take_back(epoch)
            self._clear()

    def _take_back(self, epoch: int) -> None:
        later = [(number, path) for number, path in self._visible() if number > epoch]
        noted = self._area.noted()
        history = RunHistory() if noted is None else noted.history
        for number, path in later:
            self._put_aside(number, path, maker_of(history, number))
        if later:
            self._area.sync(self._root)
            change = Change(history, history.continued(epoch, self._area.owner.run), epoch)
            self._area.note(change.after)
            self._bring_all_back(change)
            self._complete(change)

    def _clear(self, up_to: int | None = None) -> None:
        """Delete what tasks wrote in all epochs, or up to one, except for epochs that are prepared."""
        prepared = {epoch for epoch, _ in self._area.epochs("prepared")}
        for epoch, path in self._area.epochs("pending"):
            if epoch not in prepared and (up_to is None or epoch <= up_to):
                self._area.drop(path)
        self._area.sweep()

    def _begin(self, epoch: int) -> str:
        """Create the folder into which an epoch's tasks write, and return its URI."""
        with self._area.guarded(f"begin epoch {epoch}"):
            self._area.make("pending", f"epoch={epoch}")
        return self._area.uri("pending", f"epoch={epoch}")

    # --- what differs ------------------------------------------------------------------------------

    @abstractmethod
    def _area_of(self, job_id: str) -> RunArea:
        """Return the area for the runs of a job."""

    @abstractmethod
    def _visible(self) -> list[tuple[int, str]]:
        """Return the committed epochs in order, each with its path."""

    @abstractmethod
    def _publish(self, epoch: int, path: str) -> None:
        """Make a prepared epoch visible, durably."""

    @abstractmethod
    def _put_aside(self, epoch: int, path: str, run: str) -> None:
        """Move a visible or prepared epoch of a run aside."""

    @abstractmethod
    def _bring_all_back(self, change: Change) -> None:
        """Make visible what is aside and belongs to the new history."""

    def _drop(self, path: str) -> None:
        """Delete a prepared epoch."""
        self._area.drop(path)

    def _check_owner(self, job_id: str, restored_epoch: int | None) -> None:
        """Raise ``SinkError`` if the directory belongs to another job. Called before and after the claim."""
        return

    def _take_ownership(self, job_id: str) -> None:
        """Record that the directory belongs to a job."""
        return

    def _complete(self, change: Change) -> None:
        """Complete what :meth:`_bring_all_back` has begun."""
        self._area.sync(self._root)

    def _committed(self, epoch: int) -> None:
        """Delete what is no longer needed after a commit."""
        return
