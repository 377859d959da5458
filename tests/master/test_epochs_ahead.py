"""One epoch ahead: the input of the next epoch is read and shuffled while an epoch runs."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
from support_job import GrowingSource, JobRun, LocalRunner, latest, numbers, once
from support_runtime import PATIENCE_S, PICKLED
from test_job import RARELY, Table

from pyflinkstate import Available, KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.master.planner import EpochPlanner, Step
from pyflinkstate.runtime.plan import ChainNode, Node, SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.sources import CollectionSource, GuardedSource
from pyflinkstate.runtime.storage import CheckpointFolders

pytestmark = pytest.mark.timeout(60)

ALL_KEPT = CheckpointSettings(interval_ms=0, num_retained=100, max_concurrent=10)
#: Ten numbers in epochs of three.
LAST = 4
SUMS = [sum(range(number + 1)) for number in range(10)]


class Sum(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", PICKLED))

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[int]:
        self.sum.update((self.sum.value() or 0) + value)
        yield self.sum.value()


def summed(parent: Node) -> Node:
    return StatefulNode(parent, lambda number: 0, PICKLED, Sum(), "sum")


@attrs.define
class Program:
    """A job of which each epoch runs when the next one was shuffled, or could not be."""

    run: JobRun
    results: list[int]
    #: What was read, each time that it was.
    read: list[int]

    @property
    def runner(self) -> LocalRunner:
        return self.run.runner

    def ahead(self) -> list[tuple[int, int]]:
        """Return the attempt and the number of each epoch that was to be shuffled ahead."""
        return [(request.link.driver.attempt, request.link.epoch) for request in self.runner.requests_ahead]


def program(
    storage: CheckpointFolders | None, source: SourceNode | None = None, last: int = LAST, **settings: Any
) -> Program:
    read: list[int] = []

    def note(number: int) -> int:
        read.append(number)
        return number

    end = summed(ChainNode(source or numbers(), "map", note, "map"))
    run = JobRun(end, storage=storage, **{"checkpoints": ALL_KEPT, **settings})
    ended: queue.SimpleQueue[EpochRequest] = queue.SimpleQueue()
    run.runner.after_ahead = ended.put

    def wait(request: EpochRequest) -> None:
        if request.link.epoch < last:
            assert ended.get(timeout=PATIENCE_S).link.epoch == request.link.epoch + 1

    run.runner.before = wait
    return Program(run, run.out, read)


def test_all_epochs_but_the_first_are_shuffled_while_one_runs(
    storage: CheckpointFolders,
) -> None:
    made = program(storage)
    orders: list[list[int]] = []
    made.runner.after = lambda request: orders.append(list(made.read))
    job = made.run.run()
    assert made.ahead() == [(0, 2), (0, 3), (0, 4)]
    assert [len(read) for read in orders] == [6, 9, 10, 10], "the next epoch was read before this one ended"
    assert sorted(made.read) == list(range(10)), "each was read once"
    assert made.results == SUMS
    assert job.result().get_accumulator_result("numbers.records_out") == 10
    assert [stats.records for stats in made.run.heard.epochs] == [3, 3, 3, 1]


def test_a_checkpoint_has_the_position_and_the_counts_of_its_own_epoch(storage: CheckpointFolders) -> None:
    made = program(storage)
    made.run.run()
    found = [storage.load(stats.uri) for stats in made.run.heard.checkpoints]
    assert [one.source_position["index"] for one in found] == [3, 6, 9, 10]
    assert [one.counters["numbers.records_out"] for one in found] == [3, 6, 9, 10]


def test_what_has_run_is_planned_ahead_as_it_was(storage: CheckpointFolders) -> None:
    rows: dict[int, list[int]] = {}
    made = program(storage, checkpoints=RARELY)
    made.run.sink = Table(rows)
    made.runner.after = once(BadRecordError("bad"), 4)
    made.run.fails(BadRecordError)
    again = program(storage, numbers(10, 7), restore=latest(storage), checkpoints=RARELY)
    again.run.sink = Table(rows)
    again.run.run()
    assert again.ahead() == [(0, 3), (0, 4)]
    assert rows == {1: SUMS[:3], 2: SUMS[3:6], 3: SUMS[6:9], 4: SUMS[9:]}


class Restless(CollectionSource):
    """Raises when it is asked for an epoch while another one runs."""

    is_busy: Callable[[], bool]

    def latest_offset(self, start: Any, whole: bool) -> Available:
        if self.is_busy():
            raise ValueError("not now")
        return super().latest_offset(start, whole)


def test_a_source_that_cannot_plan_ahead_is_asked_in_its_turn(storage: CheckpointFolders) -> None:
    source = Restless(list(range(10)), 3)
    made = program(storage, SourceNode(source, "numbers"), last=0)
    object.__setattr__(source, "is_busy", lambda: made.run.job()._machine.flight.running is not None)
    assert list(made.run.job().run()) == [1, 2, 3, 4]
    assert made.ahead() == []
    assert made.results == SUMS


def test_a_source_that_may_have_more_later_is_not_asked_before(storage: CheckpointFolders) -> None:
    def end(source: GrowingSource) -> None:
        source.is_over = True

    made = program(storage, SourceNode(GrowingSource(10, end), "numbers"), last=0)
    made.run.run()
    assert made.ahead() == []
    assert made.results == SUMS


def test_with_the_setting_off_nothing_is_shuffled_ahead(storage: CheckpointFolders) -> None:
    made = program(storage, last=0, epochs_ahead=0)
    made.run.run()
    assert made.ahead() == []
    assert made.results == SUMS


class TestThePlanner:
    def planner(self, log: Callable[[int, Any], None] | None = None) -> tuple[EpochPlanner, Step]:
        """Return a planner, and the first epoch, which runs."""
        made = EpochPlanner(GuardedSource(CollectionSource(list(range(5)), 2), "five"), log)
        first = made.next(1, at(0))
        assert first is not None
        made.begin(1, first)
        return made, first

    def test_what_is_planned_ahead_is_what_would_come_next(self) -> None:
        made, first = self.planner()
        ahead = made.ahead(2, first)
        assert first.end["index"] == 2
        assert ahead == made.next(2, first.end)
        assert ahead.end["index"] == 4

    def test_it_is_written_down_when_it_begins(self) -> None:
        log: list[int] = []
        made, first = self.planner(lambda number, end: log.append(number))
        ahead = made.ahead(2, first)
        assert log == [1]
        assert ahead is not None
        made.begin(2, ahead)
        made.begin(2, ahead)
        assert log == [1, 2], "not again if it runs again"

    def test_the_last_one_is_known_to_be_the_last(self) -> None:
        made, first = self.planner()
        second = made.next(2, first.end)
        assert second is not None
        ahead = made.ahead(3, second)
        assert ahead.is_last

    def test_one_that_begins_again_ends_where_it_ended(self) -> None:
        made, _ = self.planner()
        found = made.next(1, at(1))
        assert found.end["index"] == 2
        made.commit(1, found.end)
        found = made.next(1, at(1))
        assert found.end["index"] == 3, "it was committed, and is forgotten"

    def test_only_after_a_full_epoch_is_the_source_asked_and_only_a_settled_one_is_taken(self) -> None:
        asked: list[int] = []

        class Paced(CollectionSource):
            def latest_offset(self, start: Any, whole: bool) -> Available:
                asked.append(start["index"])
                found = super().latest_offset(start, whole)
                return Available(found.end, is_full=start["index"] == 0)

        made = EpochPlanner(GuardedSource(Paced(list(range(9)), 2), "paced"), None)
        first = made.next(1, at(0, 9))
        assert made.ahead(2, first) is None, "there may be more of it later"
        second = made.next(2, first.end)
        assert second is not None
        assert made.ahead(3, second) is None
        assert asked == [0, 2, 2], "after epoch 2, which was not full, it was not asked"

    def test_a_source_without_more_is_asked_again(self) -> None:
        made = EpochPlanner(GuardedSource(CollectionSource([1], 2), "one"), None)
        first = made.next(1, at(0, 1))
        assert first is not None
        assert made.ahead(2, first) is None

    @pytest.mark.parametrize("is_live_again", [True, False])
    def test_what_was_planned_behind_a_live_epoch_is_planned_anew(self, is_live_again: bool) -> None:
        made = EpochPlanner(GuardedSource(CollectionSource(list(range(9)), 2), "nine"), None)
        live = Step(None, False, at(0, 9), is_live=True)
        made.begin(1, live)  # reaches 2
        second = made.next(2, at(2, 9))
        assert second is not None
        made.begin(2, second)
        made.begin_attempt()
        made.begin(1, live if is_live_again else Step(None, False, at(4, 9)))
        again = made.next(2, at(4, 9))
        assert again is not None
        assert again.end["index"] == 6


def at(index: int, length: int = 5) -> dict[str, int]:
    """Return a position of a collection."""
    return {"index": index, "length": length}
