"""What becomes a row of a DataFrame: objects with its columns as attributes, and rows of Spark's."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cached_property
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from pyspark.sql import Row
from pyspark.sql import types as sql

from pyflinkstate.api.row import Row as OwnRow
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


@dataclass(slots=True)
class DataSlots:
    user: str
    total: int


class OwnSlots:
    __slots__ = ("_seen", "total", "user")

    def __init__(self) -> None:
        self.user, self.total, self._seen = "ann", 1, True


@attrs.define
class SlotAndCached:
    user: str

    @cached_property
    def total(self) -> int:
        return len(self.user) - 2


class WithProperty:
    def __init__(self, user: str) -> None:
        self.user = user

    @property
    def total(self) -> int:
        return len(self.user) - 2


class OfClass(SimpleNamespace):
    total = 1


class OnlyProperties:
    user = property(lambda self: "ann")
    total = property(lambda self: 1)


class WithMethod:
    """Stands for a class with a method that has the name of a column."""

    def __init__(self) -> None:
        self.user = "ann"

    def total(self) -> int:
        return 1


class OneProperty:
    user = property(lambda self: "ann")


class Fails:
    def __init__(self) -> None:
        self.user = "ann"

    @property
    def total(self) -> int:
        raise ValueError("not yet")


def without_total() -> OwnSlots:
    row = OwnSlots()
    del row.total
    return row


def with_label() -> Total:
    total = Total("ann", 1)
    assert total.label
    return total


FITTING: dict[str, Any] = {
    "a dataclass": Total("ann", 1),
    "a cached property": with_label(),
    "private attributes": SimpleNamespace(user="ann", total=1, _seen=True),
    "slots of attrs": Slots("ann", 1),
    "slots of a dataclass": DataSlots("ann", 1),
    "slots": OwnSlots(),
    "a slot and a cached property": SlotAndCached("ann"),
    "a property": WithProperty("ann"),
    "an attribute of the class": OfClass(user="ann"),
    "nothing but properties": OnlyProperties(),
}
NO_ROWS: dict[str, Any] = {
    "a misspelt field": Misspelt("ann", 1),
    "a field too many": SimpleNamespace(user="ann", total=1, more=2),
    "a pandas DataFrame": pandas.DataFrame({"user": ["ann"], "total": [1]}),
    "a pandas Series": pandas.Series({"user": "ann", "total": 1}),
    "a function": lambda: ("ann", 1),
    "no attributes": SimpleNamespace(),
    "only private attributes": SimpleNamespace(_user="ann"),
    "slots with others": attrs.make_class("Other", ["user", "totl"], slots=True)("ann", 1),
    "a property of another meaning": OneProperty(),
    "a date": datetime.date(2024, 1, 1),
}


@pytest.mark.parametrize("case", FITTING)
def test_an_object_with_the_columns_as_attributes_is_a_row(case: str) -> None:
    assert RowCheck(SCHEMA)(FITTING[case]) == ("ann", 1)


def test_an_attribute_that_is_not_there_is_null() -> None:
    for row in (SimpleNamespace(user="ann"), WithMethod(), without_total()):
        assert RowCheck(SCHEMA)(row) == ("ann", None)


def test_a_property_that_fails_is_told_of() -> None:
    with pytest.raises(ValueError, match="not yet"):
        RowCheck(SCHEMA)(Fails())


@pytest.mark.parametrize("row", [Misspelt("ann", 1), {"user": "ann", "totl": 1}, OwnRow(user="ann", totl=1)])
def test_the_error_names_a_field_that_the_schema_does_not_have(row: Any) -> None:
    with pytest.raises(RowError, match=r"of 2 fields \(user, total\), none of which is 'totl', and is "):
        RowCheck(SCHEMA)(row)


def test_years_of_a_date_make_no_row() -> None:
    years = sql.StructType([sql.StructField("year", sql.LongType())])
    with pytest.raises(RowError, match="a row takes tuples, dicts or rows of 1 field"):
        RowCheck(years)(datetime.date(2024, 1, 1))


def test_a_private_name_may_be_a_column() -> None:
    private = sql.StructType([sql.StructField("_id", sql.LongType())])
    slots = attrs.make_class("Private", ["_id", "_other"], slots=True)
    for row in (SimpleNamespace(_id=1, _other=2), slots(1, 2)):
        assert RowCheck(private)(row) == (1,)


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


SINGLES = sql.StructType([sql.StructField("ratio", sql.FloatType())])
LARGEST = float(2**128 - 2**104)


@pytest.mark.parametrize("number", [1e300, -1e300, 3.41e38, float(2**128 - 2**103)])
@pytest.mark.parametrize("kind", [sql.FloatType(), sql.ArrayType(sql.FloatType())], ids=repr)
def test_a_number_too_large_for_a_float_is_refused(number: float, kind: sql.DataType) -> None:
    schema = sql.StructType([sql.StructField("ratio", kind)])
    row = ([number],) if isinstance(kind, sql.ArrayType) else (number,)
    columns = RowColumns.of(schema, "ratios")
    assert columns is not None
    for take in (RowCheck(schema), lambda row: columns.batch([(None,), row])):
        with pytest.raises(RowError, match=r"column 'ratio.* takes float, in Python float below 3\.5e38"):
            take(row)


def test_other_numbers_are_rounded_to_a_float() -> None:
    columns = RowColumns.of(SINGLES, "ratios")
    assert columns is not None
    numbers = [LARGEST, -LARGEST, 0.5, inf, -inf, None]
    assert columns.batch([(number,) for number in numbers]).column(0).to_pylist() == numbers
    assert columns.batch([(0.1,), (nan,)]).column(0).to_pylist()[0] == pytest.approx(0.1, rel=1e-7)
    assert [RowCheck(SINGLES)((number,)) for number in numbers] == [(number,) for number in numbers]
