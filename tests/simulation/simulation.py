"""The whole runtime under simulated failures: one seed is one history of one job, to the end of its input.

Production code runs: job master, coordinator, checkpointing, storage, slot registry, slot services, tasks,
sinks. Replaced are the clock, the storage (``simulation_storage``), and processes, connections and Spark
(``simulation_cluster``, ``simulation_slots``, ``simulation_spark``). What must hold is in
``simulation_checks``. ``Simulation(seed).run()`` replays a history.

The job's user does what users do: starts the program again when it was killed or has failed, from the
newest checkpoint if there is one, at another parallelism; takes savepoints, stops with one, goes back
to one, cancels; finds a checkpoint damaged; starts a version of the program that does not fit its state.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import attrs
import simulation_model
from drawn_settings import drawn_settings
from simulation_checks import CHECKPOINTS, OUTPUT, SAVEPOINTS, Witness
from simulation_cluster import Chaos, Cluster, Mailbox, SimulatedClock
from simulation_draws import Draws
from simulation_model import Ledger, Model, Poison, RecordNumber, SimulatedSource, Tally, TimedLedger
from simulation_pipelined import SimulatedPipelined, unpickled
from simulation_slots import SimulatedControl
from simulation_spark import KeptFrames, SimulatedSpark
from simulation_storage import Killed, Process

from pyflinkstate.api import Types, WatermarkStrategy
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap import backend
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    JobCancelledError,
    JobSupersededError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.master import RestorePoint, SavepointRequest
from pyflinkstate.runtime.master.actions import JobParts
from pyflinkstate.runtime.master.deployment import JobSettings
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.plan.job_plan import JobPlan, make_plan
from pyflinkstate.runtime.plan.nodes import (
    WATERMARKS,
    ChainNode,
    Node,
    SinkNode,
    SourceNode,
    StatefulNode,
    UnionNode,
    new_assigner,
)
from pyflinkstate.runtime.settings.checkpoint_settings import (
    CheckpointSettings,
    ExternalizedCheckpointRetention,
)
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    RestartStrategy,
)
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import ForeachEpochSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.streams import FileSystemCheckpointStorage
from pyflinkstate.runtime.tasks import tasks
from pyflinkstate.runtime.wire.frames import decode_values

JOB = "orders"
#: Where a program was started so often there are no more faults, and soon it must come to its end.
MAX_STARTS = 12
#: The start of a file, with its format version, is damaged more often than other bytes.
HEADER_BYTES = 16
#: So many times somebody goes back to a savepoint when the job had come to its end.
MAX_REGRETS = 2

#: The records of each split come in the order of event time.
TIMES = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(RecordNumber())

#: What may go wrong, and how often at each occasion for it: in 100 histories each strikes 20 times or more.
RATES = {
    "kill the driver": 0.012,
    "crash a slot": 0.015,
    "kill a task": 0.02,
    "copy a task": 0.1,
    "stall": 0.06,
    "fill the disk": 0.012,
    "flaky disk": 0.004,
    "disk error": 0.006,
    "late disk error": 0.004,
    "kill at the disk": 0.01,
    "cut the power": 0.01,
    "set the clock": 0.012,
    "freeze the driver": 0.015,
}
#: The same of tasks that stay.
PIPELINED_RATES = RATES | {"freeze a task": 0.5, "break a channel": 0.1}
#: How many faults there are in one history, at most.
FAULTS = (0, 1, 2, 3, 5, 8, 12)
#: So many times in one history somebody starts a version of the program that does not fit its state.
MAX_MISFITS = 2


class Simulation:
    """One history.

    Args:
        seed: replays it.
        faults: how many faults there may be; by default the seed says it.
        rates: of which kinds, and how often; by default the seed chooses some.
        settings: changes of the checkpoint settings that the seed chose.
    """

    #: Whether the job runs in tasks that stay; else in stages.
    is_pipelined = False
    #: What may go wrong, and how often.
    rates = RATES

    def __init__(
        self,
        seed: int,
        faults: int | None = None,
        rates: dict[str, float] | None = None,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self.draw = draw = Draws(seed)
        if rates is None:
            focus = draw("focus").choice([0.3, 0.6, 1.0])
            rates = {
                fault: rate for fault, rate in self.rates.items() if draw(f"with {fault}").random() < focus
            }
        quiet = draw("quiet").choice([0, 0, 1, 2, 4]) if faults is None else 0
        faults = draw("faults").choice(FAULTS) if faults is None else faults
        self.chaos = Chaos(draw, rates, faults, quiet)
        self.cluster = Cluster(draw, self.chaos)
        self.disk = self.cluster.disk
        self.settings = CheckpointSettings(**drawn_settings(draw) | settings)
        self.retention = draw("retention").choice([None, None, None, *ExternalizedCheckpointRetention])
        self.backend = HashMapStateBackend(
            async_snapshots=self.settings.incremental or draw("async snapshots").random() < 0.8,
            snapshot_compression=None,
        )
        self.max_parallelism = draw("max parallelism").choice([4, 5, 8])
        self.model = Model(
            simulation_model.make_records(draw("records")),
            tallies_rows=draw("tallies rows").random() < 0.5,
            has_state=draw("has state").random() < 0.85,
            sources=draw("sources").choice([1, 1, 2]) if self.is_pipelined else 1,
            has_time=draw("has time").random() < 0.4 and self.is_pipelined,
        )
        where = FileSystemCheckpointStorage(
            CHECKPOINTS,
            draw("inline threshold").choice([0, 0, 1_500, 20_480]),
            draw("write buffer").choice([0, 100, 4_096]),
        )
        self.storage = CheckpointFolders(where, (self.disk.file_system, CHECKPOINTS))
        self.witness = Witness(self.cluster, self.storage, self.model, self.backend, self.max_parallelism)
        self.has_foreach = draw("has foreach").random() < 0.3 and not self.is_pipelined
        self.epoch_sizes = draw("epoch sizes").choice([(1, 4), (3, 8), (3, 8), (8, 8)])
        self.idles = draw("idles").choice([0.0, 0.3])
        #: The source has no more until a checkpoint covers what it gave.
        self.waits_for_checkpoints = False
        self.commits_every_epoch = draw("commits every epoch").random() < 0.15 and self.model.sources == 1
        self.tells_end = draw("tells end").random() < 0.7
        #: The source has more than one epoch's records, so that the next one can be shuffled ahead.
        self.is_backlog = draw("is backlog").random() < 0.7
        #: How often a source is read live, where tasks stay.
        self.live_share = 0.5
        #: How much the user meddles, and whether he is ready for damaged checkpoints.
        self.restless = draw("restless").choice([0.0, 0.3, 0.7])
        #: How likely it is that a program goes back to a savepoint, where it can.
        self.nostalgic = draw("nostalgic").choice([0.0, 0.2, 0.6])
        #: How likely a program that does not fit is started before one that does: that is no fault.
        self.careless = 0.5
        self.fall_back = draw("fall back").random() < 0.6
        self.cluster.while_frozen = self._run_second_driver
        self.cluster.may_freeze = lambda: self._job is not None and bool(self.witness.completed())
        self._job: Job | None = None
        self._restored: RestorePoint | None = None
        #: Whether the second driver came to the end of the input; None if there was none.
        self._second_ended: bool | None = None
        #: The next program goes back for certain.
        self._goes_back = False
        self._stopped_at: str | None = None
        self._savepoints: list[SavepointRequest] = []

    @property
    def notes(self) -> Counter[str]:
        """How often what happened."""
        return self.witness.notes + self.cluster.seen

    def run(self) -> None:
        """Run the job to the end, however often it takes, and check all that is left of it."""
        Poison.numbers = set()
        with (
            patch("uuid.uuid4", lambda: uuid.UUID(int=self.draw("uuid").getrandbits(128), version=4)),
            patch.object(tasks, "run_epoch", self.cluster.run_epoch),
            patch.object(backend, "ThreadPoolExecutor", NoThreads),
            unpickled() if self.is_pipelined else nullcontext(),
        ):
            starts = 1
            while not self._run_program() or self._regrets():
                starts += 1
                if starts > MAX_STARTS:
                    self.cluster.end_faults()
                    self.restless = self.nostalgic = 0.0
                    self.settings = attrs.evolve(self.settings, timeout_ms=100_000)
                assert starts < 2 * MAX_STARTS, "it fails again and again without a fault"
            num_retained = self.settings.num_retained if self.retention is None else None
            self.witness.check_end(self.has_foreach, num_retained)

    # --- the user ------------------------------------------------------------------------------------

    def _regrets(self) -> bool:
        """The job is over, and its user goes back to an earlier state of it all the same."""
        if self.witness.notes["regretted"] >= MAX_REGRETS or self.draw("regrets").random() >= self.nostalgic:
            return False
        self._goes_back = bool(self.witness.return_points(self.has_foreach))
        self.witness.notes["regretted"] += self._goes_back
        return self._goes_back

    def _run_program(self) -> bool:
        """Start the program once; returns whether it has come to the end of its input."""
        self._run_misfit()
        driver = self.cluster.start_driver()
        has_ended_well = False
        with self._running(driver):
            self._restored = self._restore_point()
            self._job = self._make_job(self._restored, self._plan())
            self.witness.starts(self._job)
            self._plan_interventions(self._job)
            for epoch in self._job.run():
                self.witness.announced(epoch)
            if not self.cluster.is_superseded:  # or the rows are those of the second driver by now
                self.witness.check_counts(self._job)
            has_ended_well = True
        self.cluster.end_driver()
        self.witness.check_output()
        self.witness.check_checkpoints()
        self.cluster.is_superseded, self._job = False, None
        if self._second_ended is not None:
            has_ended_well, self._second_ended = self._second_ended, None
        self._take_a_break()
        self._stopped_at = self._savepoint_that_stopped_it()
        if not has_ended_well and self.fall_back:
            self._damage()
        return has_ended_well and self._stopped_at is None

    def _run_second_driver(self) -> None:
        """The first driver stands still, and a supervisor starts the program again."""
        first, runs = self._job, self._runs()
        if self.witness.completed_in_this_run:
            self._stopped_at = None  # there is something newer to go on from
        driver = self.cluster.start_driver()
        with self.witness.second_driver(), self._running(driver):
            job = self._make_job(self._newest_checkpoint(), self._plan())
            self.witness.starts(job)
            if self.draw("kill the second driver").random() < 0.4:
                self.cluster.at(
                    self.draw("kill the second driver at").randrange(200), lambda: self.cluster.kill(driver)
                )
            for epoch in job.run():
                self.witness.announced(epoch)
                if self.draw("kill the second driver after an epoch").random() < 0.2:
                    self.cluster.kill(driver)
            self.witness.check_counts(job)
            self._second_ended = True
        self._job = first
        if self._runs() != runs:
            self.witness.notes["second drivers"] += 1
            self.cluster.is_superseded = True
            self._second_ended = self._second_ended or False
            is_told_where = self._restored is not None and not self._restored.is_latest
            if is_told_where and self.witness.goes_on_without_claim(*self.cluster.frozen):
                self._second_ended = None  # the first one goes back once more, and its end counts

    def _runs(self) -> set[str]:
        """Return the runs that claim the job."""
        with self.disk.used_by(self.cluster.user):
            return set(self.storage.runs(self.witness.job_id))

    @contextmanager
    def _running(self, driver: Process) -> Iterator[None]:
        """Let a program run; it may be killed or fail."""
        with self.disk.used_by(driver):
            try:
                yield
            except Killed as killed:
                if killed.process is not driver:
                    raise
                self.witness.notes["killed"] += 1
                self.cluster.disturbed |= self.cluster.superseded_in  # it cannot delete what it has left
            except JobCancelledError:
                self.witness.notes["cancelled"] += 1
            except PyFlinkStateError as error:
                if self.cluster.is_superseded:
                    self.witness.notes["superseded"] += isinstance(error, JobSupersededError)
                self.witness.failed(error)

    def _run_misfit(self) -> None:
        """Now and then somebody starts a new version of the program that cannot open its state."""
        if not self.model.has_state or (self._stopped_at is None and not self.witness.completed()):
            return
        if (
            self.witness.notes["did not fit"] >= MAX_MISFITS
            or self.draw("starts a misfit").random() >= self.careless
        ):
            return
        driver = self.cluster.start_driver()
        with self.witness.nothing_changes(), self._running(driver):
            restore = self._any_checkpoint()
            list(self._make_job(restore, self._plan(simulation_model.Misfit())).run())
            raise AssertionError("it has opened its state")
        self.cluster.end_driver()
        self._take_a_break()

    def _any_checkpoint(self) -> RestorePoint:
        """Return the newest checkpoint, or an older one, or a savepoint."""
        points = [*self.witness.completed(), *self.witness.return_points(False)]
        chosen = self.draw("any checkpoint").choice([None, None, *filter(self.witness.is_whole, points)])
        return self._newest_checkpoint() if chosen is None else RestorePoint(chosen.metadata, chosen.folder)

    def _newest_checkpoint(self) -> RestorePoint:
        if self._stopped_at is not None:
            return RestorePoint(self.storage.load(self._stopped_at), self._stopped_at)
        return RestorePoint(*self.storage.load_latest(JOB, self.fall_back), True)

    def _take_a_break(self) -> None:
        until_ms = self.cluster.now_ms + self.draw("break").choice([0, 5, 50, 300])
        while self.cluster.step(until_ms):
            pass

    def _savepoint_that_stopped_it(self) -> str | None:
        stopped = None
        for request in self._savepoints:
            if request.done.done() and request.done.exception() is None:
                uri = request.done.result()
                assert uri in self.witness.published, "a savepoint that is not there"
                self.witness.notes["savepoints"] += 1
                self.witness.notes["stopped"] += request.stops_job
                stopped = uri if request.stops_job else stopped
        self._savepoints.clear()
        return stopped

    def _restore_point(self) -> RestorePoint | None:
        witness = self.witness
        if self._stopped_at is not None:
            metadata = self.storage.load(self._stopped_at)
            # A driver may have stopped with it that another one had followed, which went on.
            witness.takes_back = metadata.epoch < witness.newest_epoch()
            return RestorePoint(metadata, self._stopped_at)
        points = witness.return_points(self.has_foreach)
        goes_back = (
            self._goes_back or self._has_lost_all() or self.draw("goes back").random() < self.nostalgic
        )
        self._goes_back = False
        if points and goes_back:
            chosen = self.draw("return point").choice(points)
            witness.takes_back = True
            witness.notes["back to a savepoint"] += 1
            return RestorePoint(chosen.metadata, chosen.folder)
        try:
            metadata, uri = self.storage.load_latest(JOB, self.fall_back)
        except CheckpointNotFoundError:
            witness.begins_anew()
            return None
        witness.goes_on_with(metadata.job_id)
        witness.check_latest(uri)
        of_the_job = [p for p in witness.published.values() if p.metadata.job_id == metadata.job_id]
        newest = max(of_the_job, key=lambda published: published.metadata.epoch)
        # A savepoint that the job was to stop with has committed output, and is not "latest"; where all
        # checkpoints were to be deleted, the newest may be gone and another one not.
        is_older = newest.is_savepoint or (self.retention is not None and newest.folder != uri)
        witness.takes_back |= bool(witness.damaged) or is_older
        return RestorePoint(metadata, uri, True)

    def _has_lost_all(self) -> bool:
        """Return whether all checkpoints that "latest" may find are damaged, so that only a savepoint helps.

        Somebody went back, which deleted or set aside the whole ones.
        """
        completed = self.witness.completed()
        return bool(completed) and not any(map(self.witness.is_whole, completed))

    def _plan_interventions(self, job: Job) -> None:
        """Savepoints, cancellations and bad records, some time from now."""
        draw, notes = self.draw, self.witness.notes
        while draw("intervenes").random() < self.restless:
            kind = draw("intervention").random()
            delay_ms = draw("intervention at").randrange(150)
            if kind < 0.5:
                self.cluster.at(delay_ms, lambda: self._take_savepoint(job, stops=False))
            elif kind < 0.75 and notes["stopped"] < 3:
                self.cluster.at(delay_ms, lambda: self._take_savepoint(job, stops=True))
            elif kind < 0.85 and notes["cancelled"] < 2:
                is_told = draw("a signal stops it").random() < 0.5
                self.cluster.at(delay_ms, partial(job.stop, "SIGTERM") if is_told else job.cancel)
            elif notes["poisoned"] < 3:
                notes["poisoned"] += 1
                Poison.numbers.add(draw("poison").randrange(len(self.model.records)))

    def _take_savepoint(self, job: Job, stops: bool) -> None:
        if job is self._job and not self.cluster.driver.dead:
            request = SavepointRequest(SAVEPOINTS, stops)
            self._savepoints.append(request)
            job.request_savepoint(request)

    def _damage(self) -> None:
        """Damage the newest checkpoint, where there is another one that does not need the same file."""
        whole = [published for published in self.witness.completed() if self.witness.is_whole(published)]
        if len(whole) < 2 or not self.chaos.rates or self.draw("no damage").random() < 0.3:
            return
        *_, older, newest = whole
        draw = self.draw
        path = draw("damaged file").choice(sorted(newest.files() - older.files()))
        content = self.disk.files[path]
        is_in_header = draw("damaged header").random() < 0.2
        at = draw("damaged at").randrange(min(HEADER_BYTES, len(content)) if is_in_header else len(content))
        if draw("damage cuts").random() < 0.5:
            del content[at:]
        else:
            content[at] ^= 0xFF
        content.flushed = bytes(content)
        if self.has_foreach:
            self.nostalgic = 0.0  # where only the damaged one is left, there may be no way back either
        self.witness.notes["damaged"] += 1
        for published in self.witness.published.values():
            if path in published.files():
                self.witness.damaged.add(published.folder)

    # --- the program ---------------------------------------------------------------------------------

    def _make_job(self, restore: RestorePoint | None, plan: JobPlan) -> Job:
        cluster = self.cluster
        mailbox: Any = Mailbox(cluster)
        spark = (SimulatedPipelined if self.is_pipelined else SimulatedSpark)(cluster, mailbox)

        def control(_: bytes, events: Any, deployment_of: Any) -> SimulatedControl:
            spark.control = SimulatedControl(cluster, events, deployment_of)
            return spark.control

        settings = JobSettings(
            name=JOB,
            checkpoints=self.settings,
            restart=_restart_strategy(self.draw),
            listeners=(self.witness,),
            state_backend=self.backend,
            retention=self.retention,
            fall_back=self.fall_back,
        )
        clock = SimulatedClock(cluster)
        return Job(JobParts(plan, settings, spark, control, clock, self.storage, restore, mailbox))

    def _plan(self, ledger: Ledger | None = None) -> JobPlan:
        """Return the plan of the next run: always the same, but for parallelism, and perhaps ``ledger``."""
        node = self._read_by_all()
        if self.model.has_state:
            function = ledger or (TimedLedger() if self.model.has_time else Ledger())
            node = self._keyed(node, simulation_model.key_of, function, "ledger", [1, 2, 2, 3])
        elif self.is_pipelined:
            node = ChainNode(node, "map", simulation_model.row_of, "rows")
        if self.model.tallies_rows:
            node = self._keyed(node, simulation_model.group_of, Tally(), "tally", [1, 2])
        directory = f"{OUTPUT}/{self.witness.output}"
        sinks = [SinkNode(node, FileSink(directory, "json", file_system=self.disk.file_system), "files")]
        if self.has_foreach:
            foreach: Any = ForeachEpochSink(self._write_epoch)
            sinks.append(SinkNode(node, foreach, "foreach"))
        return make_plan(sinks, 1, self.max_parallelism)

    def _read_by_all(self) -> Node:
        """Return the sources, with a watermark strategy if there is event time."""
        # Tasks that stay keep no order between channels: what it depends on is in one.
        splits = simulation_model.split_by_key if self.is_pipelined else None
        nodes: list[Node] = []
        for number in range(self.model.sources):
            source = SimulatedSource(
                self.model.records,
                self._available,
                self.tells_end,
                self.commits_every_epoch,
                self.is_backlog,
                splits,
                self._read_live,
                (self.model.sources, number),
            )
            node: Node = SourceNode(source, simulation_model.SOURCES[number])
            if self.model.has_time:
                node = ChainNode(node, WATERMARKS, TIMES, "times")
                node.assigner = new_assigner(number + 1, node.parent)
            nodes.append(node)
        return nodes[0] if len(nodes) == 1 else UnionNode(tuple(nodes), "all")

    def _keyed(self, parent: Node, key: Any, function: Any, name: str, parallelisms: list[int]) -> Node:
        parallelism = self.draw(f"parallelism of {name}").choice(parallelisms)
        return StatefulNode(parent, key, Types.LONG(), function, name, uid=name, parallelism=parallelism)

    def _available(self, index: int) -> int:
        if self.waits_for_checkpoints and index > self.witness.newest_index():
            return 0
        if self.draw("source idles").random() < self.idles:
            return 0
        return self.draw("epoch size").randint(*self.epoch_sizes)

    def _read_live(self, index: int) -> int | None:
        if not self.is_pipelined or self.commits_every_epoch or self.draw("live").random() >= self.live_share:
            return None
        self.witness.notes["live"] += 1
        return self._available(index)

    def _write_epoch(self, frames: KeptFrames, epoch: int) -> None:
        # Nobody can keep a superseded driver from this; where it did it, it is not known who was last.
        self.witness.foreach_is_mixed |= self.cluster.is_superseded
        self.witness.foreach[epoch] = [row for _, frame in frames.frames for row in decode_values(frame)]


class PipelinedSimulation(Simulation):
    """A history of a job that runs in tasks that stay."""

    is_pipelined = True
    rates = PIPELINED_RATES


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


def _restart_strategy(draw: Draws) -> RestartStrategy:
    return draw("restart strategy").choice(
        [
            FixedDelayRestart(draw("restarts").choice([0, 1, 3]), draw("restart delay").choice([0, 20])),
            FailureRateRestart(2, 300, 5),
            ExponentialDelayRestart(5, 100, 2.0, 500, 0.0, attempts=4),
        ]
    )
