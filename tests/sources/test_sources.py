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
from support_runtime import ManualClock, raising

from pyflinkstate import Types
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SlotLostError
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
    GuardedSource,
    InitialRows,
    NumberSequenceSource,
    RateSource,
    RddEpoch,
    RddSource,
    SeededSource,
    Source,
    SourceSet,
    SplitEpoch,
    type_of_source,
)
from pyflinkstate.runtime.sources.formats import CsvFormat, JsonFormat
from pyflinkstate.runtime.storage import CheckpointFolders

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
