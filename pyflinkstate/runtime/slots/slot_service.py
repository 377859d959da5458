"""The service of a state slot: versions, epochs, snapshots, notifications. No sockets and no processes.

The slot has a *version*, the last epoch that it applied. It accepts only the epoch after that one. From the
first frame until the end of an epoch the slot has no version, so if the task dies half-way, the state cannot
be mistaken for complete.

Calls may come from several threads: one feeds an epoch, one listens to the driver, others write snapshots.
The user function runs on one thread at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial

import attrs

from pyflinkstate.backends.format import CheckpointStreamFactory, StateReader
from pyflinkstate.errors import (
    BadRecordError,
    PyFlinkStateError,
    SlotBusyError,
    SnapshotCancelledError,
    StaleSlotError,
    StateQueryError,
)
from pyflinkstate.runtime.operators import (
    KeyedSubtask,
    OperatorContext,
    Output,
    StreamOperatorState,
    SubtaskSnapshot,
    close_all,
    closed_at_end,
)
from pyflinkstate.runtime.slots.memory import resident_bytes
from pyflinkstate.runtime.slots.questions import Outcome, Question, freeze
from pyflinkstate.runtime.slots.time_shares import TimeShares
from pyflinkstate.runtime.storage import CheckpointFolders, open_folder
from pyflinkstate.runtime.wire import (
    KEPT,
    LOOK_EVERY_S,
    MAX_WATERMARK,
    NO_WATERMARK,
    AbortCheckpoint,
    AskState,
    BeginEpoch,
    ChannelEvent,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    DeploySlot,
    EpochAccepted,
    EpochDone,
    EpochFailed,
    EpochRefused,
    InputFrame,
    NoRecord,
    NotifyCheckpointComplete,
    OutputSteps,
    QuestionRefused,
    SlotClosed,
    SlotFailed,
    SlotId,
    StateMaterialized,
    SubtaskStatus,
    ValuesFrame,
    WatermarkMerger,
    encoded_frames,
    loads,
    user_failure,
)


@attrs.frozen
class SlotHost:
    """The services of a slot's host.

    Attributes:
        tell: sends a message to the driver; raises ``OSError`` if the driver is gone.
        spawn: runs a function concurrently.
        now_ms: returns the time in ms since 1970.
        open_storage: opens the checkpoint storage.
        open_folder: opens a checkpoint's folder.
        perf_s: a clock for durations, in seconds.
        perf_ns: the same in ns.
    """

    tell: Callable[[object], None]
    spawn: Callable[[Callable[[], None]], None]
    now_ms: Callable[[], int]
    open_storage: Callable[..., CheckpointFolders] = CheckpointFolders
    open_folder: Callable[[str], StateReader] = open_folder
    perf_s: Callable[[], float] = time.perf_counter
    perf_ns: Callable[[], int] = time.perf_counter_ns


#: A frame of results; one that does not leave the process may stay as it is.
Results = bytes | ValuesFrame
#: Makes frames of results, of an operator that is named in errors.
Encode = Callable[[ValuesFrame, str], Iterator[Results]]


class SlotService:
    """Serves one subtask to the tasks that feed it and to the driver that owns it."""

    def __init__(self, slot: SlotId, attempt: int, host: SlotHost) -> None:
        self._slot = slot
        self._attempt = attempt
        self._host = host
        self._lock = threading.Lock()
        self._user_code = threading.RLock()
        self._version: int | None = None
        self._epoch: BeginEpoch | None = None
        self._encode: Encode = encoded_frames
        self._counts = [0, 0]
        self._side_counts: Counter[str] = Counter()
        self._steps = OutputSteps()
        self.shares = TimeShares(host.perf_ns)
        #: The watermark at the beginning of the epoch, and the one that was sent last.
        self._opening = NO_WATERMARK
        self._told: int | None = None
        #: Whether all channels of the epoch are open.
        self._is_open = False
        self._merger = WatermarkMerger()
        #: Deletes what the state backend has on disk.
        self.discard: Callable[[], None] = lambda: None
        self._snapshots: dict[int, SubtaskSnapshot] = {}
        self._notices: deque[NotifyCheckpointComplete | AbortCheckpoint] = deque()
        #: Those that wait for the end of the epoch.
        self._questions: list[Question] = []

    # --- beginning and end ---------------------------------------------------------------------------

    def deploy(self, deployment: DeploySlot) -> PyFlinkStateError | None:
        """Restore the state and open the function; return the error to report if that fails."""
        try:
            self._deployment = deployment
            settings = deployment.storage
            self._storage = None if settings is None else self._host.open_storage(settings)
            self._subtask = self._make_subtask(deployment)
            self._subtask.open()
            if deployment.incremental:
                self._subtask.state.track_changes()
        except BaseException as error:  # noqa: BLE001 - the driver must be told of any error
            return user_failure(error, deployment.name, NoRecord("while starting"))
        self._version = deployment.epoch
        return None

    def _make_subtask(self, deployment: DeploySlot) -> KeyedSubtask:
        backend = deployment.state_backend
        keyed = backend.create_keyed_state_backend(
            deployment.key_type, deployment.key_group_range, deployment.max_parallelism, self._host.now_ms
        )
        self.discard = keyed.discard
        state = StreamOperatorState(
            keyed,
            backend.create_operator_state_backend(),
            backend.snapshot_compression,
            deployment.restored_checkpoint_id,
        )
        if deployment.restore_uri is not None:
            state.restore(deployment.state, self._host.open_folder(deployment.restore_uri))
        context = OperatorContext(
            deployment.name,
            self._slot.subtask,
            deployment.parallelism,
            deployment.max_parallelism,
            deployment.attempt,
            keyed,
            job_parameters=deployment.job_parameters,
        )
        self._merger = WatermarkMerger(deployment.watermark)
        return KeyedSubtask(loads(deployment.function), context, state, deployment.watermark)

    def close(self) -> SlotClosed:
        """Close the function; return the message for the driver."""
        with self._user_code:
            try:
                with closed_at_end(partial(close_all, self._subtask.close, *KEPT.take_all())):
                    self._tell_function()
            except PyFlinkStateError as error:
                return SlotClosed(error)
        return SlotClosed()

    # --- epochs --------------------------------------------------------------------------------------

    def begin(self, begin: BeginEpoch, encode: Encode = encoded_frames) -> EpochAccepted | EpochRefused:
        """Accept or refuse a task that wants to feed an epoch.

        If accepted, ``end`` or ``abandon`` must follow.

        Args:
            begin: the epoch.
            encode: makes of the results what the frames of the epoch yield.
        """
        with self._lock:
            refused = self._refused(begin)
            if refused is not None:
                return refused
            self._epoch, self._version, self._encode = begin, None, encode
            self._counts = [0, 0]
            self._side_counts.clear()
            self._merger.begin_epoch()
            self._opening, self._told, self._is_open = self._merger.watermark, None, False
        return EpochAccepted()

    def _refused(self, begin: BeginEpoch) -> EpochRefused | None:
        """Return the answer to a task that may not feed its epoch now, or None if it may."""
        if begin.attempt != self._attempt:
            return self._stale(begin, f"it is of attempt {self._attempt}")
        if self._epoch is not None and self._epoch.epoch > begin.epoch:
            return self._stale(begin, f"it processes epoch {self._epoch.epoch}")
        if self._epoch is not None:
            return EpochRefused(SlotBusyError(f"slot {self._slot}: another task is feeding it"))
        if self._version != begin.epoch - 1:
            return self._stale(begin, f"it is at version {self._version}", self._version == begin.epoch)
        return None

    def _stale(self, begin: BeginEpoch, reason: str, is_applied: bool = False) -> EpochRefused:
        return EpochRefused(
            StaleSlotError(
                f"slot {self._slot} cannot take epoch {begin.epoch}: {reason}; the job restarts "
                f"from its last checkpoint"
            ),
            is_applied,
        )

    def fed(self, frames: Iterable[bytes]) -> Generator[Results | EpochDone]:
        """Yield the frames of results for the frames of an epoch that was accepted, and then its end.

        Whatever goes wrong, the epoch is abandoned.

        Raises:
            PyFlinkStateError: the epoch has failed.
        """
        try:
            for frame in frames:
                yield from self.process(frame)
            yield from self.finish_input()
            ended = self.end()
            if isinstance(ended, EpochFailed):
                raise ended.error
        except BaseException:
            self.abandon()
            raise
        yield ended

    def process(self, data: bytes) -> Iterator[Results]:
        """Process one frame and yield frames of its results, if there are any.

        Raises:
            PyFlinkStateError: the epoch has failed; ``abandon`` must follow.
        """
        return self.shares.of(self._process(data))

    def _process(self, data: bytes) -> Iterator[Results]:
        frame = self._decode(data)
        output = Output()
        if frame.time is None or frame.values or frame.time.event is not ChannelEvent.OPEN:
            with self._user_code:
                if not self._is_open:
                    self._open_input(output)
                self._subtask.fire_timers(output)
            for part in self._steps.parts(len(frame)):
                with self._user_code:
                    self._subtask.process_frame(frame.part(part), output)
                if self._steps.is_full(output.values, *(values for values, _ in output.side.values())):
                    yield from self._encoded(output)
                    output = Output()
            with self._user_code:
                if frame.time is not None and self._merger.advance(frame.time):
                    self._subtask.advance_watermark(self._merger.watermark, output)
        else:
            self._merger.advance(frame.time)
            return
        self._counts[0] += len(frame.values)
        yield from self._encoded(output)

    def _open_input(self, output: Output) -> None:
        """Begin with the watermark with which the input opens, if it is later: all channels are open."""
        self._is_open = True
        if not self._merger.open():
            return
        self._subtask.advance_watermark(self._merger.watermark, output)
        if not (output.values or output.side):  # those would be late for the readers
            self._opening = self._merger.watermark

    def rest_s(self) -> float:
        """Return for how many seconds no processing-time timer is due."""
        timer_ms = self._subtask.next_timer_ms()
        return LOOK_EVERY_S if timer_ms is None else max(0.001, (timer_ms - self._host.now_ms()) / 1000)

    def finish_input(self) -> Iterator[Results]:
        """Fire the timers that are due after the last frame; see :meth:`process`."""
        return self.shares.of(self._finish_input())

    def _finish_input(self) -> Iterator[Results]:
        assert self._epoch is not None
        waiting = self._subtask.finish_epoch()
        while (results := self._next_of(waiting)) is not None:
            yield from self._encoded(results)
        output = Output()
        with self._user_code:
            self._subtask.fire_timers(output)
            if self._epoch.is_final and self._merger.advance_to(MAX_WATERMARK):
                self._subtask.advance_watermark(MAX_WATERMARK, output)
        yield from self._encoded(output, is_last=True)

    def _next_of(self, outputs: Iterator[Output]) -> Output | None:
        with self._user_code:
            return next(outputs, None)

    def _encoded(self, output: Output, is_last: bool = False) -> Iterator[Results]:
        """Yield frames with the results or a new watermark; there are none if there is neither."""
        assert self._epoch is not None
        self._counts[1] += len(output.values) + sum(len(values) for values, _ in output.side.values())
        for tag_id, (values, _) in output.side.items():
            self._side_counts[tag_id] += len(values)
        has_results = bool(output.values or output.side)
        if not self._epoch.is_timed:
            frame = ValuesFrame(output.values, side=output.side)
            return self._encode(frame, self._deployment.name) if has_results else iter(())
        watermark, first = self._merger.watermark, self._told is None
        if not (has_results or watermark != self._told or is_last):
            return iter(())
        self._told = watermark
        frame = ValuesFrame(
            output.values,
            output.timestamps,
            watermark,
            self._merger.is_idle,
            output.side,
            self._opening if first else None,
        )
        return self._encode(frame, self._deployment.name)

    def _decode(self, data: bytes) -> InputFrame:
        try:
            return InputFrame.decode(data)
        except Exception as error:
            raise BadRecordError(
                f"operator {self._deployment.name!r}: records cannot be unpickled in its slot: "
                f"{type(error).__name__}: {error}; their classes must be importable on every executor"
            ) from error

    def end(self) -> EpochDone | EpochFailed:
        """End the epoch after its last frame, and take the snapshot if there is a barrier."""
        begin = self._epoch
        assert begin is not None
        try:
            with self._user_code:
                for trigger in () if begin.barrier is None else begin.barrier.all():
                    self._begin_snapshot(trigger)
                metrics, timer_ms = self._subtask.metrics(), self._subtask.next_timer_ms()
                done = EpochDone(
                    self._counts[0],
                    self._counts[1],
                    metrics,
                    timer_ms,
                    self._merger.watermark,
                    self._status(),
                    dict(self._side_counts),
                )
        except PyFlinkStateError as error:
            self.abandon()
            return EpochFailed(error)
        with self._lock:
            self._epoch, self._version = None, begin.epoch
        self._answer_all()
        self._tell_function_soon()
        return done

    def _status(self) -> SubtaskStatus:
        self.shares.processed()
        limit, timers = self._deployment.memory_bytes, self._subtask.pending_timers()
        disk = self._subtask.backend.disk_status()
        return SubtaskStatus(*self.shares.take(), resident_bytes(), limit, timers, disk)

    def abandon(self) -> None:
        """Give up an epoch half-way; the slot cannot be used any more."""
        with self._lock:
            self._epoch = None
            questions, self._questions = self._questions, []
        for question in questions:
            question.settle(partial(self._late, question.ask.epoch))

    # --- questions -------------------------------------------------------------------------------------

    @property
    def is_fed(self) -> bool:
        """Whether an epoch is being fed."""
        return self._epoch is not None

    def put(self, question: Question) -> None:
        """Answer or refuse a question: now, or at the end of the epoch that it is about."""
        epoch = question.ask.epoch
        with self._lock:
            if epoch == self._next_version():
                self._questions = [*[one for one in self._questions if not one.has_left], question]
                return
        # No epoch begins before the state is frozen, and it is not changed by a function that is notified.
        with self._user_code, self._lock:
            question.settle(
                partial(self._frozen, question.ask) if self._version == epoch else partial(self._late, epoch)
            )

    def _next_version(self) -> int | None:
        if self._epoch is not None:
            return self._epoch.epoch
        return None if self._version is None else self._version + 1

    def _answer_all(self) -> None:
        """Answer the questions about the epoch that has just ended; the next one cannot begin before."""
        with self._lock:
            questions, self._questions = self._questions, []
        for question in questions:
            with self._user_code:
                question.settle(partial(self._frozen, question.ask))

    def _frozen(self, ask: AskState) -> Outcome:
        try:
            return freeze(self._subtask.backend, ask)
        except PyFlinkStateError as error:
            return QuestionRefused(error)
        except Exception as error:  # noqa: BLE001 - a question must not fail the epoch, whatever it is
            failure = StateQueryError(
                f"slot {self._slot} cannot answer for state {ask.state!r}: {type(error).__name__}: {error}"
            )
            return QuestionRefused(failure)

    def _late(self, epoch: int) -> QuestionRefused:
        error = StateQueryError(f"slot {self._slot} is not at the end of epoch {epoch} any more")
        return QuestionRefused(error, is_late=True)

    # --- the driver ----------------------------------------------------------------------------------

    def hear(self, message: object) -> None:
        """Handle the driver's message about the end of a checkpoint."""
        if isinstance(message, AbortCheckpoint):
            snapshot = self._snapshots.get(message.checkpoint_id)
            if snapshot is not None:
                snapshot.cancel()
        if isinstance(message, (AbortCheckpoint, NotifyCheckpointComplete)):
            self._notices.append(message)
            self._tell_function_soon()

    def _tell_function_soon(self) -> None:
        """Notify the function now or, if an epoch is being fed, at its end."""
        if self._epoch is not None:
            return
        with self._user_code:
            if self._epoch is None:
                try:
                    self._tell_function()
                except PyFlinkStateError as error:
                    self._version = None
                    self._tell(SlotFailed(error))

    def _tell_function(self) -> None:
        while self._notices:
            notice = self._notices.popleft()
            if isinstance(notice, NotifyCheckpointComplete):
                self._subtask.checkpoint_complete(notice.checkpoint_id)
            else:
                self._subtask.checkpoint_aborted(notice.checkpoint_id)

    def _tell(self, message: object) -> None:
        with contextlib.suppress(OSError):  # the driver is gone, which the slot is about to notice
            self._host.tell(message)

    # --- snapshots -----------------------------------------------------------------------------------

    def _begin_snapshot(self, trigger: CheckpointTrigger) -> None:
        started = self._host.perf_s()
        try:
            streams, shared = self._streams(trigger)
            snapshot = self._subtask.snapshot(trigger, streams, shared)
        except BaseException as error:  # noqa: BLE001 - including sys.exit() in a value's own code
            self._decline(trigger, error)
            return
        sync_ms = (self._host.perf_s() - started) * 1000
        self._snapshots[trigger.checkpoint_id] = snapshot
        try:
            self._host.spawn(lambda: self._write_snapshot(trigger, snapshot, sync_ms))
        except RuntimeError as error:  # no more threads can be started
            del self._snapshots[trigger.checkpoint_id]
            snapshot.cancel()
            self._decline(trigger, error)

    def _streams(
        self, trigger: CheckpointTrigger
    ) -> tuple[CheckpointStreamFactory, CheckpointStreamFactory | None]:
        assert self._storage is not None
        streams = self._storage.streams(trigger.folder, writer=trigger.writer)
        if not trigger.is_incremental:
            return streams, None
        return streams, self._storage.streams(trigger.folder, trigger.checkpoint_id, trigger.writer)

    def _write_snapshot(self, trigger: CheckpointTrigger, snapshot: SubtaskSnapshot, sync_ms: float) -> None:
        started = self._host.perf_s()
        try:
            state = snapshot.futures.finish()
            async_ms = (self._host.perf_s() - started) * 1000
            if trigger.is_incremental and state.managed_keyed is not None:
                written = attrs.evolve(state.managed_keyed, checkpoint_id=trigger.checkpoint_id)
                state = attrs.evolve(state, managed_keyed=written)
            self._tell(
                CheckpointAck(trigger.checkpoint_id, self._slot, state, sync_ms, async_ms, snapshot.base_id)
            )
            self._materialize(trigger, snapshot)
        except SnapshotCancelledError:
            return
        except BaseException as error:  # noqa: BLE001 - a checkpoint may fail, the slot goes on
            snapshot.cancel()
            self._decline(trigger, error)
        finally:
            self._snapshots.pop(trigger.checkpoint_id, None)

    def _materialize(self, trigger: CheckpointTrigger, snapshot: SubtaskSnapshot) -> None:
        """Write all state after the increment. If that fails, later increments continue the old chain."""
        if snapshot.full is None:
            return
        try:
            handle = snapshot.full.finish()
        except Exception:  # noqa: BLE001 - nothing depends on it, and the next attempt may succeed
            return
        if handle is not None:
            written = attrs.evolve(handle, checkpoint_id=trigger.checkpoint_id)
            self._tell(StateMaterialized(trigger.checkpoint_id, self._slot, written))

    def _decline(self, trigger: CheckpointTrigger, error: BaseException) -> None:
        failure = user_failure(error, self._deployment.name, NoRecord(f"checkpoint {trigger.checkpoint_id}"))
        self._tell(CheckpointDecline(trigger.checkpoint_id, self._slot, failure))
