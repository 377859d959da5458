"""What users of Spark give ``keyed_process`` and ``keyed_map`` by mistake: errors that say what to give."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from pass_through import KeyedProcess

from pyflinkstate import (
    Duration,
    KeyedStep,
    OutputTag,
    Time,
    TumblingEventTimeWindows,
    keyed_map,
    keyed_process,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.dataframes.options import (
    JobKeywords,
    ProcessKeywords,
    StepKeywords,
    check_frame,
    columns_of,
    length_ms,
    selector,
    strategy_of,
)
from pyflinkstate.runtime.program.dataframes.processing import _initial_column

SCHEMA = "user string, n long"
LATE = OutputTag("late")


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
    return keyed_process(df, key="user", function=KeyedProcess(), schema=SCHEMA, **options)


def mapped(df: Any) -> Any:
    return keyed_map(df, "user", lambda key, rows, state: [], SCHEMA)


@pytest.mark.parametrize(("call", "name"), [(processed, "keyed_process()"), (mapped, "keyed_map()")])
def test_what_is_no_spark_dataframe(call: Callable[[Any], Any], name: str) -> None:
    for df, told in (
        (GroupedData(), "pyspark.sql.group.GroupedData; give the columns that it is grouped by as key="),
        ([("a", 1)], "list"),
        (None, "NoneType"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            call(df)
        assert str(caught.value).startswith(f"{name} takes a Spark DataFrame, not a ")
        assert str(caught.value).endswith(told)


NO_COLUMN = "^key= is the name of a column, not a Column: 'user'$"
NO_NAME = "key= is the name of a column, or a function of the row"
NO_LIST = "key= takes the name of a column, a list of names or"
NO_KEY = "names no column, so that all rows would have one key"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ([Column("user"), [Column("user")], ["n", Column("user")]], NO_COLUMN),
        ([5, None, ["user", 5]], NO_NAME),
        ([{"user"}, frozenset(), {"user": 1}, (name for name in ["user"]), b"user"], NO_LIST),
        ([[], ()], NO_KEY),
    ],
)
def test_a_key_is_a_name_or_a_list_of_names_or_a_function(keys: list[Any], says: str) -> None:
    for key in keys:
        for find in (columns_of, lambda key: selector(key, ["user", "n"])):
            with pytest.raises(ConfigurationError, match=says):
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
    with pytest.raises(ConfigurationError, match=r"^timestamp= is the name of a column, not a Column: 'at'$"):
        strategy_of(["user", "at"], False, Column("at"), None)  # type: ignore[arg-type]


def test_several_names_are_a_key() -> None:
    assert columns_of(["user", "n"]) == ["user", "n"]
    several: Any = ("user", "n")
    assert columns_of(several) == ["user", "n"]


def test_an_initial_state_is_a_dataframe() -> None:
    df: Any = SimpleNamespace(isStreaming=False, columns=["user", "n"])
    given: Any = [("ann", 1)]
    assert _initial_column(given, "user") is None
    with pytest.raises(ConfigurationError) as caught:
        check_frame(given, df, "user")
    told = str(caught.value)
    assert told.startswith("initial_state= takes a Spark DataFrame, not a ")
    assert told.endswith("list")
    assert "ann" not in told


STEP = KeyedStep(key="user", function=KeyedProcess(), schema=SCHEMA)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        *(
            ({"then": then}, r"then= takes a list of steps, such as \[KeyedStep")
            for then in (STEP, [KeyedProcess()], None)
        ),
        *(
            ({"side_outputs": tags}, "side_outputs= takes a dict with the schema of each tag")
            for tags in ([LATE], LATE, {"late": SCHEMA})
        ),
        ({"late_rows": LATE, "side_outputs": {LATE: SCHEMA}}, "takes a Spark DataFrame"),
    ],
)
def test_steps_come_in_a_list_and_side_outputs_have_schemas(options: dict[str, Any], says: str) -> None:
    """Late rows with a side output are taken: the only mistake is that there is no DataFrame."""
    with pytest.raises(ConfigurationError, match=says):
        processed(None, **options)


@pytest.mark.parametrize(
    "others", [{}, {"side_outputs": {OutputTag("other"): SCHEMA}}], ids=["none", "other"]
)
@pytest.mark.parametrize("late_rows", [LATE, "late"], ids=repr)
def test_late_rows_need_a_side_output(late_rows: Any, others: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"late_rows=.*late.* needs side_outputs= with the schema"):
        processed(None, window=TumblingEventTimeWindows.of(1), late_rows=late_rows, **others)
    step = attrs.evolve(STEP, window=TumblingEventTimeWindows.of(1), late_rows=late_rows)
    with pytest.raises(ConfigurationError, match=r"late_rows=.*late.* needs side_outputs= with the schema"):
        processed(None, then=[step], **others)


# --- options: each is named once, and documented -----------------------------------------------------------


NEEDED: dict[str, Any] = {"key": "user", "function": None, "schema": "n long"}


def test_the_options_of_the_first_step_are_the_fields_of_a_step() -> None:
    fields = {field.name: field.type for field in attrs.fields(KeyedStep) if field.name != "uid"}
    told = {name: one.__forward_arg__ for name, one in StepKeywords.__annotations__.items()}
    assert told == fields
    assert StepKeywords.__required_keys__ == {
        field.name for field in attrs.fields(KeyedStep) if field.default is attrs.NOTHING
    }


@pytest.mark.parametrize(
    ("function", "options"), [(keyed_process, ProcessKeywords), (keyed_map, JobKeywords)]
)
def test_every_option_is_documented(function: Any, options: Any) -> None:
    told = inspect.getdoc(function) or ""
    names = {*inspect.signature(function).parameters, *options.__annotations__} - {"options"}
    assert [name for name in names if not re.search(rf"^    {name}: |``{name}``", told, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (
                lambda option=option: keyed_process(None, **NEEDED, **{option: 1}),
                rf"^keyed_process\(\) has no option '{option}'; {hint}",
            )
            for option, hint in [
                ("paralelism", r"did you mean 'parallelism'\?"),
                ("side_output", r"did you mean 'side_outputs'\?"),
                ("allowed_latenes", r"did you mean 'allowed_lateness'\?"),
                ("zzz", "the options are key, function, schema, "),
            ]
        ),
        *(
            (
                lambda option=option: keyed_map(None, "user", None, "n long", **{option: 1}),
                rf"^keyed_map\(\) has no option '{option}'; {hint}",
            )
            for option, hint in [
                ("job_nam", r"did you mean 'job_name'\?"),
                ("state_typ", r"did you mean 'state_type'\?"),
                ("window", ""),
            ]
        ),
        (lambda: keyed_process(None, function=None), r"^keyed_process\(\) needs key=, schema=$"),
    ],
)
def test_an_unknown_or_missing_option_is_named_with_the_nearest_one(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call()
