"""Rows of DataFrames as Arrow, against those that Spark gives; arrays to which the JVM gives no offset."""

from __future__ import annotations

import copy
import datetime
import decimal
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import Row, types as sql

from pyflinkstate import KeyedProcessFunction, errors, keyed_process
from pyflinkstate.runtime.spark import row_batches, row_columns
from pyflinkstate.runtime.spark.row_batches import ColumnKey, RowBatch, row_batch, with_offsets
from pyflinkstate.runtime.spark.row_columns import arrow_schema

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
        schema = row_columns.schema_of(f"n int, value {kind}")
        rows = [(number, value) for number, value in enumerate(VALUES[kind])]
        made = written(spark, schema, rows)
        check = row_columns.RowCheck(schema)
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
        columns = row_columns.RowColumns.of(row_columns.schema_of(schema), "summing")
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
        schema = row_columns.schema_of("user string, n long")
        check = row_columns.RowCheck(schema)
        batch = row_columns.RowColumns.of(schema, "summing").batch(rows)
        assert [tuple(row.values()) for row in batch.to_pylist()] == [check(row) for row in rows]

    @pytest.mark.parametrize(("kind", "largest"), [("float", 2**24), ("double", 2**53)])
    def test_a_whole_number_that_is_kept_without_loss(self, kind: str, largest: int) -> None:
        schema = row_columns.schema_of(f"n {kind}, ns array<{kind}>")
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


# --- empty arrays ----------------------------------------------------------------------------------

ROWS = 3
LONG, TEXT, BYTES = sql.LongType(), sql.StringType(), sql.BinaryType()
array, mapping = sql.ArrayType, sql.MapType


def struct(**fields: sql.DataType) -> sql.StructType:
    return sql.StructType([sql.StructField(name, kind) for name, kind in fields.items()])


#: Types of a column, each with a value in which all lists and maps are empty.
EMPTY_VALUES: list[tuple[sql.DataType, Any]] = [
    (array(LONG), []),
    (array(TEXT), []),
    (array(BYTES), []),
    (array(array(TEXT)), []),
    (array(array(array(LONG))), []),
    (array(mapping(TEXT, LONG)), []),
    (array(struct(a=TEXT, b=array(LONG))), []),
    (mapping(TEXT, LONG), {}),
    (mapping(TEXT, array(LONG)), {}),
    (mapping(LONG, mapping(TEXT, TEXT)), {}),
    (struct(a=array(array(TEXT)), b=TEXT), Row(a=[], b="")),
    (struct(a=mapping(TEXT, array(TEXT))), Row(a={})),
]


def as_the_jvm_writes(kind: pa.DataType, length: int) -> pa.Array:
    """Return an array whose texts, lists and maps have nothing in them, without offsets if it is empty."""
    offsets = pa.py_buffer(np.zeros(length + 1, np.int32) if length else b"")
    if pa.types.is_struct(kind):
        fields = [as_the_jvm_writes(kind.field(place).type, length) for place in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, length, [None], children=fields)
    if pa.types.is_map(kind):
        entries = as_the_jvm_writes(pa.struct([kind.key_field, kind.item_field]), 0)
        return pa.Array.from_buffers(kind, length, [None, offsets], children=[entries])
    if pa.types.is_list(kind):
        elements = as_the_jvm_writes(kind.value_type, 0)
        return pa.Array.from_buffers(kind, length, [None, offsets], children=[elements])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.Array.from_buffers(kind, length, [None, offsets, pa.py_buffer(b"")])
    return pa.array([7] * length, kind)


def schema_of(kind: sql.DataType) -> sql.StructType:
    return struct(n=LONG, value=kind)


def written_by_jvm(kind: sql.DataType, rows: int = ROWS) -> bytes:
    schema = arrow_schema(schema_of(kind))
    columns = [as_the_jvm_writes(field.type, rows) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes()


def read(kind: sql.DataType, rows: int = ROWS) -> RowBatch:
    return row_batch(schema_of(kind).json(), False, written_by_jvm(kind, rows))


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return an array and all arrays in it."""
    parts = [array]
    if pa.types.is_struct(array.type):
        for place in range(array.type.num_fields):
            parts += parts_of(array.field(place))
    elif pa.types.is_nested(array.type):
        parts += parts_of(array.values)
    return parts


def without_offsets(array: pa.Array) -> list[pa.DataType]:
    """Return the types of the arrays in an array that must have offsets, and have fewer than they must."""
    return [
        part.type
        for part in parts_of(array)
        if not (pa.types.is_struct(part.type) or pa.types.is_integer(part.type))
        and part.buffers()[1].size < (len(part) + 1) * 4
    ]


def sound(kind: sql.DataType, value: Any, rows: int = ROWS) -> pa.RecordBatch:
    """Return the same rows as Arrow makes them in Python."""
    schema = arrow_schema(schema_of(kind))
    columns = [[7] * rows, [as_arrow_takes(value)] * rows]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def as_arrow_takes(value: Any) -> Any:
    if isinstance(value, Row):
        return {name: as_arrow_takes(part) for name, part in value.asDict().items()}
    return [] if value == {} else value


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "value"), EMPTY_VALUES, ids=[kind.simpleString() for kind, _ in EMPTY_VALUES]
)
class TestEmptyArrays:
    def test_the_fault_is_there(self, kind: sql.DataType, value: Any) -> None:
        """Otherwise the tests below would find nothing."""
        raw = pa.ipc.read_record_batch(pa.py_buffer(written_by_jvm(kind)), arrow_schema(schema_of(kind)))
        is_of_numbers = kind == array(LONG)
        assert bool(without_offsets(raw.column(1))) is not is_of_numbers

    def test_each_array_has_its_offsets(self, kind: sql.DataType, value: Any) -> None:
        for batch in (read(kind), pickle.loads(pickle.dumps(read(kind))), read(kind, 0)):
            mended = batch._batch
            mended.validate(full=True)
            assert [without_offsets(column) for column in mended.columns] == [[], []]
            assert mended.schema.equals(arrow_schema(schema_of(kind)), check_metadata=True)
            assert mended.equals(sound(kind, value, len(batch)))

    def test_rows_keys_and_parts(self, kind: sql.DataType, value: Any) -> None:
        batch = read(kind)
        expected = [Row(n=7, value=value)] * ROWS
        assert batch.rows() == expected
        assert batch.keys(ColumnKey(("value",))) == [value] * ROWS
        assert batch.part(1, 1).rows() == expected[:1]
        assert batch.take(np.array([2, 0])).rows() == expected[:2]
        assert pickle.loads(pickle.dumps(batch.part(1, 2))).rows() == expected[:2]
        assert read(kind, 0).rows() == []

    def test_its_size_is_that_of_its_rows(self, kind: sql.DataType, value: Any) -> None:
        assert read(kind).size_bytes == sound(kind, value).nbytes


@pytest.mark.quick
class TestCost:
    def test_a_batch_in_which_nothing_is_empty_is_the_same_one(self) -> None:
        batch = pa.record_batch({"a": [[["x"]], [], None], "b": [{"c": 1}, None, None], "d": [None, "", "y"]})
        assert with_offsets(batch) is batch

    def test_what_is_not_empty_is_not_copied(self) -> None:
        schema = arrow_schema(struct(a=array(array(LONG)), b=array(LONG)))
        numbers = pa.array([[1, 2], None, [3]], schema.field("b").type)
        batch = pa.record_batch([as_the_jvm_writes(schema.field("a").type, 3), numbers], schema=schema)
        mended = with_offsets(batch)
        assert mended.column(1).values.buffers()[1].address == numbers.values.buffers()[1].address
        assert mended.column(0).buffers()[1].address == batch.column(0).buffers()[1].address

    def test_nulls_stay_where_they_are(self) -> None:
        kind = pa.list_(pa.list_(pa.int64()))
        validity = pa.array([True, False, True]).buffers()[1]
        hollow = as_the_jvm_writes(kind, 3)
        array = pa.Array.from_buffers(kind, 3, [validity, hollow.buffers()[1]], children=[hollow.values])
        (mended,) = with_offsets(pa.record_batch([array], names=["a"])).columns
        assert mended.to_pylist() == [[], None, []]
        assert without_offsets(mended) == []
