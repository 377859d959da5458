"""What any engine owes the job master: each is tested by a class derived from :class:`EngineContract`.

An engine is an ``EpochRunner``: it runs the tasks of an epoch somewhere, tells once how that ended, can be
told to give up, and says of itself whether something still runs.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import control
from support_runtime import PATIENCE_S

from pyflinkstate import HashMapStateBackend, PyFlinkStateError
from pyflinkstate.runtime.engine import CodeBook, EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.master import Deployments
from pyflinkstate.runtime.plan import (
    ChainNode,
    Node,
    Partitioning,
    PartitionNode,
    SinkNode,
    SourceNode,
    make_plan,
)
from pyflinkstate.runtime.sinks import DriverSink, SinkCount
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.tasks import DriverLink, TaskLink
from pyflinkstate.runtime.wire import SlotId, TaskReport, decode_values

RECORDS = [3, 1, 2]
SECRET = b"s" * 32
SLOT = SlotId("nobody", 0)


@attrs.define
class Epochs:
    """Makes requests for an engine, and waits for what it tells."""

    engine: EpochRunner
    link: Callable[[int], TaskLink]
    mail: queue.SimpleQueue[Any]
    ended: queue.SimpleQueue[EpochEnded] = attrs.Factory(queue.SimpleQueue)
    #: Is told when nothing runs ahead any more.
    ahead_ended: queue.SimpleQueue[None] = attrs.Factory(queue.SimpleQueue)
    number: int = 0
    #: The threads on which the engine told of an end.
    told_on: list[int] = attrs.Factory(list)

    def hear(self, ended: EpochEnded) -> None:
        """Take the word of the engine."""
        self.told_on.append(threading.get_ident())
        for report in ended.reports:
            self.mail.put(report)
        self.ended.put(ended)

    def start(self, *functions: tuple[str, Callable[[Any], Any]]) -> None:
        """Have the engine run an epoch of ``RECORDS`` through operators, each a kind and a function."""
        self.engine.start(self.request(*functions), self.hear)

    def request(self, *functions: tuple[str, Callable[[Any], Any] | None]) -> EpochRequest:
        """Return a request for the next epoch; the kind ``shuffle`` rebalances the records."""
        self.number += 1
        source = CollectionSource(RECORDS, len(RECORDS))
        node: Node = SourceNode(source, "numbers")
        for kind, function in functions:
            if kind == "shuffle":
                node = PartitionNode(node, Partitioning.REBALANCE, kind)
            else:
                node = ChainNode(node, kind, function, kind)
        plan = make_plan([SinkNode(node, DriverSink(lambda *_: None), "sink")], 1, None)
        start = source.initial_offset()
        epoch = source.plan(start, source.latest_offset(start, whole=True).end)
        name = f"test: epoch {self.number}"
        return EpochRequest(plan, self.link(self.number), epoch, None, {}, name, CodeBook(plan))

    def ahead(self, *functions: tuple[str, Callable[[Any], Any] | None]) -> EpochRequest:
        """Have the engine shuffle the next epoch ahead; return the request to start it with."""
        request = self.request(*functions)
        self.engine.shuffle_ahead(request, lambda: self.ahead_ended.put(None))
        return attrs.evolve(request, is_final=True)

    def await_ahead(self) -> None:
        """Wait until nothing runs ahead any more."""
        self.ahead_ended.get(timeout=PATIENCE_S)

    def end(self) -> EpochEnded:
        """Wait for the word of the engine."""
        return self.ended.get(timeout=PATIENCE_S)

    def rows(self) -> list[Any]:
        """Wait for an epoch that ends well; returns what was written."""
        ended = self.end()
        assert ended.error is None, ended.error
        assert ended.results is not None
        ((*results,),) = ended.results
        counts = [one.records for one in results if isinstance(one, SinkCount)]
        frames = [one for one in results if not isinstance(one, SinkCount)]
        rows = [row for _, frame in frames for row in decode_values(frame)]
        assert sum(counts) == len(rows)
        return rows

    def reports(self) -> list[TaskReport]:
        """Return what tasks have told until now."""
        found = []
        while not self.mail.empty():
            found.append(self.mail.get())
        return [mail for mail in found if isinstance(mail, TaskReport)]


def waiting_for(path: str) -> Callable[[int], int]:
    """Return a function that goes on when a file is there."""

    def wait(number: int) -> int:
        import os

        while not os.path.exists(path):
            os.sched_yield()
        return number

    return wait


def endless(path: str) -> Callable[[int], Iterator[int]]:
    """Return a function that makes a file, and then gives records for ever."""

    def give(number: int) -> Iterator[int]:
        open(path, "w").close()
        while True:
            yield number

    return give


def noting(path: Path) -> Callable[[int], int]:
    """Return a function that notes in a file which records it has seen."""
    name = str(path)

    def note(number: int) -> int:
        with open(name, "a") as file:
            file.write(f"{number}\n")
        return number

    return note


def noted(path: Path) -> list[int]:
    """Return the records that were noted in a file, in order of their numbers."""
    return sorted(map(int, path.read_text().split())) if path.exists() else []


@contextmanager
def driver_of(engine: EpochRunner) -> Iterator[Epochs]:
    """Serve the tasks of an engine as a job master does."""
    plan = make_plan(
        [SinkNode(SourceNode(CollectionSource([], 1), "none"), DriverSink(print), "sink")], 1, None
    )
    mail: queue.SimpleQueue[Any] = queue.SimpleQueue()
    server = control(SECRET, mail, Deployments(plan, HashMapStateBackend(), None, False, None).of)
    server.new_attempt(0)
    try:
        yield Epochs(engine, lambda number: TaskLink(DriverLink(server.address, SECRET, 0), number), mail)
    finally:
        server.close()


class EngineContract:
    """The tests; a derived class has a fixture ``engine``."""

    @pytest.fixture
    def epochs(self, engine: EpochRunner) -> Iterator[Epochs]:
        with driver_of(engine) as epochs:
            yield epochs

    def test_an_epoch_gives_what_its_tasks_have_written(self, epochs: Epochs) -> None:
        epochs.start(("map", lambda number: number * 10))
        assert epochs.rows() == [30, 10, 20]

    def test_tasks_have_told_what_they_counted_before_the_epoch_ends(self, epochs: Epochs) -> None:
        epochs.start(("filter", lambda number: number > 1))
        assert epochs.rows() == [3, 2]
        counts = Counter[str]()
        for report in epochs.reports():
            counts.update(report.counts)
        assert (counts["numbers.records_out"], counts["filter.records_dropped"]) == (3, 1)

    def test_epochs_run_one_after_the_other(self, epochs: Epochs) -> None:
        for factor in range(3):
            epochs.start(("map", lambda number, factor=factor: number * factor))
            assert epochs.rows() == [number * factor for number in RECORDS]

    def test_a_function_that_raises_fails_the_epoch_and_not_the_engine(self, epochs: Epochs) -> None:
        epochs.start(("map", lambda number: 1 // (number - 1)))
        ended = epochs.end()
        assert ended.results is None
        assert isinstance(ended.error, PyFlinkStateError)
        epochs.start(("map", lambda number: number))
        assert epochs.rows() == RECORDS

    def test_the_word_comes_once_and_from_another_thread(self, epochs: Epochs) -> None:
        for _ in range(2):
            epochs.start(("map", lambda number: number))
            epochs.rows()
        assert len(epochs.told_on) == 2
        assert threading.get_ident() not in epochs.told_on

    def test_something_runs_until_the_word_has_come(self, epochs: Epochs, tmp_path: Path) -> None:
        go_on = tmp_path / "go on"
        epochs.start(("map", waiting_for(str(go_on))))
        assert epochs.engine.lost() is None
        go_on.touch()
        assert epochs.rows() == RECORDS

    def test_an_epoch_that_is_cancelled_ends(self, epochs: Epochs, tmp_path: Path) -> None:
        started = tmp_path / "started"
        epochs.start(("flat_map", endless(str(started))))
        while not started.exists():
            assert epochs.engine.lost() is None
        epochs.engine.cancel()
        ended = epochs.end()
        assert ended.results is None
        assert isinstance(ended.error, PyFlinkStateError)

    def test_after_a_cancelled_epoch_the_next_one_runs(self, epochs: Epochs, tmp_path: Path) -> None:
        self.test_an_epoch_that_is_cancelled_ends(epochs, tmp_path)
        epochs.start(("map", lambda number: number))
        assert epochs.rows() == RECORDS

    def test_where_nothing_runs_there_is_nothing_to_cancel(self, epochs: Epochs) -> None:
        epochs.engine.cancel()
        epochs.start(("map", lambda number: number))
        assert epochs.rows() == RECORDS
        epochs.engine.cancel()

    def test_it_is_not_gone_whether_something_runs_or_not(self, epochs: Epochs, tmp_path: Path) -> None:
        assert epochs.engine.gone() is None
        go_on = tmp_path / "go on"
        epochs.start(("map", waiting_for(str(go_on))))
        assert epochs.engine.gone() is None
        go_on.touch()
        assert epochs.rows() == RECORDS
        assert epochs.engine.gone() is None

    def test_when_the_job_has_ended_it_is_closed_once_or_twice(self, epochs: Epochs) -> None:
        epochs.start(("map", lambda number: number))
        assert epochs.rows() == RECORDS
        epochs.engine.close()
        epochs.engine.close()

    def test_it_is_closed_where_nothing_has_run(self, epochs: Epochs) -> None:
        epochs.engine.close()

    @pytest.fixture
    def gate(self, epochs: Epochs, tmp_path: Path) -> Iterator[Path]:
        """An epoch has been read and shuffled, and goes on when the file is there."""
        path = tmp_path / "go on"
        epochs.start(("shuffle", None), ("map", waiting_for(str(path))))
        yield path
        path.touch()

    def test_an_epoch_is_read_and_shuffled_ahead_once_and_no_more_is_done(
        self, epochs: Epochs, gate: Path, tmp_path: Path
    ) -> None:
        read, reduced = tmp_path / "read", tmp_path / "reduced"
        ahead = epochs.ahead(("map", noting(read)), ("shuffle", None), ("map", noting(reduced)))
        epochs.await_ahead()
        assert (noted(read), noted(reduced)) == (sorted(RECORDS), [])
        assert epochs.ended.empty(), "the epoch before still runs"
        gate.touch()
        assert epochs.rows() == RECORDS
        epochs.engine.start(ahead, epochs.hear)
        assert sorted(epochs.rows()) == sorted(RECORDS)
        assert (noted(read), noted(reduced)) == (sorted(RECORDS), sorted(RECORDS))
        assert {report.epoch for report in epochs.reports()} == {1, 2}

    def test_an_epoch_may_start_before_it_is_shuffled(
        self, epochs: Epochs, gate: Path, tmp_path: Path
    ) -> None:
        read, go_on = tmp_path / "read", tmp_path / "read on"
        ahead = epochs.ahead(("map", noting(read)), ("map", waiting_for(str(go_on))), ("shuffle", None))
        gate.touch()
        epochs.rows()
        epochs.engine.start(ahead, epochs.hear)
        go_on.touch()
        assert sorted(epochs.rows()) == sorted(RECORDS)
        assert noted(read) == sorted(RECORDS)
        epochs.await_ahead()

    def test_what_fails_ahead_fails_when_the_epoch_runs(self, epochs: Epochs, gate: Path) -> None:
        ahead = epochs.ahead(("map", lambda number: 1 // (number - 1)), ("shuffle", None))
        epochs.await_ahead()
        gate.touch()
        assert epochs.rows() == RECORDS
        epochs.engine.start(ahead, epochs.hear)
        assert isinstance(epochs.end().error, PyFlinkStateError)

    def test_what_runs_ahead_is_cancelled_with_the_epoch(
        self, epochs: Epochs, gate: Path, tmp_path: Path
    ) -> None:
        started = tmp_path / "started"
        epochs.ahead(("flat_map", endless(str(started))), ("shuffle", None))
        while not started.exists():
            assert epochs.engine.lost() is None
        epochs.engine.cancel()
        gate.touch()
        epochs.await_ahead()
        epochs.end()
        epochs.start(("map", lambda number: number))
        assert epochs.rows() == RECORDS

    def test_what_was_shuffled_for_another_attempt_is_not_used(
        self, epochs: Epochs, gate: Path, tmp_path: Path
    ) -> None:
        read = tmp_path / "read"
        ahead = epochs.ahead(("map", noting(read)), ("shuffle", None))
        epochs.await_ahead()
        gate.touch()
        epochs.rows()
        driver = attrs.evolve(ahead.link.driver, attempt=7)
        epochs.engine.start(attrs.evolve(ahead, link=attrs.evolve(ahead.link, driver=driver)), epochs.hear)
        assert sorted(epochs.rows()) == sorted(RECORDS)
        assert noted(read) == sorted(RECORDS * 2)

    def test_slots_that_cannot_start_are_an_error(self, epochs: Epochs) -> None:
        nobody = TaskLink(DriverLink(epochs.link(0).driver.address, b"x" * 32, 0), 0)
        epochs.engine.start_slots(SlotsRequest(nobody, (SLOT,), "test: slots"), epochs.hear)
        ended = epochs.end()
        assert ended.results is None
        assert isinstance(ended.error, PyFlinkStateError)
