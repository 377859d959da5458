"""Watermarks on their way through the shuffle."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import attrs
import pytest
from support_runtime import PICKLED

from pyflinkstate.runtime.plan import Partitioning
from pyflinkstate.runtime.tasks import EventTimeSettings, Router
from pyflinkstate.runtime.wire import (
    MAX_WATERMARK,
    NO_WATERMARK,
    ChannelEvent,
    FrameKey,
    FrameTime,
    InputFrame,
    TaskTime,
    WatermarkMerger,
    frames as frames_module,
)

PARALLELISMS = [1, 2, 3, 7]
OPEN, RECORDS, CLOSE, CLOSE_EMPTY = ChannelEvent

#: A record is a number, which is its key and its timestamp; the watermark is the one before the greatest.
Records = Iterable[int]


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 4)


def router(parallelism: int, branch: int = 0, **options: Any) -> Router:
    partitioning = options.pop("partitioning", Partitioning.KEY)
    settings = EventTimeSettings(**options)
    return Router("sum", abs, PICKLED, parallelism, 128, partitioning, 0, branch, settings)


def timed(records: Records, time: TaskTime) -> Iterator[int]:
    """What a chain does: ``time`` is about the record taken last, its watermark about those before."""
    greatest = time.watermark
    for record in records:
        time.timestamp, greatest = record, max(greatest, record - 1)
        yield record
        time.watermark = greatest


def routed(made: Router, records: Records, partition: int = 0, opening: int = NO_WATERMARK) -> list[Any]:
    time = TaskTime(watermark=opening)
    return list(made.route(partition, timed(records, time), time))


def subtask(number: int, *parts: list[tuple[FrameKey, bytes]]) -> list[tuple[FrameKey, InputFrame]]:
    """What a subtask is fed, in the order in which the shuffle sorts it."""
    own = sorted(item for item in chain.from_iterable(parts) if item[0][0] == number)
    return [(key, InputFrame.decode(data)) for key, data in own]


def times(fed: list[tuple[FrameKey, InputFrame]]) -> list[FrameTime]:
    return [frame.time for _, frame in fed if frame.time is not None]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_every_subtask_gets_every_watermark(parallelism: int) -> None:
    parts = routed(router(parallelism), range(10))
    expected = [
        FrameTime(0, 0, NO_WATERMARK, OPEN),
        FrameTime(0, 0, 1),  # what comes behind the last record is known when the next one is asked for
        FrameTime(0, 0, 5),
        FrameTime(0, 0, 8),
        FrameTime(0, 0, 8, CLOSE),
    ]
    for number in range(parallelism):
        assert times(subtask(number, parts)) == expected


def test_records_carry_their_timestamps() -> None:
    parts = routed(router(3), [5, 3, 9])
    got = {
        value: timestamp
        for number in range(3)
        for _, frame in subtask(number, parts)
        for value, timestamp in zip(frame.values, frame.timestamps or (), strict=True)
    }
    assert got == {5: 5, 3: 3, 9: 9}


@pytest.mark.parametrize(
    ("records", "settings", "end"),
    [
        ([], {}, FrameTime(0, 0, 3, CLOSE_EMPTY)),
        ([], {"is_final": True}, FrameTime(0, 0, MAX_WATERMARK, CLOSE)),
        ([1], {}, FrameTime(0, 0, 3, CLOSE)),
        ([9], {}, FrameTime(0, 0, 8, CLOSE)),
        ([9], {"is_final": True}, FrameTime(0, 0, MAX_WATERMARK, CLOSE)),
        ([], {"is_idle": True}, FrameTime(0, 0, 3, CLOSE_EMPTY, True)),
    ],
)
def test_how_a_partition_closes(records: list[int], settings: dict[str, bool], end: FrameTime) -> None:
    fed = times(subtask(0, routed(router(1, **settings), records, opening=3)))
    assert fed[-1] == end
    assert fed[0] == FrameTime(0, 0, 3, OPEN, end.is_idle)


def test_a_partition_is_idle_until_its_first_record() -> None:
    fed = times(subtask(0, routed(router(1, is_idle=True), [9], opening=3)))
    assert fed == [
        FrameTime(0, 0, 3, OPEN, is_idle=True),
        FrameTime(0, 0, 8, RECORDS),
        FrameTime(0, 0, 8, CLOSE),
    ]


def test_a_partition_whose_records_all_went_elsewhere_still_advances() -> None:
    """A filter dropped them, behind the assigner: no frame has records, and time has passed."""
    time = TaskTime(watermark=3)

    def nothing() -> Iterator[int]:
        time.watermark = 8
        yield from ()

    fed = times(subtask(0, list(router(1).route(0, nothing(), time))))
    assert fed == [FrameTime(0, 0, 3, OPEN), FrameTime(0, 0, 8, CLOSE)]


@pytest.mark.parametrize("parallelism", PARALLELISMS)
def test_openings_come_first_then_what_is_broadcast_then_partitions_side_by_side(parallelism: int) -> None:
    keyed = [routed(router(parallelism, 0), range(10), partition) for partition in range(2)]
    rules = [routed(router(parallelism, 1, partitioning=Partitioning.BROADCAST), range(6), 2)]
    for number in range(parallelism):
        fed = [(frame.time, frame.values) for _, frame in subtask(number, *keyed, *rules)]
        events = [(time.event, time.branch, time.channel) for time, _ in fed if time is not None]
        assert events[:3] == [(OPEN, 0, 0), (OPEN, 0, 1), (OPEN, 1, 2)]
        assert events[3:6] == [(RECORDS, 1, 2), (RECORDS, 1, 2), (CLOSE, 1, 2)]
        assert [value for _, values in fed[3:6] for value in values] == list(range(6))
        assert events[6:10] == [(RECORDS, 0, 0), (RECORDS, 0, 1)] * 2
        assert sorted(events[10:]) == sorted([(RECORDS, 0, 0), (RECORDS, 0, 1), (CLOSE, 0, 0), (CLOSE, 0, 1)])


def test_partitions_of_a_forward_input_stay_together_and_watermarks_go_to_all() -> None:
    parts = [routed(router(2, partitioning=Partitioning.FORWARD), [1, 2, 3], p) for p in range(3)]
    for number in range(2):
        fed = subtask(number, *parts)
        with_records = {
            time.channel for time, (_, frame) in zip(times(fed), fed, strict=True) if frame.values
        }
        assert with_records == ({0, 2} if number == 0 else {1})
        assert {time.channel for time in times(fed)} == {0, 1, 2}


def watermarks_at_records(parallelism: int, partitions: list[list[int]]) -> dict[tuple[int, int], int]:
    """Return the watermark that each record meets, by partition and place in it."""
    named = [[(p, n, at) for n, at in enumerate(own)] for p, own in enumerate(partitions)]
    parts = []
    for p, own in enumerate(named):
        made = attrs.evolve(router(parallelism), select_key=lambda record: record[2])
        time = TaskTime()
        parts.append(list(made.route(p, _timed_pairs(own, time), time)))
    met: dict[tuple[int, int], int] = {}
    for number in range(parallelism):
        merger = WatermarkMerger()
        for _, frame in subtask(number, *parts):
            for p, n, _at in frame.values:
                met[p, n] = merger.watermark
            if frame.time is not None:
                merger.advance(frame.time)
    return met


def _timed_pairs(records: list[tuple[int, int, int]], time: TaskTime) -> Iterator[tuple[int, int, int]]:
    greatest = NO_WATERMARK
    for record in records:
        time.timestamp, greatest = record[2], max(greatest, record[2] - 1)
        yield record
        time.watermark = greatest


@pytest.mark.parametrize("seed", range(20))
def test_a_record_meets_the_same_watermark_at_any_parallelism(seed: int) -> None:
    random_ = random.Random(seed)
    partitions = [
        [random_.randint(0, 50) for _ in range(random_.randint(0, 15))] for _ in range(random_.randint(1, 4))
    ]
    first, *others = (watermarks_at_records(parallelism, partitions) for parallelism in PARALLELISMS)
    assert len(first) == sum(map(len, partitions))
    assert all(other == first for other in others)
