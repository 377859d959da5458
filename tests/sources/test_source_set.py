"""Several sources read as one: positions, ends, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from support_job import GrowingSource

from pyflinkstate.errors import IncompatibleCheckpointError
from pyflinkstate.runtime.sources.source_set import SourceSet
from pyflinkstate.runtime.sources.sources import Available, CollectionSource, EpochSet, SplitEpoch


def idle(_: GrowingSource) -> None:
    """Nothing comes."""


@pytest.fixture
def growing() -> GrowingSource:
    return GrowingSource(4, idle, records_per_epoch=2)


@pytest.fixture
def both(growing: GrowingSource) -> SourceSet:
    return SourceSet({"short-0": CollectionSource([10, 20, 30], 2), "long-1": growing})


def read(epoch: Any) -> list[Any]:
    if epoch is None:
        return []
    assert isinstance(epoch, SplitEpoch)
    return [record for split in epoch.splits for record in epoch.read(split, lambda _: None)]


def steps(
    source: SourceSet, start: Any, whole: bool = False
) -> list[tuple[dict[str, list[Any]], frozenset[str]]]:
    """Read on until nothing comes; for each epoch what is read of whom, and who has ended."""
    found = []
    while (available := source.latest_offset(start, False)).end != start:
        epoch = source.plan(start, available.end)
        assert isinstance(epoch, EpochSet)
        found.append(({name: read(part) for name, part in epoch.epochs.items()}, epoch.ended))
        start = available.end
    return found


def test_an_epoch_has_what_is_next_of_each(both: SourceSet) -> None:
    assert steps(both, both.initial_offset()) == [
        ({"short-0": [10, 20], "long-1": [0, 1]}, frozenset()),
        ({"short-0": [30], "long-1": [2, 3]}, {"short-0"}),
    ]


def test_one_that_has_ended_gives_nothing_more_and_stays_ended(
    both: SourceSet, growing: GrowingSource
) -> None:
    start = both.latest_offset(both.latest_offset(both.initial_offset(), False).end, False).end
    growing.available, growing.is_over = 7, True
    assert steps(both, start) == [
        ({"short-0": [], "long-1": [4, 5]}, {"short-0"}),
        ({"short-0": [], "long-1": [6]}, {"short-0", "long-1"}),
    ]


def test_it_is_over_when_all_are(both: SourceSet, growing: GrowingSource) -> None:
    start = both.initial_offset()
    for _ in range(2):
        found = both.latest_offset(start, False)
        assert not found.is_last
        start = found.end
    growing.is_over = True
    assert both.latest_offset(start, False) == Available(start, True)


def test_an_epoch_is_cut_the_same_way_again(both: SourceSet) -> None:
    start = both.initial_offset()
    end = both.latest_offset(start, False).end
    first, second = both.plan(start, end), both.plan(start, end)
    assert isinstance(first, EpochSet)
    assert isinstance(second, EpochSet)
    assert [read(epoch) for epoch in first.epochs.values()] == [read(e) for e in second.epochs.values()]


def test_a_restored_set_knows_the_end_of_one_that_had_ended(growing: GrowingSource) -> None:
    """The checkpoint's position is at the end of the short one; nobody has asked this set of it yet."""
    first = SourceSet({"short-0": CollectionSource([1], 5), "long-1": growing})
    position = first.latest_offset(first.initial_offset(), False).end
    growing.available = 6
    restored = SourceSet({"short-0": CollectionSource([1], 5), "long-1": growing})
    (epoch,) = steps(restored, position)[:1]
    assert epoch == ({"short-0": [], "long-1": [2, 3]}, {"short-0"})


@pytest.mark.parametrize(
    "position", [7, {}, {"short-0": None}, {"short-0": None, "other": 0}, {"short-0": 0, "long-1": 0, "x": 0}]
)
def test_a_position_of_other_sources_is_refused(both: SourceSet, position: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="short-0, long-1: restore with the sources"):
        both.latest_offset(position, False)
    with pytest.raises(IncompatibleCheckpointError):
        both.commit(position)


def test_all_are_opened_closed_and_told_of_commits(both: SourceSet, growing: GrowingSource) -> None:
    def wake_up() -> None:
        """Somebody has something."""

    both.open(wake_up)
    assert growing.wake_up is wake_up
    both.commit({"short-0": {"index": 2, "length": 3}, "long-1": 2})
    assert growing.committed == [2]
    error = ValueError("over")
    both.close(error)
    assert growing.closed == [error]


def test_one_that_is_held_back_gives_nothing_and_has_more(both: SourceSet) -> None:
    both.align(lambda ended: frozenset({"short-0"}))
    start = both.initial_offset()
    found = both.latest_offset(start, False)
    assert found == Available({"short-0": start["short-0"], "long-1": 2})
    assert both.latest_offset({**found.end, "long-1": 4}, False) == Available({**found.end, "long-1": 4})
    both.align(lambda ended: frozenset())
    assert both.latest_offset(found.end, False).end["short-0"] != start["short-0"]


def test_one_that_has_ended_is_not_held_back(growing: GrowingSource) -> None:
    asked: list[frozenset[str]] = []
    both = SourceSet({"short-0": CollectionSource([1], 5), "long-1": growing})

    def hold_back(ended: frozenset[str]) -> frozenset[str]:
        asked.append(ended)
        return frozenset({"short-0"}) if ended else frozenset()

    both.align(hold_back)
    growing.is_over = True
    end = both.latest_offset(both.latest_offset(both.initial_offset(), False).end, False).end
    assert both.latest_offset(end, False) == Available(end, True)
    assert asked[-1] == {"short-0", "long-1"}


def test_it_is_asked_as_often_as_its_most_eager_source(growing: GrowingSource) -> None:
    growing.poll_s = 0.125
    assert SourceSet({"a": CollectionSource([1]), "b": growing}).poll_s == min(
        0.125, CollectionSource([1]).poll_s
    )


def test_one_that_does_not_close_keeps_no_other_from_closing(growing: GrowingSource) -> None:
    class FailsToClose(GrowingSource):
        def close(self, error: BaseException | None) -> None:
            super().close(error)
            raise TimeoutError("the query does not stop")

    first = FailsToClose(4, idle)
    with pytest.raises(TimeoutError, match="the query does not stop"):
        SourceSet({"first-0": first, "second-1": growing}).close(None)
    assert first.closed == growing.closed == [None]
