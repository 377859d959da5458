"""What the master does to the source, the sinks, the slots and the engine: one method for each instruction.

Nothing here decides what comes next, and nothing calls the master back: answers are returned.
"""

from __future__ import annotations

import queue
import secrets
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    JobSupersededError,
    PyFlinkStateError,
)
from pyflinkstate.runtime import sources
from pyflinkstate.runtime.engine import CodeBook, EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.master.checkpoint_files import CheckpointFiles, RunClaim
from pyflinkstate.runtime.master.checkpoints import Checkpoints
from pyflinkstate.runtime.master.deployment import (
    ControlFactory,
    Deployments,
    JobSettings,
    JobSlots,
    RestorePoint,
    fit,
)
from pyflinkstate.runtime.master.epochs import (
    AlignBarrier,
    AskSource,
    AttemptEnded,
    BeginAttempt,
    CancelEpoch,
    Claim,
    ClaimJob,
    CloseSlots,
    CommitOutput,
    ConfirmCheckpoint,
    CountReport,
    EndAttempt,
    Epoch,
    Found,
    Outcome,
    Pause,
    PrepareOutput,
    Results,
    RunEpoch,
    SetBarrier,
    ShuffleAhead,
    ShuffledAhead,
    StartSlots,
    TakeOver,
)
from pyflinkstate.runtime.master.job_reporter import JobReporter
from pyflinkstate.runtime.master.machine import JobFacts
from pyflinkstate.runtime.master.observe import outline
from pyflinkstate.runtime.master.planner import Input, Step
from pyflinkstate.runtime.master.takeover import Takeover
from pyflinkstate.runtime.plan import JobPlan, SinkNode
from pyflinkstate.runtime.sinks import (
    HoldingSink,
    MeasuredSink,
    ReplacingSink,
    RunAwareSink,
    SinkCount,
    SinkTotals,
    StagedSink,
    errors_of_sink,
    open_sink,
)
from pyflinkstate.runtime.sources import GuardedSource
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory, run_id_after
from pyflinkstate.runtime.tasks import LiveLimits, TaskLink
from pyflinkstate.runtime.wire import Clock

#: How long an epoch lasts at most whose sources are read live: savepoints, questions and output without
#: checkpoints wait for its end.
MOST_LIVE_MS = 1_000
#: The same if another source of the job has more than an epoch of its own.
SHORT_LIVE_MS = 20
#: How long the slots may take to close the user functions.
CLOSE_TIMEOUT_S = 30


class JobSinks:
    """All sinks of one job. The errors of each name it.

    Args:
        sinks: the sinks, in the order of the plan.
        job_id: the id of the job, which they are told.
        check_run: raises ``JobSupersededError`` if another driver has taken the job over.
        directory: the checkpoint directory, below which sinks may stage what they write; None without one.
    """

    def __init__(
        self,
        sinks: Sequence[SinkNode],
        job_id: str,
        check_run: Callable[[], None],
        directory: str | None = None,
    ) -> None:
        self._sinks = sinks
        self._directory = directory
        self._job_id = job_id
        self._check_run = check_run
        self._opened: set[SinkNode] = set()
        self._commits = 0
        self._records: Counter[SinkNode] = Counter()
        #: Whether one relies on the numbers of epochs: they are then cut the same way after a crash, too.
        self.rely_on_numbers = any(isinstance(sink.sink, ReplacingSink) for sink in sinks)

    def open(self, line: RunHistory, restored: int | None, epoch: int) -> None:
        """Open the sinks for a new run; a sink that does not know about runs is opened only once.

        Args:
            line: the runs that lead to this one.
            restored: the epoch of the checkpoint that is restored, or None.
            epoch: where a sink goes back to that an earlier try has opened.
        """
        for sink in self._sinks:
            self._check_run()
            if sink not in self._opened or isinstance(sink.sink, RunAwareSink):
                if isinstance(sink.sink, StagedSink) and self._directory is not None:
                    sink.sink.stage_below(self._directory)
                with errors_of_sink(sink.name, "open"):
                    open_sink(sink.sink, self._job_id, line, restored)
                self._opened.add(sink)
            else:
                _go_back(sink, epoch)

    def go_back(self, epoch: int) -> None:
        """Discard all output after ``epoch``, and commit that up to it."""
        self._check_run()
        for sink in self._sinks:
            _go_back(sink, epoch)

    def prepare(self, epoch: int, results: Results) -> None:
        """Prepare the output of an epoch, whose results are in the order of the sinks."""
        if self.rely_on_numbers:  # at its target, an older driver's output looks like that of a newer one
            self._check_run()
        for sink, of_sink in zip(self._sinks, results, strict=True):
            counts = [one.records for one in of_sink if isinstance(one, SinkCount)]
            with errors_of_sink(sink.name, "prepare"):
                sink.sink.prepare(epoch, [one for one in of_sink if not isinstance(one, SinkCount)])
            self._records[sink] += sum(counts)

    def commit(self, epoch: int) -> None:
        """Commit the output of all epochs up to ``epoch``."""
        self._check_run()
        for sink in self._sinks:
            with errors_of_sink(sink.name, "commit"):
                sink.sink.commit(epoch)
        self._commits += 1

    def totals(self) -> SinkTotals:
        """Return what the sinks have done in this run."""
        return {
            node.name: {
                "commits": self._commits,
                "records": self._records[node],
                "size_bytes": node.sink.prepared_bytes if isinstance(node.sink, MeasuredSink) else None,
            }
            for node in self._sinks
        }

    def release(self, only_due: bool = False) -> None:
        """Make visible what sinks have committed and hold back, or only what it is time for."""
        for sink in self._sinks:
            if sink in self._opened and isinstance(sink.sink, HoldingSink):
                if not only_due:
                    self._check_run()
                with errors_of_sink(sink.name, "release"):
                    sink.sink.release(only_due)


def _go_back(sink: SinkNode, epoch: int) -> None:
    with errors_of_sink(sink.name, "rewind"):
        sink.sink.rewind(epoch)
    with errors_of_sink(sink.name, "commit"):
        sink.sink.commit(epoch)  # again, in case the commit itself failed


class EngineRequests:
    """What the master asks of the engine.

    Args:
        runner: the engine.
        plan: what the job runs.
        settings: how it runs it.
        slots: the job's slots.
        source: says what the tasks must know about event time.
        reporter: says of which streams records are shown.
        mailbox: gets the ends of what the engine runs.
    """

    def __init__(
        self,
        runner: EpochRunner,
        plan: JobPlan,
        settings: JobSettings,
        slots: JobSlots,
        source: Input,
        reporter: JobReporter,
        mailbox: queue.SimpleQueue[object],
    ) -> None:
        self.runner = runner
        self._plan = plan
        self._name = settings.name
        self._flow = settings.flow
        self._code = CodeBook(plan)
        self._about = outline(plan, settings.page)
        self._slots = slots
        self._input = source
        self._reporter = reporter
        self._mailbox = mailbox

    def start_slots(self, instruction: StartSlots) -> None:
        """Let every slot restore its state."""
        request = SlotsRequest(
            TaskLink(self._slots.link(), instruction.epoch.number),
            self._slots.deployments.slots(),
            f"{self._name}: restore",
        )
        self._start(instruction.epoch, partial(self.runner.start_slots, request))

    def run_epoch(self, instruction: RunEpoch) -> None:
        """Run an epoch."""
        epoch, number = instruction.epoch, instruction.epoch.number
        request = attrs.evolve(
            self._request(number, epoch.step.epoch, f"epoch {number}"),
            barrier=epoch.trigger,
            addresses=self._slots.registry.addresses(),
            event_time=self._input.event_time.progress(),
            is_final=epoch.is_final,
            live=LiveLimits(epoch.lasts_ms, self._flow.buffer_timeout_ms),
        )
        self._reporter.timeline.started(self._slots.registry.attempt, number)
        self._start(epoch, partial(self.runner.start, request))

    def _request(self, number: int, read: sources.Epoch | None, what: str) -> EpochRequest:
        link = TaskLink(self._slots.link(), number, self._reporter.sampled_now())
        return EpochRequest(
            self._plan,
            link,
            read,
            None,
            {},
            f"{self._name}: {what}",
            self._code,
            about=self._about,
            latency_interval_ms=self._flow.latency_interval_ms,
        )

    def _start(self, epoch: Epoch, begin: Callable[[Callable[[EpochEnded], None]], None]) -> None:
        """Let the runner start something; ``run`` tells its end from that of an earlier request."""
        begin(lambda ended, run=epoch.run: self._mailbox.put(attrs.evolve(ended, run=run)))  # type: ignore[misc]

    def shuffle_ahead(self, instruction: ShuffleAhead) -> Step | None:
        """Begin with the next epoch; if that fails, it is planned and read in its turn, as any other."""
        number = instruction.newest.number + 1
        try:
            step = self._input.planner.ahead(number, instruction.newest.step)
            if step is not None:
                self.runner.shuffle_ahead(
                    self._request(number, step.epoch, f"ahead for epoch {number}"),
                    partial(self._mailbox.put, ShuffledAhead(number)),
                )
        except PyFlinkStateError as error:
            self._reporter.log.not_ahead(number, error)
            return None
        return step

    def cancel(self, _: CancelEpoch) -> None:
        """Cancel what runs of the failed attempt; its slots are cut off after that."""
        self._slots.cut_off_later()
        self.runner.cancel()


@attrs.frozen
class JobParts:
    """What a job is made of.

    Attributes:
        plan: the plan of the program.
        settings: how to run it.
        runner: the engine that runs epochs.
        control: makes the endpoint to which tasks and slots connect.
        clock: tells the time.
        storage: where checkpoints are kept; None if none are taken.
        restore: the checkpoint to start from, if any.
        mailbox: where events arrive.
        job_id: the id of the job, which is that of its checkpoint.
    """

    plan: JobPlan
    settings: JobSettings
    runner: EpochRunner
    control: ControlFactory
    clock: Clock
    storage: CheckpointFolders | None = None
    restore: RestorePoint | None = None
    mailbox: queue.SimpleQueue[object] = attrs.Factory(queue.SimpleQueue)
    job_id: str = attrs.field(init=False)

    @job_id.default
    def _id_of_checkpoint(self) -> str:
        return uuid.uuid4().hex if self.restore is None else self.restore.metadata.job_id


class Actions:
    """Carries out instructions, on the thread of the master."""

    def __init__(self, parts: JobParts) -> None:
        settings, clock, job_id = parts.settings, parts.clock, parts.job_id
        storage, restore = parts.storage, parts.restore
        self._settings = settings
        self._clock = clock
        self.plan = parts.plan if restore is None else self._fitted(parts.plan, restore)
        self.reporter = JobReporter(self.plan, job_id, settings.name, settings.listeners, clock)
        deployments = Deployments(
            self.plan,
            settings.state_backend,
            None if storage is None else storage.settings,
            settings.checkpoints.incremental,
            settings.slot_memory_bytes,
            settings.job_parameters,
            settings.own_state_backends,
        )
        self.slots = JobSlots(
            parts.control, deployments, clock, settings.job_parameters, settings.is_encrypted
        )
        self.checkpoints: Checkpoints | None = None
        self.takeover: Takeover | None = None
        #: Raises ``JobSupersededError`` if another driver has taken the job over.
        self._check_run: Callable[[], None] = lambda: None
        if storage is not None:
            claim = RunClaim(job_id, settings.name, storage, clock)
            self._check_run = claim.check
            files = CheckpointFiles(job_id, settings.name, storage, claim)
            self.checkpoints = Checkpoints(
                self.plan, settings.checkpoints, files, self.slots, self.reporter, clock, restore
            )
            self.takeover = Takeover(files, self.checkpoints)
        self.sinks = JobSinks(
            self.plan.sinks, job_id, self._check_run, None if storage is None else storage.uri
        )
        #: Where planned epochs are written down, if a sink relies on their numbers.
        self._plans = self.takeover.files if self.takeover and self.sinks.rely_on_numbers else None
        self.input = Input(
            self.plan,
            GuardedSource(self.plan.source.source, self.plan.source.name),
            settings.allow_non_restored_state,
            storage is None,
            clock,
            None if self._plans is None else self._plans.plan,
        )
        self.input.planner.reads_live = parts.runner.reads_live and not self.sinks.rely_on_numbers
        self.engine = EngineRequests(
            runner=parts.runner,
            plan=self.plan,
            settings=settings,
            slots=self.slots,
            source=self.input,
            reporter=self.reporter,
            mailbox=parts.mailbox,
        )
        self._epoch_started_ms = 0
        self._last_duration_ms = 0
        #: The history of runs for sinks, if no checkpoints have one: a run may have to be begun again.
        self._line = RunHistory().continued(0, run_id_after([], secrets.token_hex(4)))

    @property
    def restore(self) -> RestorePoint | None:
        """The checkpoint from which the job starts, or to which it goes back."""
        return None if self.checkpoints is None else self.checkpoints.restore

    def facts(self) -> JobFacts:
        """Return what the script must know about the job."""
        source, plan = self.input.source, self.plan
        is_ahead = self._settings.flow.epochs_ahead > 0 and not source.commits_every_epoch
        return JobFacts(
            self._settings.name,
            self.takeover is not None,
            plan.uses_timers,
            source.commits_every_epoch,
            2 if is_ahead and plan.can_shuffle_ahead else 1,
        )

    def has_pending(self) -> bool:
        """Return whether checkpoints or savepoints are pending."""
        return self.checkpoints is not None and bool(self.checkpoints.coordinator.pending)

    # --- the beginning of an attempt, and of a run -------------------------------------------------

    def begin_attempt(self, instruction: BeginAttempt) -> Epoch:
        """Cut off previous attempts, and go to where this one begins."""
        self.slots.registry = self.slots.control.new_attempt(instruction.attempt)
        if self.takeover is not None:
            self.takeover.begin_attempt()
        return self._begin(self.restore, instruction.is_final)

    def _begin(self, restore: RestorePoint | None, is_final: bool) -> Epoch:
        number, step = self.input.begin(restore, is_final)
        self.reporter.accumulators.reset(number, {} if restore is None else restore.metadata.counters)
        self.slots.deployments.begin_attempt(self.slots.registry.attempt, number, restore)
        return Epoch(number, step=step)

    def claim(self, instruction: ClaimJob) -> Claim:
        """Make any older driver of the job end, and restore the last checkpoint that it completed."""
        restore, epoch = self.restore, instruction.epoch
        if self.takeover is not None:
            newest = self.takeover.claim()
            if newest is not None and newest is not restore:
                self._check_fits(newest)
                self.takeover.checkpoints.restore = restore = newest
                epoch = self._begin(newest, is_final=False)
        self.input.check(restore)
        return Claim(epoch, restore is not None and bool(self.slots.deployments.slots()))

    def _check_fits(self, newest: RestorePoint) -> None:
        if [op.max_parallelism for op in self._fitted(self.plan, newest).operators] != [
            op.max_parallelism for op in self.plan.operators
        ]:
            raise IncompatibleCheckpointError(
                f"{newest.uri}, which another driver has just completed, has other max parallelisms than the "
                f"checkpoint before it: start the program again"
            )

    def _fitted(self, plan: JobPlan, restore: RestorePoint) -> JobPlan:
        settings = self._settings
        return fit(plan, settings.name, restore.metadata, settings.allow_non_restored_state)

    def take_over(self, instruction: TakeOver) -> None:
        """Take over the job.

        Failures up to this point have left all checkpoints and all output as they were.
        """
        if self.takeover is not None:
            self.takeover.take_over()
            self._line = self.takeover.files.line
        restored = None if self.restore is None else self.restore.metadata.epoch
        self.sinks.open(self._line, restored, instruction.epoch)
        if self._plans is not None and restored is not None:
            self.input.planner.remember(self.input.source.planned(self._plans.planned(restored)))

    # --- an epoch ----------------------------------------------------------------------------------

    def ask_source(self, instruction: AskSource) -> Found:
        """Ask the source for the next epoch."""
        self.reporter.timeline.begin()
        last = instruction.last
        step = instruction.ahead or self.input.planner.next(last.number + 1, last.step.end)
        if step is not None:
            return Found(step)
        self.reporter.progress.made()
        self.sinks.release(only_due=True)
        is_due = self.checkpoints is not None and self.checkpoints.coordinator.is_due(
            self._clock.monotonic_ms()
        )
        return Found(
            None,
            self.input.planner.is_over,
            self.has_pending(),
            is_due,
            self.input.timers_are_due(self._clock.now_ms()),
        )

    def set_barrier(self, instruction: SetBarrier) -> list[Outcome]:
        """Decide on the barrier: with a savepoint, or a checkpoint that is due by the end of the epoch."""
        self._epoch_started_ms = now_ms = self._clock.monotonic_ms()
        checkpoints, epoch = self.checkpoints, instruction.epoch
        self.input.planner.begin(epoch.number, epoch.step)
        outcomes: list[Outcome] = []
        if checkpoints is not None and instruction.savepoint is not None:
            outcomes = checkpoints.trigger_savepoint(instruction.savepoint, epoch, now_ms)
        elif epoch.step.is_live:
            epoch.lasts_ms = self._live_ms(now_ms, SHORT_LIVE_MS if epoch.step.is_full else MOST_LIVE_MS)
        if checkpoints is None or outcomes or epoch.trigger is not None:
            return outcomes
        is_due = checkpoints.coordinator.is_due(now_ms + (epoch.lasts_ms or self._last_duration_ms))
        return checkpoints.trigger(epoch, now_ms + epoch.lasts_ms) if instruction.is_needed or is_due else []

    def _live_ms(self, now_ms: int, most_ms: int) -> int:
        """Return how long a live epoch lasts: until the next checkpoint is due, or for ``most_ms``."""
        checkpoints = self.checkpoints
        due_ms = None if checkpoints is None else checkpoints.coordinator.due_in_ms(now_ms)
        return most_ms if due_ms is None else min(due_ms, most_ms)

    def count(self, instruction: CountReport) -> None:
        """Add the counts that a task has reported."""
        self.reporter.task_reported(instruction.report)
        self.input.count(instruction.report)

    def prepare(self, instruction: PrepareOutput) -> None:
        """Let the sinks prepare the output of an epoch that has run."""
        epoch, number = instruction.epoch, instruction.epoch.number
        self.reporter.timeline.ran()
        epoch.step = self.input.planner.settled(number, epoch.step)
        self.sinks.prepare(number, epoch.results)
        epoch.watermarks = self.input.event_time.ended(number)
        self._last_duration_ms = self._clock.monotonic_ms() - self._epoch_started_ms
        self.reporter.timeline.in_flight = instruction.in_flight
        self.reporter.epoch_prepared(
            number, self._last_duration_ms, self.slots.registry.attempt, epoch.watermarks
        )

    def align(self, instruction: AlignBarrier) -> list[Outcome]:
        """Tell the checkpoints that every subtask has reached a barrier, and what is counted until then."""
        assert self.checkpoints is not None
        return self.checkpoints.barrier_aligned(
            instruction.epoch, self.reporter.accumulators.total(instruction.epoch.number)
        )

    def commit(self, instruction: CommitOutput) -> None:
        """Let the sinks commit."""
        number = instruction.epoch.number
        began_ms = self._clock.monotonic_ms()
        self.sinks.commit(number)
        if instruction.epoch.savepoint is not None:
            self.sinks.release()
        self.input.planner.commit(number, instruction.epoch.step.end)
        self.reporter.accumulators.fold(number)
        if self._plans is not None:
            self._plans.forget_planned(number)
        self.reporter.committed(number, self._clock.monotonic_ms() - began_ms, self.sinks.totals())

    def confirm(self, instruction: ConfirmCheckpoint) -> list[Outcome]:
        """Carry out what follows a complete checkpoint."""
        assert self.checkpoints is not None
        return self.checkpoints.confirm(instruction.checkpoint_id, instruction.error)

    def close(self, _: CloseSlots) -> None:
        """Let the slots close the user functions, and the sinks show what they hold back."""
        self.slots.registry.close(CLOSE_TIMEOUT_S)
        self.sinks.release()

    # --- the end of an attempt ---------------------------------------------------------------------

    def end_attempt(self, instruction: EndAttempt) -> AttemptEnded:
        """Abort the checkpoints of the failed attempt, and find out why it failed."""
        self.slots.cut_off()
        error = self._reason_of(instruction.error)
        if self.checkpoints is not None:
            self.checkpoints.abort_pending(error)
        return AttemptEnded(error, self._falls_back(error), self._clock.monotonic_ms())

    def _reason_of(self, error: PyFlinkStateError) -> PyFlinkStateError:
        """Return why an attempt has failed.

        If there is another driver, or the engine has ended, most likely because of that.
        """
        gone = self.engine.runner.gone(at_once=True)
        if gone is not None and error.recoverable and not gone.recoverable:
            gone.__cause__ = error
            return gone
        try:
            self._check_run()
        except JobSupersededError as superseded:
            superseded.__cause__ = error if error is not superseded else None
            return superseded
        except CheckpointError:
            return error
        return error

    def _falls_back(self, error: PyFlinkStateError) -> bool:
        """Go back to the checkpoint before a damaged one, if the user allows it and there is one."""
        may = self._settings.fall_back and self.input.source.is_rewindable
        is_damaged = isinstance(error, CorruptCheckpointError) and self.restore is not None
        older = self.takeover.fall_back() if self.takeover and may and is_damaged else None
        if older is not None:
            self.reporter.log.falls_back(error, older.uri)
            self.input.planner.remember({})
        return older is not None

    def pause(self, instruction: Pause) -> None:
        """End the slots of an attempt, and tell that another one follows."""
        self.slots.registry.end()
        self.reporter.restarts(instruction.attempt, instruction.error, self.restore)
