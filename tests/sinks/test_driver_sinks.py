"""The sinks that keep results in the driver or on the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from support_runtime import raising

from pyflinkstate.errors import SinkError
from pyflinkstate.runtime.sinks.sinks import DriverSink, FrameWriter, RddSink
from pyflinkstate.runtime.wire import decode_values, frames

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
