"""Rows that travel as Arrow are those that ``df.rdd`` gives and ``createDataFrame`` takes, for every type."""

from __future__ import annotations

import copy
import datetime
import decimal
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import Row

from pyflinkstate import KeyedProcessFunction, errors, keyed_process
from pyflinkstate.runtime.spark import row_batches, row_columns, row_schema

pytestmark = [pytest.mark.spark]

Decimal, Date, Time, Span = decimal.Decimal, datetime.date, datetime.datetime, datetime.timedelta
INDIA = datetime.timezone(Span(hours=5, minutes=30))
MOMENTS = [
    Time(1969, 12, 31, 23, 59, 59, 999999),
    Time(2024, 3, 31, 2, 30),
    Time(2024, 10, 27, 1, 59, 59, 1),
    Time(2024, 2, 29, 12, 0, 0, 500000, INDIA),
    Time(1900, 1, 1),
    Time(9999, 12, 30),
    None,
]
#: By the type of a column: values that have it.
VALUES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, 0, None],
    "smallint": [-(2**15), 2**15 - 1, None],
    "int": [-(2**31), 2**31 - 1, None],
    "bigint": [-(2**63), 2**63 - 1, 2**53 + 1, None],
    "float": [1.5, -0.0, math.inf, -math.inf, None],
    "double": [0.1, 1e308, -math.inf, math.nan, None],
    "string": ["", "a", "ä€😀", "x" * 5000, None],
    "binary": [b"", b"\0\xff", bytearray(b"ab"), None],
    "decimal(10,2)": [Decimal("1.50"), Decimal("-99999999.99"), Decimal("0"), Decimal("2.345"), None],
    "decimal(38,18)": [Decimal("12345678901234567890.123456789012345678"), Decimal("1E-18"), None],
    "date": [Date(1970, 1, 1), Date(1, 1, 1), Date(9999, 12, 31), Date(2024, 2, 29), None],
    "timestamp": MOMENTS,
    "timestamp_ntz": [moment for moment in MOMENTS if moment is None or moment.tzinfo is None],
    "interval day to second": [Span(0), Span(days=-1, microseconds=1), Span(days=1000), None],
    "array<int>": [[], [1, None, 3], None, list(range(100))],
    "array<array<string>>": [[["a"], None, []], [[]], None],
    "array<array<bigint>>": [[], [], None],
    "array<map<string,bigint>>": [[], None],
    "array<timestamp>": [[MOMENTS[0], None, MOMENTS[3]], None],
    "map<string,bigint>": [{}, {"a": 1, "b": None}, None],
    "map<int,array<double>>": [{1: [0.5], 2: None}, None, {}],
    "map<string,array<string>>": [{}, {}],
    "struct<a:int,b:string>": [Row(a=1, b="x"), Row(a=None, b=None), None],
    "struct<a:array<array<string>>>": [Row(a=[]), Row(a=None), None],
    "struct<a:struct<b:array<date>>>": [Row(a=Row(b=[Date(2024, 1, 1)])), Row(a=None), None],
    "array<struct<k:string,v:decimal(5,1)>>": [[Row(k="a", v=Decimal("1.5")), None], [], None],
    "map<string,struct<at:timestamp_ntz>>": [{"a": Row(at=Time(2024, 1, 1)), "b": None}, None],
    "void": [None, None],
}


def frame_of(spark: Any, kind: str) -> Any:
    rows = [(number, value) for number, value in enumerate(VALUES[kind])]
    return spark.createDataFrame(rows, f"n int, value {kind}")


def as_batches(df: Any) -> list[Any]:
    """Return the batches that a task reads, sent once through a pickle as to a slot."""
    rdd, read = row_batches.rows_of(df)
    assert read is not None
    return [pickle.loads(pickle.dumps(batch)) for data in rdd.collect() for batch in read(data)]


def told(value: Any) -> Any:
    """Return a value with the types of all its parts; ``repr`` tells NaN and the sign of 0 from others."""
    if isinstance(value, Row):
        return "Row", list(value.__fields__), [told(part) for part in value]
    if isinstance(value, (list, tuple)):
        return type(value), [told(part) for part in value]
    if isinstance(value, dict):
        return dict, [(told(key), told(item)) for key, item in value.items()]
    return type(value), repr(value)


@pytest.mark.parametrize("kind", VALUES)
class TestEveryType:
    def test_rows_are_those_of_the_rdd(self, spark: Any, kind: str) -> None:
        df = frame_of(spark, kind)
        rows = [row for batch in as_batches(df) for row in batch.rows()]
        assert list(map(told, rows)) == list(map(told, df.rdd.collect()))

    def test_any_part_of_a_batch_in_any_order(self, spark: Any, kind: str) -> None:
        df = frame_of(spark, kind).coalesce(1)
        (batch,) = as_batches(df)
        rows = df.rdd.collect()
        order = row_batches.np.array([*range(1, len(rows)), 0])
        taken = pickle.loads(pickle.dumps(batch.take(order)[1:]))
        assert list(map(told, taken)) == list(map(told, [rows[place] for place in order[1:]]))

    def test_results_are_those_of_create_dataframe(self, spark: Any, kind: str) -> None:
        schema = row_schema.schema_of(f"n int, value {kind}")
        rows = [(number, value) for number, value in enumerate(VALUES[kind])]
        made = written(spark, schema, rows)
        check = row_schema.RowCheck(schema)
        expected = spark.createDataFrame([check(row) for row in rows], schema, verifySchema=False)
        assert made.schema == expected.schema
        assert list(map(told, made.collect())) == list(map(told, expected.collect()))


def written(spark: Any, schema: Any, rows: list[Any]) -> Any:
    columns = row_columns.RowColumns.of(schema, "summing")
    assert columns is not None
    batches = list(row_columns.ArrowWriter(columns).write(0, iter(rows)))
    return row_columns.dataframe_of(spark, [spark.sparkContext.parallelize(batches, 1)], columns)


class TestRow:
    def test_it_is_a_row(self, spark: Any) -> None:
        df = spark.createDataFrame([("ann", 1, 2, 3)], "user string, `a b` int, count int, `__x` int")
        (batch,) = as_batches(df.coalesce(1))
        (row,) = batch
        assert isinstance(row, Row)
        assert (row.user, row["user"], row[0], row[-1], row[1:3]) == ("ann", "ann", "ann", 3, (1, 2))
        assert row["a b"] == getattr(row, "a b") == 1
        assert callable(row.count), "as in Spark, a name that a tuple has already is the tuple's"
        assert row["count"] == 2
        assert "user" in row
        assert "nobody" not in row
        assert row.asDict() == {"user": "ann", "a b": 1, "count": 2, "__x": 3}
        assert repr(row) == repr(df.collect()[0])
        assert row == df.collect()[0] == ("ann", 1, 2, 3)
        with pytest.raises(AttributeError):
            row.nobody  # noqa: B018
        with pytest.raises(AttributeError):
            row.__x  # noqa: B018
        with pytest.raises(Exception, match="READ_ONLY"):
            row.user = "bob"

    @pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
    def test_its_copies_are_plain_rows(self, spark: Any, again: Callable[[Any], Any]) -> None:
        (batch,) = as_batches(spark.createDataFrame([("ann", [1])], "user string, n array<int>").coalesce(1))
        (row,) = batch
        copied = again(row)
        assert (type(copied), copied.user, copied) == (Row, "ann", row)

    def test_where_a_name_occurs_twice_it_is_the_first(self, spark: Any) -> None:
        (batch,) = as_batches(spark.sql("select 1 as a, 2 as a"))
        (row,) = batch
        assert (row.a, row["a"], tuple(row)) == (1, 1, (1, 2))
        assert batch.keys(row_batches.ColumnKey(("a",))) == [1]


class TestKeys:
    def test_columns_are_read_without_making_rows(self, spark: Any) -> None:
        (batch,) = as_batches(spark.createDataFrame([("a", 1), ("b", 2)], "k string, n int").coalesce(1))
        assert batch.keys(row_batches.ColumnKey(("k",))) == ["a", "b"]
        assert batch.keys(row_batches.ColumnKey(("n", "k"))) == [(1, "a"), (2, "b")]
        assert batch.keys(lambda row: row.k) is None
        assert [row_batches.ColumnKey(("n", "k"))(row) for row in batch] == [(1, "a"), (2, "b")]


class TestFallBack:
    def test_a_type_that_does_not_travel_as_arrow(self, spark: Any) -> None:
        df = spark.sql("""select parse_json('{"a": 1}') as value""")
        rdd, read = row_batches.rows_of(df)
        assert read is None
        assert isinstance(rdd.collect()[0], Row)
        assert row_columns.RowColumns.of(df.schema, "summing") is None

    def test_a_spark_without_the_method(self, spark: Any) -> None:
        class Old:
            columns = ("n",)

            def __init__(self, df: Any) -> None:
                self.sparkSession, self.schema, self.rdd = df.sparkSession, df.schema, df.rdd
                self._jdf = self

            def toArrowBatchRdd(self) -> Any:
                raise Py4JError("Method toArrowBatchRdd([]) does not exist")

        rdd, read = row_batches.rows_of(Old(spark.createDataFrame([(1,)], "n int")))
        assert read is None
        assert rdd.collect() == [(1,)]

    @pytest.mark.parametrize("value", ["true", "True"])
    def test_large_offsets(self, spark: Any, value: str) -> None:
        name = "spark.sql.execution.arrow.useLargeVarTypes"
        spark.conf.set(name, value)
        try:
            df = spark.createDataFrame([("a", b"b", ["c"])], "a string, b binary, c array<string>")
            rows = [row for batch in as_batches(df) for row in batch.rows()]
        finally:
            spark.conf.unset(name)
        assert list(map(told, rows)) == list(map(told, df.rdd.collect()))


@pytest.mark.usefixtures("spark")  # Spark parses the schemas
class TestRowsThatDoNotFit:
    @pytest.mark.parametrize(
        ("schema", "row", "message"),
        [
            ("user string, n long", ("ann", "x"), "column 'n' takes bigint.*'x'"),
            ("user string, n long", ("ann", True), "column 'n' takes bigint"),
            ("user string, n long", ("ann", 2**63), "column 'n' takes bigint"),
            ("user string, n tinyint", ("ann", 128), "column 'n' takes tinyint"),
            ("user string, n long not null", ("ann", None), "column 'n' takes bigint, never None"),
            ("user string, n long", ("ann",), "a row takes tuples, dicts or rows of 2 fields"),
            ("user string, n decimal(3,1)", ("ann", Decimal("100")), "column 'n' takes decimal"),
            ("user string, n decimal(3,1)", ("ann", Decimal("99.96")), "column 'n' takes decimal"),
            ("user string, n decimal(3,1)", ("ann", Decimal("NaN")), "column 'n' takes decimal"),
            ("user string, n array<int>", ("ann", [1, "x"]), r"column 'n\[1\]' takes int"),
            ("user string, n string", ("ann", "\ud800"), "column 'n' takes string"),
            ("user string, n float", ("ann", 2**24 + 1), "column 'n' takes float"),
            ("user string, n float", ("ann", -(2**24) - 1), "column 'n' takes float"),
            ("user string, n double", ("ann", 2**53 + 1), "column 'n' takes double"),
        ],
    )
    def test_the_error_names_operator_row_and_column(self, schema: str, row: Any, message: str) -> None:
        columns = row_columns.RowColumns.of(row_schema.schema_of(schema), "summing")
        good = ("bob", None) if "not null" not in schema else ("bob", 1)
        with pytest.raises(errors.RowError, match=message) as caught:
            columns.batch([good, row, good])
        assert "summing" in str(caught.value)
        assert "ann" in str(caught.value)

    @pytest.mark.parametrize(
        "rows",
        [
            [{"n": 1}, {"user": "ann"}],
            [Row(user="ann", n=1)],
            [["ann", 1.0], ("bob", row_batches.np.int64(2))],
        ],
        ids=["dicts", "rows", "lists and numpy"],
    )
    def test_what_fits_otherwise_becomes_what_the_column_takes(self, rows: list[Any]) -> None:
        schema = row_schema.schema_of("user string, n long")
        check = row_schema.RowCheck(schema)
        batch = row_columns.RowColumns.of(schema, "summing").batch(rows)
        assert [tuple(row.values()) for row in batch.to_pylist()] == [check(row) for row in rows]

    @pytest.mark.parametrize(("kind", "largest"), [("float", 2**24), ("double", 2**53)])
    def test_a_whole_number_that_is_kept_without_loss(self, kind: str, largest: int) -> None:
        schema = row_schema.schema_of(f"n {kind}, ns array<{kind}>")
        batch = row_columns.RowColumns.of(schema, "summing").batch([(largest, [-largest, 3])])
        assert batch.to_pylist() == [{"n": float(largest), "ns": [float(-largest), 3.0]}]


class Echo(KeyedProcessFunction):
    """Emits each row, as often as the state counts; and what class it has."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield (*value, type(value).__mro__[1].__name__)


def test_all_types_through_a_job(spark: Any, no_slot_left: None) -> None:
    kinds = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    longest = max(map(len, VALUES.values()))
    columns = [(VALUES[kind] * longest)[:longest] for kind in kinds.values()]
    schema = ", ".join(["n int", *(f"{name} {kind}" for name, kind in kinds.items())])
    df = spark.createDataFrame([(n, *row) for n, row in enumerate(zip(*columns, strict=True))], schema)
    made = keyed_process(df, key="n", function=Echo(), schema=f"{schema}, class string", parallelism=2)
    found = {row.n: row for row in made.collect()}
    expected = {row.n: row for row in df.collect()}
    assert [told(tuple(found[n])[:-1]) for n in sorted(expected)] == [
        told(tuple(expected[n])) for n in sorted(expected)
    ]
    assert {row["class"] for row in found.values()} == {"Row"}
