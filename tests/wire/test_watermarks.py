"""Watermarks of channels and branches become that of a subtask."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import pytest

from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK, ChannelEvent, FrameTime, WatermarkMerger

OPEN, RECORDS, CLOSE, CLOSE_EMPTY = ChannelEvent


def merger(watermark: int = NO_WATERMARK, *frames: FrameTime) -> WatermarkMerger:
    made = WatermarkMerger(watermark)
    for frame in frames:
        made.advance(frame)
    return made


def opened(*channels: tuple[int, int, int], idle: frozenset[int] = frozenset()) -> WatermarkMerger:
    """A merger whose channels, as branch, number and watermark, have opened."""
    return merger(
        NO_WATERMARK,
        *(FrameTime(branch, channel, at, OPEN, branch in idle) for branch, channel, at in channels),
    )


def test_openings_alone_advance_nothing() -> None:
    """A branch that is behind may be the last to open."""
    made = WatermarkMerger(5)
    assert not made.advance(FrameTime(0, 0, 10, OPEN))
    assert not made.advance(FrameTime(1, 0, 5, OPEN))
    assert made.watermark == 5
    assert made.advance(FrameTime(1, 0, 7))
    assert made.watermark == 7


def test_what_all_branches_opened_with_counts_from_the_first_other_frame_on() -> None:
    made = opened((0, 0, 10), (1, 0, 8))
    assert made.advance(FrameTime(0, 0, 10))
    assert made.watermark == 8


def test_it_opens_with_the_least_that_a_branch_opens_with() -> None:
    made = opened((0, 0, 10), (0, 1, 8), (1, 0, 9))
    assert made.open()
    assert made.watermark == 8
    assert not made.open()


def test_what_branches_open_with_takes_nothing_back_also_if_one_is_idle() -> None:
    made = merger(7, FrameTime(0, 0, 10, OPEN), FrameTime(1, 0, 5, OPEN, is_idle=True))
    assert not made.open()
    assert made.watermark == 7


def test_without_branches_nothing_opens() -> None:
    assert not WatermarkMerger().open()


def test_the_least_channel_counts() -> None:
    made = opened((0, 0, NO_WATERMARK), (0, 1, NO_WATERMARK))
    assert not made.advance(FrameTime(0, 0, 20))
    assert made.advance(FrameTime(0, 1, 10))
    assert made.watermark == 10
    assert made.advance(FrameTime(0, 1, 30))
    assert made.watermark == 20


def test_the_least_branch_counts() -> None:
    made = opened((0, 0, NO_WATERMARK), (1, 0, NO_WATERMARK))
    assert not made.advance(FrameTime(0, 0, 20))
    assert made.advance(FrameTime(1, 0, 10, CLOSE))
    assert made.watermark == 10


def test_a_channel_without_records_holds_nobody_back() -> None:
    made = opened((0, 0, NO_WATERMARK), (0, 1, NO_WATERMARK))
    made.advance(FrameTime(0, 0, 20, CLOSE))
    assert made.watermark == NO_WATERMARK
    assert made.advance(FrameTime(0, 1, NO_WATERMARK, CLOSE_EMPTY))
    assert made.watermark == 20


def test_a_branch_whose_channels_all_had_no_records_stays_where_it_opened() -> None:
    made = opened((0, 0, 5), (0, 1, 5), (1, 0, 5))
    made.advance(FrameTime(0, 0, 5, CLOSE_EMPTY))
    made.advance(FrameTime(0, 1, 5, CLOSE_EMPTY))
    made.advance(FrameTime(1, 0, 30, CLOSE))
    assert made.watermark == 5


def test_a_channel_that_has_ended_counts_also_without_records() -> None:
    made = opened((0, 0, 5), (0, 1, 5))
    assert made.advance(FrameTime(0, 0, MAX_WATERMARK, CLOSE_EMPTY))
    assert made.watermark == 5, "the other one has not ended"
    assert made.advance(FrameTime(0, 1, MAX_WATERMARK, CLOSE_EMPTY))
    assert made.watermark == MAX_WATERMARK


def test_an_idle_branch_holds_nobody_back() -> None:
    made = opened((0, 0, 5), (1, 0, 0), idle=frozenset({1}))
    assert not made.is_idle
    assert made.advance(FrameTime(0, 0, 20))
    assert made.watermark == 20


def test_a_branch_is_idle_until_its_first_record() -> None:
    made = opened((0, 0, 5), (1, 0, 0), (1, 1, 0), idle=frozenset({1}))
    made.advance(FrameTime(0, 0, 20))
    assert not made.advance(FrameTime(1, 1, 22))
    assert not made.advance(FrameTime(0, 0, 30)), "20 was reached, and is not taken back"
    assert made.advance(FrameTime(1, 0, 25, CLOSE_EMPTY, is_idle=True))
    assert made.watermark == 22, "its other partition holds back nobody"


def test_idle_branches_alone_advance_nothing() -> None:
    made = opened((0, 0, 5), (1, 0, 9), idle=frozenset({0, 1}))
    assert made.is_idle
    assert not made.advance(FrameTime(0, 0, 20, is_idle=True))
    assert made.watermark == NO_WATERMARK


def test_without_branches_nothing_is_idle() -> None:
    assert not WatermarkMerger().is_idle


def test_it_never_goes_back() -> None:
    made = merger(50, FrameTime(0, 0, 10, OPEN), FrameTime(0, 0, 40))
    assert made.watermark == 50
    assert not made.advance_to(49)
    assert not made.advance_to(50)
    assert made.advance_to(51)
    assert made.watermark == 51


def test_channels_last_as_long_as_an_epoch() -> None:
    made = opened((0, 0, 1), (0, 1, 1))
    made.advance(FrameTime(0, 0, 10))
    made.begin_epoch()
    assert not made.is_idle
    made.advance(FrameTime(0, 7, 1, OPEN))
    assert made.advance(FrameTime(0, 7, 12))
    assert made.watermark == 12, "channel 1 is forgotten"


# --- against brute force -----------------------------------------------------------------------------


@attrs.define
class Model:
    """Keeps all frames of an epoch and works the watermark out anew after each."""

    watermark: int = NO_WATERMARK
    frames: list[FrameTime] = attrs.Factory(list)

    def advance(self, frame: FrameTime) -> None:
        self.frames.append(frame)
        if frame.event is not OPEN:
            self.watermark = max(self.watermark, self.merged())

    def merged(self) -> int:
        branches = {frame.branch for frame in self.frames if not frame.is_idle}
        return min((self.of_branch(branch) for branch in branches), default=NO_WATERMARK)

    def of_branch(self, branch: int) -> int:
        own = [frame for frame in self.frames if frame.branch == branch]
        opening = min(frame.watermark for frame in own if frame.event is OPEN)
        last = {frame.channel: frame for frame in own}
        count = [
            f.watermark for f in last.values() if f.event is not CLOSE_EMPTY or f.watermark == MAX_WATERMARK
        ]
        return max(opening, min(count)) if count else opening


def frames_of_an_epoch(random_: random.Random, branches: list[int], is_final: bool) -> Iterator[FrameTime]:
    """Frames in an order in which a subtask might get them; ``branches`` is where their watermarks stand."""
    idle = {branch for branch in range(len(branches)) if random_.random() < 0.15}
    channels = [
        (branch, channel) for branch in range(len(branches)) for channel in range(random_.randint(1, 3))
    ]
    yield from (FrameTime(b, c, branches[b], OPEN, b in idle) for b, c in channels)
    ways: dict[tuple[int, int], list[FrameTime]] = {}
    for b, c in channels:
        at, own = branches[b], []
        for _ in range(random_.randint(0, 3)):
            at += random_.choice([0, 0, 3, 7])
            own.append(FrameTime(b, c, at, RECORDS))
        end = MAX_WATERMARK if is_final or random_.random() < 0.05 else at
        event = CLOSE if own or end > at else CLOSE_EMPTY
        if end == MAX_WATERMARK and random_.random() < 0.5:
            event = CLOSE_EMPTY
        ways[b, c] = [*own, FrameTime(b, c, end, event, b in idle and not own)]
    while ways:
        chosen = random_.choice(sorted(ways))
        yield ways[chosen].pop(0)
        if not ways[chosen]:
            del ways[chosen]


@pytest.mark.parametrize("seed", range(200))
def test_against_brute_force(seed: int) -> None:
    random_ = random.Random(seed)
    made, model = WatermarkMerger(), Model()
    stands = [
        NO_WATERMARK if random_.random() < 0.3 else random_.randint(0, 20)
        for _ in range(random_.randint(1, 3))
    ]
    epochs = random_.randint(1, 5)
    for epoch in range(epochs):
        made.begin_epoch()
        model.frames.clear()
        for frame in frames_of_an_epoch(random_, stands, is_final=epoch == epochs - 1):
            before = made.watermark
            has_advanced = made.advance(frame)
            model.advance(frame)
            assert made.watermark == model.watermark, frame
            assert has_advanced == (made.watermark > before)
        stands = [max(stand, 0) + random_.randint(0, 20) for stand in stands]
