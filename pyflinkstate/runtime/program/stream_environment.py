"""The part of an environment that its streams use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from pyflinkstate.api.values import Record, SparkSchema
from pyflinkstate.runtime.master import JobExecutionResult
from pyflinkstate.runtime.plan import Node, SinkNode
from pyflinkstate.runtime.program.execution_config import ExecutionConfig
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.program.job_results import CloseableIterator
from pyflinkstate.runtime.sinks import ForeachEpochSink
from pyflinkstate.runtime.sources import CachedSource

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame


class StreamEnvironment(Protocol):
    """Runs the plan that streams make up; ``StreamExecutionEnvironment`` implements it."""

    def get_config(self) -> ExecutionConfig:
        """Return the execution settings of jobs."""

    def get_parallelism(self) -> int:
        """Return the number of subtasks of each keyed operator."""

    def runs_in_batch(self, node: Node) -> bool:
        """Return whether a reader of ``node`` emits its results at the end of the input."""

    def next_assigner_number(self) -> int:
        """Return the number of a new assigner of watermarks; it is the same in each run of a program."""

    def add_sink_node(self, node: SinkNode) -> None:
        """Add a sink to the next job."""

    def foreach_epoch_sink(
        self, function: Callable[[DataFrame, int], None], schema: SparkSchema
    ) -> ForeachEpochSink:
        """Return a sink that calls ``function`` with each epoch's records as a DataFrame."""

    def checked_rows(self, node: Node, schema: SparkSchema) -> Node:
        """Return the results of ``node`` as rows that fit ``schema``."""

    def collect(self, node: Node, job_name: str | None) -> CloseableIterator:
        """Run the job, with all sinks that wait for one, and iterate over the records of ``node``."""

    def cached_source(self, node: Node) -> CachedSource:
        """Return a source of what leads to ``node``, computed when a job first reads it."""

    def run_to_rdd(self, node: Node, job_name: str | None) -> RDD[Record]:
        """Run a job up to ``node`` and return its records as an RDD; sinks that were added wait."""

    def run_to_dataframe(self, node: Node, schema: SparkSchema, job_name: str | None) -> DataFrame:
        """Run a job up to ``node`` and return its records as a DataFrame; sinks that were added wait."""

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run everything that leads to a sink, to the end of the input."""

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Run as :meth:`execute` does, in the background; the client monitors and controls the job."""
