"""The jobs that streaming DataFrames are processed by."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

import attrs

from pyflinkstate.errors import JobCancelledError
from pyflinkstate.runtime.master import JobExecutionResult
from pyflinkstate.runtime.storage import AnyPath

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.job_client import JobClient


@attrs.frozen
class KeyedProcessQuery:
    """A job that :func:`keyed_process` or :func:`keyed_map` runs for a streaming DataFrame.

    Its methods are those of Spark's ``StreamingQuery``.

    Attributes:
        client: monitors and controls the job: status, cancellation, savepoints.
        output: the directory of its committed results, which are Parquet files, as Spark reads it: without
            the ``%`` escapes of a URI.
        job_name: the name that was given to :func:`keyed_process`.
    """

    client: JobClient
    output: str
    job_name: str

    @property
    def is_active(self) -> bool:
        """Whether the job has not ended yet."""
        return not self.client.get_job_execution_result().done()

    def exception(self) -> BaseException | None:
        """Return the error that the job failed with, or None if it runs or has not failed."""
        return None if self.is_active else failure_of(self.client.get_job_execution_result())

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended, and return whether it has.

        Args:
            timeout: the longest time to wait, in seconds. Default: no limit.

        Raises:
            PyFlinkStateError: what made the job fail.
        """
        try:
            error = failure_of(self.client.get_job_execution_result(), timeout)
        except FutureTimeoutError:
            return False
        if error is not None:
            raise error
        return True

    def stop(self, savepoint: AnyPath | None = None) -> str | None:
        """End the job, and wait until it has ended.

        Args:
            savepoint: a directory, below which the state is written first, after all output before it has
                been committed. Pass the folder that is returned as ``restore_from``. Without it the job ends
                at once, and goes on from its last checkpoint when it is run again.

        Returns:
            the savepoint's folder; None without one.

        Raises:
            CheckpointError: the savepoint could not be written.
        """
        if savepoint is None:
            self.client.cancel().result()
            return None
        folder = self.client.stop_with_savepoint(savepoint_directory=savepoint).result()
        self.await_termination()
        return folder


def failure_of(result: Future[JobExecutionResult], timeout: float | None = None) -> BaseException | None:
    """Return what made a job fail; that it was cancelled is no failure."""
    error = result.exception(timeout)
    return None if isinstance(error, JobCancelledError) else error


#: The newest comes last. Jobs that have ended are removed when the next one starts.
_queries: list[KeyedProcessQuery] = []


def keyed_process_queries() -> list[KeyedProcessQuery]:
    """Return the jobs of this program's streaming DataFrames, the newest last.

    Each runs until it is cancelled, fails, or its query is stopped. A job that has ended stays in the list
    until the next one starts.
    """
    return list(_queries)


def add_query(query: KeyedProcessQuery, tell: Callable[[Future[JobExecutionResult]], None]) -> None:
    """Add the query of a job that has just started; ``tell`` is called with its result."""
    query.client.get_job_execution_result().add_done_callback(tell)
    _queries[:] = [
        other for other in _queries if not other.client.get_job_status().result().is_terminal_state()
    ]
    _queries.append(query)
