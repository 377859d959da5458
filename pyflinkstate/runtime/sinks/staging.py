"""Where a sink stages the output of epochs until it is published.

    <directory>/<run>/epoch=<n>.json    the *note*: what is staged for an epoch
    <directory>/<run>/epoch=<n>/        the files that its tasks have written, if the sink stages files here
    <directory>/marked                  the sink's target has had a marker

Each run of a job writes into a folder of its own, so an older driver that is still alive changes nothing of a
newer one. Nothing is renamed, so any storage will do: a note is there as a whole or not at all.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

from pyarrow import fs

from pyflinkstate.api import Reported
from pyflinkstate.errors import JobSupersededError, SinkError
from pyflinkstate.runtime.sinks.sink_files import sink_errors
from pyflinkstate.runtime.storage import (
    RunHistory,
    below,
    child_uri,
    flush_folder,
    is_run_id,
    make_folder,
    newest_run,
    open_file_system,
    read_note,
    run_id_after,
    write_whole,
)

_NOTE = re.compile(r"epoch=(\d+)\.json")
_MARKED = "marked"


class StagingArea:
    """The folder of a sink; see the top of the file.

    Args:
        uri: a path or URI that driver and executors reach.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        with sink_errors(f"open {uri}"):
            file_system, root = open_file_system(uri)
        self._root = root.rstrip("/")
        self._fs = below(file_system, self._root)
        self.run = ""

    def begin(self, run: str) -> None:
        """Create the folder of a run, to which this object belongs from now on.

        Raises:
            JobSupersededError: a newer run has begun.
        """
        self.run = run
        with sink_errors(f"use {self.uri}"):
            make_folder(self._fs, f"{self._root}/{run}")
            write_whole(self._fs, f"{self._root}/{run}/begun", b"")  # storage without folders needs a file
            flush_folder(self._fs, f"{self._root}/{run}")
        self.check()

    def check(self) -> None:
        """Raise ``JobSupersededError`` if a newer run has begun."""
        newest = newest_run(self.runs())
        if newest != self.run:
            raise JobSupersededError(
                f"sink: {self.uri}: run {newest} has taken over from run {self.run}, which publishes nothing",
                run=self.run,
            )

    def next_run(self) -> str:
        """Return the id of a run after all that have begun."""
        return run_id_after(self.runs(), uuid.uuid4().hex[:8])

    def runs(self) -> list[str]:
        """Return the runs that have begun."""
        return [info.base_name for info in self._infos(self._root) if is_run_id(info.base_name)]

    def _infos(self, folder: str) -> list[fs.FileInfo]:
        with sink_errors(f"list {folder}"):
            return list(self._fs.get_file_info(fs.FileSelector(folder, allow_not_found=True)))

    # --- whether there was a marker ------------------------------------------------------------------

    @property
    def was_marked(self) -> bool:
        """Whether the target has had a marker."""
        return self.has(_MARKED)

    def mark(self) -> None:
        """Record that the target has a marker."""
        self.write(_MARKED, b"")

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name in the folder."""
        with sink_errors(f"use {self.uri}"):
            return bool(self._fs.get_file_info(f"{self._root}/{name}").type == fs.FileType.File)

    def read(self, name: str) -> list[Any]:
        """Return the JSON list in a file of the folder."""
        path = f"{self._root}/{name}"
        with sink_errors(f"read {path}"):
            data = read_note(self._fs, path)
        try:
            return list(json.loads(data))
        except (ValueError, TypeError, RecursionError) as error:
            raise SinkError(f"sink: {path} is damaged: {error}", file=path) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the folder durably, completely or not at all."""
        path = f"{self._root}/{name}"
        with sink_errors(f"write {path}"):
            write_whole(self._fs, path, data)
            flush_folder(self._fs, path.rpartition("/")[0])

    # --- notes ---------------------------------------------------------------------------------------

    def folder_of(self, epoch: int) -> str:
        """Create the folder for the files of an epoch, and return its URI."""
        path = f"{self._root}/{self.run}/epoch={epoch}"
        with sink_errors(f"create {path}"):
            make_folder(self._fs, path)
        return child_uri(self.uri, self.run, f"epoch={epoch}")

    def write_note(self, epoch: int, staged: list[Reported]) -> None:
        """Write down durably what is staged for an epoch."""
        folder = f"{self._root}/{self.run}/epoch={epoch}"
        with sink_errors(f"flush {folder}"):
            if staged and self._fs.get_file_info(folder).type == fs.FileType.Directory:
                flush_folder(self._fs, folder)
        self.write(f"{self.run}/epoch={epoch}.json", json.dumps(staged).encode())

    def notes(self) -> dict[int, list[Reported]]:
        """Return what is noted by this run, by epochs in order: what their tasks have reported."""
        return {epoch: self._note(self.run, epoch) for epoch in sorted(self._epochs(self.run))}

    def note_of(self, epoch: int, history: RunHistory) -> list[Reported] | None:
        """Return what is noted for an epoch of a history, or None if there is no note."""
        maker = history.run_of(epoch)
        if maker is None or (maker == self.run and epoch not in self._epochs(maker)):
            runs = [run for run in self.runs() if run != self.run and epoch in self._epochs(run)]
            maker = newest_run(runs)
        return self._note(maker, epoch) if maker is not None and epoch in self._epochs(maker) else None

    def _epochs(self, run: str) -> set[int]:
        found = (_NOTE.fullmatch(info.base_name) for info in self._infos(f"{self._root}/{run}"))
        return {int(match[1]) for match in found if match is not None}

    def _note(self, run: str, epoch: int) -> list[Reported]:
        return self.read(f"{run}/epoch={epoch}.json")

    # --- deleting ------------------------------------------------------------------------------------

    def drop(self, epoch: int, run: str | None = None) -> None:
        """Delete what is staged for an epoch of a run, by default of this one."""
        note, folder = (f"{self._root}/{run or self.run}/epoch={epoch}{end}" for end in (".json", ""))
        with sink_errors(f"delete {note}"):  # the note first: it is never without its files
            if self._fs.get_file_info(note).type == fs.FileType.File:
                self._fs.delete_file(note)
            if self._fs.get_file_info(folder).type == fs.FileType.Directory:
                self._fs.delete_dir(folder)

    def clear(self, committed: int) -> None:
        """Delete what older runs have staged for epochs up to one that is committed.

        Later epochs of theirs stay: a savepoint may cover them, and as long as no later epoch is committed,
        the job can go back to it.
        """
        for run in self.runs():
            if run == self.run or newest_run([run, self.run]) == run:
                continue
            epochs = self._epochs(run)
            if max(epochs, default=0) <= committed:
                with sink_errors(f"delete {self._root}/{run}"):
                    self._fs.delete_dir(f"{self._root}/{run}")
                continue
            for epoch in filter(committed.__ge__, epochs):
                self.drop(epoch, run)

    def begun_epochs(self) -> list[int]:
        """Return the epochs of this run of which something is staged, in order."""
        names = (info.base_name.removesuffix(".json") for info in self._infos(f"{self._root}/{self.run}"))
        return sorted({int(name[6:]) for name in names if re.fullmatch(r"epoch=\d+", name)})
