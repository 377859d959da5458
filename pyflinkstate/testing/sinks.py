"""The test kit of sinks: what a sink must do for each record to be seen once, whatever is killed when.

A driver that is killed is a sink object that is not used any more; the next driver makes a new one.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice

import attrs

from pyflinkstate.api import Record, Reported
from pyflinkstate.errors import JobSupersededError, SinkError
from pyflinkstate.runtime.sinks import ReplacingSink, RunAwareSink, Sink, StagedSink, open_sink
from pyflinkstate.runtime.storage import RunHistory
from pyflinkstate.runtime.wire import dumps, loads

JOB = "0123456789abcdef" * 2
#: Epochs of a trial that is killed at each of its steps.
EPOCHS = 3


class SinkContractError(AssertionError):
    """A sink does not keep its contract; the message says in which trial, and what was seen instead."""


def check_sink(
    make: Callable[[str], Sink],
    read: Callable[[str], Iterable[str]],
    record: Callable[[str], Record] = str,
) -> None:
    """Try a sink: kill its driver before, in and after each call, repeat calls, go back, let two drivers run.

    Args:
        make: returns the sink of a new driver, as a program makes it. It gets the name of a target (a table,
            a folder, a topic), which nothing has written to when it is used first.
        read: returns the texts of all records in the target that readers see.
        record: returns a record of the sink that has a text.

    Raises:
        SinkContractError: the sink loses or repeats records, or lets an older driver write.

    Example::

        def test_my_sink(tmp_path):
            check_sink(lambda name: MySink(tmp_path / name), lambda name: lines_of(tmp_path / name))
    """
    kills: list[Callable[[Target], None]] = [partial(_killed, at) for at in range(_STEPS * EPOCHS)]
    trials = [*_TRIALS, *kills]
    for number, trial in enumerate(trials):
        with tempfile.TemporaryDirectory(prefix="check-sink-") as staging:
            trial(Target(f"target{number}", staging, make, read, record))


@attrs.define
class Target:
    """What outlives the drivers of one trial.

    Args:
        name: the name of the target.
        staging: a folder for sinks that stage what they write.

    Attributes:
        covered: the epoch of the last checkpoint that is complete.
    """

    _name: str
    _staging: str
    _make: Callable[[str], Sink]
    _read: Callable[[str], Iterable[str]]
    _record: Callable[[str], Record]
    _runs: int = 0
    _history: RunHistory = attrs.Factory(RunHistory)
    covered: int = 0

    def driver(self, restored: int) -> Driver:
        """Start a driver that restores the checkpoint of an epoch; those before it are killed, or will be."""
        sink = self._make(self._name)
        if isinstance(sink, StagedSink):
            sink.stage_below(self._staging)
        self._runs += 1
        self._history = self._history.continued(restored, f"{self._runs:06d}-{self._runs:08x}")
        open_sink(sink, JOB, self._history, restored or None)
        return Driver(self, sink)

    def results(self, sink: Sink, epoch: int) -> list[Reported]:
        """Run an epoch's tasks, a partition for each record; that of the first one runs twice."""
        writer = loads(dumps(sink.writer(epoch)))
        texts = _texts(epoch)
        list(writer.write(0, iter([self._record(text) for text in texts[:1]])))
        parts = enumerate([self._record(text)] for text in texts)
        return [made for number, part in parts for made in writer.write(number, iter(part))]

    def expect(self, *epochs: int, when: str) -> None:
        """Check that readers see the records of these epochs, each once."""
        seen = Counter(self._read(self._name))
        wanted = Counter(text for epoch in epochs for text in _texts(epoch))
        if seen != wanted:
            raise SinkContractError(
                f"{when}, readers should see epochs {list(epochs)}; missing: "
                f"{sorted((wanted - seen).elements())}, surplus: {sorted((seen - wanted).elements())}"
            )


def _texts(epoch: int) -> list[str]:
    """Return the texts of an epoch's records; every third one from 2 on has none."""
    return [] if epoch % 3 == 2 else [f"{epoch}a", f"{epoch}b"]


@attrs.frozen
class Driver:
    """One driver of a job, with its sink."""

    target: Target
    sink: Sink

    def prepare(self, *epochs: int) -> None:
        """Run epochs up to the end of their tasks."""
        for epoch in epochs:
            self.sink.prepare(epoch, self.target.results(self.sink, epoch))

    def run(self, last: int) -> Iterator[str]:
        """Run epochs up to the last one, step by step; yields what has just happened."""
        for epoch in range(self.target.covered + 1, last + 1):
            results = self.target.results(self.sink, epoch)
            yield f"when epoch {epoch} is written"
            self.sink.prepare(epoch, results)
            yield f"when epoch {epoch} is prepared"
            self.target.covered = epoch
            yield f"when the checkpoint of epoch {epoch} is complete"
            self.sink.commit(epoch)
            yield f"when epoch {epoch} is committed"

    def expect_committed(self, *epochs: int, when: str) -> None:
        """Check what readers see, unless the sink shows epochs before they are committed."""
        if not isinstance(self.sink, ReplacingSink):
            self.target.expect(*epochs, when=when)


#: Number of steps of an epoch in :meth:`Driver.run`.
_STEPS = 4


def _finish(target: Target, when: str) -> None:
    """Start a driver after the others were killed, and run all epochs to the end, and one more."""
    driver = target.driver(target.covered)
    driver.expect_committed(
        *range(1, target.covered + 1), when=f"{when}, and the next driver has opened the sink"
    )
    list(driver.run(EPOCHS + 1))
    target.expect(*range(1, EPOCHS + 2), when=f"{when}, and the next driver has run the rest")


def _killed(at: int, target: Target) -> None:
    *_, when = islice(target.driver(0).run(EPOCHS), at + 1)
    _finish(target, f"{when}, and the driver is killed")


def _killed_in_publish(is_after: bool, target: Target) -> None:
    """A sink that stages is killed around the step in which its target changes."""
    driver = target.driver(0)
    if not isinstance(driver.sink, StagedSink):
        return
    publish = driver.sink.publish

    def killed(epoch: int, staged: list[Reported]) -> None:
        if is_after:
            publish(epoch, staged)
        raise _Killed

    driver.sink.publish = killed  # type: ignore[method-assign]
    with suppress(_Killed):
        list(driver.run(EPOCHS))
    _finish(target, f"when the driver is killed {'after' if is_after else 'before'} its transaction")


class _Killed(BaseException):
    """Ends a driver in the middle of a call."""


def _seen_when_committed(target: Target) -> None:
    driver = target.driver(0)
    driver.prepare(1, 2, 3)
    driver.expect_committed(when="before a commit")
    for _ in range(2):
        driver.sink.commit(1)
        driver.expect_committed(1, when="when epoch 1 is committed, twice")
    for _ in range(2):
        driver.sink.commit(3)
        target.expect(1, 2, 3, when="when epoch 3 is committed, twice")


def _goes_back_to_its_commit(target: Target) -> None:
    driver = target.driver(0)
    driver.prepare(1)
    driver.sink.commit(1)
    for _ in range(2):
        driver.prepare(2, 3)
        target.results(driver.sink, 4)
        driver.sink.rewind(1)
        driver.sink.commit(1)
    driver.prepare(2, 3)
    driver.sink.commit(3)
    target.expect(1, 2, 3, when="when epochs 2 and 3 were prepared again after a failure, and committed")


def _goes_back_behind_it(is_killed: bool, target: Target) -> None:
    """What readers have seen is taken back, or nothing changes and an error says so."""
    driver = target.driver(0)
    list(driver.run(3))
    try:
        if is_killed:
            driver = target.driver(1)
        else:
            driver.sink.rewind(1)
            driver.sink.commit(1)
    except SinkError:
        target.expect(1, 2, 3, when="when a return to epoch 1 is refused")
    else:
        driver.expect_committed(1, when="when the job goes back to epoch 1")
        target.covered = 1
        list(driver.run(3))
    _finish(target, "when the job was to go back to epoch 1")


def _two_drivers(target: Target) -> None:
    """An older driver goes on: it must fail, or change nothing."""
    old = target.driver(0)
    if not isinstance(old.sink, RunAwareSink):
        return
    old.prepare(1)
    old.sink.commit(1)
    old.prepare(2, 3)
    late = target.results(old.sink, 4)
    old.sink.prepare(4, late)
    new = target.driver(3)
    late_calls: dict[str, Callable[[], None]] = {
        "prepares an epoch": lambda: old.prepare(5),
        "commits": lambda: old.sink.commit(4),
        "goes back": lambda: old.sink.rewind(1),
    }
    if isinstance(old.sink, StagedSink):
        late_calls["publishes"] = partial(old.sink.publish, 4, late)
    for what, call in late_calls.items():
        with suppress(JobSupersededError, SinkError):
            call()
        target.expect(1, 2, 3, when=f"when an older driver {what} after a newer one has begun")
    target.covered = 3
    list(new.run(4))
    target.expect(1, 2, 3, 4, when="when two drivers were alive, and the newer one has gone on")


_TRIALS: list[Callable[[Target], None]] = [
    _seen_when_committed,
    _goes_back_to_its_commit,
    partial(_goes_back_behind_it, False),
    partial(_goes_back_behind_it, True),
    partial(_killed_in_publish, False),
    partial(_killed_in_publish, True),
    _two_drivers,
]
