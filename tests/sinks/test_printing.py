"""What records look like in print, as PyFlink 2.3 printed them; sinks that hand records to the driver."""

from __future__ import annotations

import datetime
import math
import pickle
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from support_runtime import raising

from pyflinkstate import Instant, Row, RowKind
from pyflinkstate.api import ExternalTypeInfo, LocalTimeTypeInfo, TypeInformation, Types, safe_repr
from pyflinkstate.backends.types.atoms import ATOMS, show_double, show_float
from pyflinkstate.backends.types.codec import walk
from pyflinkstate.backends.types.table import codec_of
from pyflinkstate.errors import BadRecordError, SinkError
from pyflinkstate.runtime.sinks.sinks import DriverSink, FrameWriter, PrintSink, RddSink, RecordText
from pyflinkstate.runtime.wire import decode_values, frames
from pyflinkstate.runtime.wire.frames import RECORDS_PER_FRAME

PICKLED, LONG, STRING, FLOAT = Types.PICKLED_BYTE_ARRAY(), Types.LONG(), Types.STRING(), Types.FLOAT()
LOCAL = LocalTimeTypeInfo.TimeType
NOON = datetime.datetime(2020, 1, 2, 12, 0, 5, 678000)

TEXTS: list[tuple[TypeInformation, Any, str]] = [
    (PICKLED, (1, "a", True, None), "(1, 'a', True, None)"),
    (PICKLED, "text", "text"),
    (PICKLED, b"x", "b'x'"),
    (PICKLED, {"k": 1.5}, "{'k': 1.5}"),
    (Types.BYTE(), -128, "-128"),
    (Types.SHORT(), -7, "-7"),
    (Types.INT(), 7, "7"),
    (Types.BIG_INT(), 2**100, "1267650600228229401496703205376"),
    (Types.FLOAT(), 0.1, "0.1"),
    (Types.CHAR(), "é", "é"),
    (LocalTimeTypeInfo(LOCAL.LOCAL_DATE), datetime.date(2020, 1, 2), "2020-01-02"),
    (Types.ROW([LONG, STRING, Types.BOOLEAN()]), Row(1, "a", False), "+I[1,a,False]"),
    (Types.ROW([LONG, STRING]), (None, None), "+I[None,None]"),
    (Types.ROW_NAMED(["n", "s"], [LONG, STRING]), Row.of_kind(RowKind.DELETE, 3, "c"), "-D[3,c]"),
    (Types.ROW([Types.ROW([LONG])]), Row(Row(1)), "+I[Row(f0=1)]"),
    (Types.ROW([Types.LIST(STRING)]), Row(["a"]), "+I[['a']]"),
    (
        Types.TUPLE([LONG, STRING, Types.BOOLEAN(), Types.DOUBLE()]),
        (1, "a", True, 2.0),
        "(1,a,true,2.0)",
    ),
    (Types.TUPLE([LONG, LONG]), (1, None), "(1,null)"),
    (Types.TUPLE([Types.TUPLE([LONG])]), ((1,),), "((1))"),
    (Types.BOOLEAN(), False, "false"),
    (Types.BIG_INT(), -(10**5_000), "-1" + "0" * 5_000),
    (Types.ROW([Types.BIG_INT()]), Row(10**5_000), f"+I[1{'0' * 5_000}]"),
    (Types.BIG_DEC(), Decimal("1.50"), "1.50"),
    (Types.BIG_DEC(), Decimal("1E+3"), "1E+3"),
    (Types.SQL_DATE(), datetime.date(2020, 1, 2), "2020-01-02"),
    (Types.SQL_DATE(), datetime.date(20, 1, 2), "0020-01-02"),
    (Types.SQL_TIME(), datetime.time(1, 2, 3), "01:02:03"),
    (Types.SQL_TIMESTAMP(), NOON, "2020-01-02 12:00:05.678"),
    (Types.SQL_TIMESTAMP(), NOON.replace(microsecond=0), "2020-01-02 12:00:05.0"),
    (Types.SQL_TIMESTAMP(), NOON.replace(year=20), "0020-01-02 12:00:05.678"),
    (LocalTimeTypeInfo(LOCAL.LOCAL_TIME), datetime.time(1, 2), "01:02"),
    (LocalTimeTypeInfo(LOCAL.LOCAL_DATE_TIME), NOON, "2020-01-02T12:00:05.678"),
    (LocalTimeTypeInfo(LOCAL.LOCAL_DATE_TIME), NOON.replace(year=20), "0020-01-02T12:00:05.678"),
    (Types.INSTANT(), Instant(-61_535_937_595, 0), "0020-01-02T12:00:05Z"),
    (Types.INSTANT(), Instant(1, 500_000_000), "1970-01-01T00:00:01.500Z"),
    (Types.INSTANT(), Instant(-1, 0), "1969-12-31T23:59:59Z"),
    (Types.MAP(STRING, LONG), {"a": 1, "b": 2}, "{a=1, b=2}"),
    (Types.LIST(Types.BOOLEAN()), [True, False], "[true, false]"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\xff", "[1, -1]"),
    (ExternalTypeInfo(Types.BOOLEAN()), True, "true"),
]


@pytest.mark.parametrize(("type_info", "value", "text"), TEXTS, ids=lambda value: safe_repr(value, 50))
def test_a_record_is_shown_as_by_pyflink(type_info: TypeInformation, value: Any, text: str) -> None:
    show = RecordText("op", type_info)
    assert show(value) == text
    assert pickle.loads(pickle.dumps(show))(value) == text


def test_every_type_without_parts_is_shown_here() -> None:
    """Whoever adds a type would forget its text otherwise, and it would be Python's."""
    shown: set[str] = set()
    for type_info, _, _ in TEXTS:
        walk(type_info, lambda part, _: shown.add(codec_of(part).name))
    assert {codec.name for codec in ATOMS} <= shown


NUMBERS = [
    (1.0, "1.0"),
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1e10, "1.0E10"),
    (1e-5, "1.0E-5"),
    (1e7, "1.0E7"),
    (9_999_999.0, "9999999.0"),
    (0.001, "0.001"),
    (0.00099, "9.9E-4"),
    (-1234.5, "-1234.5"),
    (1_234_567_895.0, "1.234567895E9"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    (math.nan, "NaN"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_are_shown_as_by_java(value: float, text: str) -> None:
    assert show_double(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(110.1, "110.1"), (110.0999984741211, "110.1"), (1e300, "Infinity"), (1e10, "1.0E10")]
)
def test_numbers_of_32_bits_are_rounded(value: float, text: str) -> None:
    assert show_float(value) == text


def test_a_record_that_does_not_fit_its_type_is_an_error_that_names_both() -> None:
    with pytest.raises(BadRecordError, match=r"operator 'sums'.*TUPLE\(LONG\).*record 'a'") as refusal:
        RecordText("sums", Types.TUPLE([LONG]))("a")
    assert refusal.value.context == {"operator": "sums", "record": "'a'"}


@pytest.mark.parametrize(
    ("identifier", "parallelism", "lines"),
    [
        (None, 1, "a\nb\n"),
        (None, 2, "1> a\n2> b\n"),
        ("out", 1, "out> a\nout> b\n"),
        ("out", 2, "out:1> a\nout:2> b\n"),
    ],
)
def test_lines_say_which_subtask_they_come_from_where_there_are_several(
    identifier: str | None, parallelism: int, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = PrintSink(identifier, parallelism)
    assert RECORDS_PER_FRAME > 1
    results = [*FrameWriter().write(0, iter(["a"])), *FrameWriter().write(1, iter(["b"]))]
    sink.prepare(1, results)
    assert capsys.readouterr().out == ""
    sink.commit(1)
    assert capsys.readouterr().out == lines


# --- sinks that keep results in the driver or on the cluster ---------------------------------------

JOB = "a" * 32


def frames_of(partition: int, records: Iterable[Any]) -> list[Any]:
    return list(FrameWriter().write(partition, iter(records)))


def test_the_frame_writer_sends_frames_with_their_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "RECORDS_PER_FRAME", 4)
    results = frames_of(7, range(10))
    assert [partition for partition, _ in results] == [7, 7, 7]
    assert [decode_values(frame) for _, frame in results] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert frames_of(7, []) == []


def test_the_driver_sink_gives_committed_records_in_the_order_of_epochs() -> None:
    seen: list[Any] = []
    sink = DriverSink(lambda partition, values: seen.append((partition, list(values))))
    sink.open(JOB, None)
    for number in (10, 9, 11):
        sink.prepare(number, frames_of(0, [f"{number}a"]) + frames_of(1, [f"{number}b", number]))
    assert seen == []
    sink.commit(10)
    assert seen == [(0, ["9a"]), (1, ["9b", 9]), (0, ["10a"]), (1, ["10b", 10])]
    sink.commit(10)
    sink.commit(11)
    assert seen[4:] == [(0, ["11a"]), (1, ["11b", 11])]


def test_the_driver_sink_forgets_what_will_be_run_again() -> None:
    seen: list[Any] = []
    sink = DriverSink(lambda _, values: seen.extend(values))
    for number in (1, 2, 3):
        sink.prepare(number, frames_of(0, [f"first {number}"]))
    sink.rewind(1)
    sink.prepare(2, frames_of(0, ["second 2"]))
    sink.commit(3)
    assert seen == ["first 1", "second 2"]


def test_a_consumer_that_raises_is_heard() -> None:
    sink = DriverSink(raising(BrokenPipeError("closed")))
    sink.prepare(1, frames_of(0, ["a"]))
    with pytest.raises(
        SinkError, match=r"handed over: BrokenPipeError: closed\. .* mend what takes"
    ) as caught:
        sink.commit(1)
    assert not caught.value.recoverable


class Cached:
    """What an epoch left on the cluster."""

    def __init__(self) -> None:
        self.freed = False

    def unpersist(self) -> None:
        self.freed = True


def test_the_rdd_sink_keeps_committed_epochs_and_frees_those_that_are_run_again() -> None:
    sink, cached = RddSink(), [Cached() for _ in range(4)]
    for number, rdd in enumerate(cached, start=1):
        sink.prepare(number, [rdd])
    sink.rewind(3)
    sink.commit(2)
    assert sink.committed == cached[:2]
    sink.commit(9)
    assert sink.committed == cached[:3]
    assert [rdd.freed for rdd in cached] == [False, False, False, True]
