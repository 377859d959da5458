"""The history of a job: nothing counts twice or is lost, it is bounded, and it outlives the oldest events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support_web import events, read_journal

from pyflinkstate.monitor.history import ADDED, STEPS, History
from pyflinkstate.monitor.journal import Journal, encode
from pyflinkstate.monitor.story import JobStory

SECOND = 0
HOUR_MS = 3_600_000


def series(history: History, step: int, name: str) -> dict[int, float]:
    """Return a series by the begins of its buckets, in units of the step."""
    told = history.told()[step]
    pairs = zip(told["at"], told["series"].get(name, []), strict=False)
    return {place: value for place, value in pairs if value is not None}


@pytest.mark.parametrize(
    ("since", "at", "expected"),
    [
        (500, 2_000, {0: 10, 1: 20}),  # the bucket that only begins at the end has nothing
        (None, 2_500, {2: 30}),
        (2_400, 2_500, {2: 30}),
        (9_000, 2_500, {2: 30}),  # a clock that was set back
        (0, 600_000, dict.fromkeys(range(300, 600), 0.05)),  # what would be too old is in the rest
    ],
)
def test_a_sum_is_spread_over_the_time_in_which_it_arose(
    since: int | None, at: int, expected: dict[int, float]
) -> None:
    history = History()
    history.add(at, {"records_in": 30 if at < 600_000 else 15}, since)
    assert series(history, SECOND, "records_in") == pytest.approx(expected)


def test_a_bucket_has_the_greatest_value_or_the_sum() -> None:
    history = History()
    for at, value in ((1_000, 5), (1_999, 3), (2_000, 4)):
        history.add(at, {"epoch_ms": value, "restarts": 1, "latency_ms": None})
    assert series(history, SECOND, "epoch_ms") == {1: 5, 2: 4}
    assert series(history, SECOND, "restarts") == {1: 2, 2: 1}
    assert "latency_ms" not in history.told()[SECOND]["series"]


@given(
    st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 10_000), st.integers(0, 99_999)), max_size=30),
    st.integers(0, 30),
)
def test_all_steps_tell_the_same_and_a_copy_goes_on(
    told: list[tuple[int, int, int]], copied_after: int
) -> None:
    history, copy = History(), History()
    at, total = 1_700_000_000_000, 0
    for number, (passed_ms, lasted_ms, value) in enumerate(told):
        at, total = at + passed_ms + 1, total + value
        history.add(at, {"records_in": value, "memory_bytes": value}, at - lasted_ms)
        history._check()
        if number == copied_after:
            copy.load(at, json.loads(json.dumps(history.told())))
        copy.add(at, {"records_in": value, "memory_bytes": value}, at - lasted_ms)
    for step in range(1, len(STEPS)):  # nothing is as old as these remember
        assert sum(series(history, step, "records_in").values()) == pytest.approx(total, abs=0.1)
        greatest = max((one[2] for one in told), default=0)
        assert max(series(history, step, "memory_bytes").values(), default=0) == greatest
        for name in ("records_in", "memory_bytes"):
            assert series(copy, step, name) == pytest.approx(series(history, step, name), abs=0.1)


def test_a_month_is_bounded_in_buckets_and_bytes() -> None:
    history = History()
    values: dict[str, float | None] = dict.fromkeys(ADDED, 123456789.125)
    for at in range(0, 30 * 24 * HOUR_MS, HOUR_MS // 4):
        for later_ms in (0, 1_000, 61_000):
            history.add(at + later_ms, {**values, "epoch_ms": 1.5, "memory_bytes": 1 << 33}, at)
    history._check()
    told = history.told()
    assert [len(step["at"]) for step in told] == [count for _, count in STEPS]
    assert told[-1]["at"][-1] == 30 * 24 - 1
    assert len(json.dumps(told)) < 100_000


def test_the_history_outlives_the_oldest_files_of_the_journal(tmp_path: Path) -> None:
    """Lines that wait while a file begins are in its first line as well, and count once."""
    journal = Journal(str(tmp_path), 1, segment_bytes=4_000, most_segments=2)
    story = JobStory()
    journal.head = lambda: encode(story.head())
    started, epoch, *_ = events()
    story.take(started)
    journal.write([encode(started)])
    waiting: list[dict[str, Any]] = []
    for number in range(1, 100):
        event = {**epoch, "epoch": number, "at": epoch["at"] + number * 1_500, "records": number}
        story.take(event)
        waiting.append(event)
        if number % 3 == 0:
            journal.write(map(encode, waiting))
            waiting = []
    found = read_journal(str(tmp_path))
    assert found[0]["event"] == "job"
    retold = JobStory()
    for event in found:
        retold.take(event)
    minutes = series(retold.history, 1, "records_in")
    assert sum(minutes.values()) == pytest.approx(sum(range(100)))
    assert retold.history.told()[2] == story.history.told()[2]
