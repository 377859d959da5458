"""Runs the map stages of an epoch while the epoch before it runs.

Spark's scheduler can run the map stage of a shuffle alone, as SQL's adaptive execution does. A later job that
reads the same shuffle skips the stage, since the shuffle's files are there, or joins it while it runs. If
files were lost, Spark computes the stage again, as it does for any job. No reduce task runs before the job
of its epoch, so a state slot still gets the epochs one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

import attrs

from pyflinkstate.api.values import Record, SparkObject
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.wire import result_of, wait_for


class Shuffles(Protocol):
    """The used part of an epoch's RDDs."""

    request: EpochRequest

    def shuffled_ahead(self) -> list[Record]:
        """Return the shuffled RDDs whose map stages read nothing but sources."""
        ...

    def close(self) -> None:
        """Release what is kept."""
        ...


class RunsStages(Protocol):
    """The used part of the Spark application."""

    def gone(self) -> PyFlinkStateError | None:
        """Return the error if the application has ended."""
        ...

    def has_ended(self, stage: SparkObject, timeout_s: float) -> bool:
        """Wait for a stage, and return whether it has ended."""
        ...


G = TypeVar("G", bound=Shuffles)


class Ahead(Generic[G]):
    """An epoch of which only the map stages before its first shuffles run.

    Args:
        request: the epoch.
        spark: the Spark context in the JVM.
        is_cancelled: set when no more stages are to start; those that run are cancelled with their job group.
        application: runs the stages, or has ended.
    """

    def __init__(
        self,
        request: EpochRequest,
        spark: SparkObject,
        is_cancelled: threading.Event,
        application: RunsStages,
    ) -> None:
        self._request = request
        self._spark = spark
        self._graph: Future[G] = Future()
        self._is_cancelled = is_cancelled
        self._application = application

    def run(self, make: Callable[[], G]) -> None:
        """Build the RDDs, run their map stages and wait for the end of all of them."""
        try:
            graph = make()
            shuffles = [shuffle_dependency(rdd) for rdd in graph.shuffled_ahead()]
            self._graph.set_result(graph)
        except BaseException as error:
            self._graph.set_exception(error)
            raise
        for stage in [*map(self._submitted, shuffles)]:
            self._wait(stage)

    def _submitted(self, shuffle: SparkObject) -> SparkObject:
        """Return the map stage of a shuffle, which runs now; None if it does not."""
        if self._is_cancelled.is_set():
            return None
        with suppress(Exception):  # Spark refuses a stage without partitions, for one
            return self._spark.submitMapStage(shuffle)
        return None

    def _wait(self, stage: SparkObject) -> None:
        """Wait for a stage; whether it has failed matters only to the job that reads it.

        A stage that was submitted while the context was being stopped never ends.
        """
        if stage is not None:
            with suppress(Exception):
                wait_for(partial(self._ended, stage), self._application.gone)

    def _ended(self, stage: SparkObject, timeout_s: float) -> bool | None:
        if self._is_cancelled.is_set():  # perhaps before Spark knew the stage
            stage.cancel()
        return self._application.has_ended(stage, timeout_s) or None

    def graph_for(self, request: EpochRequest) -> G | None:
        """Return the RDDs for the epoch's own request; None if they are of another one, or there are none."""
        with suppress(Exception):  # the epoch builds its own, and tells what is wrong
            graph = result_of(self._graph, self._application.gone)
            if self._is_same(request):
                graph.request = request
                return graph
            graph.close()
        return None

    def close(self) -> None:
        """Release what is kept as soon as the RDDs are built, as no epoch will ask for them."""
        self._graph.add_done_callback(_released)

    def _is_same(self, request: EpochRequest) -> bool:
        """Return whether it is the same epoch of the same attempt, and nobody wants to see more of it now."""
        own, other = self._request, request
        is_same_link = own.link == attrs.evolve(other.link, sampled=own.link.sampled)
        is_same_epoch = own.epoch is other.epoch and own.plan is other.plan
        return is_same_link and is_same_epoch and other.link.sampled <= own.link.sampled


def _released(graph: Future[G]) -> None:
    with suppress(Exception):  # the RDDs were not built, or Spark is gone
        graph.result(timeout=0).close()


def shuffle_dependency(rdd: SparkObject) -> SparkObject:
    """Return the shuffle that an RDD of ``repartitionAndSortWithinPartitions`` reads."""
    values = rdd._prev_jrdd.rdd()  # sorted in Python; before that, the values of the shuffled pairs
    shuffled = values.dependencies().head().rdd()
    return shuffled.dependencies().head()
