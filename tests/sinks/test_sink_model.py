"""The file sinks against a model: any history of runs, failures and returns shows what its checkpoint covers.

A plain list of checkpoints stands for the job. Each knows the history that led to it. What is visible after
it is known without any file: the output of each epoch as the run of the history has made it.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import attrs
import pytest
from simulation_storage import Killed, Operation, Process, Verdict
from support_runtime import raising
from support_sinks import (
    FILE_SINKS,
    JOB,
    OUT,
    FailingDisk,
    MakeSink,
    Seen,
    joined_sink,
    run_id,
    seen,
    seen_files,
    write,
)
from tiers import cases

from pyflinkstate import FileSink, RunHistory
from pyflinkstate.errors import JobSupersededError, SinkError

STEPS = 40
#: How often a run may fail to begin. Three of eight times nothing fails, so so many failures are no chance.
MAX_STARTS = 100
#: How often the next operations of the disk fail, and how.
FAULTS = [None, None, None, "kill", "power cut", 0.0, 0.5, 1.0]


@attrs.frozen
class Checkpoint:
    """The end of an epoch, to go back to; a savepoint that is plain has committed nothing."""

    history: RunHistory
    epoch: int


class Job:
    """A job in its newest run, the checkpoints it has had, and what each run has made of each epoch."""

    def __init__(self, make: MakeSink, seed: int) -> None:
        self.rng = random.Random(seed)
        self.make = make
        self.disk = FailingDisk()
        self.disk.observe = self.look
        self.made: dict[tuple[str, int], Seen] = {}
        self.checkpoints: list[Checkpoint] = []
        self.older: list[Any] = []
        self.runs = 0
        self.count = 0
        self.sink: Any = None
        self.was_killed = False
        self.error: BaseException | None = None
        #: Of the checkpoint that the run went on from last.
        self.last: Checkpoint | None = None
        self.history = RunHistory()
        self.epoch = 0

    # --- what the job does ---------------------------------------------------------------------------

    def start(self, checkpoint: Checkpoint | None) -> None:
        """Begin a run, as often as it takes."""
        if self.sink is not None:
            self.older.append(self.sink)
        for _ in range(MAX_STARTS):
            self.runs += 1
            self.last, self.epoch = checkpoint, 0 if checkpoint is None else checkpoint.epoch
            before = RunHistory() if checkpoint is None else checkpoint.history
            self.history = before.continued(self.epoch, run_id(self.runs))
            self.sink = self.make(self.disk)
            restored = None if checkpoint is None else self.epoch
            if self.guarded(lambda restored=restored: self.sink.open_run(JOB, self.history, restored)):
                break
            self.older.append(self.sink)
        else:
            raise AssertionError(f"no run could begin in {MAX_STARTS} attempts") from self.error
        assert seen(self.disk) == self.covered(checkpoint), f"after the start of run {self.runs}"

    def run_epoch(self) -> bool:
        number = self.epoch + 1
        rows = [[self.row() for _ in range(self.rng.randint(0, 2))] for _ in range(self.rng.randint(0, 2))]

        def run() -> None:
            write(self.sink, number, ["never counted"])
            self.sink.prepare(number, write(self.sink, number, *rows))

        self.made[self.history.runs[-1][0], number] = Seen(row for split in rows for row in split)
        if not self.guarded(run):
            return False
        self.epoch = number
        return True

    def row(self) -> str:
        self.count += 1
        return f"row{self.count}"

    def checkpoint(self, commits: bool) -> bool:
        """Complete a checkpoint of the epochs so far; returns whether the commit went well."""
        made = Checkpoint(self.history, self.epoch)
        self.checkpoints.append(made)
        if not commits:
            return True
        self.last = made
        if not self.guarded(lambda: self.sink.commit(made.epoch)):
            return False
        assert seen(self.disk) == self.covered(made)
        return True

    def recover(self) -> None:
        """Go back to the last checkpoint: within the run if nobody was killed and there is no savepoint."""
        epoch = 0 if self.last is None else self.last.epoch
        is_clean = all(
            point.history is not self.history or point.epoch <= epoch for point in self.checkpoints
        )

        def rewind() -> None:
            self.sink.rewind(epoch)
            self.sink.commit(epoch)

        if self.was_killed or not is_clean or not self.guarded(rewind):
            self.start(self.last)
            return
        self.epoch = epoch
        assert seen(self.disk) == self.covered(self.last), "after a rewind"

    # --- faults ----------------------------------------------------------------------------------------

    def guarded(self, act: Any) -> bool:
        """Do something on a disk that may fail; returns whether it went well."""
        fault = self.rng.choice(FAULTS)
        kills = fault in ("kill", "power cut")
        self.disk.when(self.rng.randrange(40), self.disk.kill if kills else self.failure(fault))
        try:
            act()
        except (SinkError, Killed) as error:
            self.error = error
            return False
        finally:
            self.disk.when(-1)
            self.was_killed = self.disk.process.dead
            if self.was_killed and fault == "power cut":
                self.disk.power_cut(self.rng)
            self.disk.process = Process("driver")
        return True

    def failure(self, part: Any) -> Any:
        return (lambda: Verdict()) if part is None else self.disk.fail(part)

    def disturb(self) -> None:
        """Have an older driver that still lives try what it can."""
        before = seen(self.disk)
        older = self.rng.choice(self.older)
        with suppress(SinkError, JobSupersededError):
            self.rng.choice(
                [
                    lambda: older.commit(100),
                    lambda: older.rewind(0),
                    lambda: older.prepare(self.epoch + 1, write(older, self.epoch + 1, ["ghost"])),
                    lambda: older.prepare(self.epoch + 1, []),
                ]
            )()
            raise AssertionError("an older driver was not stopped")
        assert seen(self.disk) == before, "an older driver changed the output"

    # --- what must hold --------------------------------------------------------------------------------

    def covered(self, checkpoint: Checkpoint | None) -> Seen:
        found = Seen()
        for number in range(1, 1 if checkpoint is None else checkpoint.epoch + 1):
            run = checkpoint.history.run_of(number)
            found += self.made[run, number]
        return found

    def look(self, operation: Operation) -> None:
        """A reader looks after each operation; what it cannot read is no fault of the disk."""
        try:
            self.check_what_is_seen()
        except Exception as error:  # the sink would take it for an error of the storage, and be tried again
            raise AssertionError(f"after {operation.name} of {operation.path}: {error}") from error

    def check_what_is_seen(self) -> None:
        """It sees nothing twice, and nothing that was never counted."""
        found = seen(self.disk)
        assert max(found.values(), default=1) == 1, found
        assert "never counted" not in found
        assert "ghost" not in found
        if isinstance(self.sink, FileSink):
            self.check_epochs_are_whole()

    def check_epochs_are_whole(self) -> None:
        folders: dict[str, Seen] = {}
        for name, lines in seen_files(self.disk):
            if name.startswith("epoch="):
                folders[name.partition("/")[0]] = folders.get(name.partition("/")[0], Seen()) + Seen(lines)
        for rows in folders.values():
            inside = [made for made in self.made.values() if made & rows]
            assert sum(inside, Seen()) == rows, "a part of an epoch is seen"
            assert len(inside) == 1 or self.make is joined_sink


@pytest.mark.parametrize("make", FILE_SINKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("seed", cases(range(60), quick=range(10)))
def test_any_history_of_a_job(make: MakeSink, seed: int) -> None:
    job = Job(make, seed)
    job.start(None)
    for _ in range(STEPS):
        choice = job.rng.random()
        if choice < 0.45:
            goes_well = job.run_epoch()
        elif choice < 0.75:
            goes_well = job.checkpoint(commits=choice < 0.65)
        elif choice < 0.85:
            goes_well = False
        else:
            goes_well = True
            if job.checkpoints and choice < 0.95:
                job.start(job.rng.choice(job.checkpoints))
            elif job.older:
                job.disturb()
        if not goes_well:
            job.recover()


class NeverOpens(FileSink):
    """A sink that is at fault itself, whatever the disk does."""

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        raise SinkError("it never opens")


def test_a_sink_that_never_opens_ends_the_test() -> None:
    job = Job(lambda disk: NeverOpens(OUT, "text", file_system=disk.file_system), 1)
    with pytest.raises(AssertionError, match="no run could begin in 100 attempts"):
        job.start(None)


@pytest.mark.parametrize("make", FILE_SINKS, ids=lambda make: make.__name__)
def test_a_reader_that_understands_nothing_ends_the_test(
    make: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error looks like one of the storage, after which a run would begin again."""
    monkeypatch.setattr("test_sink_model.seen", raising(ValueError("no line")))
    with pytest.raises(AssertionError, match="no line"):
        Job(make, 1).start(None)
