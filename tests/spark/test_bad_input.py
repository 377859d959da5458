"""Bad input on a real local Spark: one clear error of the project's own, and nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from operators import Failing

from pyflinkstate import (
    StreamExecutionEnvironment,
    errors,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(2)


def test_a_function_that_raises_shows_operator_key_and_its_own_traceback(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([("a", 1), ("b", 7)]).key_by(lambda record: record[0])
    with pytest.raises(errors.UserFunctionError) as caught:
        list(stream.process(Failing(fatal=7)).name("the operator").execute_and_collect())
    message = str(caught.value)
    assert "LookupError: cannot stand 7" in message
    assert "operator 'the operator', key 'b', record ('b', 7)" in message
    assert "operators.py" in message
    assert "runtime/operators/subtask.py" not in message, "only the user's own frames are shown"


ROWS = "name,n\na,1\nb\na,2,3\n\nb,4\n"


@pytest.fixture
def csv_dir(tmp_path: Path) -> Path:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.csv").write_text(ROWS)
    return tmp_path / "rows"


@pytest.mark.parametrize("policy", ["drop", "collect"])
def test_malformed_rows_are_counted(env: StreamExecutionEnvironment, csv_dir: Path, policy: str) -> None:
    env.from_files(str(csv_dir), on_malformed=policy).map(lambda row: row["n"]).print()
    result = env.execute()
    assert result.get_accumulator_result("files.records_malformed") == 2
    assert result.get_accumulator_result("files.records_out") == 2
    collected = [(row.line, row.text) for row in result.rejected]
    assert collected == ([] if policy == "drop" else [(3, "b"), (4, "a,2,3")])


def test_a_file_that_cannot_be_read(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "1.csv.gz").write_bytes(b"this is no gzip")
    with pytest.raises(errors.SourceError, match=r"'files' cannot be read: .*1\.csv\.gz: "):
        list(env.from_files(str(tmp_path)).execute_and_collect())


def test_no_record_before_the_bad_one_is_committed(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    from pyflinkstate import FileSink

    stream = env.from_collection([("a", n) for n in range(100)]).key_by(lambda record: record[0])
    stream.process(Failing(fatal=99)).sink_to(FileSink(str(tmp_path / "out")))
    with pytest.raises(errors.UserFunctionError):
        env.execute()
    assert list((tmp_path / "out").glob("epoch=*")) == []
