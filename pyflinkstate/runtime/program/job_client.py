"""The client of a job that runs in the background, and what runs one to its end or to its next record."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent import futures
from typing import Any, Generic, TypeVar

import attrs

from pyflinkstate import notebook
from pyflinkstate.api import CompletableFuture, JobID, Key, Namespace, T
from pyflinkstate.errors import CheckpointError, ConfigurationError, ImpossibleEventError, PyFlinkStateError
from pyflinkstate.runtime.master import Job, JobExecutionResult, SavepointRequest
from pyflinkstate.runtime.program.signals import EndedBySignals, await_end, forget, watch
from pyflinkstate.runtime.queries import StateAnswer, state_reader
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.storage import AnyPath, absolute
from pyflinkstate.runtime.wire import SlotId, wait_for

AnyError = TypeVar("AnyError", bound=BaseException)

#: Reads and writes Flink's savepoints. It is above this room, and is loaded by its name when it is needed.
FLINK = "pyflinkstate.state_access.flink"


def run_to_end(job: Job) -> None:
    """Run a job to the end of its input.

    Raises:
        PyFlinkStateError: what made it fail, as of here.
    """
    try:
        with EndedBySignals(job):
            deque(job.run(), maxlen=0)
    except PyFlinkStateError as error:
        raise without_inner_frames(error) from error.__cause__


def without_inner_frames(error: AnyError) -> AnyError:
    """Return ``error``, which no longer shows where in this package it was found out: its message says more.

    Where it is a fault of this package, and where it was caused by another's error, the frames stay.
    """
    found: BaseException | None = error
    while isinstance(found, PyFlinkStateError) and not isinstance(found, ImpossibleEventError):
        found.__traceback__ = None
        found = found.__cause__
    return error


@attrs.define
class CloseableIterator(Generic[T]):
    """Iterates over the records of a running job; ``DataStream.execute_and_collect`` returns one."""

    _job: Job
    _records: deque[T]
    _epochs: Iterator[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._epochs = self._job.run()

    def __iter__(self) -> CloseableIterator[T]:
        return self

    def __next__(self) -> T:
        while not self._records:
            if self._next_epoch() is None and not self._records:
                raise StopIteration
        return self._records.popleft()

    def _next_epoch(self) -> int | None:
        try:
            with EndedBySignals(self._job):
                return next(self._epochs, None)
        except PyFlinkStateError as error:
            raise without_inner_frames(error) from error.__cause__

    def next(self) -> T:
        """Return the next record, or raise ``StopIteration`` if there is none."""
        return next(self)

    def __enter__(self) -> CloseableIterator[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the job and its slots. Idempotent."""
        self._epochs.close()  # type: ignore[attr-defined]  # it is a generator


class JobClient:
    """Monitors and controls one running job. ``result()`` of a future waits, and a coroutine can await it.

    The job runs on a thread that does not keep the program alive: wait for its result.
    """

    def __init__(self, job: Job, savepoint_directory: str | None) -> None:
        self._job = job
        self._savepoint_directory = savepoint_directory
        self._result: _Outcome[JobExecutionResult] = _uncancellable()
        self._thread = threading.Thread(target=self._run, name=f"job {job.job_id}", daemon=True)
        watch(job)
        self._thread.start()

    def _run(self) -> None:
        try:
            deque(self._job.run(is_heard=lambda: self._result.is_awaited), maxlen=0)
            result = self._job.result()
        except BaseException as error:  # noqa: BLE001 - the error is the result
            self._result.set_exception(without_inner_frames(error))
        else:
            self._result.set_result(result)
        finally:
            forget(self._job)

    def __await__(self) -> Generator[object, None, JobExecutionResult]:
        """Wait for the end of the job, and return its result or raise the error that made it fail."""
        return self._result.__await__()

    def _repr_html_(self) -> str:
        return (
            notebook.facts(f"job {self._job.name}", [("status", self._job.status.name)])
            + self._job.result()._repr_html_()
        )

    def get_job_id(self) -> JobID:
        """Return the job's id."""
        return JobID(self._job.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the present status of the job."""
        return _done(self._job.status)

    def slot_pids(self) -> dict[SlotId, int]:
        """Return the process ids of the running state slots, on their hosts."""
        return self._job.slot_pids()

    def get_accumulators(self) -> CompletableFuture[dict[str, object]]:
        """Return the record counts so far."""
        return _done(dict(self._job.result().accumulators))

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return a future of the result, which is done when the job has ended.

        Its exception is the error that made the job fail, or ``JobCancelledError`` after :meth:`cancel`.
        The future itself cannot be cancelled: whoever waits for it may give up, and the job goes on.
        """
        return self._result

    def cancel(self) -> CompletableFuture[None]:
        """End the job without another checkpoint; the future is done when the job has ended."""
        self._job.cancel()
        ended: CompletableFuture[None] = _uncancellable()
        self._result.add_done_callback(lambda _: ended.set_result(None))
        return ended

    def query(
        self,
        uid: str,
        state: str,
        keys: Iterable[Key] | None = None,
        namespace: Namespace | None = None,
        *,
        timeout_s: float = 60.0,
    ) -> StateAnswer:
        """Return the entries of a keyed state as they are after one epoch, over all subtasks.

        The job goes on: each slot freezes the state between two epochs, as for a checkpoint, and sends it
        while it processes the next one. If an epoch is running, the answer waits for its end. The state may
        not be committed yet, so a job that fails may go back to before it.

        The rows have the columns of :meth:`Checkpoint.entries`. With ``keys`` the answer is in memory when
        it is returned. Without, it is streamed and can be read once; close it if it is not read to its end.

        Args:
            uid: the operator.
            state: the name of the state.
            keys: the wanted keys; only the slots that own them are asked. Default: all.
            namespace: the wanted namespace, such as a window. Default: all.
            timeout_s: how long to wait for the end of the epoch, or for a job that starts or restarts.

        Returns:
            a :class:`~pyflinkstate.state_access.live.LiveTable`.

        Raises:
            UnknownOperatorError, UnknownStateError: the job has no such operator or state.
            InvalidKeyError: a key does not fit the type of the operator's keys.
            StateQueryTimeoutError: no answer began in time.
            StateQueryError: the job is over, a slot died, or too many answers are open.
        """
        asked: StateAnswer = state_reader().query(self._job.queries, uid, state, keys, namespace, timeout_s)
        return asked

    def query_value(
        self,
        uid: str,
        state: str,
        key: Key,
        namespace: Namespace | None = None,
        *,
        timeout_s: float = 60.0,
    ) -> Any:
        """Return the value that ``key`` has in a keyed state after an epoch, or None if it has none.

        The value of a list state is a list, that of a map state a dict. See :meth:`query`.

        Raises:
            StateQueryError: the state has namespaces, and none is given.
        """
        return state_reader().query_value(self._job.queries, uid, state, key, namespace, timeout_s)

    def trigger_savepoint(
        self, savepoint_directory: AnyPath | None = None, *, format: str = "pyflinkstate"
    ) -> CompletableFuture[str]:
        """Write a savepoint at the next barrier, and go on.

        It completes after a checkpoint of the same barrier, when the sinks have committed up to there.

        Args:
            savepoint_directory: a path or URI that driver and executors can reach; a folder is created below
                it. Default: the directory from ``set_default_savepoint_directory``.
            format: ``flink`` for a canonical savepoint of Flink for a job in Java, ``flink-process`` or
                ``flink-thread`` for one of PyFlink in process or thread mode. It is made in the driver from
                one of this project, which is deleted then. The functions of the program are opened there
                as well, to see which states they have.

        Returns:
            a future of the savepoint's folder, for ``restore_from``; its exception is a ``CheckpointError``.
            If a complete savepoint cannot be written for Flink, its folder is in ``context["savepoint"]``.

        Raises:
            ConfigurationError: there is no directory, or Flink cannot keep a state of the program.
        """
        return self._savepoint(savepoint_directory, format, stops_job=False)

    def stop_with_savepoint(
        self,
        advance_to_end_of_event_time: bool = False,
        savepoint_directory: AnyPath | None = None,
        *,
        format: str = "pyflinkstate",
    ) -> CompletableFuture[str]:
        """Write a savepoint at the next barrier, commit all output before it, and finish the job.

        If a sink fails to commit when the savepoint is complete, the future has a ``CheckpointError`` with
        its folder in ``context["savepoint"]``, as in Flink. A restart, or a job that is restored from it,
        commits again.

        Args:
            advance_to_end_of_event_time: whether event time first advances to its end, so that all windows
                and event-time timers fire (Flink: ``--drain``). Do not use it if the job is to go on with its
                input.
            savepoint_directory, format: see :meth:`trigger_savepoint`.
        """
        return self._savepoint(
            savepoint_directory, format, stops_job=True, drains=advance_to_end_of_event_time
        )

    def _savepoint(
        self, directory: AnyPath | None, to: str, stops_job: bool, drains: bool = False
    ) -> CompletableFuture[str]:
        directory = directory or self._savepoint_directory
        if directory is None:
            raise ConfigurationError(
                "pass a directory for the savepoint, or call set_default_savepoint_directory() before"
            )
        rewrite: Callable[[str], str] | None = None
        if to != "pyflinkstate":
            rewrite = importlib.import_module(FLINK).savepoint_rewriter(self._job.plan, self._job.name, to)
        request = SavepointRequest(absolute(directory), stops_job, drains=drains)
        self._job.request_savepoint(request)
        self._result.add_done_callback(lambda _: request.fail(CheckpointError("the job has ended")))
        if rewrite is None:
            return request.done
        if stops_job:  # until it has ended, it may restart from the savepoint
            return _rewritten(request.done, rewrite, self._result)
        return _rewritten(request.done, rewrite, request.done)


def _rewritten(
    done: CompletableFuture[str], rewrite: Callable[[str], str], ended: CompletableFuture[T]
) -> CompletableFuture[str]:
    """Return a future of what a thread of its own makes of a result, when another future is done as well."""
    outcome: CompletableFuture[str] = _uncancellable()

    def run() -> None:
        try:
            outcome.set_result(rewrite(done.result(0)))
        except BaseException as error:  # noqa: BLE001 - the error is the result
            outcome.set_exception(error)

    thread = threading.Thread(target=run, name="savepoint of Flink", daemon=True)
    ended.add_done_callback(lambda _: thread.start())
    return outcome


def _done(value: T) -> CompletableFuture[T]:
    future: CompletableFuture[T] = CompletableFuture()
    future.set_result(value)
    return future


class _Outcome(CompletableFuture[T]):
    """A future whose waits without a limit wake up every second.

    Python calls the handler of a signal in the main thread, as soon as that has something to do. A signal
    that comes just before the main thread waits does not interrupt the wait.

    Attributes:
        is_awaited: whether a wait without a limit goes on, which raises the error.
    """

    is_awaited = False

    def result(self, timeout: float | None = None) -> T:
        self._await(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(timeout)

    def _await(self, timeout: float | None) -> None:
        if timeout is None:
            self.is_awaited = True
            try:
                wait_for(lambda timeout_s: bool(futures.wait([self], timeout_s).done) or None, lambda: None)
            finally:
                self.is_awaited = False
            await_end()


def _uncancellable() -> _Outcome[T]:
    """Return a future that cannot be cancelled, as by ``asyncio.wait_for``: the job goes on anyway."""
    future = _Outcome[T]()
    future.set_running_or_notify_cancel()
    return future
