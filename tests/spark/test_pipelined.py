"""The pipelined engine on Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_engine import EngineContract

from pyflinkstate import (
    Configuration,
    FileSink,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    errors,
)
from pyflinkstate.runtime.pipelined import runner
from pyflinkstate.runtime.pipelined.runner import PipelinedRunner
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.spark.epoch_runner import SparkRunner

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]


class TestPipelinedEngine(EngineContract):
    @pytest.fixture
    def engine(self, spark: Any) -> Iterator[PipelinedRunner]:
        runner = PipelinedRunner(SparkRunner(spark.sparkContext, "contract"), Endpoint(), 2)
        yield runner
        runner.close()


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    return env.configure(Configuration().set_string("pyflinkstate.engine", "PIPELINED"))


class Counted(KeyedProcessFunction):
    """Emits a record and how often its key has come; raises once at a number, if it is told a file."""

    def __init__(self, fails_at: int | None = None, once: Path | None = None) -> None:
        self.fails_at, self.once = fails_at, once

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        if value == self.fails_at and self.once is not None and not self.once.exists():
            self.once.touch()
            raise ValueError("once")
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value, count


class Passed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


def rows_of(folder: Path) -> list[str]:
    """Return the committed lines."""
    return [line for path in folder.glob("epoch=*/part-*") for line in path.read_text().splitlines()]


@pytest.mark.quick
def test_a_job_that_fails_and_restarts_writes_each_result_once(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.enable_checkpointing(0, str(tmp_path / "checkpoints"))
    numbers = env.from_collection([*range(1000)], records_per_epoch=100)
    counted = numbers.key_by(lambda n: n % 7, Types.LONG()).process(Counted(555, tmp_path / "failed"))
    passed = counted.rebalance().map(lambda pair: pair).key_by(lambda pair: pair[0] % 3).process(Passed())
    passed.set_parallelism(1).sink_to(FileSink(str(tmp_path / "out")))
    result = env.execute()
    assert (result.restarts, (tmp_path / "failed").exists()) == (1, True)
    counts: Counter[int] = Counter()
    expected = []
    for number in range(1000):
        counts[number % 7] += 1
        expected.append(f"[{number},{counts[number % 7]}]")
    assert sorted(rows_of(tmp_path / "out")) == sorted(expected)


def test_a_function_that_raises_ends_the_job_with_its_record(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([*range(10)])
    numbers.key_by(lambda number: number % 7).map(lambda number: 1 // (number - 5)).print()
    with pytest.raises(errors.UserFunctionError, match=r"(?s)ZeroDivisionError.*record 5"):
        env.execute()


def test_a_source_that_spark_computes_needs_stages(env: StreamExecutionEnvironment, spark: Any) -> None:
    env.from_rdd(spark.sparkContext.parallelize([1, 2])).key_by(str).process(Counted()).print()
    with pytest.raises(errors.UnsupportedFeatureError, match=r"what Spark computes: choose STAGES"):
        env.execute()


def test_tasks_that_find_no_core_are_an_error_with_the_numbers(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "START_TIMEOUT_S", 3)
    monkeypatch.setattr(type(env._jobs._context), "defaultParallelism", 64)
    env.set_parallelism(64).from_collection([1]).map(str).print()
    with pytest.raises(errors.ConfigurationError, match=r"\d+ of 64 source tasks have started within 3 s"):
        env.execute()


def test_workers_that_spark_ends_when_they_send_nothing_need_stages(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.python.worker.killOnIdleTimeout": "true", "spark.python.worker.idleTimeoutSeconds": "60"}
    monkeypatch.setattr(env._jobs._context, "getConf", lambda: conf)
    env.from_collection([1]).map(str).print()
    with pytest.raises(errors.UnsupportedFeatureError, match=r"killOnIdleTimeout is on.*: choose STAGES"):
        env.execute()
