"""Arrays without values that the JVM has written, which have not even the one offset of an empty array."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import types as sql

from pyflinkstate.runtime.spark.row_batches import ColumnKey, RowBatch, row_batch, with_offsets
from pyflinkstate.runtime.spark.row_columns import arrow_schema

ROWS = 3
LONG, TEXT, BYTES = sql.LongType(), sql.StringType(), sql.BinaryType()
array, mapping = sql.ArrayType, sql.MapType


def struct(**fields: sql.DataType) -> sql.StructType:
    return sql.StructType([sql.StructField(name, kind) for name, kind in fields.items()])


#: Types of a column, each with a value in which all lists and maps are empty.
VALUES: list[tuple[sql.DataType, Any]] = [
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


def written(kind: sql.DataType, rows: int = ROWS) -> bytes:
    schema = arrow_schema(schema_of(kind))
    columns = [as_the_jvm_writes(field.type, rows) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema).serialize().to_pybytes()


def read(kind: sql.DataType, rows: int = ROWS) -> RowBatch:
    return row_batch(schema_of(kind).json(), False, written(kind, rows))


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
@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[kind.simpleString() for kind, _ in VALUES])
class TestEveryType:
    def test_the_fault_is_there(self, kind: sql.DataType, value: Any) -> None:
        """Otherwise the tests below would find nothing."""
        raw = pa.ipc.read_record_batch(pa.py_buffer(written(kind)), arrow_schema(schema_of(kind)))
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
