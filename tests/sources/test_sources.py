"""Sources: how they cut their input into epochs, and that two offsets give the same input again."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from support_job import GrowingSource, JobRun, once
from support_runtime import ManualClock, metadata, raising

from pyflinkstate import Types
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SlotLostError, SourceError
from pyflinkstate.runtime.master.planner import EpochPlanner
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import (
    Available,
    CachedRecords,
    CachedSource,
    CollectionSource,
    DirectorySource,
    Epoch,
    EpochSet,
    GuardedSource,
    InitialRows,
    NumberSequenceSource,
    RateSource,
    RddEpoch,
    RddSource,
    ReadTime,
    SeededSource,
    Source,
    SourceSet,
    SplitEpoch,
    key_of_place,
    key_of_uid,
    type_of_source,
)
from pyflinkstate.runtime.sources.formats import CsvFormat, JsonFormat
from pyflinkstate.runtime.sources.source_set import UNREAD
from pyflinkstate.runtime.sources.spark_sources import NO_BATCH, NextBatch, checkpoint_before, position_of
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import TaskReport

NO_REJECTS = raising(AssertionError("a record was rejected"))


def as_kept(offset: Any) -> Any:
    """Return an offset as a checkpoint gives it back."""
    return json.loads(json.dumps(offset))


@attrs.frozen
class Planned:
    """An epoch as the job master plans it."""

    start: Any
    end: Any
    is_last: bool
    epoch: Epoch


def epochs(source: Source, start: Any = None, whole: bool = False) -> Iterator[Planned]:
    """Plan to the end of what is there now, as the job master does."""
    start = source.initial_offset() if start is None else start
    while (found := source.latest_offset(as_kept(start), whole)).end != start:
        yield Planned(start, found.end, found.is_last, source.plan(as_kept(start), as_kept(found.end)))
        start = found.end


def records(epoch: Epoch) -> list[Any]:
    """Read an epoch as tasks do: the reader is pickled, and each split is read apart."""
    assert isinstance(epoch, SplitEpoch)
    read = pickle.loads(pickle.dumps(epoch.read))
    return [record for split in epoch.splits for record in read(split, NO_REJECTS)]


def numbers(planned: list[Planned]) -> list[list[float]]:
    return [records(each.epoch) for each in planned]


# --- collections -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "expected"), [(10, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]), (8, [[0, 1, 2, 3], [4, 5, 6, 7]])]
)
def test_a_collection_is_cut_into_epochs_of_a_size(count: int, expected: list[list[int]]) -> None:
    planned = list(epochs(CollectionSource(list(range(count)), 4)))
    assert numbers(planned) == expected
    assert [each.is_last for each in planned] == [False] * (len(expected) - 1) + [True]


def test_without_barriers_all_that_is_left_is_one_epoch() -> None:
    source = CollectionSource(list(range(10)), 4)
    (whole,) = epochs(source, whole=True)
    assert records(whole.epoch) == list(range(10))
    assert whole.is_last
    (rest,) = epochs(source, next(epochs(source)).end, whole=True)
    assert records(rest.epoch) == list(range(4, 10))


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_collection_is_over_at_once(whole: bool) -> None:
    source = CollectionSource([])
    start = source.initial_offset()
    assert source.latest_offset(start, whole) == Available(start, is_last=True)


@pytest.mark.parametrize("whole", [True, False])
def test_after_its_end_a_collection_is_over(whole: bool) -> None:
    source = CollectionSource([1, 2, 3], 2)
    end = list(epochs(source))[-1].end
    assert source.latest_offset(end, whole) == Available(end, is_last=True)


def test_an_offset_gives_the_same_epochs_again() -> None:
    source = CollectionSource([object() for _ in range(9)], 2)
    planned = list(epochs(source))
    assert list(epochs(source, planned[1].end)) == planned[2:]


def test_offsets_may_be_further_apart_than_epochs_are_long() -> None:
    source = CollectionSource(list(range(9)), 2)
    first, *_, last = epochs(source)
    assert records(source.plan(first.start, last.end)) == list(range(9))
    assert records(source.plan(first.end, last.start)) == list(range(2, 8))


@pytest.mark.parametrize(
    "start",
    [{"index": 2, "length": 9}, {"partition": 1, "partitions": 10}, {"last": "a", "format": "csv"}, [1], 5],
    ids=repr,
)
def test_a_collection_refuses_the_offset_of_other_input(start: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this collection"):
        CollectionSource(list(range(10))).latest_offset(start, False)


# --- RDDs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "expected"), [(False, [range(3), range(3, 6), range(6, 7)]), (True, [range(7)])]
)
def test_an_rdd_is_cut_into_partitions(whole: bool, expected: list[range]) -> None:
    rdd = object()
    planned = list(epochs(RddSource(rdd, 7, 3), whole=whole))
    assert [each.epoch for each in planned] == [RddEpoch(rdd, partitions) for partitions in expected]
    assert all(each.epoch.rdd is rdd for each in planned)
    assert [each.is_last for each in planned] == [False] * (len(expected) - 1) + [True]


@pytest.mark.parametrize(("partitions", "reached"), [(7, 7), (0, 0)])
def test_an_rdd_without_more_partitions_is_over(partitions: int, reached: int) -> None:
    start = {"partition": reached, "partitions": partitions}
    assert RddSource(object(), partitions, 3).latest_offset(start, False) == Available(start, is_last=True)


@pytest.mark.parametrize("start", [{"partition": 3, "partitions": 8}, {"index": 3, "length": 7}, "3"])
def test_an_rdd_refuses_the_offset_of_other_input(start: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this RDD"):
        RddSource(object(), 7, 3).latest_offset(start, True)


# --- sequences of numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "last"), [(3, 6), (-3, -1), (-9, -7), (-2, 2), (5, 5)])
def test_numbers_come_in_order_both_ends_included(first: int, last: int) -> None:
    whole = epochs(NumberSequenceSource(first, last), whole=True)
    assert numbers(list(whole)) == [[*range(first, last + 1)]]


def test_a_sequence_is_cut_into_epochs_of_a_size() -> None:
    assert numbers(list(epochs(NumberSequenceSource(1, 5, records_per_epoch=2)))) == [[1, 2], [3, 4], [5]]
    (first, *_) = epochs(NumberSequenceSource(1, 10**9))
    assert first.end["next"] == 100_001


@pytest.mark.parametrize("ends", [(2, 1), (1.0, 2), ("a", "b")])
def test_a_sequence_that_is_none_is_refused(ends: Any) -> None:
    with pytest.raises(ConfigurationError, match="NumberSequenceSource"):
        NumberSequenceSource(*ends)


@pytest.mark.parametrize("number", [0, -1, 1.5, "3"])
def test_an_epoch_has_at_least_one_number(number: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"records_per_epoch must be a whole number, at least 1"):
        NumberSequenceSource(1, 10, records_per_epoch=number)


def test_a_source_may_know_the_type_of_its_records() -> None:
    assert type_of_source(CollectionSource([1]), None) is None
    assert type_of_source(NumberSequenceSource(1, 2), None) == Types.LONG()
    assert type_of_source(NumberSequenceSource(1, 2), Types.INT()) == Types.INT()


# --- the rate ----------------------------------------------------------------------------------------


BEGAN_MS = 1_700_000_000_000


def read_live(epoch: SplitEpoch, split: Any, time: ReadTime, found: list[tuple[int, int]]) -> Any:
    """Read a split of a live epoch, and note each value with the time; returns the position."""
    ends: list[Any] = []

    def parts() -> Iterator[Any]:
        ends.append((yield from epoch.read(split, lambda rejected: None, time)))

    for part in parts():
        found += [(record["value"], time.clock.now_ms()) for record in part]
    return ends[0]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGAN_MS)


class TestRate:
    """Numbers that are due by the clock."""

    def advance(self, clock: ManualClock, source: RateSource, start: Any, by_ms: int) -> Any:
        """Let time pass; return what lies between ``start`` and what is due then, and its end."""
        clock.time_ms += by_ms
        found = source.latest_offset(as_kept(start), False)
        return records(source.plan(as_kept(start), as_kept(found.end))), found.end

    @pytest.mark.parametrize(
        ("rate", "passed_ms", "due"),
        [
            (10, 0, 0),
            (10, 99, 0),
            (10, 100, 1),
            (10, 1_000, 10),
            (1, 999, 0),
            (1, 1_000, 1),
            (3, 1_000, 3),
            (3, 334, 1),
        ],
    )
    def test_what_is_due_is_told_by_the_clock(
        self, clock: ManualClock, rate: int, passed_ms: int, due: int
    ) -> None:
        source = RateSource(rate, clock.now_ms)
        found, _ = self.advance(clock, source, source.initial_offset(), passed_ms)
        assert [record["value"] for record in found] == list(range(due))

    def test_records_tell_when_they_were_due(self, clock: ManualClock) -> None:
        source = RateSource(4, clock.now_ms, partitions=2)
        found, end = self.advance(clock, source, source.initial_offset(), 1_000)
        assert found == [
            {"timestamp_ms": BEGAN_MS + passed, "value": value}
            for value, passed in enumerate([0, 250, 500, 750])
        ]
        later, _ = self.advance(clock, source, end, 250)
        assert later == [{"timestamp_ms": BEGAN_MS + 1_000, "value": 4}]

    @given(
        rate=st.integers(1, 3_000),
        late_ms=st.integers(0, 9_000),
        buffer_ms=st.integers(0, 50),
        counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    )
    def test_read_live_each_record_comes_once_when_it_is_due_or_soon_after(
        self, rate: int, late_ms: int, buffer_ms: int, counts: list[int]
    ) -> None:
        clock = ManualClock(BEGAN_MS)
        start = RateSource(rate, clock.now_ms).initial_offset()
        clock.time_ms += late_ms
        found: list[int] = []
        for count in counts:
            source = RateSource(rate, clock.now_ms, count)
            epoch = source.live(as_kept(start))
            if epoch is None:  # another number of partitions: an epoch is planned
                end = source.latest_offset(start, False).end
                found += [record["value"] for record in records(source.plan(as_kept(start), as_kept(end)))]
                start = end
                continue
            positions, came = [], []
            for split in epoch.splits:
                began_ms = clock.time_ms
                time = ReadTime(clock, clock.monotonic_ms() + 130, buffer_ms)
                positions.append(read_live(epoch, split, time, came))
                assert clock.time_ms == began_ms + 130
                assert all(
                    BEGAN_MS + value * 1000 // rate <= at_ms
                    and at_ms <= max(BEGAN_MS + value * 1000 // rate, began_ms) + max(1, buffer_ms)
                    for value, at_ms in came
                )
                found += [value for value, _ in came]
                came.clear()
            start = source.reached(as_kept(start), positions)
        assert len(found) == len(set(found))
        assert set(found) >= set(range(start["index"]))
        end = RateSource(rate, clock.now_ms).latest_offset(start, False).end
        rest = [record["value"] for record in records(RateSource(rate, clock.now_ms).plan(start, end))]
        assert sorted(found + rest) == list(range(end["index"]))

    def test_it_never_ends(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms)
        start = source.initial_offset()
        clock.time_ms += 10_000_000
        assert not source.latest_offset(start, False).is_last
        assert not source.latest_offset(start, True).is_last

    @given(length=st.integers(0, 60), partitions=st.integers(1, 9), first=st.integers(0, 1_000))
    def test_partitions_are_even_and_in_order(self, length: int, partitions: int, first: int) -> None:
        source = RateSource(50, ManualClock().now_ms, partitions)
        start = {**source.initial_offset(), "index": first}
        planned = source.plan(start, {**start, "index": first + length})
        assert isinstance(planned, SplitEpoch)
        sizes = [len(list(planned.read(split, lambda rejected: None))) for split in planned.splits]
        assert len(sizes) == partitions
        assert max(sizes) - min(sizes) <= 1
        assert [record["value"] for record in records(planned)] == list(range(first, first + length))

    def test_after_a_long_stop_it_catches_up_by_the_epoch(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms, max_records_per_epoch=40)
        start = source.initial_offset()
        clock.time_ms += 10_000
        planned = list(epochs(source, start))
        assert [len(records(each.epoch)) for each in planned] == [40, 40, 20]
        assert [record["value"] for each in planned for record in records(each.epoch)] == list(range(100))

    def test_a_clock_that_is_set_back_takes_nothing_back(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms)
        _, end = self.advance(clock, source, source.initial_offset(), 1_000)
        for time_ms in (BEGAN_MS + 500, BEGAN_MS - 10_000):
            clock.time_ms = time_ms
            assert source.latest_offset(end, False) == Available(end)

    def test_the_same_offsets_give_the_same_records_whenever_and_wherever(self, clock: ManualClock) -> None:
        source = RateSource(100, clock.now_ms, partitions=2)
        _, start = self.advance(clock, source, source.initial_offset(), 130)
        once_read, end = self.advance(clock, source, start, 270)
        restored = RateSource(100, ManualClock(BEGAN_MS + 99_999).now_ms, partitions=5)
        assert records(restored.plan(as_kept(start), as_kept(end))) == once_read
        assert len(once_read) == 27

    @pytest.mark.parametrize("start", [{"start_ms": 0, "index": 3, "rate": 11}, {"index": 1, "length": 5}, 7])
    def test_the_offset_of_other_input_is_refused(self, clock: ManualClock, start: Any) -> None:
        with pytest.raises(IncompatibleCheckpointError, match="does not fit this rate source"):
            RateSource(10, clock.now_ms).latest_offset(start, False)

    def test_an_epoch_that_is_run_again_before_any_checkpoint_is_the_same(
        self, storage: CheckpointFolders
    ) -> None:
        """A restart may wait for long; what the failed run has read is not read otherwise then."""
        clock = ManualClock(BEGAN_MS, step_ms=200)
        source = SourceNode(RateSource(100, clock.now_ms), "rate")
        seen: list[Any] = []
        run = JobRun(source, DriverSink(lambda _, values: seen.extend(values)), storage, clock=clock)
        run.restart = FixedDelayRestart(1, 60_000)
        run.runner.before = once(SlotLostError("gone"), epoch=1)
        job = run.job().run()
        list(islice(job, 2))
        job.close()
        first, again = (request.epoch for request in run.runner.requests[:2])
        assert run.heard.restarts
        assert records(again) == records(first)
        timestamps = [record["timestamp_ms"] for record in seen]
        assert timestamps == sorted(timestamps)
        assert [record["value"] for record in seen] == list(range(len(seen)))


# --- what every source may leave as it is ------------------------------------------------------------


class Endless(Source):
    """As little as a user's own source needs."""

    def initial_offset(self) -> Any:
        return 0

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available(start + 1)

    def plan(self, start: Any, end: Any) -> Epoch:
        return SplitEpoch([range(start, end)], lambda split, reject: split)


def test_a_source_of_ones_own_needs_three_methods() -> None:
    source = Endless()
    source.open(raising(AssertionError("nothing is new")))
    source.commit(3)
    source.close(None)
    assert not source.commits_every_epoch
    assert not source.latest_offset(0, True).is_last
    with pytest.raises(TypeError, match="abstract"):
        Source()  # type: ignore[abstract]


def is_fresh(source: Source) -> bool:
    start = source.initial_offset()
    planned = source.plan(start, source.latest_offset(start, True).end)
    assert isinstance(planned, (SplitEpoch, RddEpoch))
    return planned.is_fresh


def test_which_sources_make_each_record_anew(tmp_path: Path) -> None:
    """Of a collection, an RDD, and a format or a source of the user's nothing is known."""
    (tmp_path / "a.json").write_text("[1]\n")
    assert is_fresh(DirectorySource(str(tmp_path), JsonFormat()))
    assert is_fresh(RateSource(1, lambda: 0))
    assert is_fresh(NumberSequenceSource(1, 2))
    assert is_fresh(CollectionSource([[1]], is_fresh=True))

    class OwnFormat(JsonFormat):
        """It might refill one record."""

    assert not is_fresh(DirectorySource(str(tmp_path), OwnFormat()))
    assert not is_fresh(CollectionSource([[1]]))
    assert not is_fresh(RddSource(object(), 1, 1))


# --- what a job is restored from ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (CollectionSource([1, 2, 3]), CollectionSource([1, 2])),
        (RddSource(object(), 7, 3), RddSource(object(), 6, 3)),
        (RateSource(10, lambda: 0), RateSource(11, lambda: 0)),
        (NumberSequenceSource(1, 9), NumberSequenceSource(1, 8)),
        (SourceSet({"a": CollectionSource([1])}), SourceSet({"b": CollectionSource([1])})),
        (SourceSet({"a": CollectionSource([1])}), SourceSet({"a": CollectionSource([1, 2])})),
        (
            GuardedSource(CachedSource(lambda: CachedRecords(RddSource(object(), 2, 1), print)), "cached"),
            RddSource(object(), 1, 1),
        ),
        (
            SeededSource(("rows", InitialRows(lambda: SplitEpoch([], print))), ("a", CollectionSource([1]))),
            CollectionSource([1, 2]),
        ),
    ],
    ids=lambda source: type(source).__name__,
)
def test_a_source_says_whether_a_job_can_be_restored_with_it(source: Source, other: Source) -> None:
    inner = getattr(source, "_inner", source)
    if isinstance(inner, CachedSource):
        inner.fill()
    source.check_restored(as_kept(source.initial_offset()))
    with pytest.raises(IncompatibleCheckpointError, match="does not fit"):
        source.check_restored(as_kept(other.initial_offset()))


# --- whether an epoch may be read while the one before it runs --------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        CollectionSource(list(range(5)), 2),
        RddSource(None, 5, 2),
        NumberSequenceSource(0, 4, records_per_epoch=2),
        SourceSet({"a": CollectionSource([1, 2], 1), "b": CollectionSource([1, 2, 3], 2)}),
    ],
    ids=lambda source: type(source).__name__,
)
def test_an_epoch_of_a_fixed_size_is_full_until_the_last_one_which_is_settled(source: Source) -> None:
    found = source.latest_offset(source.initial_offset(), whole=False)
    assert (found.is_full, found.is_last) == (True, False)
    while not found.is_last:
        found = source.latest_offset(found.end, whole=False)
    assert not found.is_full
    assert found.is_settled


def test_a_rate_is_full_only_when_more_is_due_than_an_epoch_may_have() -> None:
    clock = ManualClock()
    source = RateSource(10, clock.now_ms, max_records_per_epoch=5)
    start = source.initial_offset()
    clock.time_ms += 400
    assert not source.latest_offset(start, whole=False).is_settled
    clock.time_ms += 200
    assert source.latest_offset(start, whole=False).is_full


def test_a_growing_directory_is_full_only_with_as_many_files_as_an_epoch_has(tmp_path: Path) -> None:
    source = DirectorySource(str(tmp_path), CsvFormat(), 2, growing=True)
    for name in ("1.csv", "2.csv"):
        assert not source.latest_offset(source.initial_offset(), whole=False).is_settled
        (tmp_path / name).write_text("1\n")
    assert source.latest_offset(source.initial_offset(), whole=False).is_full


def test_several_sources_are_settled_when_each_of_them_is() -> None:
    growing = GrowingSource(4, lambda _: None, 2)
    both = SourceSet({"a": CollectionSource([1, 2, 3], 1), "b": growing})
    assert not both.latest_offset(both.initial_offset(), whole=False).is_settled


def ends(source: Source, whole: bool) -> int:
    """Return the number of epochs."""
    number, offset = 1, source.initial_offset()
    while not (found := source.latest_offset(offset, whole)).is_last:
        number, offset = number + 1, found.end
    return number


def test_a_number_that_the_program_sets_cuts_epochs_without_checkpoints_too(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1")
    for cut, uncut in (
        (CollectionSource([1, 2, 3], 1, is_cut=True), CollectionSource([1, 2, 3], 1)),
        (RddSource(None, 3, 1, is_cut=True), RddSource(None, 3, 1)),
        (NumberSequenceSource(1, 3, records_per_epoch=1), NumberSequenceSource(1, 3)),
        (
            DirectorySource(str(tmp_path), JsonFormat(), is_cut=True),
            DirectorySource(str(tmp_path), JsonFormat()),
        ),
    ):
        assert (ends(cut, whole=True), ends(cut, whole=False)) == (3, 3)
        assert ends(uncut, whole=True) == 1


# --- several sources are one -------------------------------------------------------------------------------


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


class TestLiveBesidePlanned:
    """One source is read live, the other is planned."""

    def set_of(self, numbers: int) -> GuardedSource:
        sources: dict[str, Source] = {
            "rate": RateSource(10, ManualClock(BEGAN_MS).now_ms),
            "list": CollectionSource(range(numbers), 5),
        }
        return GuardedSource(SourceSet(sources), "both")

    def planner_of(self, source: GuardedSource) -> EpochPlanner:
        made = EpochPlanner(source, None)
        made.reads_live = True
        return made

    def test_only_the_planned_one_moves_until_it_is_known_what_was_read(self) -> None:
        source = self.set_of(7)
        planner = self.planner_of(source)
        start = source.initial_offset()
        step = planner.next(1, start)
        assert step is not None
        assert (step.is_live, step.is_full, step.is_last) == (True, True, False)
        assert isinstance(step.epoch, EpochSet)
        assert [epoch.is_live for epoch in step.epoch.epochs.values()] == [True, False]  # type: ignore[union-attr]
        assert planner.ahead(2, step) is None
        planner.note(TaskReport(0, 1, "rate[0]", reached={"rate": {0: 3}}))
        settled = planner.settled(1, step)
        assert (settled.end["rate"]["index"], settled.end["list"]["index"]) == (3, 5)
        last = planner.next(2, settled.end)
        assert last is not None
        assert (last.is_live, last.is_full, last.is_last) == (True, False, False)

    def test_what_an_earlier_attempt_has_planned_is_not_read_live(self) -> None:
        source = self.set_of(7)
        planner = self.planner_of(source)
        start = source.initial_offset()
        planner.remember({1: {**start, "list": {**start["list"], "index": 5}}})
        step = planner.next(1, start)
        assert step is not None
        assert isinstance(step.epoch, EpochSet)
        assert not step.is_live
        assert step.epoch.epochs["rate"] is None

    def test_one_that_waits_for_the_other_is_not_read(self) -> None:
        sources: dict[str, Source] = {"rate": RateSource(10, ManualClock(BEGAN_MS).now_ms)}
        both = SourceSet({**sources, "list": CollectionSource([1], 5)})
        both.align(lambda ended: frozenset({"rate"}))
        both.read_live(True)
        start = both.initial_offset()
        found = both.latest_offset(start, whole=False)
        assert not found.is_live
        planned = both.plan(start, found.end)
        assert isinstance(planned, EpochSet)
        assert planned.epochs["rate"] is None
