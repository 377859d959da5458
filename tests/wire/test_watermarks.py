"""Watermarks of channels and branches become that of a subtask."""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import pytest

from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK, ChannelEvent, FrameTime, WatermarkMerger

OPEN, RECORDS, CLOSE, CLOSE_EMPTY = ChannelEvent


def opened(*channels: tuple[int, int, int], idle: tuple[int, ...] = ()) -> list[FrameTime]:
    """Frames with which channels open, as branch, number and watermark; alone they advance nothing."""
    return [FrameTime(branch, channel, at, OPEN, branch in idle) for branch, channel, at in channels]


#: The watermark at the beginning, the frames that open, and steps: a frame, ``open``, ``begin_epoch`` or a
#: watermark to advance to; whether that is an advance; the watermark after it.
STORIES: dict[str, tuple[int, list[FrameTime], list[tuple[FrameTime | str | int, bool, int]]]] = {
    "a branch that is behind may be the last to open": (
        5,
        opened((0, 0, 10), (1, 0, 5)),
        [(FrameTime(1, 0, 7), True, 7)],
    ),
    "what all branches opened with counts from the first other frame on": (
        NO_WATERMARK,
        opened((0, 0, 10), (1, 0, 8)),
        [(FrameTime(0, 0, 10), True, 8)],
    ),
    "it opens with the least that a branch opens with": (
        NO_WATERMARK,
        opened((0, 0, 10), (0, 1, 8), (1, 0, 9)),
        [("open", True, 8), ("open", False, 8)],
    ),
    "openings take nothing back, also if one is idle": (
        7,
        opened((0, 0, 10), (1, 0, 5), idle=(1,)),
        [("open", False, 7)],
    ),
    "without branches nothing opens": (NO_WATERMARK, [], [("open", False, NO_WATERMARK)]),
    "the least channel counts": (
        NO_WATERMARK,
        opened((0, 0, NO_WATERMARK), (0, 1, NO_WATERMARK)),
        [
            (FrameTime(0, 0, 20), False, NO_WATERMARK),
            (FrameTime(0, 1, 10), True, 10),
            (FrameTime(0, 1, 30), True, 20),
        ],
    ),
    "the least branch counts": (
        NO_WATERMARK,
        opened((0, 0, NO_WATERMARK), (1, 0, NO_WATERMARK)),
        [(FrameTime(0, 0, 20), False, NO_WATERMARK), (FrameTime(1, 0, 10, CLOSE), True, 10)],
    ),
    "a channel without records holds nobody back": (
        NO_WATERMARK,
        opened((0, 0, NO_WATERMARK), (0, 1, NO_WATERMARK)),
        [
            (FrameTime(0, 0, 20, CLOSE), False, NO_WATERMARK),
            (FrameTime(0, 1, NO_WATERMARK, CLOSE_EMPTY), True, 20),
        ],
    ),
    "a branch whose channels all had no records stays where it opened": (
        NO_WATERMARK,
        opened((0, 0, 5), (0, 1, 5), (1, 0, 5)),
        [
            (FrameTime(0, 0, 5, CLOSE_EMPTY), True, 5),
            (FrameTime(0, 1, 5, CLOSE_EMPTY), False, 5),
            (FrameTime(1, 0, 30, CLOSE), False, 5),
        ],
    ),
    "a channel that has ended counts also without records": (
        NO_WATERMARK,
        opened((0, 0, 5), (0, 1, 5)),
        [
            (FrameTime(0, 0, MAX_WATERMARK, CLOSE_EMPTY), True, 5),
            (FrameTime(0, 1, MAX_WATERMARK, CLOSE_EMPTY), True, MAX_WATERMARK),
        ],
    ),
    "an idle branch holds nobody back": (
        NO_WATERMARK,
        opened((0, 0, 5), (1, 0, 0), idle=(1,)),
        [(FrameTime(0, 0, 20), True, 20)],
    ),
    "a branch is idle until its first record, and what was reached is not taken back": (
        NO_WATERMARK,
        opened((0, 0, 5), (1, 0, 0), (1, 1, 0), idle=(1,)),
        [
            (FrameTime(0, 0, 20), True, 20),
            (FrameTime(1, 1, 22), False, 20),
            (FrameTime(0, 0, 30), False, 20),
            (FrameTime(1, 0, 25, CLOSE_EMPTY, is_idle=True), True, 22),
        ],
    ),
    "idle branches alone advance nothing": (
        NO_WATERMARK,
        opened((0, 0, 5), (1, 0, 9), idle=(0, 1)),
        [(FrameTime(0, 0, 20, is_idle=True), False, NO_WATERMARK)],
    ),
    "it never goes back": (
        50,
        opened((0, 0, 10)),
        [(FrameTime(0, 0, 40), False, 50), (49, False, 50), (50, False, 50), (51, True, 51)],
    ),
    "channels last as long as an epoch": (
        NO_WATERMARK,
        opened((0, 0, 1), (0, 1, 1)),
        [
            (FrameTime(0, 0, 10), True, 1),
            ("begin_epoch", False, 1),
            (FrameTime(0, 7, 1, OPEN), False, 1),
            (FrameTime(0, 7, 12), True, 12),
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    start, openings, steps = STORIES[name]
    made = WatermarkMerger(start)
    assert [made.advance(frame) for frame in openings] == [False] * len(openings)
    for step, advances, watermark in steps:
        if isinstance(step, str):
            has_advanced = getattr(made, step)()
        else:
            has_advanced = made.advance(step) if isinstance(step, FrameTime) else made.advance_to(step)
        assert (bool(has_advanced), made.watermark) == (advances, watermark)


@pytest.mark.parametrize(("idle", "is_idle"), [((), False), ((1,), False), ((0, 1), True)])
def test_it_is_idle_if_every_branch_of_the_epoch_is(idle: tuple[int, ...], is_idle: bool) -> None:
    made = WatermarkMerger()
    for frame in opened((0, 0, 5), (1, 0, 9), idle=idle):
        made.advance(frame)
    assert made.is_idle == is_idle
    made.begin_epoch()
    assert not made.is_idle


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
