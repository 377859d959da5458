"""Programs as PyFlink's users write them: nothing but the name of the package in the imports is another.

``<name>.py`` in one of three folders is a program, and ``<name>.txt`` is what PyFlink 2.3 printed::

    python scripts/compare_with_pyflink.py tests/spark/names tests/spark/names --record <PyFlink's python>

The order of lines from several sinks is not promised, so the lines of a job are compared as they come, and
whole outputs as multisets. ``tests/master`` runs many more random programs than here.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from answered_programs import answers, found_for
from pyflink_programs import PROGRAMS, run_and_compare

from pyflinkstate import (
    Encoder,
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    Row,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
    StreamFormat,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.engine import EpochRunner
from pyflinkstate.runtime.pipelined.vertices import why_in_stages
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.program.environment_settings import Engine
from pyflinkstate.runtime.program.jobs import Jobs

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

PAIR = Types.TUPLE([Types.STRING(), Types.FLOAT()])


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(1)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_each_execute_runs_what_was_added_since_and_prints_it_by_its_type(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = env.from_collection([("a", 110.1), ("b", 30.2)], PAIR)
    pairs.print()
    env.execute()
    assert printed(capsys) == ["(a,110.1)", "(b,30.2)"]
    pairs.filter(lambda pair: pair[0] == "a").map(lambda pair: pair).print()
    env.execute()
    assert printed(capsys) == ["('a', 110.0999984741211)"]
    rows = env.from_collection([(1, "x")], Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()]))
    rows.key_by(lambda row: row.n).sum("n").print()
    rows.map(lambda row: (row.s, isinstance(row, Row))).print()
    env.execute()
    assert sorted(printed(capsys)) == ["('x', True)", "+I[1,x]"]


def test_in_batch_mode_words_come_once_in_flinks_order_also_into_files(
    env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text("to be or not\nto be\n")
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    lines = env.from_source(
        source=FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path / "in.txt"))
        .process_static_file_set()
        .build(),
        watermark_strategy=WatermarkStrategy.for_monotonous_timestamps(),
        source_name="file_source",
    )
    words = (
        lines.flat_map(str.split)
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0])
        .reduce(lambda first, second: (first[0], first[1] + second[1]))
    )
    words.print()
    words.sink_to(
        sink=FileSink.for_row_format(base_path=str(tmp_path / "out"), encoder=Encoder.simple_string_encoder())
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("prefix").with_part_suffix(".ext").build()
        )
        .with_rolling_policy(RollingPolicy.default_rolling_policy())
        .build()
    )
    env.execute()
    expected = ["(be,2)", "(or,1)", "(to,2)", "(not,1)"]
    assert printed(capsys) == expected
    (file,) = (tmp_path / "out").glob("*/prefix-*-0.ext")
    assert file.read_text().splitlines() == expected


def test_a_result_that_does_not_fit_the_type_of_its_stream_is_named(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2], Types.INT()).key_by(lambda _: 0).reduce(lambda first, _: str(first))
    numbers.name("texts").print()
    with pytest.raises(BadRecordError, match=r"operator 'texts'.*INT.*record '1'"):
        env.execute()


def test_a_programs_own_logging_to_standard_output_is_not_disturbed(
    env: StreamExecutionEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert list(env.from_collection([1]).key_by(str).sum().execute_and_collect()) == [1]
    assert [record.getMessage() for record in caplog.records if record.name == "pyflinkstate.slots"] == []


# --- programs that print the same on PyFlink -------------------------------------------------------

#: Programs of many operators, each with a process of its own.
PATIENCE_S = 900
#: Those that the quick tier runs; the others need as little more as they do.
QUICK = {"job_parameters", "unordered"}
#: Those that run in Spark's tasks on the pipelined engine, too; ``tests/pipelined`` runs all, without Spark.
PIPELINED = ["event_time", "files", "job_client", "keyed", "keyless"]


def params() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.quick] if name in QUICK else []) for name in PROGRAMS]


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("name", params())
def test_a_program_prints_what_it_prints_on_pyflink(
    spark: Any, path_as_before: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run_and_compare(name, capsys)


@pytest.fixture
def pipelined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run all jobs that can be run so on the pipelined engine."""
    runner_of = Jobs._runner

    def chosen(jobs: Jobs, plan: JobPlan, has_checkpoints: bool) -> EpochRunner:
        jobs._settings.engine = Engine.STAGES if why_in_stages(plan) else Engine.PIPELINED
        return runner_of(jobs, plan, has_checkpoints)

    monkeypatch.setattr(Jobs, "_runner", chosen)


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("name", PIPELINED)
def test_a_program_prints_the_same_on_the_pipelined_engine(
    spark: Any, path_as_before: None, pipelined: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    run_and_compare(name, capsys)


def test_every_program_has_pyflinks_output() -> None:
    expected = [program.with_suffix(".txt") for program in PROGRAMS.values()]
    assert [path.name for path in expected if not path.exists() or os.path.getsize(path) == 0] == []


# --- random programs -------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_programs_give_the_answers_of_pyflink(spark: Any, tmp_path: Path) -> None:
    seeds = [1, 8, 11]
    env = StreamExecutionEnvironment(spark).set_parallelism(1)
    assert found_for(env, seeds, tmp_path) == {seed: answers()[seed] for seed in seeds}
