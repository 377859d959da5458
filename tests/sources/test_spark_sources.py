"""Sources that read through Spark, without Spark: offsets, the hand-over of batches, what is restored."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from support_runtime import PATIENCE_S, raising
from support_slots import in_thread, outcome
from test_sources import as_kept

from pyflinkstate import Available, RddEpoch
from pyflinkstate.errors import (
    IncompatibleCheckpointError,
    SlotLostError,
    SourceError,
    SparkUnavailableError,
)
from pyflinkstate.runtime.sources.spark_sources import (
    EARLIEST,
    LATEST,
    NO_BATCH,
    BatchReaderSource,
    NextBatch,
    PartitionOffsets,
    QueryLog,
    StreamingSource,
    as_option,
    position_of,
)

QUERY = "8b1f"


#: What tells the batches of these tests, as Spark cut them first.
CUT = "cut once"


# --- batch readers -----------------------------------------------------------------------------------


@attrs.define
class Log:
    """A topic, as Spark's batch reader shows it: records by partition, the first offsets perhaps gone."""

    partitions: dict[int, range] = attrs.Factory(dict)
    topic: str = "orders"
    loads: list[tuple[str, str]] = attrs.Factory(list)

    def load(self, start: str, end: str) -> Frame:
        self.loads.append((start, end))
        return Frame([row for row in self.rows() if self._lies_between(row, start, end)])

    def rows(self) -> Iterator[tuple[str, int, int]]:
        for partition, offsets in self.partitions.items():
            yield from ((self.topic, partition, offset) for offset in offsets)

    def _lies_between(self, row: tuple[str, int, int], start: str, end: str) -> bool:
        return self._bound(row, start, 0) <= row[2] < self._bound(row, end, 10**9)

    def _bound(self, row: tuple[str, int, int], option: str, otherwise: int) -> int:
        if option in (EARLIEST, LATEST):
            return otherwise
        found: int = json.loads(option).get(row[0], {}).get(str(row[1]), otherwise)
        return found


@attrs.frozen
class Frame:
    """As much of a DataFrame as these sources use."""

    rows: list[tuple[str, int, int]]
    keys: tuple[str, ...] = ()

    @property
    def rdd(self) -> list[tuple[str, int, int]]:
        return self.rows

    def groupBy(self, *keys: str) -> Frame:
        return attrs.evolve(self, keys=keys)

    def agg(self, exprs: dict[str, str]) -> Frame:
        assert self.keys == ("topic", "partition")
        ((column, how),) = exprs.items()
        assert column == "offset"
        groups: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in self.rows:
            groups.setdefault((topic, partition), []).append(offset)
        choose = {"min": min, "max": max}[how]
        return Frame([(*key, choose(offsets)) for key, offsets in groups.items()])

    def collect(self) -> list[tuple[str, int, int]]:
        return self.rows


@pytest.mark.parametrize(
    ("offset", "option"),
    [(EARLIEST, EARLIEST), (LATEST, LATEST), ({"orders": {"0": 5}}, '{"orders": {"0": 5}}')],
)
def test_words_stay_as_they_are_and_offsets_are_json(offset: Any, option: str) -> None:
    assert as_option(offset) == option


@pytest.mark.parametrize(
    ("partitions", "max_records", "start", "end"),
    [
        pytest.param(
            {0: range(5), 1: range(3, 9)}, None, EARLIEST, {"0": 5, "1": 9}, id="one after the last"
        ),
        pytest.param({0: range(8)}, None, {"0": 5}, {"0": 8}, id="only what is new"),
        pytest.param({0: range(5)}, None, {"0": 5}, {"0": 5}, id="nothing new"),
        pytest.param({}, None, EARLIEST, EARLIEST, id="an empty topic"),
        pytest.param(
            {0: range(5), 1: range(9)}, None, {"0": 5, "1": 2}, {"0": 5, "1": 9}, id="no news of one"
        ),
        pytest.param({0: range(5), 1: range(2)}, None, {"0": 5}, {"0": 5, "1": 2}, id="a new partition"),
        *(
            pytest.param(
                {0: range(100), 1: range(100)}, most, EARLIEST, {"0": each, "1": each}, id=f"of {most}"
            )
            for most, each in [(10, 5), (11, 5), (2, 1), (1, 1), (1_000, 100)]
        ),
        pytest.param(
            {0: range(100), 1: range(7)},
            10,
            {"0": 50, "1": 5},
            {"0": 55, "1": 7},
            id="bounded from its start",
        ),
        pytest.param(
            {0: range(100), 1: range(7)}, 10, {"0": 50, "1": 7}, {"0": 60, "1": 7}, id="the bound is for news"
        ),
        # An end before the first record that is left would be an epoch of nothing, or a refused read.
        pytest.param({0: range(1_000, 1_100)}, 10, EARLIEST, {"0": 1_010}, id="deleted records do not count"),
    ],
)
def test_the_newest_offsets_are_found_by_reading_from_the_start(
    partitions: dict[int, range], max_records: int | None, start: Any, end: Any
) -> None:
    log = Log(partitions)
    start, end = (at if at == EARLIEST else {log.topic: at} for at in (start, end))
    before = as_kept(start)
    assert PartitionOffsets(log.load, max_records)(start) == end
    assert start == before
    assert log.loads == [(as_option(start), LATEST)]


def test_bounded_epochs_reach_the_end_and_lose_nothing() -> None:
    log, start, seen = Log({0: range(23), 1: range(4)}), EARLIEST, []
    source = BatchReaderSource(log.load, PartitionOffsets(log.load, 6))
    while (found := source.latest_offset(as_kept(start), False)).end != start:
        epoch = source.plan(as_kept(start), as_kept(found.end))
        assert isinstance(epoch, RddEpoch)
        assert 0 < len(epoch.rdd) <= 6
        seen += epoch.rdd
        start = found.end
    assert sorted(seen) == sorted(log.rows())


class TestBatchReader:
    def source(self, log: Log) -> BatchReaderSource:
        return BatchReaderSource(log.load, PartitionOffsets(log.load))

    @pytest.mark.parametrize("whole", [True, False])
    def test_it_never_ends(self, whole: bool) -> None:
        source = self.source(Log({0: range(5)}))
        assert source.initial_offset() == EARLIEST
        assert source.latest_offset(EARLIEST, whole) == Available({"orders": {"0": 5}})
        end = {"orders": {"0": 5}}
        assert source.latest_offset(end, whole) == Available(end)

    def test_an_epoch_is_what_lies_between(self) -> None:
        log = Log({0: range(9)})
        epoch = self.source(log).plan({"orders": {"0": 2}}, {"orders": {"0": 5}})
        assert isinstance(epoch, RddEpoch)
        assert [offset for _, _, offset in epoch.rdd] == [2, 3, 4]
        assert epoch.partitions is None
        assert log.loads == [('{"orders": {"0": 2}}', '{"orders": {"0": 5}}')]

    def test_the_same_offsets_ask_for_the_same_again(self) -> None:
        log = Log({0: range(9)})
        source = self.source(log)
        end = source.latest_offset(EARLIEST, False).end
        first = source.plan(EARLIEST, end)
        log.partitions[0] = range(50)
        again = self.source(log).plan(as_kept(EARLIEST), as_kept(end))
        assert again == first

    def test_a_users_function_may_tell_the_newest_offsets(self) -> None:
        asked: list[Any] = []

        def latest(start: Any) -> Any:
            asked.append(start)
            return {"version": 7}

        source = BatchReaderSource(Log().load, latest)
        assert source.latest_offset({"version": 3}, False) == Available({"version": 7})
        assert asked == [{"version": 3}]

    @pytest.mark.parametrize("error", [ConnectionError("no brokers"), RuntimeError("py4j")], ids=repr)
    def test_a_reader_that_fails_is_a_source_that_cannot_be_read(self, error: Exception) -> None:
        """A restart may help, as it may against any other source's failure."""

        def fail(*_: Any) -> Any:
            raise error

        source = BatchReaderSource(fail, PartitionOffsets(fail))
        with pytest.raises(SourceError, match=str(error)):
            source.latest_offset(EARLIEST, False)
        with pytest.raises(SourceError, match=str(error)):
            source.plan(EARLIEST, {"orders": {"0": 5}})


# --- Structured Streaming ----------------------------------------------------------------------------


class Query:
    """A streaming query, as far as the source asks; the test gives its batches, on a thread as Spark does."""

    def __init__(self) -> None:
        self.id = QUERY
        self.runs = True
        self.before_answer: Callable[[], object] = lambda: None
        self.failure: Exception | None = None
        self.stops = 0
        self._process: Callable[[Any, int], None] | None = None
        self._wake_ups: queue.SimpleQueue[None] = queue.SimpleQueue()

    def start(self, process_batch: Callable[[Any, int], None]) -> Query:
        self._process = process_batch
        return self

    @property
    def isActive(self) -> bool:
        self.before_answer()
        return self.runs

    def exception(self) -> Exception | None:
        return self.failure

    def stop(self) -> None:
        self.stops += 1
        self.runs = False

    def end(self, failure: Exception | None = None) -> None:
        self.failure, self.runs = failure, False

    def wake_up(self) -> None:
        """What the source is opened with."""
        self._wake_ups.put(None)

    def give(self, batch_id: int) -> queue.SimpleQueue[Any]:
        """As ``give_early``, to a source that is open; returns when that has woken the job."""
        given = self.give_early(batch_id)
        self.await_wake_up()
        return given

    def await_wake_up(self) -> None:
        """Return when the source has woken the job."""
        self._wake_ups.get(timeout=PATIENCE_S)

    def give_early(self, batch_id: int) -> queue.SimpleQueue[Any]:
        """Call the function of ``foreachBatch``; what it ended with comes in the queue."""
        assert self._process is not None
        process = self._process
        return in_thread(lambda: process(self.frame(batch_id), batch_id))

    @staticmethod
    def frame(batch_id: int) -> Frame:
        return Frame([("rate", 0, batch_id)])


@pytest.fixture
def query() -> Query:
    return Query()


class CutOnce(QueryLog):
    """A log in which every batch is as Spark cut it first, unless the test says otherwise."""

    def __init__(self) -> None:
        self.cut: dict[int, str] = {}
        self.next = NextBatch(0)

    def next_batch(self) -> NextBatch:
        return self.next

    def identity(self, batch: int) -> str | None:
        return self.cut.get(batch, CUT)


def start_of(batch: int) -> dict[str, Any]:
    """Return the offset after ``batch``."""
    return position_of(batch, QUERY, None if batch == NO_BATCH else CUT)


@pytest.fixture
def log() -> CutOnce:
    return CutOnce()


@pytest.fixture
def source(query: Query, log: CutOnce) -> Iterator[StreamingSource]:
    """A source whose query runs; batch 0 is done, and no other has come."""
    given: list[queue.SimpleQueue[Any]] = []

    def start(process_batch: Callable[[Any, int], None]) -> Query:
        query.start(process_batch)
        given.append(query.give_early(0))
        return query

    made = StreamingSource(start, lambda: log)
    made.open(query.wake_up)
    query.await_wake_up()
    assert made.latest_offset(start_of(NO_BATCH), False) == Available(start_of(0))
    made.commit(start_of(0))
    assert outcome(given[0]) is None
    yield made
    made.close(None)


def still_runs(results: queue.SimpleQueue[Any]) -> bool:
    """Whether nothing comes, also in the next moment: a thread that must wait may be about to go on."""
    try:
        results.get(timeout=0.05)
    except queue.Empty:
        return True
    return False


def is_done(source: StreamingSource, given: queue.SimpleQueue[Any], batch: int) -> bool:
    """Commit a batch, and return whether Spark's thread goes on then."""
    source.commit(start_of(batch))
    return outcome(given) is None


class TestHandOver:
    """Spark's thread waits until the batch is durable; the job's thread asks, plans and commits."""

    def test_it_begins_before_any_batch_and_each_takes_a_checkpoint(self, source: StreamingSource) -> None:
        assert source.commits_every_epoch
        assert source.initial_offset() == {"batch": -1, "query": QUERY}

    def test_the_commit_of_the_batch_before_does_not_end_the_wait(
        self, source: StreamingSource, query: Query
    ) -> None:
        given = query.give(4)
        source.commit(start_of(3))
        assert source.latest_offset(start_of(3), False) == Available(start_of(4))
        assert still_runs(given)
        assert is_done(source, given, 4)

    def test_batches_follow_each_other(self, source: StreamingSource, query: Query) -> None:
        start = source.initial_offset()
        for number in range(1, 6):
            given = query.give(number)
            found = source.latest_offset(start, False)
            assert found == Available(start_of(number))
            assert source.plan(start, found.end) == RddEpoch(Query.frame(number).rdd)
            assert still_runs(given)
            source.commit(as_kept(found.end))
            assert outcome(given) is None
            start = found.end
            assert source.latest_offset(start, False) == Available(start)

    def test_spark_may_leave_out_numbers(self, source: StreamingSource, query: Query) -> None:
        """A batch without data is not given."""
        given = query.give(7)
        assert source.latest_offset(start_of(3), False) == Available(start_of(7))
        assert is_done(source, given, 7)

    def test_a_failed_attempt_gets_the_same_batch_again(self, source: StreamingSource, query: Query) -> None:
        given = query.give(2)
        plans = [source.plan(start_of(1), source.latest_offset(start_of(1), False).end) for _ in range(3)]
        assert plans == [RddEpoch(Query.frame(2).rdd)] * 3
        assert still_runs(given)
        assert is_done(source, given, 2)

    @pytest.mark.parametrize("has_another", [False, True])
    def test_a_batch_that_is_gone_cannot_be_planned(
        self, source: StreamingSource, query: Query, has_another: bool
    ) -> None:
        if has_another:
            query.give(1)
        with pytest.raises(SourceError, match="no longer has batch 0: run the program again"):
            source.plan(start_of(-1), start_of(0))


class TestDurableAlready:
    """The program was killed after the checkpoint, before Spark heard of it: Spark gives the batch again."""

    @pytest.mark.parametrize("batch", [3, 4])
    def test_it_is_skipped_and_the_next_one_is_not(
        self, source: StreamingSource, query: Query, batch: int
    ) -> None:
        source.commit(start_of(4))  # the attempt begins with it
        skipped = query.give(batch)
        assert source.latest_offset(start_of(4), False) == Available(start_of(4))
        assert outcome(skipped) is None
        given = query.give(5)
        assert source.latest_offset(start_of(4), False) == Available(start_of(5))
        assert still_runs(given)
        assert is_done(source, given, 5)


class TestEnd:
    """The job ends, or the query does; the other side hears of it."""

    @pytest.mark.parametrize(
        ("error", "told"),
        [(SlotLostError("slot p-1[0] died"), "has ended: slot p-1[0] died"), (None, "has ended")],
    )
    def test_a_job_that_ends_makes_the_batch_raise(
        self, source: StreamingSource, query: Query, error: Exception | None, told: str
    ) -> None:
        given = query.give(1)
        source.close(error)
        raised = outcome(given)
        assert isinstance(raised, SourceError)
        assert f"batch 1 {told}" in str(raised)
        assert "True" not in str(raised)

    def test_a_batch_after_the_end_raises_at_once(self, source: StreamingSource, query: Query) -> None:
        source.close(None)
        assert isinstance(outcome(query.give(1)), SourceError)

    def test_a_batch_that_was_durable_when_the_job_ended_is_done(
        self, source: StreamingSource, query: Query
    ) -> None:
        given = query.give(1)
        source.commit(start_of(1))
        source.close(SlotLostError("later"))
        assert outcome(given) is None

    @pytest.mark.parametrize("error", [None, SlotLostError("gone")])
    def test_the_query_ends_with_the_job(
        self, source: StreamingSource, query: Query, error: Exception | None
    ) -> None:
        source.close(error)
        source.close(error)
        assert query.stops == 1

    def test_a_query_that_has_ended_is_not_stopped(self, source: StreamingSource, query: Query) -> None:
        query.end()
        source.close(None)
        assert query.stops == 0

    def test_a_source_that_was_never_started_may_be_closed(self, query: Query) -> None:
        StreamingSource(query.start, CutOnce).close(None)
        assert query.stops == 0

    def test_the_end_of_the_query_is_the_end_of_the_input(
        self, source: StreamingSource, query: Query
    ) -> None:
        query.end()
        assert source.latest_offset(start_of(4), False) == Available(start_of(4), is_last=True)

    def test_a_query_that_was_stopped_with_a_batch_open_is_not_over_yet(
        self, source: StreamingSource, query: Query
    ) -> None:
        given = query.give(5)
        query.end()
        assert source.latest_offset(start_of(4), False) == Available(start_of(5))
        assert is_done(source, given, 5)
        assert source.latest_offset(start_of(5), False) == Available(start_of(5), is_last=True)

    def test_a_batch_that_comes_while_the_query_is_asked_is_not_missed(
        self, source: StreamingSource, query: Query
    ) -> None:
        given: list[queue.SimpleQueue[Any]] = []
        query.end()
        query.before_answer = lambda: given.append(query.give(1))
        assert source.latest_offset(start_of(0), False) == Available(start_of(0))
        query.before_answer = lambda: None
        assert source.latest_offset(start_of(0), False) == Available(start_of(1))
        source.commit(start_of(1))
        assert outcome(given[0]) is None

    def test_a_query_that_fails_fails_the_job(self, source: StreamingSource, query: Query) -> None:
        query.end(ConnectionResetError("no brokers"))
        with pytest.raises(SourceError, match="streaming query failed: no brokers"):
            source.latest_offset(start_of(4), False)


class TestSparkHasEnded:
    @pytest.fixture
    def ended(self, query: Query, log: CutOnce) -> StreamingSource:
        """A source whose query was ended by the end of Spark."""
        source = StreamingSource(
            query.start, lambda: log, gone=lambda: SparkUnavailableError("the application ended")
        )
        source.open(query.wake_up)
        return source

    @pytest.mark.parametrize("failure", [None, AttributeError("dagScheduler() is null")])
    def test_it_fails_the_job_and_is_not_the_end_of_the_input(
        self, ended: StreamingSource, query: Query, failure: Exception | None
    ) -> None:
        query.end(failure)
        with pytest.raises(SparkUnavailableError, match="the application ended"):
            ended.latest_offset(start_of(4), False)

    def test_so_does_a_jvm_that_does_not_answer(self, ended: StreamingSource, query: Query) -> None:
        query.before_answer = raising(ConnectionRefusedError(111))
        with pytest.raises(SparkUnavailableError, match="the application ended"):
            ended.latest_offset(start_of(4), False)

    def test_nobody_asks_the_query_to_stop(self, ended: StreamingSource, query: Query) -> None:
        ended.close(None)
        assert query.stops == 0


@pytest.fixture
def opened(query: Query, log: CutOnce) -> Iterator[StreamingSource]:
    """A source whose query runs, and has given no batch."""
    source = StreamingSource(query.start, lambda: log)
    source.open(query.wake_up)
    yield source
    source.close(None)


class TestFirstBatch:
    """The restored state says what the first batch must be; the log said so before the query was started."""

    def test_nobody_waits_for_it(self, opened: StreamingSource) -> None:
        assert opened.query_id == QUERY
        assert opened.latest_offset(start_of(2), False) == Available(start_of(2))

    def test_the_one_after_the_state_waits_for_the_job(self, opened: StreamingSource, query: Query) -> None:
        opened.commit(start_of(2))
        given = query.give(3)
        assert opened.latest_offset(start_of(2), False) == Available(start_of(3))
        assert still_runs(given)
        assert is_done(opened, given, 3)

    def test_the_one_of_the_state_is_skipped_though_the_job_is_busy(
        self, opened: StreamingSource, query: Query
    ) -> None:
        opened.commit(start_of(3))
        assert outcome(query.give(3)) is None, "who stops the query on the job's thread waits for this one"
        assert opened.latest_offset(start_of(3), False) == Available(start_of(3))

    @pytest.mark.parametrize("first", [0, 2, 5])
    def test_any_other_ends_the_job_and_is_not_done(
        self, opened: StreamingSource, query: Query, first: int
    ) -> None:
        opened.commit(start_of(3))
        given = query.give(first)
        with pytest.raises(
            IncompatibleCheckpointError, match=f"goes on with batch {first}, and the restored"
        ):
            opened.latest_offset(start_of(3), False)
        opened.close(None)
        assert isinstance(outcome(given), SourceError)

    def test_neither_is_one_that_was_cut_anew(
        self, opened: StreamingSource, query: Query, log: CutOnce
    ) -> None:
        log.cut[3] = "cut again"
        opened.commit(start_of(3))
        given = query.give(3)
        with pytest.raises(IncompatibleCheckpointError, match="goes on with batch 3"):
            opened.latest_offset(start_of(3), False)
        opened.close(None)
        assert isinstance(outcome(given), SourceError)

    def test_nor_one_of_another_query(self, opened: StreamingSource, query: Query) -> None:
        query.give(4)
        with pytest.raises(IncompatibleCheckpointError, match="the streaming query 8b1f goes on"):
            opened.latest_offset(position_of(3, "other", CUT), False)

    def test_a_query_that_fails_before_is_a_source_error(self, opened: StreamingSource, query: Query) -> None:
        query.end(ConnectionResetError("no brokers"))
        with pytest.raises(SourceError, match="streaming query failed: no brokers"):
            opened.latest_offset(start_of(3), False)


class TestRestored:
    """Before the job is taken over, the query is looked at again: it may have gone on."""

    @pytest.mark.parametrize("next_batch", [NextBatch(3, CUT), NextBatch(4), NextBatch(4, CUT)])
    def test_a_query_that_goes_on_with_the_state_is_fine(
        self, opened: StreamingSource, log: CutOnce, next_batch: NextBatch
    ) -> None:
        log.next = next_batch
        opened.check_restored(start_of(3))

    @pytest.mark.parametrize("next_batch", [NextBatch(2), NextBatch(3, "cut again"), NextBatch(5)])
    def test_one_that_does_not_is_refused(
        self, opened: StreamingSource, log: CutOnce, next_batch: NextBatch
    ) -> None:
        log.next = next_batch
        with pytest.raises(IncompatibleCheckpointError, match=f"goes on with batch {next_batch.number}, and"):
            opened.check_restored(start_of(3))

    def test_the_batch_that_has_come_counts_and_not_the_log(
        self, opened: StreamingSource, query: Query, log: CutOnce
    ) -> None:
        """The older driver has committed batches since the query read its log."""
        query.give(4)
        log.next = NextBatch(6)
        opened.check_restored(start_of(3))
        opened.commit(start_of(3))
        opened.check_restored(start_of(4))
        with pytest.raises(IncompatibleCheckpointError, match="goes on with batch 4, and"):
            opened.check_restored(start_of(5))

    def test_what_was_fine_for_an_attempt_is_fine_for_the_next_one(
        self, opened: StreamingSource, query: Query
    ) -> None:
        opened.commit(start_of(3))
        assert outcome(query.give(3)) is None
        query.give(6)  # Spark may leave out numbers
        opened.check_restored(start_of(3))

    @pytest.mark.parametrize("position", [position_of(3, "other", CUT), {"index": 3, "length": 9}, "3"])
    def test_a_position_of_another_input_is_refused(self, opened: StreamingSource, position: Any) -> None:
        with pytest.raises(IncompatibleCheckpointError, match="the streaming query 8b1f goes on"):
            opened.check_restored(position)
