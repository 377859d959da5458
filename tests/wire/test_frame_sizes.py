"""Frames are bounded by bytes: of large records they have few, of small ones some thousand as before."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from tiers import cases

from pyflinkstate import Types
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.plan import Partitioning
from pyflinkstate.runtime.tasks import EventTimeSettings, Router
from pyflinkstate.runtime.wire import NO_WATERMARK, FrameTime, TaskTime, frames
from pyflinkstate.runtime.wire.frames import (
    MAX_FRAME_BYTES,
    RECORDS_PER_FRAME,
    FrameCutter,
    InputFrame,
    OutputSteps,
    ValuesFrame,
    decode_values,
    encoded_frames,
    frames_of,
    rough_size,
)

LARGE = 500_000


def large_records(number: int, size: int = LARGE) -> Iterator[tuple[str, bytes]]:
    return ((f"key-{n % 7}", bytes([n % 256]) * size) for n in range(number))


def mixed_records(number: int, seed: int) -> list[tuple[str, bytes]]:
    rng = random.Random(seed)
    return [(f"key-{n % 7}", bytes(rng.choice([1, 1, 10, 1_000, 300_000]))) for n in range(number)]


def router(partitioning: Partitioning = Partitioning.KEY, timed: bool = False) -> Router:
    return Router(
        "count",
        lambda record: record[0],
        Types.STRING(),
        2,
        16,
        partitioning,
        event_time=EventTimeSettings() if timed else None,
    )


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(
    "partitioning", [way for way in Partitioning if way is not Partitioning.CUSTOM], ids=lambda way: way.name
)
def test_frames_of_large_records_are_small_in_number_of_records(
    partitioning: Partitioning, timed: bool
) -> None:
    seen: dict[int, int] = {0: 0, 1: 0}
    for key, data in router(partitioning, timed).route(0, large_records(200), TaskTime()):
        assert len(data) <= MAX_FRAME_BYTES
        seen[key[0]] += len(InputFrame.decode(data))
    copies = 2 if partitioning is Partitioning.BROADCAST else 1
    assert sum(seen.values()) == 200 * copies


def test_a_task_holds_some_frames_at_most() -> None:
    tracemalloc.start()
    try:
        for _ in router().route(0, large_records(400)):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * MAX_FRAME_BYTES, "all records have 200 MB"


def test_small_records_make_frames_as_before() -> None:
    records = [("key", number) for number in range(3 * RECORDS_PER_FRAME)]
    sizes = [len(decode_values(data)) for data in frames_of(iter(records), "sink")]
    assert sizes == [RECORDS_PER_FRAME] * 3


@pytest.mark.parametrize(("seed", "timed"), cases(product(range(5), [False, True]), quick=[(0, True)]))
def test_the_same_records_make_the_same_frames_in_their_order(seed: int, timed: bool) -> None:
    records = mixed_records(2_000, seed)
    first, second = (list(router(timed=timed).route(0, iter(records), TaskTime())) for _ in range(2))
    assert first == second
    frames = [InputFrame.decode(data) for _, data in sorted(first, key=lambda item: item[0])]
    found = [value for frame in frames for value in frame.values]
    for key in {record[0] for record in records}:
        assert [record for record in found if record[0] == key] == [
            record for record in records if record[0] == key
        ]


@pytest.mark.parametrize(
    "records",
    [
        [*large_records(10_000, 10), *large_records(300)],
        [bytes(100_000 if (n + 1) % 2 else 1) for n in range(2_000)],
    ],
    ids=["large at once", "every chunk's last record is small, and measured"],
)
def test_frames_stay_small_whatever_was_measured(records: list[Any]) -> None:
    decoded = []
    for data in frames_of(iter(records), "sink"):
        assert len(data) <= MAX_FRAME_BYTES
        decoded += decode_values(data)
    assert decoded == records


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 1_000)
    monkeypatch.setattr(frames, "MAX_RECORD_BYTES", 10_000)


@pytest.mark.usefixtures("small_bounds")
def test_the_parts_of_a_frame_say_no_watermark_before_the_last() -> None:
    time = FrameTime(0, 3, 99)
    values = [bytes([n]) * 300 for n in range(10)]
    frame = InputFrame(bytes(20), ["a"] * 10, values, 1, list(range(10)), time)
    parts = [InputFrame.decode(data) for data in encoded_frames(frame, "count")]
    assert len(parts) > 2
    assert [stamp for part in parts for stamp in part.timestamps or ()] == list(range(10))
    assert all(len(part.keys) == len(part.values) == len(part.key_groups) // 2 for part in parts)
    assert [part.time and part.time.watermark for part in parts] == [NO_WATERMARK] * (len(parts) - 1) + [99]


TAGS = (None, "late", "odd", "even")


def columns(numbers: list[int], timed: bool) -> list[Any]:
    return [
        ([f"{place}.{n}" for n in range(number)], list(range(number)) if timed else None)
        for place, number in enumerate(numbers)
    ]


def cut_to_the_end(frame: ValuesFrame) -> Iterator[ValuesFrame]:
    if len(frame) < 2:
        yield frame
        return
    halves = frame.halves()
    assert all(0 < len(half) < len(frame) for half in halves)
    for half in halves:
        yield from cut_to_the_end(ValuesFrame.decode(half.encode()))


@given(
    numbers=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    timed=st.booleans(),
    watermark=st.none() | st.integers(0, 9),
    opening=st.none() | st.integers(0, 9),
    is_idle=st.booleans(),
)
def test_every_frame_is_cut_into_smaller_ones(
    numbers: list[int], timed: bool, watermark: int | None, opening: int | None, is_idle: bool
) -> None:
    """Records stay in order in their outputs, the opening is in the first part, the watermark in the last."""
    outputs = dict(zip(TAGS, columns(numbers, timed), strict=False))
    side: Any = {tag: column for tag, column in outputs.items() if tag is not None}
    parts = list(cut_to_the_end(ValuesFrame(*outputs[None], watermark, is_idle, side, opening)))
    for tag, (values, timestamps) in outputs.items():
        found = [part.output(tag) for part in parts]
        assert [value for own, _ in found for value in own] == values
        assert [time for _, own in found for time in own or ()] == (timestamps or [])
    assert [part.watermark for part in parts] == [None] * (len(parts) - 1) + [watermark]
    assert [part.opening for part in parts] == [opening] + [None] * (len(parts) - 1)
    assert {part.is_idle for part in parts} == {is_idle}


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("tags", [("late",), ("late", "odd")])
def test_large_records_in_different_outputs_are_sent_in_frames_of_their_own(tags: tuple[str, ...]) -> None:
    side: Any = {tag: ([tag.encode() * 200], [1]) for tag in tags}
    frame = ValuesFrame([b"main" * 200], [1], 50, side=side)
    parts = [ValuesFrame.decode(data) for data in encoded_frames(frame, "count")]
    assert [len(part) for part in parts] == [1] * (1 + len(tags))


def test_many_results_are_cut_before_they_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all of them are pickled only to see their size, and then each half again."""
    monkeypatch.setattr(frames, "MAX_FRAME_RECORDS", 100)
    pickled: list[int] = []
    encode = ValuesFrame.encode

    def counting(frame: ValuesFrame) -> bytes:
        pickled.append(len(frame))
        return encode(frame)

    monkeypatch.setattr(ValuesFrame, "encode", counting)
    frame = ValuesFrame(list(range(1_000)), [0] * 1_000, 50, False, {"late": (list(range(99)), [1] * 99)}, 40)
    parts = [ValuesFrame.decode(data) for data in encoded_frames(frame, "count")]
    assert [value for part in parts for value in part.values] == list(range(1_000))
    assert sum(pickled) == 1_099
    assert max(pickled) <= 100


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("size", [5_000, 9_000, 20_000])
def test_one_record_may_be_larger_than_a_frame_and_has_a_bound_of_its_own(size: int) -> None:
    records = [("small", b""), ("the key", bytes(size)), ("small", b"")]
    routed = router().route(0, iter(records))
    if size < 10_000:
        assert sum(len(InputFrame.decode(data)) for _, data in routed) == 3
        return
    with pytest.raises(
        BadRecordError, match=r"count: a record of key 'the key', a tuple, has 20\d+ bytes"
    ) as e:
        list(routed)
    assert "the limit is 10000: keep large objects in files" in str(e.value)
    assert not e.value.recoverable


@attrs.define
class Holder:
    content: Any


class Plain:
    def __init__(self, content: Any) -> None:
        self.content = content


@pytest.mark.parametrize(
    "make",
    [
        lambda content: content,
        lambda content: ("key", 1, [content]),
        lambda content: {"key": {"content": content}},
        Holder,
        Plain,
        lambda content: [content] * 3,
    ],
)
def test_a_value_is_measured_wherever_its_bytes_are(make: Callable[[Any], Any]) -> None:
    assert 90_000 < rough_size(make(bytes(100_000))) < 400_000
    assert rough_size(make(b"x")) < 100


def test_a_value_that_holds_itself_is_measured() -> None:
    value: list[Any] = []
    value.append(value)
    assert rough_size(value) < 1_000


def test_results_are_looked_at_more_often_where_they_are_large() -> None:
    steps = OutputSteps()
    assert not steps.is_full([1] * 10)
    few = len(list(steps.parts(4_096)))
    while not steps.is_full([bytes(100_000)] * 1_000):
        pass
    assert steps.is_full([bytes(100_000)] * 1_000)
    assert len(list(steps.parts(4_096))) > few
    assert [number for part in steps.parts(1_000) for number in range(part.start, part.stop)] == [
        *range(1_000)
    ]


def test_results_for_side_outputs_make_frames_full_too() -> None:
    large = [bytes(100_000)] * 15
    assert not OutputSteps().is_full(large)
    assert OutputSteps().is_full(large, large)
    assert OutputSteps().is_full([], large * 2)
    assert not OutputSteps().is_full([], [])


def test_a_cutter_takes_all_and_ends() -> None:
    cutter = FrameCutter(10)
    records = iter(range(25))
    assert [cutter.take(records) for _ in range(4)] == [
        [*range(10)],
        [*range(10, 20)],
        [*range(20, 25)],
        [],
    ]
