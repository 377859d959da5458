"""State of a checkpoint as a ``DataFrame``: ``to_spark`` and the data source, on a real Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from backend_support import fill, make_backend, one_of_each_kind, state_of
from operator_support import snapshot
from pyspark.errors import PySparkException
from read_support import (
    UID,
    operator_of,
    state_file,
    write,
    write_backends,
    write_checkpoint,
)

from pyflinkstate import (
    MapStateDescriptor,
    Row,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access import Checkpoint, diff, open_checkpoint
from pyflinkstate.state_access.spark import register
from pyflinkstate.testing import harness_of

pytestmark = pytest.mark.spark

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
KEYS = [f"k{n}" for n in range(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every kind of state, by two subtasks."""
    backends = [make_backend(Types.STRING(), key_group_range(128, 2, subtask)) for subtask in range(2)]
    descriptors = one_of_each_kind(lambda declared: declared)
    for number, key in enumerate(KEYS):
        for backend in backends:
            try:
                backend.set_current_key(key)
            except ValueError:
                continue
            fill(backend, descriptors, key, number)
    return write_backends(tmp_path_factory.mktemp("state"), backends)


@pytest.fixture
def checkpoint(folder: str) -> Checkpoint:
    return open_checkpoint(folder)


@pytest.fixture
def reader(spark: Any) -> Any:
    register(spark)
    return spark.read.format("pyflinkstate")


def plain(value: Any) -> Any:
    """Return a value of Spark in the form that Arrow gives it."""
    if hasattr(value, "asDict"):
        return value.asDict(recursive=True)
    if isinstance(value, bytearray):
        return bytes(value)
    return sorted(value.items()) if isinstance(value, dict) else value


def spark_rows(frame: Any) -> list[dict[str, Any]]:
    rows = [{name: plain(row[name]) for name in frame.columns} for row in frame.collect()]
    return sorted(rows, key=repr)


def arrow_rows(table: Any) -> list[dict[str, Any]]:
    """Return the rows, with the entries of maps in order."""
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    rows = [row | {name: sorted(row[name]) for name in maps} for row in table.to_arrow().to_pylist()]
    return sorted(rows, key=repr)


class TestToSpark:
    @pytest.mark.parametrize("partitions", [None, 5])
    def test_the_rows_of_all_states(self, spark: Any, checkpoint: Checkpoint, partitions: int | None) -> None:
        table = checkpoint.keyed(UID)
        frame = table.to_spark(spark, partitions)
        assert frame.rdd.getNumPartitions() == (partitions or 2)
        assert spark_rows(frame) == arrow_rows(table)

    @pytest.mark.quick
    def test_executors_read_it(self, spark: Any, checkpoint: Checkpoint) -> None:
        frame = checkpoint.entries(UID, "map").to_spark(spark)
        before = checkpoint.bytes_read
        assert frame.where("map_key = 'n'").count() == len(KEYS)
        assert checkpoint.bytes_read == before

    def test_no_key_is_no_row(self, spark: Any, checkpoint: Checkpoint) -> None:
        assert checkpoint.keyed(UID, []).to_spark(spark).collect() == []
        assert checkpoint.timers(UID).to_spark(spark).collect() == []

    def test_a_difference(self, spark: Any, tmp_path: Path) -> None:
        old, new = (write(tmp_path, {"a": 1, "b": n}, n) for n in (1, 2))
        (found,) = diff(old, new)
        frame = found.table.to_spark(spark, 4)
        assert frame.rdd.getNumPartitions() == 4
        assert [(row.key, row.change, row.old, row.new) for row in frame.collect()] == [
            ("b", "changed", 1, 2)
        ]

    @pytest.mark.quick
    def test_declared_types_come_back(self, spark: Any, tmp_path: Path) -> None:
        types = {
            "whole": (Types.INT(), 7, "int"),
            "real": (Types.DOUBLE(), 0.5, "double"),
            "day": (Types.SQL_DATE(), datetime.date(2026, 1, 2), "date"),
            "moment": (Types.SQL_TIMESTAMP(), datetime.datetime(2026, 1, 2, 3, 4, 5, 6), "timestamp_ntz"),
            "time": (Types.SQL_TIME(), datetime.time(1, 2, 3), "time(6)"),
            "digits": (Types.BIG_DEC(), Decimal("1.50"), "string"),
            "data": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff", "binary"),
            "pair": (Types.TUPLE([Types.STRING(), Types.LONG()]), ("a", 1), "struct<f0:string,f1:bigint>"),
            "row": (
                Types.ROW_NAMED(["a", "b"], [Types.STRING(), Types.BOOLEAN()]),
                Row(a="x", b=True),
                "struct<row_kind:tinyint,a:string,b:boolean>",
            ),
            "many": (Types.LIST(Types.LIST(Types.LONG())), [[1], [], [2, 3]], "array<array<bigint>>"),
        }
        backend = make_backend(Types.LONG())
        for name, (type_info, value, _) in types.items():
            state_of(backend, ValueStateDescriptor(name, type_info), 1).update(value)
        nested = MapStateDescriptor("nested", Types.STRING(), Types.MAP(Types.STRING(), Types.LONG()))
        state_of(backend, nested, 1).put("m", {"n": 1})
        table = open_checkpoint(write_backends(tmp_path, [backend])).keyed(UID)
        frame = table.to_spark(spark)
        found = {field.name: field.dataType.simpleString() for field in frame.schema}
        expected = {name: text for name, (_, _, text) in types.items()}
        assert found == {"key": "bigint", **expected, "nested": "map<string,map<string,bigint>>"}
        (row,) = frame.collect()
        (arrow,) = table.to_arrow().to_pylist()
        assert row.nested == {"m": {"n": 1}}
        assert {name: plain(row[name]) for name in expected} == {name: arrow[name] for name in expected}

    def test_pickles_are_bytes_or_loaded_on_executors(self, spark: Any, tmp_path: Path) -> None:
        backend = make_backend()
        for number in range(20):
            value = number if number % 2 else number / 4
            state_of(backend, ValueStateDescriptor("anything"), f"k{number}").update(value)
        checkpoint = open_checkpoint(write_backends(tmp_path, [backend]))
        sealed = checkpoint.keyed(UID).to_spark(spark)
        assert sealed.schema.simpleString() == "struct<key:binary,anything:binary>"
        assert spark_rows(sealed) == arrow_rows(checkpoint.keyed(UID))
        table = checkpoint.keyed(UID, allow_pickle=True)
        loaded = table.to_spark(spark, 6)
        assert loaded.schema.simpleString() == "struct<key:string,anything:double>"
        assert spark_rows(loaded) == arrow_rows(table)

    def test_no_part_at_all(self, checkpoint: Checkpoint) -> None:
        with pytest.raises(StateTableError, match="at least 1 part"):
            checkpoint.keyed(UID).to_spark(7, 0)


def damage(folder: str, key: str) -> None:
    """Change a byte in the key group of ``key``."""
    checkpoint = open_checkpoint(folder)
    state = checkpoint.keyed_state(UID)
    (group,) = state.keys.groups_of_keys([key]).tolist()
    (file,) = state.files
    section = file.handle.sections["count"][group]
    path = state_file(folder)
    data = bytearray(path.read_bytes())
    data[section.offset + section.length // 2] ^= 1
    path.write_bytes(data)


class TestDataSource:
    def test_keyed(self, reader: Any, checkpoint: Checkpoint, folder: str) -> None:
        frame = reader.option("uid", UID).option("partitions", 7).load(folder)
        assert frame.rdd.getNumPartitions() == 7
        assert spark_rows(frame) == arrow_rows(checkpoint.keyed(UID))

    def test_a_view_for_sql(self, spark: Any, reader: Any, folder: str) -> None:
        reader.option("uid", UID).option("states", "value").load(folder).createOrReplaceTempView("held")
        (row,) = spark.sql("select sum(value) as total from held where key like 'k1%'").collect()
        assert row.total == sum(n for n, key in enumerate(KEYS) if key.startswith("k1"))

    @pytest.mark.parametrize(
        "condition",
        ["key = 'k8'", "key in ('k8', 'none')", "key = 'k8' and count = 8"],
    )
    def test_a_filter_on_the_key_reads_its_key_group_only(
        self, reader: Any, tmp_path: Path, condition: str
    ) -> None:
        folder = write(tmp_path, {key: n for n, key in enumerate(KEYS)})
        damage(folder, key="k7")
        frame = reader.option("uid", UID).option("partitions", 4).load(folder)
        with pytest.raises(PySparkException, match="CorruptCheckpointError"):
            frame.where("key = 'k7'").collect()
        with pytest.raises(PySparkException, match="CorruptCheckpointError"):
            frame.where("count = 8").collect()
        found = frame.where(condition)
        assert [(row.key, row["count"]) for row in found.collect()] == [("k8", 8)]
        assert found.rdd.getNumPartitions() <= 2

    @pytest.mark.parametrize(
        ("key_type", "keys", "literal"),
        [
            (Types.INT(), range(50), "7"),
            (Types.DOUBLE(), [n / 2 for n in range(50)], "3.5D"),
            (Types.BOOLEAN(), [True, False], "true"),
            (Types.BIG_DEC(), [Decimal(n) for n in range(50)], "'7'"),
            (Types.PRIMITIVE_ARRAY(Types.BYTE()), [bytes([n]) for n in range(50)], "X'07'"),
            (
                Types.SQL_DATE(),
                [datetime.date(2026, 1, 1) + datetime.timedelta(n) for n in range(50)],
                "DATE'2026-01-08'",
            ),
            (
                Types.SQL_TIMESTAMP(),
                [datetime.datetime(2026, 1, 1, n % 24, n) for n in range(50)],
                "TIMESTAMP_NTZ'2026-01-01 07:07:00'",
            ),
        ],
        ids=lambda value: str(value) if isinstance(value, str) else "",
    )
    def test_filters_on_keys_of_each_type(
        self, reader: Any, tmp_path: Path, key_type: Any, keys: Any, literal: str
    ) -> None:
        numbers = {key: n for n, key in enumerate(keys)}
        folder = write(tmp_path, numbers, key_type=key_type)
        found = reader.option("partitions", 128).load(folder).where(f"key = {literal}")
        assert [row["count"] for row in found.collect()] == [0 if key_type == Types.BOOLEAN() else 7]
        assert found.rdd.getNumPartitions() == 1

    def test_windows_timers_and_operator_state(self, reader: Any, tmp_path: Path) -> None:
        harness = harness_of(
            lambda stream: (
                stream.key_by(lambda value: value[0], key_type=Types.STRING())
                .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
                .reduce(lambda one, other: (one[0], one[1] + other[1]), output_type=PAIR)
            )
        )
        for time in (1, 2, 11):
            harness.process_element(("a", time), time)
        lists = DefaultOperatorStateBackend()
        lists.get_broadcast_state(RULES).put_all({"a": 1, "b": 2})
        state = attrs.evolve(harness.snapshot().state, managed_operator=snapshot(lists))
        folder = write_checkpoint(tmp_path, [operator_of([state])])
        checkpoint = open_checkpoint(folder)

        for what in ("windows", "timers", "operator_state"):
            table = getattr(checkpoint, what)(UID)
            frame = reader.option("what", what).load(folder)
            assert spark_rows(frame) == arrow_rows(table)
            assert spark_rows(table.to_spark(reader._spark)) == arrow_rows(table)
        rules = reader.option("what", "operator_state").load(folder).where("key = 'b'")
        assert [row.value for row in rules.collect()] == [2]
        timers = reader.option("what", "timers").load(folder).where("key = 'a' and window.start = 10")
        assert [row.timestamp_ms for row in timers.collect()] == [19]

    def test_columns_that_the_user_names(self, reader: Any, folder: str) -> None:
        frame = reader.schema("value double, key string").option("uid", UID).load(folder)
        assert {row.key: row.value for row in frame.collect()} == {
            key: float(n) for n, key in enumerate(KEYS)
        }
        with pytest.raises(PySparkException, match="no column 'vlaue'; it has 'value'"):
            reader.schema("vlaue int").option("uid", UID).load(folder).collect()
        with pytest.raises(PySparkException, match="does not fit column 'value'"):
            reader.schema("value tinyint").option("uid", UID).load(folder).collect()
