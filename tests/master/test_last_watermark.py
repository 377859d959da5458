"""The last watermark of a bounded input comes before the end of time, however many operators lie between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from event_time_functions import (
    FACTORS,
    LATE,
    BroadcastTellWatermark,
    CoTellWatermark,
    PassAside,
    Passes,
    TellWatermark,
    Third,
    key_of,
)
from support_job import JobRun
from support_programs import Program
from tiers import cases

from pyflinkstate.api.time import WatermarkStrategy
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.wire import frames as frames_module

#: The last watermark is 9. A timer is due at 5.
RECORDS = [("a", 1, 0), ("a", 2, 10)]


def keyed(stream: DataStream) -> DataStream:
    return stream.key_by(key_of).process(Passes())


def told(stream: DataStream) -> DataStream:
    return stream.key_by(key_of).process(TellWatermark())


def met_again(stream: DataStream) -> DataStream:
    shared = keyed(stream).map(lambda record: record)
    return shared.union(shared.filter(lambda record: False)).map(lambda record: record)


def assigned_again(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy(0).with_timestamp_assigner(Third())
    return keyed(stream).assign_timestamps_and_watermarks(strategy)


#: Programs over two streams.
WAYS: dict[str, Callable[[DataStream, DataStream], DataStream]] = {
    "one operator": lambda one, other: told(one),
    "two operators": lambda one, other: told(keyed(one)),
    "four operators": lambda one, other: told(keyed(keyed(keyed(one)))),
    "an exchange": lambda one, other: told(keyed(one).rebalance().map(lambda record: record)),
    "a filter that lets nothing through": lambda one, other: told(
        keyed(one).filter(lambda record: record[2] < 5)
    ),
    "a union": lambda one, other: told(keyed(one).union(other)),
    "a union of operators": lambda one, other: told(keyed(one).union(keyed(other))),
    "streams that meet again": lambda one, other: told(met_again(one)),
    "an assigner behind an operator": lambda one, other: told(assigned_again(one)),
    "an assigner and a filter": lambda one, other: told(assigned_again(one).filter(lambda record: True)),
    "two inputs": lambda one, other: (
        keyed(one).connect(other).key_by(key_of, key_of).process(CoTellWatermark())
    ),
    "a broadcast stream": lambda one, other: (
        keyed(one).key_by(key_of).connect(other.broadcast(FACTORS)).process(BroadcastTellWatermark())
    ),
    "a side output": lambda one, other: told(one.key_by(key_of).process(PassAside()).get_side_output(LATE)),
}


def watermarks(way: str, parallelism: int) -> list[int]:
    out: list[Any] = []
    program = Program()
    one, other = (program.stream(RECORDS, name, splits=1) for name in ("one", "other"))
    sink = DriverSink(lambda _, values: out.extend(values))
    JobRun(WAYS[way](one, other).node, sink, parallelism=parallelism).run()
    return out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("parallelism", cases([1, 2], quick=[2]))
def test_a_timer_fires_at_the_last_watermark(way: str, parallelism: int) -> None:
    assert watermarks(way, parallelism) == [9]


@pytest.mark.parametrize("way", cases([*WAYS], quick=["one operator", "streams that meet again"]))
def test_it_does_so_if_the_records_fill_a_frame(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 2)
    assert watermarks(way, 2) == [9]
