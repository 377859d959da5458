"""Values that programs make and hand on: schemas, sizes, slot groups, settings, ids, retry strategies."""

from __future__ import annotations

import datetime
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

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
from pyflinkstate.api import Duration, Instant, Time, milliseconds_of, parse_map_value
from pyflinkstate.datastream import AsyncRetryPredicate, AsyncRetryStrategy
from pyflinkstate.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from pyflinkstate.datastream.async_retry_strategies import NO_RETRY_STRATEGY, NoRetryStrategy
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
            ("set_managed_memory_mb", -1),
        ],
    )
    def test_memory_is_not_negative(self, setter: str, value: Any) -> None:
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
        with pytest.raises(ConfigurationError, match="is True, False or None, not"):
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
            "the index of a field must be a whole number, at least 0",
            id="the_index_of_a_field_is_not_negative",
        ),
        pytest.param(
            lambda: EmbeddedRocksDBStateBackend().set_number_of_transfer_threads(0),
            ConfigurationError,
            "at least 1",
            id="bad_settings_are_refused_1",
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- settings by key ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "text", "default"),
    [
        ("string", "text", "text", "default"),
        ("integer", 7, "7", 3),
        ("boolean", True, "true", False),
        ("float", 1.5, "1.5", 0.5),
        ("bytearray", bytearray(b"ab"), None, bytearray(b"c")),
    ],
)
def test_a_setting_is_had_as_it_was_set_or_as_what_its_text_means(
    kind: str, value: object, text: str | None, default: object
) -> None:
    def get(configuration: Configuration) -> object:
        return getattr(configuration, f"get_{kind}")("k", default)

    made = Configuration()
    assert (get(made), made.contains_key("k")) == (default, False)
    assert getattr(made, f"set_{kind}")("k", value) is made
    assert (get(made), made.key_set()) == (value, {"k"})
    if text is not None:
        assert made.to_dict() == {"k": text}
        assert get(Configuration.from_dict({"k": text})) == value


def test_a_text_may_be_written_otherwise() -> None:
    made = Configuration.from_dict({"b": "TRUE", "t": True})
    assert (made.get_boolean("b", False), made.get_string("t", "")) == (True, "true")


@pytest.mark.parametrize(
    ("getter", "default"), [("get_integer", 0), ("get_boolean", False), ("get_float", 0.0)]
)
def test_what_makes_no_sense_is_told_with_its_key(getter: str, default: object) -> None:
    with pytest.raises(ConfigurationError, match="setting 'k' is 'x'"):
        getattr(Configuration.from_dict({"k": "x"}), getter)("k", default)


@pytest.mark.parametrize(
    ("setter", "value"),
    [("set_string", 1), ("set_integer", "1"), ("set_integer", True), ("set_boolean", 1), ("set_float", "1")],
)
def test_a_value_of_another_type_is_refused(setter: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match="setting 'k' takes a"):
        getattr(Configuration(), setter)("k", value)


def test_configurations_are_put_together() -> None:
    first, second = Configuration.from_dict({"a": 1}), Configuration.from_dict({"b": 2})
    first.add_all(second, "x.")
    assert first == Configuration.from_dict({"a": 1, "x.b": 2})
    copy = Configuration(first)
    assert copy.remove_config("a")
    assert not copy.remove_config("a")
    assert first.contains_key("a")
    target = {"z": 0}
    copy.add_all_to_dict(target)
    assert target == {"z": 0, "x.b": 2}


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("", {}),
        ("a:1,b:2", {"a": "1", "b": "2"}),
        (" a : 1 , b:'x,y:z' ", {"a": "1", "b": "x,y:z"}),
        ("{a: 1, b: 2}", {"a": "1", "b": "2"}),
        ("{ }", {}),
        ("{a: 1,}", {"a": "1"}),
        ("{a: http://host:80/x, b: -1.5}", {"a": "http://host:80/x", "b": "-1.5"}),
        ("{a b: c d}", {"a b": "c d"}),
        ("{'a, b': 'it''s', c: \"{x: y}\"}", {"a, b": "it's", "c": "{x: y}"}),
        ('{"a":1,"b":"2"}', {"a": "1", "b": "2"}),
        ("{a: it's, b: x#y}", {"a": "it's", "b": "x#y"}),
        ("{a: '', b: 'null'}", {"a": "", "b": "null"}),
    ],
)
def test_a_map_is_read_as_configuration_files_write_it(text: str, entries: dict[str, str]) -> None:
    assert parse_map_value(text) == entries


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a", "entries such as a:1,b:2 are needed"),
        (":1", "entries such as a:1,b:2 are needed"),
        ("a:1,a:2", "it has the key 'a' twice"),
        ("{a: 1, a: 2}", "it has the key 'a' twice"),
        ("{a: 1", "there is no } at its end"),
        ("{a: 1} # comment", "there is no } at its end"),
        ("{", "there is no } at its end"),
        ("{a: 1, b}", "cannot be read begins with 'b'"),
        ("{a:1}", "cannot be read begins with 'a:1'"),
        ("{a: }", "cannot be read begins with 'a:'"),
        ("{a: null}", "cannot be read begins with 'a: null'"),
        ("{a: {b: 1}}", "cannot be read begins with 'a: {b: 1}'"),
        ("{a: [1, 2]}", r"cannot be read begins with 'a: \[1, 2\]'"),
        ("{a: 1 # comment, b: 2}", "cannot be read begins with 'a: 1 # comment, b: 2'"),
        ("{a: &x 1, b: *x}", r"cannot be read begins with 'a: &x 1"),
        ("{a: !!str 1}", "cannot be read begins with"),
        ('{a: "x\\n"}', "cannot be read begins with"),
        ("{a: 'x}", "cannot be read begins with"),
        ("{,}", "cannot be read begins with"),
    ],
)
def test_what_is_no_map_of_texts_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_map_value(text)


def test_an_encoder_knows_its_charset() -> None:
    assert Encoder.simple_string_encoder() == Encoder("UTF-8")
    with pytest.raises(ConfigurationError, match="no charset 'nothing'"):
        Encoder.simple_string_encoder("nothing")


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (None, []),
        ("", []),
        ("[]", []),
        ("a;b ; c", ["a", "b", "c"]),
        ("[a, b, c]", ["a", "b", "c"]),
        ("['a, b', \"c\", file:/d]", ["a, b", "c", "file:/d"]),
        ("- a\n- b\n- 'c d'", ["a", "b", "c d"]),
    ],
)
def test_lists_are_read_as_configuration_files_write_them(value: str | None, items: list[str]) -> None:
    assert Configuration.parse_list_value(value) == items


# --- retry strategies: how often, after how long, and why ---------------------------------------------

#: (initial delay, greatest delay, multiplier), and the delays that PyFlink 2.3 gives for attempts 1 to 8.
PYFLINK_DELAYS = [
    ((100, 1000, 2.0), [100, 200, 400, 800, 1000, 1000, 1000, 1000]),
    ((10, 1000, 1.5), [10, 15, 22, 33, 49, 73, 109, 163]),
    ((3, 10**9, 1.1), [3, 3, 3, 3, 3, 3, 3, 3]),
    ((100, 50, 2.0), [100, 50, 50, 50, 50, 50, 50, 50]),
    ((1000, 5000, 0.5), [1000, 500, 250, 125, 62, 31, 15, 7]),
    ((1, 1000, 0.5), [1, 0, 0, 0, 0, 0, 0, 0]),
]


def exponential(initial: int, greatest: int, multiplier: float) -> AsyncRetryStrategy:
    return AsyncRetryStrategy.exponential_backoff(5, initial, greatest, multiplier, None, None)


@pytest.mark.parametrize(("numbers", "delays"), PYFLINK_DELAYS)
def test_delays_are_those_of_pyflink(numbers: tuple[int, int, float], delays: list[int]) -> None:
    strategy = exponential(*numbers)
    assert [strategy.get_backoff_time_millis(attempt) for attempt in range(1, 9)] == delays


def test_records_under_way_do_not_change_each_others_delays() -> None:
    strategy = exponential(100, 10_000, 2.0)
    assert [strategy.get_backoff_time_millis(attempt) for attempt in (3, 1, 2, 2, 4, 1)] == [
        400, 100, 200, 200, 800, 100,
    ]  # fmt: skip


def test_many_attempts_take_no_longer_to_count() -> None:
    assert exponential(1, 1000, 1.5).get_backoff_time_millis(10**15) == 1
    assert exponential(2, 1000, 1.5).get_backoff_time_millis(10**15) == 1000


@pytest.mark.parametrize(
    "strategy", [AsyncRetryStrategy.fixed_delay(2, 7, None, None), exponential(7, 7, 1.0)]
)
def test_there_are_so_many_attempts_after_the_first(strategy: AsyncRetryStrategy) -> None:
    most = 2 if strategy.can_retry(2) and not strategy.can_retry(3) else 5
    assert [strategy.can_retry(attempts) for attempts in (1, most, most + 1)] == [True, True, False]
    assert strategy.get_backoff_time_millis(1) == 7


def test_a_strategy_keeps_its_predicates() -> None:
    strategy = AsyncRetryStrategy.fixed_delay(1, 1, empty_result_predicate, has_exception_predicate)
    predicate = strategy.get_retry_predicate()
    assert isinstance(predicate, AsyncRetryPredicate)
    assert predicate.result_predicate() is empty_result_predicate
    assert predicate.exception_predicate() is has_exception_predicate


def test_no_retries() -> None:
    assert isinstance(NO_RETRY_STRATEGY, NoRetryStrategy)
    assert AsyncRetryStrategy.no_restart() is NO_RETRY_STRATEGY
    predicate = NO_RETRY_STRATEGY.get_retry_predicate()
    assert (predicate.result_predicate(), predicate.exception_predicate()) == (None, None)
    assert (NO_RETRY_STRATEGY.can_retry(1), NO_RETRY_STRATEGY.get_backoff_time_millis(1)) == (False, -1)


def test_predicates() -> None:
    assert [empty_result_predicate(result) for result in ([], [0])] == [True, False]
    assert [has_exception_predicate(error) for error in (None, ValueError())] == [False, True]
    is_timeout = partial(exception_type_predicate, expected_error_type=TimeoutError)
    assert [is_timeout(error) for error in (TimeoutError(), OSError())] == [True, False]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("fixed_delay", (0, 1, None, None), "max_attempts must be greater than 0, not 0"),
        ("fixed_delay", (1, -1, None, None), "backoff_time_millis must be greater than 0, not -1"),
        ("fixed_delay", (1, "1 s", None, None), "backoff_time_millis must be greater than 0, not '1 s'"),
        ("fixed_delay", (1, 1, [], None), r"result_predicate is a function or None, not \[\]"),
        ("exponential_backoff", (1, 0, 1, 1.0, None, None), "initial_delay must"),
        ("exponential_backoff", (1, 1, 0, 1.0, None, None), "max_retry_delay must"),
        ("exponential_backoff", (1, 1, 1, 0.0, None, None), "multiplier must"),
        ("exponential_backoff", (1, 1, 1, 1.0, None, 5), "exception_predicate is a function or None, not 5"),
    ],
)
def test_what_is_no_strategy(name: str, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        getattr(AsyncRetryStrategy, name)(*arguments)


# --- lengths of time and moments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [
        (Time(7), 7),
        (Time.milliseconds(7), 7),
        (Time.seconds(7), 7_000),
        (Time.minutes(7), 420_000),
        (Time.hours(7), 25_200_000),
        (Time.days(7), 604_800_000),
        (Time.milliseconds(0), 0),
        (Time.seconds(-1), -1_000),
        (Time.milliseconds(2**63 - 1), 2**63 - 1),
    ],
    ids=str,
)
def test_a_time_is_whole_milliseconds(time, milliseconds):
    assert time.to_milliseconds() == milliseconds
    assert str(time) == f"{milliseconds} ms"


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        (Duration.of_nanos(7_000_000), 7),
        (Duration.of_millis(7), 7),
        (Duration.of_seconds(7), 7_000),
        (Duration.of_minutes(7), 420_000),
        (Duration.of_hours(7), 25_200_000),
        (Duration.of_days(7), 604_800_000),
        (Duration.of_millis(2**63 - 1), 2**63 - 1),
        # Parts of a millisecond are dropped, as by ``java.time.Duration.toMillis``.
        (Duration.of_nanos(999_999), 0),
        (Duration.of_nanos(1_000_000), 1),
        (Duration.of_nanos(1_999_999), 1),
    ],
    ids=repr,
)
def test_a_duration_comes_to_milliseconds(duration, milliseconds):
    assert duration.to_milliseconds() == duration.to_millis() == milliseconds


def test_lengths_are_equal_whatever_unit_they_were_made_of():
    assert Time.hours(24) == Time.days(1)
    assert Duration.of_seconds(60) == Duration.of_minutes(1)
    assert hash(Time.seconds(1)) == hash(Time.milliseconds(1000))
    assert Time.seconds(1) != Time.seconds(2)
    assert Duration.of_nanos(1) != Duration.of_nanos(2)


def test_lengths_are_ordered():
    assert Time.seconds(59) < Time.minutes(1) < Time.milliseconds(60_001)
    assert Duration.of_nanos(999_999) < Duration.of_millis(1) <= Duration.of_millis(1)


@pytest.mark.parametrize("length", [Time.hours(1), Duration.of_nanos(5)], ids=str)
def test_a_length_cannot_change_and_can_be_pickled(length):
    with pytest.raises(AttributeError):
        length._milliseconds = 3
    assert pickle.loads(pickle.dumps(length)) == length


@pytest.mark.parametrize(
    ("length", "milliseconds"),
    [
        (Time.minutes(2), 120_000),
        (Duration.of_minutes(2), 120_000),
        (datetime.timedelta(minutes=2), 120_000),
        (datetime.timedelta(days=1, milliseconds=5, microseconds=999), 86_400_005),
    ],
    ids=repr,
)
def test_milliseconds_are_had_of_any_length(length, milliseconds):
    assert milliseconds_of(length) == milliseconds


@pytest.mark.parametrize("length", [5, 5.0, "5 s", None], ids=repr)
def test_what_is_no_length_is_refused(length):
    with pytest.raises(ConfigurationError, match="Time, Duration or timedelta"):
        milliseconds_of(length)


#: What is no whole number, and how the error ends.
FRACTIONS = [
    (lambda: Time.hours(1.5), r"Time.hours\(\) .* whole number, not 1.5: use Time.milliseconds\(5400000\)$"),
    (lambda: Time.seconds(0.5), r"not 0.5: use Time.milliseconds\(500\)$"),
    (lambda: Time.seconds("3"), r"not '3': use Time.milliseconds\(\)$"),
    (lambda: Time.seconds(True), r"not True: use Time.milliseconds\(\)$"),
    (lambda: Duration.of_seconds(2.01), r"not 2.01: use Duration.of_millis\(2010\)$"),
    (lambda: Duration.of_seconds(-2.01), r"not -2.01: use Duration.of_millis\(-2010\)$"),
    (lambda: Time.seconds(np.float64(0.29)), r"use Time.milliseconds\(290\)$"),
    (lambda: Time.seconds(np.float32(1.5)), r"use Time.milliseconds\(1500\)$"),
    (lambda: Time.days(0.1), r"not 0.1: use Time.milliseconds\(8640000\)$"),
    (lambda: Time.seconds(0.0004), r"not 0.0004: use Time.milliseconds\(\)$"),
    (lambda: Time.seconds(2.0004), r"not 2.0004: use Time.milliseconds\(\)$"),
    (lambda: Time.days(1e308), r"use Time.milliseconds\(\)$"),
    (lambda: Time.minutes(2.0), r"not 2.0: use Time.milliseconds\(120000\)$"),
    (lambda: Time.days(math.nan), r"not nan: use Time.milliseconds\(\)$"),
    (lambda: Time.days(math.inf), r"not inf: use Time.milliseconds\(\)$"),
    (lambda: Time.milliseconds(499.5), r"Time.milliseconds\(\) takes a whole number, not 499.5$"),
    (lambda: Time(True), "Time takes a whole number, not True$"),
    (lambda: Time.seconds(datetime.timedelta(1)), "not datetime.timedelta"),
    (lambda: Duration.of_days(0.25), r"not 0.25: use Duration.of_millis\(21600000\)$"),
    (lambda: Duration.of_hours(None), "not None"),
    (lambda: Duration.of_minutes(1.5), r"not 1.5: use Duration.of_millis\(90000\)$"),
    (lambda: Duration.of_seconds("3"), "not '3'"),
    (lambda: Duration.of_millis(0.5), r"not 0.5: use Duration.of_nanos\(500000\)$"),
    (lambda: Duration.of_nanos(0.5), r"Duration.of_nanos\(\) takes a whole number, not 0.5$"),
    (lambda: Duration(0.5), "Duration takes a whole number, not 0.5$"),
    (lambda: Instant.of_epoch_milli(0.5), r"Instant.of_epoch_milli\(\) takes a whole number, not 0.5$"),
]


@pytest.mark.parametrize(("make", "says"), FRACTIONS)
def test_lengths_are_made_of_whole_numbers(make, says):
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_numpys_numbers_are_whole_numbers_too():
    assert Time.seconds(np.int32(3)) == Time.seconds(3)
    assert type(Time.milliseconds(np.int64(3)).to_milliseconds()) is int
    assert type(Time.days(np.int8(100)).to_milliseconds()) is int
    assert Time.days(np.int8(100)) == Time.days(100)
    assert Duration.of_days(np.uint8(200)) == Duration.of_days(200)


class TestInstant:
    @pytest.mark.parametrize(
        ("milliseconds", "seconds", "nanos"),
        [(1500, 1, 500_000_000), (0, 0, 0), (-1, -1, 999_000_000), (-1500, -2, 500_000_000)],
    )
    def test_is_made_of_milliseconds_and_gives_them_back(self, milliseconds, seconds, nanos):
        when = Instant.of_epoch_milli(milliseconds)
        assert when == Instant(seconds, nanos)
        assert when.to_epoch_milli() == milliseconds

    @given(st.integers(-(2**53), 2**53))
    def test_all_milliseconds_come_back(self, milliseconds):
        assert Instant.of_epoch_milli(milliseconds).to_epoch_milli() == milliseconds

    @pytest.mark.parametrize(
        ("when", "milliseconds"),
        [(Instant(1, 1_999_999), 1001), (Instant(-1, 999_999_999), -1), (Instant(-1, 1), -1000)],
        ids=repr,
    )
    def test_parts_of_a_millisecond_are_rounded_down_as_in_java(self, when, milliseconds):
        assert when.to_epoch_milli() == milliseconds

    def test_instants_are_ordered_in_time(self):
        assert Instant(-1, 999_999_999) < Instant(0, 0) < Instant(0, 1) < Instant(1, 0)
        assert sorted([Instant(2, 0), Instant(1, 5)]) == [Instant(1, 5), Instant(2, 0)]

    def test_is_a_value(self):
        when = Instant(1, 2)
        assert (when.seconds, when.nanos, repr(when)) == (1, 2, "Instant<1, 2>")
        assert when != (1, 2)
        assert {when: "x"}[Instant(1, 2)] == "x"
        assert pickle.loads(pickle.dumps(when)) == when
        with pytest.raises(AttributeError):
            when.seconds = 5

    @pytest.mark.parametrize("nanos", [-1, 10**9, 0.5, True, None], ids=repr)
    def test_nanoseconds_are_those_of_one_second(self, nanos):
        with pytest.raises(ConfigurationError, match="nanos of an Instant"):
            Instant(0, nanos)

    @pytest.mark.parametrize("end", [31_556_889_864_403_199, -31_557_014_167_219_200])
    def test_goes_as_far_as_javas(self, end):
        assert Instant(end, 0).seconds == end
        with pytest.raises(ConfigurationError, match="seconds of an Instant"):
            Instant(end + (1 if end > 0 else -1), 0)
        with pytest.raises(ConfigurationError, match="seconds of an Instant"):
            Instant("0", 0)
