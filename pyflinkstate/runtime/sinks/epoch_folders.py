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
import uuid
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import groupby, islice

from pyarrow import fs

from pyflinkstate.api import Reported
from pyflinkstate.runtime.sinks.joined_files import FileCompactStrategy, FileJoiner
from pyflinkstate.runtime.sinks.run_area import Change, RunArea
from pyflinkstate.runtime.sinks.two_phase_files import TwoPhaseFileSink
from pyflinkstate.runtime.storage import AnyPath

_log = logging.getLogger("pyflinkstate.sinks")


class EpochFoldersSink(TwoPhaseFileSink):
    """A sink whose epochs are folders below its directory.

    Args:
        directory: a path or URI that driver and executors can reach.
        file_system: the file system of ``directory``, if that is not a URI.
        compact: when epochs are joined; None to publish each by itself.
        now_ms: returns the time in ms since 1970.
    """

    def __init__(
        self,
        directory: AnyPath,
        file_system: fs.FileSystem | None,
        compact: FileCompactStrategy | None,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(directory, file_system)
        self._compact = compact
        self._now_ms = now_ms
        #: The last epoch that was committed.
        self._last = 0
        #: How often something was committed since the last epoch was published, how large all of it is, and
        #: when the first of it was committed.
        self._commits = self._held_bytes = self._held_since_ms = 0
        self.prepared_bytes = 0

    @property
    @abstractmethod
    def _joiner(self) -> FileJoiner:
        """What joins the files of epochs."""

    def _area_of(self, job_id: str) -> RunArea:
        return RunArea(self._fs, self._root, self.directory, ("pending", "prepared", "aside"))

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """Prepare the epoch: keep only the files of the task attempts that Spark accepted."""
        pending = self._area.path("pending", f"epoch={epoch}")
        with self._area.guarded(f"prepare epoch {epoch}"):
            if results:
                prepared = self._area.make("prepared", f"epoch={epoch}")
                for name in results:
                    self._fs.move(f"{pending}/{name}", f"{prepared}/{name}")
                self._area.sync(prepared, self._area.path("prepared"))
                files = self._fs.get_file_info([f"{prepared}/{name}" for name in results])
                size_bytes = sum(info.size for info in files)
                self.prepared_bytes += size_bytes
                self._held_bytes += size_bytes
            if self._area.exists(pending):
                self._fs.delete_dir(pending)

    def commit(self, epoch: int) -> None:
        """Make visible what is prepared, or hold it back to be joined with later epochs."""
        if self._compact is None:
            super().commit(epoch)
        else:
            self._held_since_ms = self._held_since_ms if self._commits else self._now_ms()
            self._last, self._commits = epoch, self._commits + 1
            self.release(only_due=True)
            with self._area.guarded(f"commit epoch {epoch}"):
                self._committed(epoch)

    def release(self, only_due: bool = False) -> None:
        """Make visible what is committed and was held back, or only if the strategy says that it is time."""
        if self._compact is not None and (not only_due or self._is_due(self._compact)):
            with self._area.guarded(f"show what was held back up to epoch {self._last}"):
                self._publish_joined(self._compact, self._last.__ge__)

    # --- joining -------------------------------------------------------------------------------------

    def _is_due(self, compact: FileCompactStrategy) -> bool:
        held_ms = self._now_ms() - self._held_since_ms
        return self._commits > 0 and compact.is_due(self._commits, self._held_bytes, held_ms)

    def _publish_joined(self, compact: FileCompactStrategy, is_held: Callable[[int], bool]) -> None:
        """Publish the prepared epochs that are held back, small ones that follow each other as one."""
        self._drop_published()
        held = [(number, path) for number, path in self._area.epochs("prepared") if is_held(number)]
        for is_small, together in groupby(held, lambda one: self._is_small(one[1], compact)):
            parts = [*together]
            if is_small and len(parts) + len(self._joiner.files_in(parts[0][1])) > 2:
                self._publish(parts[-1][0], self._filled(partial(self._joiner.join, parts)))
                self._drop_published()
            else:
                for number, path in parts:
                    self._publish(number, path)
        self._area.sync(self._area.path("prepared"))
        self._area.sweep()
        self._commits = self._held_bytes = 0

    def _is_small(self, folder: str, compact: FileCompactStrategy) -> bool:
        return not compact.is_large(sum(info.size for info in self._joiner.files_in(folder)))

    def _filled(self, fill: Callable[[str], None]) -> str:
        """Return a new folder that readers do not see, when a function has filled it."""
        self._area.make("dropped")
        folder = self._area.make("dropped", uuid.uuid4().hex)
        fill(folder)
        return folder

    def _drop_published(self) -> None:
        """Delete prepared epochs that a published folder contains, the last ones first."""
        prepared = self._area.epochs("prepared")
        newest = max((number for number, _ in self._visible()), default=0) if prepared else 0
        published = [path for number, path in prepared if number <= newest]
        if published:
            self._area.sync(self._root)  # whoever published it may have failed to do so
        for path in reversed(published):
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

    # --- going back ----------------------------------------------------------------------------------

    def _retract(self, change: Change) -> None:
        self._last = change.restored
        self._drop_published()
        if self._compact is not None:
            self._publish_joined(self._compact, change.stays)
        super()._retract(change)

    def _bring_all_back(self, change: Change) -> None:
        """Bring back the folders that are aside and contain wanted epochs, each up to the last of these.

        A visible folder stays as it is, unless it is a copy of the first epochs of one that is brought back.
        """
        for run in self._area.runs_aside():
            for end, is_whole, first, path in self._wanted(run, change):
                others = self._overlapping(first, end)
                if all(begin == first and last < end for begin, last, _ in others):
                    for _, _, copy in others:
                        self._area.drop(copy)
                    copy_head = partial(self._joiner.copy_head, path, end)
                    self._publish(end, path if is_whole else self._filled(copy_head))
            self._area.sync(self._area.path("aside", run))

    def _wanted(self, run: str, change: Change) -> list[tuple[int, bool, int, str]]:
        """Return the folders of a run that are aside and have wanted epochs, the last ones first.

        Each comes with the last wanted epoch, whether all are wanted, and the first epoch.
        """
        found = []
        for last, path in self._area.epochs("aside", run):
            first, _ = self._joiner.note_in(last, path)
            wanted = (n for n in range(last, first - 1, -1) if change.is_wanted(run, n))
            found += [(end, end == last, first, path) for end in islice(wanted, 1)]
        return sorted(found, reverse=True)

    def _overlapping(self, first: int, end: int) -> list[tuple[int, int, str]]:
        """Return the visible folders with any epoch of a range: first and last epoch, and path."""
        later = [(number, path) for number, path in self._visible() if number >= first]
        found = [(self._joiner.note_in(number, path)[0], number, path) for number, path in later]
        return [folder for folder in found if folder[0] <= end]
