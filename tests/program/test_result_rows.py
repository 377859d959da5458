"""What becomes a row of a DataFrame: objects with its columns as attributes, and rows of Spark's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from pyspark.sql import Row
from pyspark.sql import types as sql

from pyflinkstate.errors import RowError
from pyflinkstate.runtime.spark.arrow.row_columns import RowColumns
from pyflinkstate.runtime.spark.row_schema import RowCheck

pandas = pytest.importorskip("pandas")

SCHEMA = sql.StructType([sql.StructField("user", sql.StringType()), sql.StructField("total", sql.LongType())])


@dataclass
class Total:
    user: str
    total: int

    @cached_property
    def label(self) -> str:
        return f"{self.user}: {self.total}"


@dataclass
class Misspelt:
    user: str
    totl: int


@attrs.define
class Slots:
    user: str
    total: int


def with_label() -> Total:
    total = Total("ann", 1)
    assert total.label
    return total


FITTING: dict[str, Any] = {
    "a dataclass": Total("ann", 1),
    "a cached property": with_label(),
    "private attributes": SimpleNamespace(user="ann", total=1, _seen=True),
}
NO_ROWS: dict[str, Any] = {
    "a misspelt field": Misspelt("ann", 1),
    "a field too many": SimpleNamespace(user="ann", total=1, more=2),
    "a pandas DataFrame": pandas.DataFrame({"user": ["ann"], "total": [1]}),
    "a pandas Series": pandas.Series({"user": "ann", "total": 1}),
    "a function": lambda: ("ann", 1),
    "no attributes": SimpleNamespace(),
    "only private attributes": SimpleNamespace(_user="ann"),
    "slots": Slots("ann", 1),
}


@pytest.mark.parametrize("case", FITTING)
def test_an_object_with_the_columns_as_attributes_is_a_row(case: str) -> None:
    assert RowCheck(SCHEMA)(FITTING[case]) == ("ann", 1)


def test_an_attribute_that_is_not_there_is_null() -> None:
    assert RowCheck(SCHEMA)(SimpleNamespace(user="ann")) == ("ann", None)


def test_a_private_name_may_be_a_column() -> None:
    private = sql.StructType([sql.StructField("_id", sql.LongType())])
    assert RowCheck(private)(SimpleNamespace(_id=1, _other=2)) == (1,)


@pytest.mark.parametrize("case", NO_ROWS)
def test_any_other_object_is_no_row(case: str) -> None:
    with pytest.raises(RowError, match=r"a row takes tuples, dicts or rows of 2 fields \(user, total\)"):
        RowCheck(SCHEMA)(NO_ROWS[case])


def test_an_object_that_is_no_row_is_none_inside_a_row_either() -> None:
    nested = sql.StructType([sql.StructField("of", SCHEMA)])
    with pytest.raises(RowError, match="column 'of' takes"):
        RowCheck(nested)((Misspelt("ann", 1),))


def test_a_row_of_sparks_with_the_columns_as_names_goes_by_name() -> None:
    assert RowCheck(SCHEMA)(Row(total=1, user="ann")) == ("ann", 1)


@pytest.mark.parametrize("row", [Row("ann", 1), Row(who="ann", n=1), Row("user", "user")("ann", 1)])
def test_any_other_row_of_sparks_goes_by_position(row: Row) -> None:
    assert RowCheck(SCHEMA)(row) == ("ann", 1)


@pytest.mark.parametrize("rows", [[Total("ann", 1)], [Row(total=1, user="ann")]])
def test_so_it_is_in_columns(rows: list[Any]) -> None:
    columns = RowColumns.of(SCHEMA, "totals")
    assert columns is not None
    assert columns.batch(rows).to_pylist() == [{"user": "ann", "total": 1}]


def test_a_series_is_no_row_in_columns_either() -> None:
    columns = RowColumns.of(SCHEMA, "totals")
    assert columns is not None
    with pytest.raises(RowError, match="totals"):
        columns.batch([NO_ROWS["a pandas Series"]])
