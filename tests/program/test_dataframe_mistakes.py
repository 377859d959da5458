"""What users of Spark give ``keyed_process`` and ``keyed_map`` by mistake: errors that say what to give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pyflinkstate import (
    Duration,
    KeyedProcessFunction,
    KeyedStep,
    OutputTag,
    Time,
    TumblingEventTimeWindows,
    keyed_map,
    keyed_process,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.dataframes.processing import _initial_column
from pyflinkstate.runtime.program.dataframes.rows import (
    check_frame,
    columns_of,
    length_ms,
    selector,
    strategy_of,
)

SCHEMA = "user string, n long"
LATE = OutputTag("late")


class Echo(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class GroupedData:
    """Stands for Spark's, which needs a session."""


class Column:
    """Stands for Spark's, which needs a session: its iterator fails, and its comparison is no bool."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __iter__(self) -> Any:
        raise TypeError("Column is not iterable")

    def __eq__(self, other: object) -> Any:
        return Column(f"{self._name} = {other}")

    def __bool__(self) -> bool:
        raise ValueError("cannot convert column into bool")

    def __repr__(self) -> str:
        return f"Column<'{self._name}'>"


GroupedData.__module__ = "pyspark.sql.group"
Column.__module__ = "pyspark.sql.classic.column"


def processed(df: Any, **options: Any) -> Any:
    return keyed_process(df, key="user", function=Echo(), schema=SCHEMA, **options)


def mapped(df: Any) -> Any:
    return keyed_map(df, "user", lambda key, rows, state: [], SCHEMA)


@pytest.mark.parametrize(("call", "name"), [(processed, "keyed_process()"), (mapped, "keyed_map()")])
def test_what_is_no_spark_dataframe(call: Callable[[Any], Any], name: str) -> None:
    pandas = pytest.importorskip("pandas")
    for df, told in (
        (
            pandas.DataFrame({"user": ["a"]}),
            "DataFrame; from a pandas one: spark.createDataFrame(pdf)",
        ),
        (GroupedData(), "pyspark.sql.group.GroupedData; give the columns that it is grouped by as key="),
        ([("a", 1)], "list"),
        (None, "NoneType"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            call(df)
        assert str(caught.value).startswith(f"{name} takes a Spark DataFrame, not a ")
        assert str(caught.value).endswith(told)


@pytest.mark.parametrize("key", [Column("user"), [Column("user")], ["n", Column("user")]])
def test_a_key_is_the_name_of_a_column(key: Any) -> None:
    for find in (columns_of, lambda key: selector(key, ["user", "n"])):
        with pytest.raises(ConfigurationError) as caught:
            find(key)
        assert str(caught.value) == "key= is the name of a column, not a Column: 'user'"


@pytest.mark.parametrize("key", [5, None, ["user", 5]])
def test_a_key_is_a_name_or_names_or_a_function(key: Any) -> None:
    with pytest.raises(ConfigurationError, match="key= is the name of a column, or a function of the row"):
        columns_of(key)


@pytest.mark.parametrize("key", [{"user"}, frozenset(), {"user": 1}, (name for name in ["user"]), b"user"])
def test_several_names_come_in_a_list(key: Any) -> None:
    for find in (columns_of, lambda key: selector(key, ["user", "n"])):
        with pytest.raises(ConfigurationError, match=r"key= takes the name of a column, a list of names or"):
            find(key)


@pytest.mark.parametrize("key", [[], ()])
def test_a_key_names_a_column_at_least(key: Any) -> None:
    for find in (columns_of, lambda key: selector(key, ["user", "n"])):
        with pytest.raises(ConfigurationError, match="names no column, so that all rows would have one key"):
            find(key)


@pytest.mark.parametrize("length", [np.int64(5), np.uint8(5), 5, "5 milliseconds"])
def test_a_length_of_time_may_be_a_number_of_numpys(length: Any) -> None:
    found = length_ms("watermark", length)
    assert (found, type(found)) == (5, int)


@pytest.mark.parametrize(
    "length", [timedelta(seconds=90), Time.seconds(90), Duration.of_seconds(90), "1 minute 30 seconds"]
)
def test_a_length_of_time_is_what_a_window_takes_or_words(length: Any) -> None:
    assert length_ms("watermark", length) == 90_000
    strategy = strategy_of(["user", "at"], True, "at", length)
    assert strategy is not None
    assert strategy.max_out_of_orderness_ms == 90_000


@pytest.mark.parametrize("length", [np.int64(-1), True, 1.5, None, timedelta(seconds=-1)])
def test_what_is_no_length_of_time_is_refused(length: Any) -> None:
    with pytest.raises(ConfigurationError, match="watermark takes a length of time"):
        length_ms("watermark", length)


def test_several_names_are_a_key() -> None:
    assert columns_of(["user", "n"]) == ["user", "n"]
    several: Any = ("user", "n")
    assert columns_of(several) == ["user", "n"]


def test_a_timestamp_is_the_name_of_a_column() -> None:
    given: Any = Column("at")
    with pytest.raises(ConfigurationError) as caught:
        strategy_of(["user", "at"], False, given, None)
    assert str(caught.value) == "timestamp= is the name of a column, not a Column: 'at'"


@pytest.mark.parametrize("is_pandas", [True, False])
def test_an_initial_state_is_a_spark_dataframe(is_pandas: bool) -> None:
    pandas = pytest.importorskip("pandas")
    df: Any = SimpleNamespace(isStreaming=False, columns=["user", "n"])
    given = pandas.DataFrame({"user": ["ann"], "n": [1], "m": [2]}) if is_pandas else [("ann", 1)]
    assert _initial_column(given, "user") is None
    with pytest.raises(ConfigurationError) as caught:
        check_frame(given, df, "user")
    told = str(caught.value)
    assert told.startswith("initial_state= takes a Spark DataFrame, not a ")
    end = "DataFrame; from a pandas one: spark.createDataFrame(pdf)" if is_pandas else "list"
    assert told.endswith(end)
    assert "ann" not in told


STEP = KeyedStep(key="user", function=Echo(), schema=SCHEMA)


@pytest.mark.parametrize("then", [STEP, [Echo()], None, Echo()])
def test_further_steps_come_in_a_list(then: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"then= takes a list of steps, such as \[KeyedStep"):
        processed(None, then=then)


@pytest.mark.parametrize("side_outputs", [[LATE], LATE, {"late": SCHEMA}])
def test_side_outputs_have_schemas(side_outputs: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"side_outputs= takes a dict with the schema of each tag"):
        processed(None, side_outputs=side_outputs)


@pytest.mark.parametrize(
    "others", [{}, {"side_outputs": {OutputTag("other"): SCHEMA}}], ids=["none", "other"]
)
@pytest.mark.parametrize("late_rows", [LATE, "late"], ids=repr)
def test_late_rows_need_a_side_output(late_rows: Any, others: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"late_rows=.*late.* needs side_outputs= with the schema"):
        processed(None, window=TumblingEventTimeWindows.of(1), late_rows=late_rows, **others)
    step = KeyedStep(
        key="user",
        function=Echo(),
        schema=SCHEMA,
        window=TumblingEventTimeWindows.of(1),
        late_rows=late_rows,
    )
    with pytest.raises(ConfigurationError, match=r"late_rows=.*late.* needs side_outputs= with the schema"):
        processed(None, then=[step], **others)


def test_late_rows_with_a_side_output_are_taken() -> None:
    with pytest.raises(ConfigurationError, match="takes a Spark DataFrame"):
        processed(None, late_rows=LATE, side_outputs={LATE: SCHEMA})
