"""Values that programs make and hand on: schemas, sizes, slot sharing groups, options, ids, backends."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from pyflinkstate import (
    ByteArraySchema,
    ConfigOption,
    ConfigOptions,
    Configuration,
    EmbeddedRocksDBStateBackend,
    Encoder,
    JobID,
    MemorySize,
    PredefinedOptions,
    Row,
    RowFieldExtractorSchema,
    SimpleStringSchema,
    SlotSharingGroup,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError


class TestSchemas:
    @pytest.mark.parametrize("charset", ["UTF-8", "latin-1", "UTF-16"])
    def test_texts_come_back(self, charset: str) -> None:
        schema = SimpleStringSchema(charset)
        assert schema.deserialize(schema.serialize("né")) == "né"

    def test_what_a_charset_cannot_say_is_replaced(self) -> None:
        assert SimpleStringSchema("ascii").serialize("né") == b"n?"
        assert SimpleStringSchema().deserialize(b"n\xff") == "n\ufffd"

    @pytest.mark.parametrize("make", [SimpleStringSchema, Encoder])
    @pytest.mark.parametrize("charset", ["no such", "base64", "rot13", None, 8])
    def test_a_charset_must_be_one(self, make: Any, charset: Any) -> None:
        with pytest.raises(ConfigurationError, match=f"{make.__name__}: no charset"):
            make(charset)

    def test_bytes_are_themselves(self) -> None:
        assert ByteArraySchema().serialize(bytearray(b"a")) == ByteArraySchema().deserialize(b"a") == b"a"

    def test_a_field_of_a_row(self) -> None:
        assert RowFieldExtractorSchema(1).serialize(Row(1, b"x")) == b"x"
        assert RowFieldExtractorSchema(1).serialize(Row(1, None)) == b""
        assert RowFieldExtractorSchema(1).serialize(None) == b""

    @pytest.mark.parametrize(
        ("schema", "record"),
        [
            (SimpleStringSchema(), 1),
            (ByteArraySchema(), "a"),
            (RowFieldExtractorSchema(0), Row("text")),
            (RowFieldExtractorSchema(2), Row(b"a")),
            (RowFieldExtractorSchema(0), 5),
        ],
    )
    def test_what_does_not_fit_is_refused(self, schema: Any, record: Any) -> None:
        with pytest.raises(BadRecordError):
            schema.serialize(record)

    @pytest.mark.parametrize("index", [1.0, "0", True])
    def test_the_index_of_a_field_is_a_whole_number(self, index: Any) -> None:
        with pytest.raises(ConfigurationError, match="at least 0"):
            RowFieldExtractorSchema(index)


class TestMemorySize:
    @pytest.mark.parametrize("bad", [-1, 1.5, "1 mb", None, True])
    def test_it_is_a_number_of_bytes(self, bad: Any) -> None:
        with pytest.raises(ConfigurationError):
            MemorySize(bytes_size=bad)

    def test_it_has_an_order_and_a_hash(self) -> None:
        sizes = [MemorySize.of_mebi_bytes(2), MemorySize(bytes_size=5), MemorySize(bytes_size=5)]
        assert [size.get_bytes() for size in sorted(sizes)] == [5, 5, 2 * 1024**2]
        assert len(set(sizes)) == 2
        assert pickle.loads(pickle.dumps(sizes)) == sizes


class TestSlotSharingGroup:
    @pytest.mark.parametrize(
        ("setter", "value"),
        [
            ("set_cpu_cores", 0),
            ("set_cpu_cores", "1"),
            ("set_task_heap_memory_mb", 0),
            ("set_task_heap_memory", 100),
            ("set_managed_memory_mb", -1),
        ],
    )
    def test_resources_are_more_than_nothing(self, setter: str, value: Any) -> None:
        with pytest.raises(ConfigurationError):
            getattr(SlotSharingGroup.builder("group"), setter)(value)

    def test_a_group_that_was_built_does_not_change(self) -> None:
        builder = SlotSharingGroup.builder("group").set_cpu_cores(1).set_task_heap_memory_mb(1)
        built = builder.set_external_resource("gpu", 1).build()
        builder.set_cpu_cores(2).set_external_resource("gpu", 2)
        built.get_external_resources()["gpu"] = 3
        assert (built.get_cpu_cores(), built.get_external_resources()) == (1.0, {"gpu": 1.0})
        assert hash(built) == hash(builder.set_cpu_cores(1).build())


class TestConfigOptions:
    def test_of_each_type(self) -> None:
        key = ConfigOptions.key("a.b")
        made = {
            key.boolean_type().default_value(True): (bool, True),
            key.int_type().default_value(3): (int, 3),
            key.long_type().default_value(2**40): (int, 2**40),
            key.float_type().default_value(1.5): (float, 1.5),
            key.double_type().default_value(2): (float, 2),
            key.string_type().default_value("x"): (str, "x"),
            key.string_type().no_default_value(): (str, None),
        }
        assert {option: (option.value_type, option.default_value) for option in made} == made
        assert all(isinstance(option, ConfigOption) and option.key == "a.b" for option in made)

    @pytest.mark.parametrize(
        ("kind", "value"), [("int", "3"), ("int", True), ("boolean", 1), ("string", 1), ("float", "1")]
    )
    def test_a_default_is_of_the_type(self, kind: str, value: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"option 'a\.b': its default is a"):
            getattr(ConfigOptions.key("a.b"), f"{kind}_type")().default_value(value)


class TestConfigurationAsAValue:
    def test_equal_ones_have_one_hash(self) -> None:
        one = Configuration().set_string("a", "x").set_bytearray("b", bytearray(b"y"))
        other = Configuration(one)
        assert one == other
        assert hash(one) == hash(other)
        other.set_string("a", "z")
        assert one != other
        assert one != {"a": "x"}

    def test_as_text_it_is_as_in_java(self) -> None:
        assert str(Configuration().set_boolean("on", True).set_string("a", "x")) == "{on=true, a=x}"


class TestRocksDB:
    def test_what_it_is_told_is_kept(self) -> None:
        backend = EmbeddedRocksDBStateBackend(True)
        backend.set_db_storage_paths("/one", "/two")
        backend.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED)
        backend.set_options("org.Options")
        backend.set_number_of_transfer_threads(2)
        assert backend.get_db_storage_paths() == ["/one", "/two"]
        assert backend.get_predefined_options() is PredefinedOptions.SPINNING_DISK_OPTIMIZED
        assert (backend.get_options(), backend.get_number_of_transfer_threads()) == ("org.Options", 2)
        backend.set_db_storage_paths()
        assert backend.get_db_storage_paths() == []

    @pytest.mark.parametrize("bad", [0, 1, "true"])
    def test_whether_checkpoints_are_incremental_is_a_truth_value(self, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="choose True, False or None"):
            EmbeddedRocksDBStateBackend(bad)


def test_a_jobs_id_is_a_text() -> None:
    assert JobID("a" * 32) == "a" * 32
    assert isinstance(pickle.loads(pickle.dumps(JobID("a"))), JobID)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: RowFieldExtractorSchema(-1),
            ConfigurationError,
            "Field index must be non-negative",
            id="the_index_of_a_field_is_not_negative",
        ),
        pytest.param(
            lambda: EmbeddedRocksDBStateBackend().set_number_of_transfer_threads(0),
            ConfigurationError,
            "at least 1",
            id="bad_settings_are_refused_1",
        ),
        pytest.param(
            lambda: EmbeddedRocksDBStateBackend().set_predefined_options("DEFAULT"),
            ConfigurationError,
            "PredefinedOptions",
            id="bad_settings_are_refused_2",
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
