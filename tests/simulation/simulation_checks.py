"""What must hold in the failure simulation: at each step, whenever a program ends, and at the end.

The witness sees the disk and what is said, and compares with the model: no matter what has gone wrong,

* the rows that can be seen are those of the first so many records, each once, each key's in order;
* an epoch is final when a completed checkpoint covers it, and not before, and is not taken back;
* a checkpoint appears when all its files are there, and restores what the model's state was;
* records are counted once;
* nothing fails without a fault;
* at the end no file is left that no completed checkpoint needs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import attrs
import simulation_model
from simulation_cluster import Cluster
from simulation_model import Model, Row
from simulation_storage import Operation, Process

from pyflinkstate.api import Types
from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend, HeapRestoreOperation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import CorruptCheckpointError, PyFlinkStateError, SlotBusyError
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.observe import CheckpointStats, JobListener
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.messages import NotifyCheckpointComplete

CHECKPOINTS = "/checkpoints"
SAVEPOINTS = f"{CHECKPOINTS}/savepoints"
OUTPUT = "/output"
#: What these faults do comes later, or goes on.
LASTING = ("stall", "fill the disk", "flaky disk")
#: So often a checkpoint is restored as soon as it appears; those that are left at the end are restored then.
RESTORED_AT_ONCE = 0.1

_METADATA = "/_metadata"
_VISIBLE_EPOCH = re.compile(rf"{OUTPUT}/(\d+)/epoch=(\d+)")
_KEPT_EPOCH = re.compile(rf"{OUTPUT}/\d+/(?:_runs/[^/]+/prepared/)?epoch=(\d+)/")
_SUPERSEDED = re.compile(rf"{CHECKPOINTS}/\w+/superseded-[^/]+")
_CLAIM = re.compile(rf"{CHECKPOINTS}/\w+/runs/[^/]+")
_PLACE = re.compile(rf"{CHECKPOINTS}/(\w+)/(?:shared|chk-\d+)(?=/|$)")


#: The runs that led to a checkpoint, each with the epoch that it began after.
Runs = tuple[tuple[str, int], ...]


@attrs.frozen
class Published:
    """A checkpoint or savepoint whose ``_metadata`` has appeared."""

    metadata: CheckpointMetadata
    folder: str

    @property
    def is_savepoint(self) -> bool:
        return self.folder.startswith(SAVEPOINTS)

    @property
    def is_superseded(self) -> bool:
        """Whether it was set aside."""
        return _SUPERSEDED.fullmatch(self.folder) is not None

    def files(self) -> set[str]:
        """Return the paths of all files that it needs."""
        handles = [state.managed_keyed for operator in self.metadata.operators for state in operator.subtasks]
        files = [file for handle in handles if handle is not None for file in handle.files()]
        paths = {posixpath.normpath(f"{self.folder}/{file.path}") for file in files}
        return {self.folder + _METADATA, *paths}


class Witness(JobListener):
    """Sees everything, and compares with the model.

    Args:
        cluster: where the job runs.
        storage: its checkpoints.
        model: what the job must come to.
        backend: what state is restored to.
        max_parallelism: of the job.
    """

    def __init__(
        self,
        cluster: Cluster,
        storage: CheckpointFolders,
        model: Model,
        backend: HashMapStateBackend,
        max_parallelism: int,
    ) -> None:
        self._cluster = cluster
        self._disk = cluster.disk
        self._storage = storage
        self._model = model
        self._backend = backend
        self._max_parallelism = max_parallelism
        self._disk.observe = self._observe
        cluster.overhear = self._overhear
        cluster.power_is_back = self._power_is_back
        #: How often what happened.
        self.notes: Counter[str] = Counter()
        #: By folder: all that ever appeared.
        self.published: dict[str, Published] = {}
        #: Folders of checkpoints that somebody has damaged.
        self.damaged: set[str] = set()
        self.job_id = ""
        #: The program that was started last.
        self._job: Job | None = None
        #: The number of the output directory; a job that begins from nothing has a new one.
        self.output = self._outputs = 0
        #: By job that is over: its directory, whether it was taken back, and what it handed over.
        self._left: dict[str, tuple[int, bool, Any]] = {}
        #: What ``foreach_epoch`` was called with last, by epoch.
        self.foreach: dict[int, list[Row]] = {}
        #: A driver called it when another one had taken the job over.
        self.foreach_is_mixed = False
        #: Committed output may be taken back: somebody goes back to an older state.
        self.takes_back = False
        self._was_taken_back = False
        self._last_announced: int | None = None
        #: Folders of checkpoints that a driver has published after another one had taken the job over.
        self.late: set[str] = set()
        #: Drivers that have claimed the job.
        self._claimants: set[Process] = set()
        #: Checkpoints that have appeared since the program was started.
        self.completed_in_this_run = 0
        #: The program that runs cannot open its state: how often it tries is its own affair.
        self.is_misfit = False
        #: The power was cut since the program was started.
        self._was_cut = False
        #: What had been deleted since then, and is there again.
        self._came_back: set[str] = set()

    # --- the life of programs ------------------------------------------------------------------------

    def begins_anew(self) -> None:
        """There is no checkpoint, and the next job has another directory."""
        self._left[self.job_id] = (self.output, self._was_taken_back, self.foreach.copy())
        self.output = self._outputs = self._outputs + 1
        self.foreach.clear()
        self.takes_back = self._was_taken_back = False

    def goes_on_with(self, job_id: str) -> None:
        """A power cut may bring back a checkpoint of a job that was over; that job has its own directory."""
        if job_id != self.job_id and job_id in self._left:
            self._left[self.job_id] = (self.output, self._was_taken_back, self.foreach.copy())
            self.output, self._was_taken_back, foreach = self._left[job_id]
            self.foreach.clear()
            self.foreach.update(foreach)
            self.takes_back = True

    def starts(self, job: Job) -> None:
        """A program was started."""
        self._job = job
        self.job_id = job.job_id
        self._last_announced = None
        self.completed_in_this_run = 0
        self._was_cut = False
        self._came_back.clear()
        self._was_taken_back |= self.takes_back

    def announced(self, epoch: int) -> None:
        """The job says that an epoch is final."""
        assert self.takes_back or self._last_announced in (None, epoch - 1), f"after {self._last_announced}"
        assert epoch <= self.newest_epoch()
        self._last_announced = epoch
        self.notes["committed"] += 1

    @contextmanager
    def second_driver(self) -> Iterator[None]:
        """Another driver runs while the first one is frozen."""
        announced = self._last_announced
        yield
        self._last_announced = announced

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        assert not isinstance(error, SlotBusyError), "a copy of a task is no reason to restart"
        self.notes["restarts"] += not self.is_misfit
        self.notes["fell back"] += isinstance(error, CorruptCheckpointError)
        self._check_reason(error)

    def on_checkpoint_failed(self, stats: CheckpointStats) -> None:
        self.notes["failed checkpoints"] += 1
        self.notes["expired checkpoints"] += "expired" in (stats.failure or "")
        # It has appeared, and its driver does not know that.
        self.completed_in_this_run -= (
            f"{CHECKPOINTS}/{self.job_id}/chk-{stats.checkpoint_id}" in self.published
        )

    def failed(self, error: PyFlinkStateError) -> None:
        """A program has ended with an error."""
        self.notes["failed"] += not self.is_misfit
        self._check_reason(error)

    def _check_reason(self, error: PyFlinkStateError) -> None:
        """Nothing fails by itself, and no fault makes it fail twice, if it is not one that goes on."""
        struck = self._cluster.chaos.struck
        faults = (
            sum(struck.values()) - struck["set the clock"] + self.notes["poisoned"] + self.notes["cancelled"]
        )
        failures = self.notes["restarts"] + self.notes["failed"]
        goes_on = self.is_misfit or self.damaged or any(struck[fault] for fault in LASTING)
        assert failures <= faults or goes_on, f"it failed once too often: {error!r}"

    # --- what happens on the disk, and is said -------------------------------------------------------

    def _observe(self, operation: Operation) -> None:
        if operation.name == "move" and operation.target.endswith(_METADATA):
            self._appeared(operation.target.removesuffix(_METADATA))
        elif operation.name == "move" and _SUPERSEDED.fullmatch(operation.target):
            self._set_aside(operation.path, operation.target)
        elif operation.name == "move" and (visible := _VISIBLE_EPOCH.fullmatch(operation.target)):
            covered = self.newest_epoch()
            assert int(visible[2]) <= covered, f"{operation.target}, and checkpoints cover {covered}"
        elif operation.name in ("move", "delete folder") and _VISIBLE_EPOCH.fullmatch(operation.path):
            assert self.takes_back, f"{operation.path} was final, and is taken back"
        elif operation.name == "delete" and operation.path.endswith(_METADATA):
            self._deleted(operation.path.removesuffix(_METADATA))
        elif operation.name == "move" and _CLAIM.fullmatch(operation.target):
            self._claimants.add(operation.process)

    def goes_on_without_claim(self, driver: Process) -> bool:
        """A driver that was told what to restore is thawed; return whether it has no claim: it is newest."""
        has_no_claim = driver not in self._claimants
        self.takes_back |= has_no_claim
        self._was_taken_back |= self.takes_back
        return has_no_claim

    def _appeared(self, folder: str) -> None:
        metadata = CheckpointMetadata.decode(self._disk.read(folder + _METADATA), folder)
        published = self.published[folder] = Published(metadata, folder)
        self.notes["published"] += 1
        self._cluster.chaos.quiet -= 1
        if self._cluster.is_superseded:
            self.notes["published late"] += 1
            self.late.add(folder)
        self.completed_in_this_run += not published.is_savepoint
        missing = published.files() - set(self._disk.files)
        assert not missing, f"{folder} appeared without {missing}"
        count = self._model.count(self._model.read_until(metadata.source_position))
        read, processed = self._counted(metadata.counters)
        read += [] if self._model.has_time else processed
        assert set(read) == {count}, f"{metadata.counters} in {folder} at {count}"
        if published.is_savepoint and not self._cluster.is_superseded:
            rows, count = len(self._visible_rows()), self._model.count(self._processed(metadata))
            assert rows >= count, f"{folder} appeared at {count}, and {rows} rows are final"
        chains = [chain for operator in metadata.operators for chain in _chains(operator)]
        assert all(chain == sorted(set(chain)) for chain in chains), f"increments on newer files in {folder}"
        self.notes["increments"] += any(len(chain) > 1 for chain in chains)
        if self._cluster.draw("restored at once").random() < RESTORED_AT_ONCE:
            self._check_restores(published)

    def _deleted(self, folder: str) -> None:
        """A driver deletes no checkpoint that covers final output, unless the job is over."""
        assert self._job is not None
        if folder not in self.published or self.takes_back or self._job.status.is_globally_terminal_state():
            return
        covered = self._covered(set(self._disk.files))
        assert (self._last_announced or 0) <= covered, f"{folder} is deleted, and its output final"

    def _covered(self, files: set[str]) -> int:
        """Return the epoch of the job's newest checkpoint among some files."""
        found = [p for p in self.published.values() if self.is_of_this_job(p) and not self._is_off_line(p)]
        return max((p.metadata.epoch for p in found if p.folder + _METADATA in files), default=0)

    def _power_is_back(self, before: set[str], came_back: set[str]) -> None:
        """What was said to be final is so, unless the job is over and had deleted its checkpoints."""
        self.notes["power cuts"] += 1
        self._came_back |= came_back
        self._was_cut = True
        covered = min(self._last_announced or 0, self._covered(before))
        self.published = {folder: p for folder, p in self.published.items() if self.is_there(p)}
        assert covered <= self.newest_epoch(), "a checkpoint is gone, and its output final"

    def _set_aside(self, folder: str, target: str) -> None:
        """A checkpoint has moved; it is as whole as it was."""
        self.published[target] = Published(self.published[folder].metadata, target)
        if folder in self.damaged:
            self.damaged.add(target)
        self.notes["set aside"] += 1

    def _overhear(self, message: object) -> None:
        if isinstance(message, NotifyCheckpointComplete):
            ids = [p.metadata.checkpoint_id for p in self.published.values() if self.is_of_this_job(p)]
            assert message.checkpoint_id in ids, "slots are told of a checkpoint that is not there"

    @contextmanager
    def nothing_changes(self) -> Iterator[None]:
        """A program runs that cannot open its state: no checkpoint is touched, and no committed row."""
        before, cuts = self._treasures(), self.notes["power cuts"]
        takes_back = self.takes_back, self._was_taken_back
        self.is_misfit = True
        yield
        self.is_misfit = False
        self.takes_back, self._was_taken_back = takes_back
        after = self._treasures()
        if self.notes["power cuts"] > cuts:  # what came and went with the power is no doing of the program
            both = before.keys() & after.keys()
            before, after = {path: before[path] for path in both}, {path: after[path] for path in both}
        assert after == before, "a program that does not fit has changed what was there"
        self.notes["did not fit"] += 1

    def _treasures(self) -> dict[str, bytes]:
        """Return what nobody may touch: completed checkpoints, and output that can be seen."""
        needed = [p.files() for p in self.published.values() if self.is_there(p)]
        visible = [p for p in self._disk.below(OUTPUT) if _VISIBLE_EPOCH.match(p)]
        paths = {*visible}.union(*needed) & set(self._disk.files)
        return {path: self._disk.read(path) for path in sorted(paths)}

    # --- checkpoints ---------------------------------------------------------------------------------

    def is_of_this_job(self, published: Published) -> bool:
        return published.metadata.job_id == self.job_id

    def is_there(self, published: Published) -> bool:
        return published.folder + _METADATA in self._disk.files

    def is_whole(self, published: Published) -> bool:
        """Return whether it is there, and nobody has damaged it."""
        return self.is_there(published) and published.folder not in self.damaged

    def completed(self) -> list[Published]:
        """Return the job's completed checkpoints that are there, in order; savepoints are none."""
        found = [p for p in self.published.values() if self.is_of_this_job(p) and self.is_there(p)]
        return sorted(
            (p for p in found if not p.is_savepoint and not p.is_superseded and not self._is_off_line(p)),
            key=lambda published: published.metadata.checkpoint_id,
        )

    def return_points(self, has_foreach: bool) -> list[Published]:
        """Return the job's savepoints, and checkpoints set aside, that it can go back to with all output.

        A file sink goes back to any; what ``foreach_epoch`` was given is just what was given last.
        """
        found = [
            p
            for p in self.published.values()
            if (p.is_savepoint or p.is_superseded) and self.is_of_this_job(p)
        ]
        return [
            savepoint
            for savepoint in found
            if self.is_whole(savepoint) and (not has_foreach or self._fits_output(savepoint))
        ]

    def _fits_output(self, savepoint: Published) -> bool:
        """Return whether the output before a savepoint is still there, as it was.

        It may have been taken back, or cut into other epochs, when the job has gone back to a checkpoint.
        """
        rows = 0
        for path in self._disk.below(f"{OUTPUT}/{self.output}"):
            kept = _KEPT_EPOCH.match(path)
            if kept and int(kept[1]) <= savepoint.metadata.epoch:
                rows += self._disk.read(path).count(b"\n")
        return rows == savepoint.metadata.source_position["index"]

    def _is_off_line(self, published: Published) -> bool:
        """Return whether it came after a newer run had gone on without it: a claim alone makes none late."""
        return published.folder in self.late and self._is_beside_the_line(published)

    def _is_beside_the_line(self, published: Published) -> bool:
        with self._disk.used_by(self._cluster.user):
            line = self._storage.line(published.metadata.job_id).runs
        return _is_beside(published.metadata.runs, published.metadata.epoch, line)

    def newest_epoch(self) -> int:
        """Return up to which epoch the job's output may be final."""
        found = [p for p in self.published.values() if self.is_of_this_job(p) and not self._is_off_line(p)]
        return max((published.metadata.epoch for published in found), default=0)

    def newest_index(self) -> int:
        """Return how many records the job's checkpoints cover."""
        found = [p for p in self.published.values() if self.is_of_this_job(p)]
        return max((self._read(published) for published in found), default=0)

    def _read(self, published: Published) -> int:
        return self._model.count(self._model.read_until(published.metadata.source_position))

    def _processed(self, metadata: CheckpointMetadata) -> list[int]:
        """Return, for each key, which records have rows at least: those before this one."""
        until = self._model.read_until(metadata.source_position)
        if not self._model.has_time:
            return until
        of_sources = metadata.watermarks.values()
        watermark = min(of_sources) if len(of_sources) == self._model.sources else -1
        return [min(number, watermark + 1) for number in until]

    # --- when a program has ended --------------------------------------------------------------------

    def check_output(self) -> None:
        """What can be seen are the rows of the first so many records."""
        rows = self._visible_rows()
        # It may have been killed half-way back. After a power cut, of several renames the last may have
        # reached the disk alone; what had been announced is there.
        is_half_way = self.takes_back and len(rows) < len(self._model.rows)
        if self._was_cut or is_half_way:
            self._check_some_rows(rows, set() if is_half_way else self._announced_rows())
        elif self._model.sources > 1 or self._model.has_time:  # a key may be ahead of others
            _check_rows(rows, self._model.rows, are_all=False)
        else:
            _check_rows(rows, self._model.rows[: len(rows)])

    def _check_some_rows(self, rows: list[Row], at_least: set[int]) -> None:
        """Each row is the model's, and there is none twice; of the first so many there is each."""
        numbers = [row[1] for row in rows]
        assert len(set(numbers)) == len(numbers), f"rows come twice: {sorted(numbers)}"
        assert all(row == self._model.rows[row[1]] for row in rows)
        assert at_least <= set(numbers), f"{at_least} were final, and there are {sorted(numbers)}"

    def _announced_rows(self) -> set[int]:
        """Return which records are in epochs that were announced, as far as checkpoints tell."""
        found = [p.metadata for p in self.published.values() if self.is_of_this_job(p)]
        announced = self._last_announced or 0
        covered = [metadata for metadata in found if metadata.epoch <= announced]
        until = [self._processed(metadata) for metadata in covered]
        return {number for number, key, *_ in self._model.records if any(number < at[key] for at in until)}

    def check_checkpoints(self) -> None:
        """Whatever passes for a checkpoint is whole, also where one was being deleted."""
        for published in self.published.values():
            if self.is_whole(published):
                missing = published.files() - self._disk.files.keys()
                assert not missing, f"{published.folder} is there without {missing}"

    def check_latest(self, folder: str) -> None:
        """A checkpoint is the latest of the line that the newest run goes on with, or of a newer one."""
        published = self.published[folder]
        assert not self._is_beside_the_line(published), (
            f"{folder} is no latest: a newer run went on without it"
        )
        with self._disk.used_by(self._cluster.user):
            *_, (run, began) = (("", 0), *self._storage.line(published.metadata.job_id).runs)
        is_back = published.metadata.epoch >= began
        assert is_back or self.damaged, f"{folder} is no latest: run {run} began after epoch {began}"

    def check_counts(self, job: Job) -> None:
        """Of a program that has ended well: records are counted once, whatever happened on the way."""
        counts, rows = job.result().accumulators, len(self._visible_rows())
        read, processed = self._counted(counts)
        tally = [counts.get(name, 0) for name in ("tally.records_in", "tally.records_out")]
        processed += tally * self._model.tallies_rows
        assert set(processed) <= {rows}, f"{counts}, and {rows} rows"
        is_stopped = self._model.has_time and min(read) >= rows  # some may wait for the watermark
        assert is_stopped or set(read) == {rows}, f"{counts}, and {rows} rows"

    def _counted(self, counts: Mapping[str, int]) -> tuple[list[int], list[int]]:
        """Return counts of all records that were read, and of those that do not wait any more."""
        names = simulation_model.SOURCES[: self._model.sources]
        read, ledger = [sum(counts.get(f"{name}.records_out", 0) for name in names)], []
        if self._model.has_state:
            read.append(counts.get("ledger.records_in", 0))
            ledger = [counts.get("ledger.records_out", 0)]
        return read, ledger

    def _visible_rows(self) -> list[Row]:
        found = []
        for path in self._disk.below(f"{OUTPUT}/{self.output}"):
            folder, _, name = path.rpartition("/")
            if visible := _VISIBLE_EPOCH.fullmatch(folder):
                found.append((int(visible[2]), name, path))
        lines = [line for *_, path in sorted(found) for line in self._disk.read(path).decode().splitlines()]
        return [json.loads(line) for line in lines]

    # --- at the end --------------------------------------------------------------------------------

    def check_end(self, has_foreach: bool, num_retained: int | None) -> None:
        """All the input is processed.

        Args:
            has_foreach: there is a ``foreach_epoch`` as well.
            num_retained: how many checkpoints shall be kept, if they shall.
        """
        rows = self._visible_rows()
        assert len(rows) == len(self._model.rows), f"{len(rows)} rows, and not {len(self._model.rows)}"
        _check_rows(rows, self._model.rows)
        if has_foreach and not self._was_taken_back and not self.foreach_is_mixed:
            _check_rows(
                [row for epoch in sorted(self.foreach) for row in self.foreach[epoch]], self._model.rows
            )
        for published in self.published.values():
            if self.is_whole(published):
                self._check_restores(published)
        self._check_leftovers()
        if num_retained is not None:
            kept = len(self.completed())
            assert kept >= min(self.completed_in_this_run, num_retained)
            most = num_retained + len(self.damaged) + len(self._cluster.disturbed)
            assert kept <= most or self._is_excused_from_deleting()

    def _check_restores(self, published: Published) -> None:
        """A checkpoint restores what the model's state was after as many records."""
        with self._disk.used_by(self._cluster.user):
            metadata = self._storage.load(published.folder)
            model = self._model
            restored = {op.operator_id: self._restored(op, published.folder) for op in metadata.operators}
            until = model.read_until(metadata.source_position)
            if model.has_time:
                waiting = simulation_model.waiting_in(restored["ledger"])
                until = model.processed_until(until, waiting)
            if "ledger" in restored:
                assert simulation_model.ledger_of(restored["ledger"]) == model.ledger_at(until)
            if "tally" in restored:
                assert simulation_model.tally_of(restored["tally"]) == model.tally_at(until)
        self.notes["restored"] += 1

    def _restored(self, operator: OperatorState, folder: str) -> HeapKeyedStateBackend:
        owned = KeyGroupRange(0, self._max_parallelism - 1)
        backend = self._backend.create_keyed_state_backend(
            Types.LONG(), owned, self._max_parallelism, lambda: self._cluster.now_ms
        )
        reader = self._storage.streams(folder)
        HeapRestoreOperation(backend, reader).restore(state.managed_keyed for state in operator.subtasks)
        return backend

    def _check_leftovers(self) -> None:
        """Of the job that has finished nothing is left that no completed checkpoint needs.

        Excused are files made by processes that were cut off by then, what lies where something failed, what
        a checkpoint may share that is damaged or cannot be read, what a power cut brought back after it had
        been deleted, and all of it if the job could not see what there was when it ended.
        """
        found = [p for p in self.published.values() if self.is_of_this_job(p) and self.is_there(p)]
        needed = {published.folder for published in found}.union(*(published.files() for published in found))
        own = f"{CHECKPOINTS}/{self.job_id}"
        if self._is_excused_from_deleting():
            return
        for path in [*self._disk.below(own), *sorted(self._disk.folders)]:
            place = _PLACE.match(path)
            if place is None or place[1] != self.job_id or path.endswith("/shared"):
                continue
            if path in needed or path in self._came_back:
                continue
            maker, was_cut_off = self._disk.makers.get(path, (None, False))
            may_be_needed = place[0].endswith("/shared") and (
                any(map(self._is_damaged_aside, found)) or self._has_unreadable(own)
            )
            may_be_needed = may_be_needed or self._is_of_a_damaged_one(path)
            excused = was_cut_off or place[0] in self._cluster.disturbed or may_be_needed
            assert excused, f"{path} (made by {maker}) is left, and nobody needs it"

    def _is_excused_from_deleting(self) -> bool:
        """Return whether the job could not see what there was, or whether it was still its own."""
        own = f"{CHECKPOINTS}/{self.job_id}"
        return not self._cluster.unlisted.isdisjoint({own, f"{own}/runs"})

    def _is_damaged_aside(self, published: Published) -> bool:
        return published.is_superseded and published.folder in self.damaged

    def _has_unreadable(self, own: str) -> bool:
        """Return whether a power cut has left a checkpoint of the job that nobody can read."""
        found = [path for path in self._disk.below(own) if path.endswith(_METADATA)]
        return not all(self._is_readable(path.removesuffix(_METADATA)) for path in found)

    def _is_readable(self, folder: str) -> bool:
        with self._disk.used_by(self._cluster.user):
            try:
                self._storage.load(folder)
            except CorruptCheckpointError:
                return False
        return True

    def _is_of_a_damaged_one(self, path: str) -> bool:
        """Return whether a damaged checkpoint that is still there has the file."""
        damaged = [p for p in self.published.values() if p.folder in self.damaged and self.is_there(p)]
        return any(path in published.files() for published in damaged)


def _is_beside(runs: Runs, epoch: int, line: Runs) -> bool:
    """Return whether an epoch, as ``runs`` led to it, is none of ``line``'s, which has gone another way."""
    if not line or _number(runs[-1][0]) > _number(line[-1][0]):
        return False
    for own, others in zip_longest(runs, line):
        if own != others:
            return epoch > min(run[1] for run in (own, others) if run is not None)
    return False


def _number(run: str) -> tuple[int, str]:
    return int(run.partition("-")[0]), run


def _chains(state: OperatorState) -> list[list[Any]]:
    """Return, for each subtask, the checkpoints at which its files were written."""
    return [
        [written.checkpoint_id for written in (handle, *handle.increments)]
        for subtask in state.subtasks
        if (handle := subtask.managed_keyed) is not None
    ]


def _check_rows(found: list[Row], expected: list[Row], are_all: bool = True) -> None:
    def by_key(rows: list[Row]) -> dict[int, list[Row]]:
        keys: dict[int, list[Row]] = {}
        for row in rows:
            keys.setdefault(row[0], []).append(row)
        return keys

    have, must = by_key(found), by_key(expected)
    if not are_all:  # of each key those of its first records
        must = {key: must[key][: len(rows)] for key, rows in have.items()}
    assert have == must
