"""The whole runtime under simulated failures: one seed is one history of one job, to the end of its input.

Production code runs: job master, coordinator, checkpointing, storage, slot registry, slot services, tasks,
sinks. Replaced are the clock, the storage (``simulation_storage``), and processes, connections and
Spark (``simulation_cluster``, ``simulation_spark``). ``Simulation(seed).run()`` replays a history.

The job's user does what users do: starts the program again when it was killed or has failed, from the
newest checkpoint if there is one, at another parallelism; takes savepoints, stops with one, cancels.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections import Counter
from concurrent.futures import Executor, Future
from typing import Any
from unittest.mock import patch

import attrs
import simulation_model
from simulation_cluster import Chaos, Cluster, Mailbox, SimulatedClock, SimulatedControl
from simulation_model import Ledger, Model, Poison, Row, SimulatedSource, Tally
from simulation_spark import KeptFrames, SimulatedSpark
from simulation_storage import Killed, Operation

from pyflinkstate.api.types import Types
from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap import snapshot
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.heap.restore import HeapRestoreOperation
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    JobCancelledError,
    PyFlinkStateError,
    SlotBusyError,
)
from pyflinkstate.runtime import tasks
from pyflinkstate.runtime.checkpoint_config import ExternalizedCheckpointRetention
from pyflinkstate.runtime.checkpointing import RestorePoint, SavepointRequest
from pyflinkstate.runtime.coordinator import CheckpointSettings
from pyflinkstate.runtime.file_sink import FileSink
from pyflinkstate.runtime.frames import decode_values
from pyflinkstate.runtime.job import Job, JobSettings
from pyflinkstate.runtime.messages import NotifyCheckpointComplete
from pyflinkstate.runtime.observe import JobListener
from pyflinkstate.runtime.plan import JobPlan, KeyedNode, Node, SinkNode, SourceNode, make_plan
from pyflinkstate.runtime.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    RestartStrategy,
)
from pyflinkstate.runtime.sinks import ForeachEpochSink
from pyflinkstate.runtime.storage import CheckpointStorage, FileSystemCheckpointStorage

JOB = "orders"
CHECKPOINTS = "/checkpoints"
SAVEPOINTS = f"{CHECKPOINTS}/savepoints"
OUTPUT = "/output"
#: A user who has started a program so often lets the cluster come to rest.
MAX_STARTS = 12

#: What may go wrong, and how often at each occasion for it.
RATES = {
    "kill the driver": 0.004,
    "crash a slot": 0.005,
    "kill a task": 0.01,
    "copy a task": 0.05,
    "stall": 0.03,
    "fill the disk": 0.003,
    "flaky disk": 0.005,
    "disk error": 0.01,
    "late disk error": 0.005,
    "kill at the disk": 0.01,
}
#: What these do comes later, or goes on.
LASTING = ("stall", "fill the disk", "flaky disk")
_VISIBLE_EPOCH = re.compile(rf"{OUTPUT}/(\d+)/epoch=(\d+)")
_PLACE = re.compile(rf"{CHECKPOINTS}/(\w+)/(?:shared|chk-\d+)(?=/|$)")
_KEPT_EPOCH = re.compile(rf"{OUTPUT}/\d+/(?:_prepared/)?epoch=(\d+)/")


@attrs.frozen
class Published:
    """A checkpoint or savepoint whose ``_metadata`` has appeared."""

    metadata: CheckpointMetadata
    folder: str

    @property
    def is_savepoint(self) -> bool:
        return self.folder.startswith(SAVEPOINTS)


class Simulation:
    """One history.

    Args:
        seed: replays it.
        faults: how many faults there may be; by default the seed says it.
        rates: of which kinds; by default the seed chooses some.
        settings: changes of the checkpoint settings that the seed chose.
    """

    def __init__(
        self,
        seed: int,
        faults: int | None = None,
        rates: dict[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        if rates is None:
            focus = rng.choice([0.3, 0.6, 1.0])
            rates = {fault: rate for fault, rate in RATES.items() if rng.random() < focus}
        self.chaos = Chaos(rng, rates, rng.choice([0, 1, 2, 3, 5, 8, 12]) if faults is None else faults)
        self.cluster = Cluster(rng, self.chaos)
        self.disk = self.cluster.disk
        self.disk.observe = self._observe
        self.cluster.overhear = self._overhear
        self.settings = attrs.evolve(_settings(rng), **settings)
        self.retention = rng.choice([None, None, None, *ExternalizedCheckpointRetention])
        self.backend = HashMapStateBackend(
            async_snapshots=self.settings.incremental or rng.random() < 0.8, snapshot_compression=None
        )
        self.fall_back = rng.random() < 0.5
        self.max_parallelism = rng.choice([4, 5, 8])
        self.tallies = rng.random() < 0.5
        self.records = simulation_model.make_records(rng)
        self.model = Model(self.records, self.tallies)
        self.storage_settings = FileSystemCheckpointStorage(
            CHECKPOINTS, rng.choice([0, 0, 1_500, 20_480]), rng.choice([0, 100, 4_096])
        )
        self.storage = CheckpointStorage(self.storage_settings, (self.disk.file_system, CHECKPOINTS))
        self.has_foreach = rng.random() < 0.3
        self.foreach: dict[int, list[Row]] = {}
        self.epoch_sizes = rng.choice([(1, 4), (3, 8), (3, 8), (8, 8)])
        self.idles = rng.choice([0.0, 0.3])
        self.commits_every_epoch = rng.random() < 0.15
        self.tells_end = rng.random() < 0.7
        self.restless = rng.choice([0.0, 0.3, 0.7])
        self.published: dict[str, Published] = {}
        self.last_announced: int | None = None
        #: Checkpoints that have appeared since the program was started.
        self.completed = 0
        self.damaged: set[str] = set()
        self.output = 0
        self.job: Job | None = None
        self.job_id = ""
        #: Output that was committed may be taken back: somebody goes back to an older state.
        self.takes_back = False
        self.was_taken_back = False
        self.notes: Counter[str] = Counter()
        self.next_restore: RestorePoint | None = None
        self.savepoint_requests: list[SavepointRequest] = []

    def run(self) -> None:
        """Run the job to the end, however often it takes, and check all that is left of it."""
        Poison.numbers = set()
        new_uuid = lambda: uuid.UUID(int=self.rng.getrandbits(128), version=4)  # noqa: E731
        with (
            patch("uuid.uuid4", new_uuid),
            patch.object(tasks, "run_epoch", self.cluster.run_epoch),
            patch.object(snapshot, "ThreadPoolExecutor", NoThreads),
        ):
            while not self._start():
                self.notes["starts"] += 1
                if self.notes["starts"] >= MAX_STARTS:
                    self.chaos.left = 0
                assert self.notes["starts"] < 2 * MAX_STARTS, "it fails again and again without a fault"
            self._check_end()

    # --- the user ------------------------------------------------------------------------------------

    def _start(self) -> bool:
        """Start the program once; returns whether it has come to the end of its input."""
        driver = self.cluster.start_driver()
        finished = False
        with self.disk.used_by(driver):
            try:
                self.job = self._make_job(self._restore_point())
                self.last_announced = None
                self.completed = 0
                self.was_taken_back |= self.takes_back
                self._plan_interventions(self.job)
                for epoch in self.job.run():
                    self._announced(epoch)
                finished = True
                self._check_counts(self.job)
            except Killed as killed:
                assert killed.process is driver  # noqa: PT017
                self.notes["killed"] += 1
            except JobCancelledError:
                self.notes["cancelled"] += 1
            except PyFlinkStateError as error:
                self.notes["failed"] += 1
                self.notes[f"failed: {type(error).__name__}"] += 1
                self.check_reason(error)
        self.cluster.end_driver()
        return self._ended(finished)

    def check_reason(self, error: PyFlinkStateError) -> None:
        """Nothing fails by itself, and no fault makes it fail twice, if it is not one that goes on."""
        faults = sum(self.chaos.struck.values()) + self.notes["poisoned"] + self.notes["cancelled"]
        failures = self.notes["restarts"] + self.notes["failed"]
        goes_on = self.damaged or any(self.chaos.struck[fault] for fault in LASTING)
        assert failures <= faults or goes_on, f"it failed once too often: {error!r}"

    def _ended(self, finished: bool) -> bool:
        self._check_output()
        until_ms = self.cluster.now_ms + self.rng.choice([0, 5, 50, 300])
        while self.cluster.step(until_ms):
            pass
        stopped = None
        for request in self.savepoint_requests:
            if request.done.done() and request.done.exception() is None:
                uri = request.done.result()
                assert uri in self.published, "a savepoint that is not there"
                self.notes["savepoints"] += 1
                if request.stops_job:
                    stopped = uri
        self.savepoint_requests.clear()
        if finished and stopped is not None:
            self.notes["stopped"] += 1
            self.next_restore = RestorePoint(self.storage.load(stopped), stopped)
            return False
        if not finished and self.fall_back:
            self._damage()
        return finished

    def _restore_point(self) -> RestorePoint | None:
        restore, self.next_restore = self.next_restore, None
        if restore is not None:
            self.takes_back = False
            return restore
        savepoints = [p for p in self.published.values() if p.is_savepoint and self._is_whole(p)]
        savepoints = [p for p in savepoints if self._is_of_this_job(p) and self._fits_output(p)]
        if savepoints and self.rng.random() < 0.2:
            chosen = self.rng.choice(savepoints)
            self.takes_back = True
            self.notes["back to a savepoint"] += 1
            return RestorePoint(chosen.metadata, chosen.folder)
        try:
            metadata = self.storage.load_latest(JOB, self.fall_back)
        except CheckpointNotFoundError:
            self.output += 1
            self.foreach = {}
            self.takes_back = self.was_taken_back = False
            return None
        committed = [p for p in self.published.values() if p.metadata.job_id == metadata.job_id]
        newest = max(committed, key=lambda p: p.metadata.epoch)
        # A savepoint that the job was to stop with has committed output, and is not "latest"; where all
        # checkpoints were to be deleted, the newest may be gone and another one not.
        deleted = self.retention is not None and metadata.epoch < newest.metadata.epoch
        self.takes_back = bool(self.damaged) or newest.is_savepoint or deleted or self.takes_back
        return RestorePoint(metadata, self.storage.uri_of(metadata.job_id, metadata.checkpoint_id))

    def _fits_output(self, savepoint: Published) -> bool:
        """Return whether the output before a savepoint is still there, as it was.

        It may have been taken back, or cut into other epochs, when the job has gone back to a checkpoint.
        """
        rows = 0
        for path in self.disk.below(f"{OUTPUT}/{self.output}"):
            kept = _KEPT_EPOCH.match(path)
            if kept and int(kept[1]) <= savepoint.metadata.epoch:
                rows += self.disk.read(path).count(b"\n")
        return rows == savepoint.metadata.source_position["index"]

    def _plan_interventions(self, job: Job) -> None:
        """Savepoints, cancellations and bad records, some time from now."""
        rng, cluster = self.rng, self.cluster
        while rng.random() < self.restless:
            draw = rng.random()
            delay_ms = rng.randrange(150)
            if draw < 0.5:
                cluster.at(delay_ms, lambda: self._take_savepoint(job, stops=False))
            elif draw < 0.75 and self.notes["stopped"] < 3:
                cluster.at(delay_ms, lambda: self._take_savepoint(job, stops=True))
            elif draw < 0.85 and self.notes["cancelled"] < 2:
                cluster.at(delay_ms, job.cancel)
            elif self.notes["poisoned"] < 3:
                self.notes["poisoned"] += 1
                Poison.numbers.add(rng.randrange(len(self.records)))

    def _take_savepoint(self, job: Job, stops: bool) -> None:
        if job is self.job and not self.cluster.driver.dead:
            request = SavepointRequest(SAVEPOINTS, stops)
            self.savepoint_requests.append(request)
            job.request_savepoint(request)

    def _damage(self) -> None:
        """Damage the newest checkpoint, where there is another one that does not need the same files."""
        whole = [p for p in self._completed() if self._is_whole(p)]
        if len(whole) < 2 or self.rng.random() < 0.5 or not self.chaos.rates:
            return
        *_, older, newest = whole
        files = self._files(newest) - self._files(older)
        path = self.rng.choice(sorted(files))
        content = self.disk.files[path]
        if self.rng.random() < 0.5:
            del content[self.rng.randrange(len(content)) :]
        else:
            content[self.rng.randrange(len(content))] ^= 0xFF
        self.notes["damaged"] += 1
        # What was written on top of it is damaged as well.
        for published in self.published.values():
            if path in self._files(published):
                self.damaged.add(published.folder)

    # --- the program ---------------------------------------------------------------------------------

    def _make_job(self, restore: RestorePoint | None) -> Job:
        mailbox: Any = Mailbox(self.cluster)
        controls: list[SimulatedControl] = []

        def control(_: bytes, events: Any, deployments: Any) -> SimulatedControl:
            controls.append(SimulatedControl(self.cluster, events, deployments))
            runner.control = controls[-1]
            return controls[-1]

        runner = LateSpark(self.cluster, mailbox)
        job = Job(
            self._plan(),
            self._job_settings(),
            runner,
            control,
            SimulatedClock(self.cluster),
            self.storage,
            restore,
            mailbox,
        )
        self.job_id = job.job_id
        return job

    def _plan(self) -> JobPlan:
        rng = self.rng
        source = SimulatedSource(self.records, self._available, self.tells_end, self.commits_every_epoch)
        node: Node = SourceNode(source, "numbers")
        node = KeyedNode(
            node,
            simulation_model.key_of,
            Types.LONG(),
            Ledger(),
            "ledger",
            uid="ledger",
            parallelism=rng.choice([1, 2, 2, 3]),
        )
        if self.tallies:
            node = KeyedNode(
                node,
                simulation_model.group_of,
                Types.LONG(),
                Tally(),
                "tally",
                uid="tally",
                parallelism=rng.choice([1, 2]),
            )
        directory = f"{OUTPUT}/{self.output}"
        sinks = [SinkNode(node, FileSink(directory, "json", file_system=self.disk.file_system), "files")]
        if self.has_foreach:
            sinks.append(SinkNode(node, ForeachEpochSink(self._write_epoch), "foreach"))  # type: ignore[arg-type]
        return make_plan(sinks, 1, self.max_parallelism)

    def _available(self) -> int:
        if self.rng.random() < self.idles:
            return 0
        return self.rng.randint(*self.epoch_sizes)

    def _write_epoch(self, frames: KeptFrames, epoch: int) -> None:
        self.foreach[epoch] = [row for _, frame in frames.frames for row in decode_values(frame)]

    def _job_settings(self) -> JobSettings:
        settings = self.settings
        if self.notes["starts"] >= MAX_STARTS:
            settings = attrs.evolve(settings, timeout_ms=100_000)
        return JobSettings(
            JOB,
            settings,
            _restart_strategy(self.rng),
            (Watcher(self),),
            self.backend,
            self.retention,
            fall_back=self.fall_back,
        )

    # --- what must hold at any time ----------------------------------------------------------------

    def _observe(self, operation: Operation) -> None:
        if operation.name == "move":
            if operation.target.endswith("/_metadata"):
                self._published(operation.target.removesuffix("/_metadata"))
            elif visible := _VISIBLE_EPOCH.fullmatch(operation.target):
                self._made_visible(int(visible[2]))
        if operation.name in ("move", "delete folder") and _VISIBLE_EPOCH.fullmatch(operation.path):
            assert self.takes_back, f"{operation.path} was committed, and is taken back"

    def _published(self, folder: str) -> None:
        """A checkpoint has appeared: it is whole, and newer than any before."""
        metadata = CheckpointMetadata.decode(self.disk.read(f"{folder}/_metadata"), folder)
        published = Published(metadata, folder)
        self.published[folder] = published
        self.notes["published"] += 1
        self.completed += not published.is_savepoint
        missing = self._files(published) - set(self.disk.files)
        assert not missing, f"{folder} appeared without {missing}"
        index = metadata.source_position["index"]
        assert metadata.counters.get("numbers.records_out", 0) == index
        assert metadata.counters.get("ledger.records_in", 0) == index
        chains = [chain for operator in metadata.operators for chain in _chains(operator)]
        assert all(chain == sorted(set(chain)) for chain in chains), "an increment is on a newer file"
        self.notes["increments"] += any(len(chain) > 1 for chain in chains)
        if self.rng.random() < 0.1:
            self._check_restores(published)

    def _made_visible(self, epoch: int) -> None:
        covered = self._newest_epoch()
        assert epoch <= covered, f"epoch {epoch} is committed, and the newest checkpoint is of {covered}"

    def _overhear(self, message: object) -> None:
        if isinstance(message, NotifyCheckpointComplete):
            ids = [p.metadata.checkpoint_id for p in self.published.values() if self._is_of_this_job(p)]
            assert message.checkpoint_id in ids, "slots are told of a checkpoint that is not there"

    def _announced(self, epoch: int) -> None:
        """The job says that an epoch is final."""
        assert self.takes_back or self.last_announced in (None, epoch - 1)
        self.last_announced = epoch
        assert epoch <= self._newest_epoch()
        self.notes["committed"] += 1

    def _is_of_this_job(self, published: Published) -> bool:
        return published.metadata.job_id == self.job_id

    def _newest_epoch(self) -> int:
        return max((p.metadata.epoch for p in self.published.values() if self._is_of_this_job(p)), default=0)

    def _files(self, published: Published) -> set[str]:
        """Return the paths of all files that a checkpoint needs."""
        needed = {f"{published.folder}/_metadata"}
        for operator in published.metadata.operators:
            for state in operator.subtasks:
                if state.managed_keyed is not None:
                    for file in state.managed_keyed.files():
                        needed.add(_normal(f"{published.folder}/{file.path}"))
        return needed

    def _is_whole(self, published: Published) -> bool:
        return published.folder not in self.damaged and f"{published.folder}/_metadata" in self.disk.files

    def _completed(self) -> list[Published]:
        """Return the job's completed checkpoints that are there, in order; savepoints are none."""
        found = [
            published
            for published in self.published.values()
            if self._is_of_this_job(published)
            and not published.is_savepoint
            and f"{published.folder}/_metadata" in self.disk.files
        ]
        return sorted(found, key=lambda published: published.metadata.checkpoint_id)

    # --- what must hold when a program has ended -----------------------------------------------------

    def _check_output(self) -> None:
        """What is visible are the rows of the first so many records, each key's in order."""
        rows = self._visible_rows()
        if self.takes_back and len(rows) < len(self.model.rows):
            return  # it may have been killed half-way back
        _check_rows(rows, self.model.rows[: len(rows)])

    def _visible_rows(self) -> list[Row]:
        found = []
        for path in self.disk.below(f"{OUTPUT}/{self.output}"):
            folder, _, name = path.rpartition("/")
            if visible := _VISIBLE_EPOCH.fullmatch(folder):
                found.append((int(visible[2]), name, path))
        return [
            json.loads(line)
            for _, _, path in sorted(found)
            for line in self.disk.read(path).decode().splitlines()
        ]

    def _check_end(self) -> None:
        rows = self._visible_rows()
        assert len(rows) == len(self.model.rows), f"{len(rows)} rows, and not {len(self.model.rows)}"
        _check_rows(rows, self.model.rows)
        if self.has_foreach and not self.was_taken_back:
            _check_rows([row for _, rows in sorted(self.foreach.items()) for row in rows], self.model.rows)
        for published in self.published.values():
            if self._is_whole(published):
                self._check_restores(published)
        self._check_leftovers()
        self._check_retained()

    def _check_retained(self) -> None:
        """As many checkpoints are kept as shall be."""
        if self.retention is not None:
            return
        kept, retained = len(self._completed()), self.settings.num_retained
        assert kept >= min(self.completed, retained)
        assert kept <= retained + len(self.damaged) + len(self.cluster.disturbed)

    def _check_counts(self, job: Job) -> None:
        """Records are counted once, whatever happened on the way."""
        counts = job.result().accumulators
        rows = len(self._visible_rows())
        operators = ["ledger", "tally"] if self.tallies else ["ledger"]
        names = [f"{name}.records_{way}" for name in operators for way in ("in", "out")]
        assert {name: counts.get(name, 0) for name in ["numbers.records_out", *names]} == dict.fromkeys(
            ["numbers.records_out", *names], rows
        )

    def _check_restores(self, published: Published) -> None:
        with self.disk.used_by(self.cluster.user):
            metadata = self.storage.load(published.folder)
            index = metadata.source_position["index"]
            for operator in metadata.operators:
                backend = self._restored(operator, published.folder)
                if operator.operator_id == "ledger":
                    assert simulation_model.ledger_of(backend) == self.model.ledgers[index]
                else:
                    assert simulation_model.tally_of(backend) == self.model.tallies[index]
        self.notes["restored"] += 1

    def _restored(self, operator: OperatorState, folder: str) -> HeapKeyedStateBackend:
        owned = KeyGroupRange(0, self.max_parallelism - 1)
        backend = self.backend.create_keyed_state_backend(
            Types.LONG(), owned, self.max_parallelism, lambda: self.cluster.now_ms
        )
        reader = self.storage.streams(folder)
        HeapRestoreOperation(backend, reader).restore(state.managed_keyed for state in operator.subtasks)
        return backend

    def _check_leftovers(self) -> None:
        """Of the job that has finished nothing is left that no completed checkpoint needs.

        Excused are files made by processes that were cut off by then, and what lies where something failed.
        """
        kept = self._completed()
        needed = {published.folder for published in kept}.union(*map(self._files, kept))
        own = f"{CHECKPOINTS}/{self.job_id}"
        for path in [*self.disk.below(own), *self.disk.folders]:
            place = _PLACE.match(path)
            if place is None or path in needed or place[1] != self.job_id or path.endswith("/shared"):
                continue
            maker, was_cut_off = self.disk.makers.get(path, (None, False))
            excused = was_cut_off or place[0] in self.cluster.disturbed
            assert excused, f"{path} (made by {maker}) is left, and nobody needs it"


class NoThreads(Executor):
    """Stands in for the thread that compresses state: everything runs on the simulation's."""

    def __init__(self, max_workers: int) -> None:
        return

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **keywords))
        except Exception as error:  # noqa: BLE001 - it is the result
            done.set_exception(error)
        return done


class LateSpark(SimulatedSpark):
    """Spark for a job whose control is made when it begins to run."""

    def __init__(self, cluster: Cluster, mailbox: Mailbox) -> None:
        super().__init__(cluster, None, mailbox)  # type: ignore[arg-type]

    @property
    def control(self) -> SimulatedControl:
        return self._control

    @control.setter
    def control(self, control: SimulatedControl) -> None:
        self._control = control


class Watcher(JobListener):
    """Counts what happens."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        assert not isinstance(error, SlotBusyError), "a copy of a task is no reason to restart"
        self._simulation.notes["restarts"] += 1
        self._simulation.check_reason(error)
        if isinstance(error, CorruptCheckpointError):
            self._simulation.notes["fell back"] += 1

    def on_checkpoint_failed(self, stats: Any) -> None:
        self._simulation.notes["failed checkpoints"] += 1
        if "expired" in (stats.failure or ""):
            self._simulation.notes["expired checkpoints"] += 1


def _settings(rng: random.Random) -> CheckpointSettings:
    return CheckpointSettings(
        interval_ms=rng.choice([0, 0, 5, 20, 60]),
        timeout_ms=rng.choice([60, 60, 250, 10_000]),
        tolerable_failures=rng.choice([0, 0, 1, 5]),
        num_retained=rng.choice([1, 1, 2, 3]),
        min_pause_ms=rng.choice([0, 0, 15]),
        max_concurrent=rng.choice([1, 2]),
        incremental=rng.random() < 0.6,
        materialization_interval=rng.choice([1, 2, 3, 10]),
    )


def _restart_strategy(rng: random.Random) -> RestartStrategy:
    return rng.choice(
        [
            FixedDelayRestart(rng.choice([0, 1, 3]), rng.choice([0, 20])),
            FailureRateRestart(2, 300, 5),
            ExponentialDelayRestart(5, 100, 2.0, 500, 0.0, attempts=4),
        ]
    )


def _chains(state: OperatorState) -> list[list[int | None]]:
    """Return, for each subtask, the checkpoints at which its files were written."""
    return [
        [written.checkpoint_id for written in (handle, *handle.increments)]
        for subtask in state.subtasks
        if (handle := subtask.managed_keyed) is not None
    ]


def _normal(path: str) -> str:
    return re.sub(r"/[^/]+/\.\./", "/", path)


def _check_rows(found: list[Row], expected: list[Row]) -> None:
    def by_key(rows: list[Row]) -> dict[int, list[Row]]:
        keys: dict[int, list[Row]] = {}
        for row in rows:
            keys.setdefault(row[0], []).append(row)
        return keys

    assert by_key(found) == by_key(expected)
