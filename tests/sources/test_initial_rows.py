"""Rows that fill the state of a job: read before all others, once."""

from __future__ import annotations

from typing import Any

import pytest
from support_runtime import metadata

from pyflinkstate.errors import SourceError
from pyflinkstate.runtime.sources.initial_rows import UNREAD, InitialRows, SeededSource
from pyflinkstate.runtime.sources.query_log import NextBatch, position_of
from pyflinkstate.runtime.sources.sources import Available, CollectionSource, Epoch, EpochSet, SplitEpoch
from pyflinkstate.runtime.sources.spark_sources import NO_BATCH, checkpoint_before

QUERY = "8b1f"


class Rows:
    """Initial rows that count how often they are read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> SplitEpoch:
        self.reads += 1
        return SplitEpoch([["old"]], lambda split, _: split)


class Committed(CollectionSource):
    """Notes what was committed."""

    commits: list[Any]

    def commit(self, end: Any) -> None:
        self.commits.append(end)


@pytest.fixture
def rows() -> Rows:
    return Rows()


def seeded(rows: Rows) -> SeededSource:
    return SeededSource(("rows", InitialRows(rows)), ("input", CollectionSource([1, 2, 3], 2)))


def read(epoch: Epoch) -> dict[str, list[Any]]:
    assert isinstance(epoch, EpochSet)
    return {
        name: [record for split in part.splits for record in part.read(split, lambda _: None)]
        for name, part in epoch.epochs.items()
        if isinstance(part, SplitEpoch)
    }


def epochs(source: SeededSource, start: Any) -> list[dict[str, list[Any]]]:
    found = []
    while (end := source.latest_offset(start, False).end) != start:
        found.append(read(source.plan(start, end)))
        start = end
    return found


REST = [{"input": [1, 2]}, {"input": [3]}]


def test_they_come_first_in_an_epoch_of_their_own(rows: Rows) -> None:
    source = seeded(rows)
    assert epochs(source, source.initial_offset()) == [{"rows": ["old"]}, *REST]
    assert rows.reads == 1


def test_whole_input_is_one_epoch_after_them(rows: Rows) -> None:
    source = seeded(rows)
    after = source.latest_offset(source.initial_offset(), True)
    assert not after.is_last
    assert source.latest_offset(after.end, True) == Available({"index": 3, "length": 3}, True)


def test_after_them_positions_are_those_of_the_other_source(rows: Rows) -> None:
    after = seeded(rows).latest_offset(seeded(rows).initial_offset(), False).end
    assert after == CollectionSource([1, 2, 3], 2).initial_offset()
    assert epochs(seeded(rows), after) == REST
    assert rows.reads == 0


def test_a_job_that_stopped_before_them_begins_with_them(rows: Rows) -> None:
    before = seeded(rows).initial_offset()
    assert epochs(seeded(rows), before)[0] == {"rows": ["old"]}


def test_the_other_source_hears_of_its_own_positions(rows: Rows) -> None:
    inner = Committed([1, 2, 3], 2)
    inner.__dict__["commits"] = []
    source = SeededSource(("rows", InitialRows(rows)), ("input", inner))
    source.commit(source.initial_offset())
    source.commit({"index": 2, "length": 3})
    assert inner.commits == [{"index": 0, "length": 3}, {"index": 2, "length": 3}]


def test_that_they_cannot_be_read_is_told() -> None:
    def broken() -> SplitEpoch:
        raise OSError("no such table")

    with pytest.raises(SourceError, match=r"initial_state cannot be read: OSError: no such table"):
        InitialRows(broken).plan(0, 1)


@pytest.mark.parametrize("identity", [None, "cut once"], ids=["not planned", "planned"])
@pytest.mark.parametrize("mark", [{}, {UNREAD: True}], ids=["read", "not read"])
def test_a_checkpoint_of_them_alone_is_before_the_first_batch(mark: Any, identity: str | None) -> None:
    kept = metadata(1, source_position={**position_of(NO_BATCH, QUERY, None), **mark})
    assert checkpoint_before(NextBatch(0, identity), QUERY, [kept]) is kept
