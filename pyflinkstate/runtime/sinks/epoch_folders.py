"""Output in folders of epochs, each of which readers see at once: ``epoch=<n>/``.

With a :class:`FileCompactStrategy`, a commit holds epochs back: they stay prepared, which a restored job
publishes in any case. When enough have come, their files are joined into one folder, named by the last of
these epochs, and published by one rename. Readers never see a row twice, as what they see is not changed any
more; that is why files are not joined later.

Prepared epochs are newer than all visible ones. So if a driver is killed between the rename and the deletion
of what was joined, the next one knows the rest by its number.

If a job goes back into the middle of joined epochs, their folder is moved aside as a whole, and its first
epochs are copied. The folder aside is not changed, so the job can return to all of its epochs; a copy that is
visible is replaced then.
"""

from __future__ import annotations

import logging
from abc import abstractmethod

from pyarrow import fs

from pyflinkstate.api import Reported
from pyflinkstate.runtime.sinks.joined_files import FileCompactStrategy, FileJoiner
from pyflinkstate.runtime.sinks.run_area import Change, RunArea, base_name
from pyflinkstate.runtime.sinks.two_phase_files import TwoPhaseFileSink
from pyflinkstate.runtime.storage import AnyPath, RunHistory

_log = logging.getLogger("pyflinkstate.sinks")


class EpochFoldersSink(TwoPhaseFileSink):
    """A sink whose epochs are folders below its directory.

    Args:
        directory: a path or URI that driver and executors can reach.
        file_system: the file system of ``directory``, if that is not a URI.
        compact: when epochs are joined; None to publish each by itself.
    """

    def __init__(
        self, directory: AnyPath, file_system: fs.FileSystem | None, compact: FileCompactStrategy | None
    ) -> None:
        super().__init__(directory, file_system)
        self._compact = compact
        #: The last epoch that was committed.
        self._last = 0
        #: How often something was held back since the last epoch was published, and how large all of it is.
        self._commits = self._held_bytes = 0

    @abstractmethod
    def _joiner(self) -> FileJoiner:
        """Return what joins the files of epochs."""

    def _area_of(self, job_id: str) -> RunArea:
        return RunArea(self._fs, self._root, self.directory, ("pending", "prepared", "aside"))

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """See :class:`TwoPhaseFileSink`."""
        self._last = restored_epoch or 0
        super().open_run(job_id, history, restored_epoch)

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """Prepare the epoch: keep only the files of the task attempts that Spark accepted."""
        pending = self._area.path("pending", f"epoch={epoch}")
        with self._area.guarded(f"prepare epoch {epoch}"):
            if results:
                prepared = self._area.make("prepared", f"epoch={epoch}")
                for name in results:
                    self._fs.move(f"{pending}/{name}", f"{prepared}/{name}")
                self._area.sync(prepared, self._area.path("prepared"))
                if self._compact is not None:
                    files = self._fs.get_file_info([f"{prepared}/{name}" for name in results])
                    self._held_bytes += sum(info.size for info in files)
            if self._area.exists(pending):
                self._fs.delete_dir(pending)

    def commit(self, epoch: int) -> None:
        """Make visible what is prepared, or hold it back to be joined with later epochs."""
        self._last = max(self._last, epoch)
        if self._compact is None:
            super().commit(epoch)
            return
        with self._area.guarded(f"commit epoch {epoch}"):
            if self._held(epoch):
                self._commits += 1
            if self._compact.is_due(self._commits, self._held_bytes):
                self._publish_joined(epoch)
            self._committed(epoch)

    def release(self) -> None:
        """Make visible what is committed and was held back."""
        with self._area.guarded(f"show what was held back up to epoch {self._last}"):
            self._publish_joined(self._last)

    def rewind(self, epoch: int) -> None:
        """See :class:`TwoPhaseFileSink`; what was held back and belongs to a checkpoint is not deleted."""
        with self._area.guarded(f"rewind to epoch {epoch}"):
            self._drop_published()
            for number, path in self._held(self._last):
                if number > epoch:
                    self._put_aside(number, path, self._area.owner.run)
            self._area.sync(self._area.path("prepared"))
        self._last = min(self._last, epoch)
        super().rewind(epoch)

    # --- joining -------------------------------------------------------------------------------------

    def _held(self, epoch: int) -> list[tuple[int, str]]:
        return [(number, path) for number, path in self._area.epochs("prepared") if number <= epoch]

    def _publish_joined(self, epoch: int) -> None:
        self._drop_published()
        held = self._held(epoch)
        if held:
            last, path = held[-1]
            is_one = len(held) == 1 and len(self._joiner().names_in(path)) == 1
            self._publish(last, path if is_one else self._joined(held))
            for _, part in [] if is_one else reversed(held):
                self._area.drop(part)
            self._area.sync(self._area.path("prepared"))
            self._area.sweep()
        self._commits = self._held_bytes = 0

    def _joined(self, held: list[tuple[int, str]]) -> str:
        """Write the files of epochs into a folder that readers do not see, and return it."""
        target = self._new_folder(held[-1][0])
        self._joiner().join(held, target)
        return target

    def _new_folder(self, epoch: int) -> str:
        folder = self._area.path("joining")
        if self._area.exists(folder):  # what an attempt has left that failed
            self._area.drop(folder)
        self._area.make("joining")
        return self._area.make("joining", f"epoch={epoch}")

    def _drop_published(self) -> None:
        """Delete prepared epochs that a published folder contains, the last ones first."""
        prepared = self._area.epochs("prepared")
        newest = max((number for number, _ in self._visible()), default=0) if prepared else 0
        for number, path in reversed(prepared):
            if number <= newest:
                self._area.drop(path)

    # --- the folders ---------------------------------------------------------------------------------

    def _visible(self) -> list[tuple[int, str]]:
        return [(n, path) for n, path in self._area.epochs_in(self._root) if path.endswith(f"/epoch={n}")]

    def _publish(self, epoch: int, path: str) -> None:
        self._fs.move(path, f"{self._root}/epoch={epoch}")
        # Before the next one: a power cut must not take back an epoch and leave a later one.
        self._area.sync(self._root)

    def _put_aside(self, epoch: int, path: str, run: str) -> None:
        aside = self._area.name_aside(run, f"epoch={epoch}")
        self._fs.move(path, aside)
        self._area.sync(aside.rpartition("/")[0])
        _log.info("file sink: moved epoch %d of %s to %s", epoch, self.directory, aside)

    def _bring_back(self, path: str) -> None:
        self._fs.move(path, f"{self._root}/{base_name(path)}")

    def _clear(self, up_to: int | None = None) -> None:
        if self._area.exists(self._area.path("joining")):
            self._area.drop(self._area.path("joining"))
        super()._clear(up_to)

    # --- going back ----------------------------------------------------------------------------------

    def _retract(self, change: Change) -> None:
        self._drop_published()
        super()._retract(change)
        if self._compact is not None:
            self._publish_joined(change.restored)

    def _publish_restored(self, epoch: int, path: str) -> None:
        if self._compact is None:
            self._publish(epoch, path)

    def _take_back(self, epoch: int) -> None:
        noted = self._area.noted()
        super()._take_back(epoch)
        after = self._area.noted()
        if noted is not None and after is not None and after.history != noted.history:
            self._bring_all_back(Change(noted.history, after.history, epoch))

    def _bring_all_back(self, change: Change) -> None:
        """Bring back the folders that are aside and contain wanted epochs, each up to the last of these.

        A visible folder stays as it is, unless it is a copy of the first epochs of one that is brought back.
        """
        for run in self._area.runs_aside():
            found = []
            for last, path in self._area.epochs("aside", run):
                first = self._joiner().first_of(last, path)
                wanted = (n for n in range(last, first - 1, -1) if change.is_wanted(run, n))
                if (end := next(wanted, None)) is not None:
                    found.append((end, end == last, first, path))
            for end, is_whole, first, path in sorted(found, reverse=True):
                others = self._overlapping(first, end)
                if all(begin == first and last < end for begin, last, _ in others):
                    for _, _, copy in others:
                        self._area.drop(copy)
                    self._bring_back(path if is_whole else self._head(path, end))
            self._area.sync(self._root, self._area.path("aside", run))

    def _overlapping(self, first: int, end: int) -> list[tuple[int, int, str]]:
        """Return the visible folders with any epoch of a range: first and last epoch, and path."""
        later = [(number, path) for number, path in self._visible() if number >= first]
        found = [(self._joiner().first_of(number, path), number, path) for number, path in later]
        return [folder for folder in found if folder[0] <= end]

    def _head(self, path: str, last: int) -> str:
        """Copy the epochs of a folder up to one into a folder that readers do not see, and return it."""
        target = self._new_folder(last)
        self._joiner().copy_head(path, last, target)
        return target
