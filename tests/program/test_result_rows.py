"""What becomes a row of a DataFrame: objects with its columns as attributes, and rows of Spark's."""

from __future__ import annotations

import datetime
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from functools import cached_property
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from pyspark.sql import Row, types as sql

from pyflinkstate.api import Row as OwnRow
from pyflinkstate.errors import RowError
from pyflinkstate.runtime.spark import row_batches
from pyflinkstate.runtime.spark.row_columns import RowCheck, RowColumns

pandas = pytest.importorskip("pandas")

SCHEMA = sql.StructType([sql.StructField("user", sql.StringType()), sql.StructField("total", sql.LongType())])


@dataclass
class Total:
    user: str
    total: int

    @cached_property
    def label(self) -> str:
        return f"{self.user}: {self.total}"


Misspelt = make_dataclass("Misspelt", ["user", "totl"])


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


def columns(schema: sql.StructType = SCHEMA, operator: str = "totals") -> RowColumns:
    found = RowColumns.of(schema, operator)
    assert found is not None
    return found


FITTING: dict[str, Any] = {
    "a dataclass": Total("ann", 1),
    "a cached property": with_label(),
    "private attributes": SimpleNamespace(user="ann", total=1, _seen=True),
    "slots of attrs": attrs.make_class("Slots", ["user", "total"], slots=True)("ann", 1),
    "slots of a dataclass": make_dataclass("DataSlots", ["user", "total"], slots=True)("ann", 1),
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
    "a property of another meaning": type("OneProperty", (), {"user": property(lambda self: "ann")})(),
    "a date": datetime.date(2024, 1, 1),
}


@pytest.mark.parametrize("case", FITTING)
def test_an_object_with_the_columns_as_attributes_is_a_row(case: str) -> None:
    assert RowCheck(SCHEMA)(FITTING[case]) == ("ann", 1)


def test_an_attribute_that_is_not_there_is_null() -> None:
    for row in (SimpleNamespace(user="ann"), WithMethod(), without_total()):
        assert RowCheck(SCHEMA)(row) == ("ann", None)


YEARS = sql.StructType([sql.StructField("year", sql.LongType())])
NESTED = sql.StructType([sql.StructField("of", SCHEMA)])
ROWS_OF_TWO = r"a row takes tuples, dicts or rows of 2 fields \(user, total\)"
NONE_IS_TOTL = r"of 2 fields \(user, total\), none of which is 'totl', and is "
#: What takes a row, what it is given, and what the error says.
REFUSED: dict[str, tuple[Callable[[Any], Any], Any, str]] = {
    **{case: (RowCheck(SCHEMA), row, ROWS_OF_TWO) for case, row in NO_ROWS.items()},
    "an object with a field of another name": (RowCheck(SCHEMA), Misspelt("ann", 1), NONE_IS_TOTL),
    "a dict with one": (RowCheck(SCHEMA), {"user": "ann", "totl": 1}, NONE_IS_TOTL),
    "a row of ours with one": (RowCheck(SCHEMA), OwnRow(user="ann", totl=1), NONE_IS_TOTL),
    "years of a date": (
        RowCheck(YEARS),
        datetime.date(2024, 1, 1),
        "a row takes tuples, dicts or rows of 1 field",
    ),
    "inside a row": (RowCheck(NESTED), (Misspelt("ann", 1),), "column 'of' takes"),
    "a pandas Series in columns": (columns().batch, [NO_ROWS["a pandas Series"]], "totals"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_any_other_object_is_no_row(case: str) -> None:
    take, row, message = REFUSED[case]
    with pytest.raises(RowError, match=message):
        take(row)


def test_a_property_that_fails_is_told_of() -> None:
    with pytest.raises(ValueError, match="not yet"):
        RowCheck(SCHEMA)(Fails())


def test_a_private_name_may_be_a_column() -> None:
    private = sql.StructType([sql.StructField("_id", sql.LongType())])
    slots = attrs.make_class("Private", ["_id", "_other"], slots=True)
    for row in (SimpleNamespace(_id=1, _other=2), slots(1, 2)):
        assert RowCheck(private)(row) == (1,)


def test_a_row_of_sparks_with_the_columns_as_names_goes_by_name() -> None:
    assert RowCheck(SCHEMA)(Row(total=1, user="ann")) == ("ann", 1)


@pytest.mark.parametrize("row", [Row("ann", 1), Row(who="ann", n=1), Row("user", "user")("ann", 1)])
def test_any_other_row_of_sparks_goes_by_position(row: Row) -> None:
    assert RowCheck(SCHEMA)(row) == ("ann", 1)


@pytest.mark.parametrize("rows", [[Total("ann", 1)], [Row(total=1, user="ann")]])
def test_so_it_is_in_columns(rows: list[Any]) -> None:
    assert columns().batch(rows).to_pylist() == [{"user": "ann", "total": 1}]


SINGLES = sql.StructType([sql.StructField("ratio", sql.FloatType())])
LARGEST = float(2**128 - 2**104)


@pytest.mark.parametrize("number", [1e300, -1e300, 3.41e38, float(2**128 - 2**103)])
@pytest.mark.parametrize("kind", [sql.FloatType(), sql.ArrayType(sql.FloatType())], ids=repr)
def test_a_number_too_large_for_a_float_is_refused(number: float, kind: sql.DataType) -> None:
    schema = sql.StructType([sql.StructField("ratio", kind)])
    row = ([number],) if isinstance(kind, sql.ArrayType) else (number,)
    for take in (RowCheck(schema), lambda row: columns(schema).batch([(None,), row])):
        with pytest.raises(RowError, match=r"column 'ratio.* takes float, in Python float below 3\.5e38"):
            take(row)


def test_other_numbers_are_rounded_to_a_float() -> None:
    numbers = [LARGEST, -LARGEST, 0.5, inf, -inf, None]
    assert columns(SINGLES).batch([(number,) for number in numbers]).column(0).to_pylist() == numbers
    assert columns(SINGLES).batch([(0.1,), (nan,)]).column(0).to_pylist()[0] == pytest.approx(0.1, rel=1e-7)
    assert [RowCheck(SINGLES)((number,)) for number in numbers] == [(number,) for number in numbers]


Time, UTC = datetime.datetime, datetime.timezone.utc
#: Local times in Berlin, and the seconds since 1970 that they are; the clock was put back in October.
FIRST, SECOND = (Time(2024, 10, 27, 2, 30), 1729989000), (Time(2024, 10, 27, 2, 30, fold=1), 1729992600)
#: So near to the first or the last moment Python cannot count, but Spark can.
BOUNDS = [Time(1, 1, 1), Time(9999, 12, 31, 23, 59, 59, 999999)]


@pytest.fixture
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def counted(kind: sql.DataType, values: list[Any]) -> list[Any]:
    """Return what a DataFrame has of values, which travel as Arrow."""
    schema = sql.StructType([sql.StructField("at", kind)])
    column = columns(schema).batch([(value,) for value in values]).column(0)
    counts: list[Any] = column.view("int64").to_pylist()
    return counts


@pytest.mark.usefixtures("in_berlin")
class TestTheRepeatedHourOfAClockChange:
    @pytest.mark.parametrize("moments", [[FIRST, SECOND, FIRST], [SECOND, FIRST, SECOND]])
    def test_it_does_not_depend_on_the_rows_before(self, moments: list[tuple[Time, int]]) -> None:
        values = [moment.replace(microsecond=7) for moment, _ in moments]
        seconds = [second for _, second in moments]
        assert counted(sql.TimestampType(), values) == [second * 10**6 + 7 for second in seconds]
        nested = RowCheck(sql.ArrayType(sql.TimestampType()), for_spark=True)(values)
        assert nested == [Time.fromtimestamp(second, UTC).replace(microsecond=7) for second in seconds]
        assert [sql.TimestampType().toInternal(one) // 10**6 for one in nested] == seconds

    def test_a_moment_of_pandas_is_local_too(self) -> None:
        noon = Time(2024, 7, 1, 12, 0, 0, 5)
        moment = pandas.Timestamp(noon)
        seconds = 1719828000
        assert counted(sql.TimestampType(), [moment]) == [seconds * 10**6 + 5]
        assert type(RowCheck(sql.TimestampType(), for_spark=True)(moment)) is Time
        assert RowCheck(sql.TimestampType(), for_spark=True)(moment) == noon.astimezone(UTC)

    def test_what_python_cannot_count_is_counted_by_spark(self) -> None:
        kind = sql.TimestampType()
        before = [Time(1969, 12, 31, 23, 59, 59, 999999), Time(1900, 1, 1), Time(1, 1, 2), *BOUNDS]
        assert counted(kind, [*before, None]) == [*map(kind.toInternal, before), None]
        rows = map(RowCheck(kind, for_spark=True), before)
        assert list(map(kind.toInternal, rows)) == list(map(kind.toInternal, before))

    def test_other_moments_stay_as_they_are(self) -> None:
        tokyo = Time(2024, 7, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=9)))
        assert RowCheck(sql.TimestampType(), for_spark=True)(tokyo) is tokyo
        assert RowCheck(sql.TimestampType())(FIRST[0]) is FIRST[0]
        assert RowCheck(sql.TimestampNTZType(), for_spark=True)(FIRST[0]) is FIRST[0]
        assert counted(sql.TimestampNTZType(), [FIRST[0]]) == [(FIRST[1] + 2 * 3600) * 10**6]


# --- rows whose class has a descriptor for each name -------------------------------------------------------


def test_a_collection_of_garbage_takes_no_descriptor_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python clears what a class has when it collects the class, which nobody may hold any more by then."""
    is_free = row_batches._is_free

    def collecting(name: str) -> bool:
        gc.collect()
        return is_free(name)

    monkeypatch.setattr(row_batches, "_is_free", collecting)
    gc.freeze()  # what is there already need not be looked at each time
    try:
        row = row_batches.row_maker(("first_of_three", "second", "third"))((1, 2, 3))
    finally:
        gc.unfreeze()
    assert (row.first_of_three, row.second, row.third) == (1, 2, 3)
