"""Several sources read as one, and one after initial rows: positions, ends, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from support_job import GrowingSource
from support_runtime import metadata

from pyflinkstate.errors import IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources import (
    Available,
    CollectionSource,
    EpochSet,
    Source,
    SourceSet,
    SplitEpoch,
    key_of_place,
    key_of_uid,
)
from pyflinkstate.runtime.sources.source_set import UNREAD, InitialRows, SeededSource
from pyflinkstate.runtime.sources.spark_sources import NO_BATCH, NextBatch, checkpoint_before, position_of


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


def steps(source: Source, start: Any) -> list[tuple[dict[str, list[Any]], frozenset[str]]]:
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


class Begun(CollectionSource):
    """A source that begins somewhere else each time that it is asked."""

    def initial_offset(self) -> Any:
        self.records.append(len(self.records))  # type: ignore[attr-defined]
        return f"beginning {len(self.records)}"


def named(*places: str, **uids: str) -> SourceSet:
    """Sources without a uid at these places, and sources with one, each at its place."""
    all_places = {**{place: place for place in places}, **uids}
    return SourceSet({name: Begun([]) for name in all_places}, all_places)


NEW = "beginning 1"


@pytest.mark.parametrize(
    ("sources", "position", "restored"),
    [
        pytest.param(
            named(b="files-0", a="files-1"), {"a": "A", "b": "B"}, {"b": "B", "a": "A"}, id="another order"
        ),
        pytest.param(
            named(a="files-0", b="files-1"),
            {"files-0": "A", "files-1": "B"},
            {"a": "A", "b": "B"},
            id="older",
        ),
        pytest.param(
            named(a="files-0", b="files-1"),
            {"a": "A", "files-1": "B"},
            {"a": "A", "b": "B"},
            id="a uid later",
        ),
        pytest.param(
            named(c="files-0", a="files-1"), {"a": "A"}, {"c": NEW, "a": "A"}, id="a new one before another"
        ),
        pytest.param(
            named("rate-1", "files-2", c="pages-0"),
            {"rate-0": "R", "files-1": "F"},
            {"rate-1": "R", "files-2": "F", "c": NEW},
            id="a new one of another name",
        ),
        pytest.param(
            named(*(f"files-{n}" for n in range(11))),
            {f"files-{n}": n for n in range(11)},
            {f"files-{n}": n for n in range(11)},
            id="eleven",
        ),
    ],
)
def test_sources_are_found_by_uid_or_by_name_and_order(
    sources: SourceSet, position: Any, restored: Any
) -> None:
    assert sources.restored(position, may_drop=False) == restored
    sources.commit(restored)


@pytest.mark.parametrize(
    ("sources", "position", "gone", "kept"),
    [
        pytest.param(
            named(a="files-0", b="files-1"), {"a": "A", "b": "B", "c": "C"}, "'c'", {"a": "A", "b": "B"}
        ),
        pytest.param(
            named("files-1", "files-2", a="files-0"),
            {"a": "A", "files-1": "B"},
            "'files-1'",
            {"a": "A", "files-1": NEW, "files-2": NEW},
            id="which of two it was is not known",
        ),
        pytest.param(
            named("files-0", "rate-4", a="files-1", b="files-2", c="files-3"),
            {"files-0": "A", "files-1": "B", "rate-2": "R"},
            "'files-0', 'files-1'",
            {"files-0": NEW, "rate-4": "R", "a": NEW, "b": NEW, "c": NEW},
            id="a new one beside those that an earlier version knew by their places",
        ),
    ],
)
def test_a_position_that_no_source_takes_is_given_up_only_on_demand(
    sources: SourceSet, position: Any, gone: str, kept: Any
) -> None:
    with pytest.raises(
        IncompatibleCheckpointError, match=f"positions of the sources {gone}, which the program"
    ) as e:
        sources.restored(position, may_drop=False)
    assert "set uid() on each" in e.value.message
    assert "allow_non_restored_state=True" in e.value.message
    assert sources.restored(position, may_drop=True) == kept


def test_who_begins_anew_is_told() -> None:
    with pytest.raises(
        IncompatibleCheckpointError, match="the positions and begin with 'c' anew with allow_non"
    ):
        named(a="files-0", c="files-1").restored({"a": "A", "b": "B"}, may_drop=False)


@pytest.mark.parametrize(
    "position", [7, None, [], {}, {"index": 3, "length": 10}, {"files-0": 0, "files-1": 0}]
)
def test_a_position_of_none_of_the_sources_is_refused_in_any_case(position: Any) -> None:
    sources = named("files-0", "files-1", "files-2")
    with pytest.raises(
        IncompatibleCheckpointError, match="files-0, files-1, files-2: restore with the sources"
    ):
        sources.restored(position, may_drop=True)


def test_a_new_source_begins_at_the_same_place_in_each_attempt() -> None:
    sources = named(a="files-0", c="files-1")
    assert [sources.restored({"a": at}, may_drop=False) for at in ("A", "B")] == [
        {"a": "A", "c": NEW},
        {"a": "B", "c": NEW},
    ]


def test_an_epoch_that_was_planned_without_a_source_has_nothing_of_it() -> None:
    sources = named(a="files-0", b="files-1", c="files-2")
    start = sources.restored({"a": "A", "b": "B"}, may_drop=False)
    assert sources.planned({5: {"a": "A2", "b": "B2"}}) == {5: {"a": "A2", "b": "B2", "c": NEW}}
    assert sources.planned({5: {"a": "A2", "d": "D2"}}) == {5: {"a": "A2", "b": "B", "c": NEW}}
    assert sources.planned({5: 7}) == {5: start}


def test_no_source_goes_back_where_one_run_planned_with_it_and_the_next_one_without() -> None:
    sources = named(a="files-0", b="files-1")
    sources.restored({"a": "A", "b": "B"}, may_drop=False)
    ends = {12: {"a": "A3"}, 11: {"a": "A2", "b": "B2"}}
    assert sources.planned(ends) == {11: {"a": "A2", "b": "B2"}, 12: {"a": "A3", "b": "B2"}}


def test_a_uid_with_a_number_is_not_taken_for_a_place() -> None:
    """Otherwise a new source would go on where one with another uid was."""
    assert [key_of_uid(uid) for uid in ("orders", "orders-1", "-", "a-b")] == [
        "orders",
        "uid:orders-1",
        "-",
        "a-b",
    ]
    places = {"uid:kafka-1": "kafka-0", "uid:kafka-3": "kafka-1"}
    sources = SourceSet({name: Begun([]) for name in places}, places)
    position = {"uid:kafka-1": "K1", "uid:kafka-2": "K2"}
    with pytest.raises(
        IncompatibleCheckpointError, match=r"the sources 'kafka-2', .*has 'kafka-1', 'kafka-3'"
    ):
        sources.restored(position, may_drop=False)
    assert sources.restored(position, may_drop=True) == {"uid:kafka-1": "K1", "uid:kafka-3": NEW}


def test_a_source_whose_name_begins_like_a_uid_goes_on_where_it_was() -> None:
    sources = named(key_of_place("uid:b", 0), key_of_place("uid:b", 1))
    position = sources.initial_offset()
    assert key_of_uid("b-1") not in position
    assert sources.restored(position, may_drop=False) == position


def test_epochs_of_a_job_that_begins_with_a_seeded_savepoint_end_where_they_were_planned_to() -> None:
    sources = named(a="files-0", b="files-1")
    sources.initial_offset()
    assert sources.planned({1: {"a": "A", "b": "B"}}) == {1: {"a": "A", "b": "B"}}


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


# --- initial rows ----------------------------------------------------------------------------------------

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


def parts(source: SeededSource, start: Any) -> list[dict[str, list[Any]]]:
    return [found for found, _ in steps(source, start)]


REST = [{"input": [1, 2]}, {"input": [3]}]


def test_they_come_first_in_an_epoch_of_their_own(rows: Rows) -> None:
    source = seeded(rows)
    assert parts(source, source.initial_offset()) == [{"rows": ["old"]}, *REST]
    assert rows.reads == 1


def test_whole_input_is_one_epoch_after_them(rows: Rows) -> None:
    source = seeded(rows)
    after = source.latest_offset(source.initial_offset(), True)
    assert not after.is_last
    assert source.latest_offset(after.end, True) == Available({"index": 3, "length": 3}, True)


def test_after_them_positions_are_those_of_the_other_source(rows: Rows) -> None:
    after = seeded(rows).latest_offset(seeded(rows).initial_offset(), False).end
    assert after == CollectionSource([1, 2, 3], 2).initial_offset()
    assert parts(seeded(rows), after) == REST
    assert rows.reads == 0


def test_a_job_that_stopped_before_them_begins_with_them(rows: Rows) -> None:
    before = seeded(rows).initial_offset()
    assert parts(seeded(rows), before)[0] == {"rows": ["old"]}


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
