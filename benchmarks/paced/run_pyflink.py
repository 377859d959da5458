"""PyFlink in thread mode, without checkpoints, with a buffer timeout of ``BUFFER_TIMEOUT_MS``.

PyFlink's sinks are written in Java, so the last Python function, which is chained to the count, logs the
arrivals. The first one waits until its record is due: a sequence of numbers gives it a call for each record.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from pace import PARALLELISM, SECOND_NS, Arrivals, Pace, all_have_arrived, main, wait_for
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.base import Sink
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway

#: Flink's default is 100 ms, which would be the latency of nearly all records.
BUFFER_TIMEOUT_MS = 5
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
COUNTED = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


def claimed_part(folder: Path) -> int:
    """Return the first part that no subtask has claimed: thread mode cannot tell the subtask's index."""
    for part in range(PARALLELISM):
        with suppress(FileExistsError):
            (folder / f"part-{part}").mkdir()
            return part
    raise RuntimeError("all parts are claimed: the job has restarted")


class Paced(MapFunction):
    """Returns the next record of its subtask when it is due: its number, and when it was due."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def open(self, runtime_context: RuntimeContext) -> None:
        self.start_ns = self.pace.start_ns()
        self.number = claimed_part(self.pace.folder)

    def map(self, value: int) -> tuple[int, int]:
        number, due_ns = self.number, self.pace.due_ns(self.start_ns, self.number)
        self.number += PARALLELISM
        while (wait_ns := due_ns - time.time_ns()) > 0:
            time.sleep(wait_ns / SECOND_NS)
        return number, due_ns


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield (*value, count)


class Logging(MapFunction):
    def __init__(self, pace: Pace) -> None:
        self.pace = pace

    def open(self, runtime_context: RuntimeContext) -> None:
        self.arrivals = Arrivals(self.pace.folder)

    def map(self, value: tuple[int, int, int]) -> int:
        self.arrivals.note(*value)
        return 0

    def close(self) -> None:
        self.arrivals.close()


def run(pace: Pace) -> None:
    configuration = Configuration()
    configuration.set_string("python.execution-mode", "thread")
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("pipeline.object-reuse", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(PARALLELISM).set_buffer_timeout(BUFFER_TIMEOUT_MS)
    ticks = env.from_source(
        NumberSequenceSource(0, 10**15), WatermarkStrategy.no_watermarks(), "ticks", Types.LONG()
    )
    keyed = ticks.map(Paced(pace), PAIR).key_by(lambda record: pace.key_of(record[0]), Types.LONG())
    logged = keyed.process(Count(), COUNTED).map(Logging(pace), Types.INT())
    package = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2
    logged.sink_to(Sink(package.DiscardingSink()))
    client = env.execute_async("paced count")
    result = client.get_job_execution_result()
    wait_for(pace, all_have_arrived, lambda: not (result.done() and result.result()))
    client.cancel().result()


if __name__ == "__main__":
    # The interpreter that thread mode embeds in the JVM does not know of virtual environments.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    main(f"PyFlink {version('apache-flink')}, thread mode", run)
