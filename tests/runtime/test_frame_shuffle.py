"""Frames are collected and sorted by bytes, and those that take too much memory wait in files."""

from __future__ import annotations

import pickle
import random
import struct
import tracemalloc
from collections.abc import Iterator

import pytest

from pyflinkstate.runtime.frame_shuffle import COLLECTED_BYTES, COLLECTED_FRAMES, Collector, Item, Sorter


def frames(number: int, size: int, subtasks: int = 3) -> Iterator[Item]:
    return (((n % subtasks, 1, 0, 0, n), bytes([n % 256]) * size) for n in range(number))


def collected(items: Iterator[Item]) -> list[tuple[int, list[Item]]]:
    parts = list(Collector(pickle.dumps)(0, items))
    return [
        (struct.unpack("!q", subtask)[0], pickle.loads(data))
        for subtask, data in zip(parts[::2], parts[1::2], strict=True)
    ]


def test_every_frame_goes_to_its_subtask_in_order() -> None:
    found: dict[int, list[Item]] = {}
    for subtask, items in collected(frames(5_000, 10)):
        assert len(items) <= COLLECTED_FRAMES
        found.setdefault(subtask, []).extend(items)
    assert found == {n: [item for item in frames(5_000, 10) if item[0][0] == n] for n in range(3)}
    assert collected(iter(())) == []


def test_large_frames_are_handed_over_when_they_have_some_megabytes() -> None:
    for _, items in collected(frames(50, 1_000_000)):
        assert sum(len(data) for _, data in items) < COLLECTED_BYTES + 1_000_000


@pytest.mark.parametrize("limit", [0, 1_000, 50_000, 10**9])
def test_frames_are_sorted_whatever_the_limit(limit: int) -> None:
    items = list(frames(500, 300))
    random.Random(1).shuffle(items)
    assert list(Sorter(limit)(iter(items))) == sorted(items)


def test_what_is_held_is_bounded() -> None:
    tracemalloc.start()
    try:
        for _ in Sorter(10_000_000)(frames(200, 1_000_000)):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60_000_000, "all frames have 200 MB"
