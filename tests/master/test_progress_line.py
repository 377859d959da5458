"""The line of progress: what it shows, when, and how it is written over."""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Iterator
from itertools import groupby

import pytest
from support_runtime import ManualClock, raising

from pyflinkstate.errors import SlotLostError
from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.master.reports.observe import EpochStats, JobListener
from pyflinkstate.runtime.master.reports.progress import ProgressLine
from pyflinkstate.runtime.settings.job_status import JobStatus

#: What rich writes to hide and show the cursor, and to go back to the first column and clear the line.
CONTROLS = re.compile(r"\r?\x1b\[[?\d]*[Klh]")
KIB = 1024


class Terminal(io.StringIO):
    """Keeps what is written; ``flushed`` is how much of it was to be seen at the last flush."""

    flushed = 0

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.flushed = len(self.getvalue())

    @property
    def lines(self) -> list[str]:
        """What stood on the line, one after the other; drawing the same again does not count."""
        return [line for line, _ in groupby(filter(None, CONTROLS.split(self.getvalue())))]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def line(terminal: Terminal, clock: ManualClock) -> Iterator[ProgressLine]:
    line = ProgressLine(terminal, clock)
    yield line
    line.on_end(JobStatus.FINISHED)


def epoch(number: int = 7, records: int = 10_000, duration_ms: int = 2_000) -> EpochStats:
    return EpochStats(number, records, duration_ms, 0)


def checkpoint(size_bytes: int = 0, checkpointed_bytes: int = 0, duration_ms: int = 0) -> CheckpointStats:
    return CheckpointStats(
        4, 7, size_bytes=size_bytes, checkpointed_bytes=checkpointed_bytes, duration_ms=duration_ms
    )


class TestEpochs:
    def test_number_and_rate(self, line: ProgressLine, terminal: Terminal) -> None:
        line.on_epoch(epoch(7, 10_000, 2_000))
        assert terminal.lines == ["epoch 7 | 5,000 records/s"]

    @pytest.mark.parametrize(
        ("records", "duration_ms", "rate"),
        [(0, 1_000, "0"), (1, 3_000, "0"), (1_234_567, 1_000, "1,234,567"), (5, 1, "5,000")],
    )
    def test_rates_are_whole_numbers(
        self, line: ProgressLine, terminal: Terminal, records: int, duration_ms: int, rate: str
    ) -> None:
        line.on_epoch(epoch(1, records, duration_ms))
        assert terminal.lines == [f"epoch 1 | {rate} records/s"]

    def test_an_epoch_that_took_no_time_has_a_rate(self, line: ProgressLine, terminal: Terminal) -> None:
        line.on_epoch(epoch(1, 3, 0))
        assert terminal.lines == ["epoch 1 | 3,000 records/s"]


class TestCheckpoints:
    def test_state_size_and_what_was_written_in_which_time(
        self, line: ProgressLine, terminal: Terminal
    ) -> None:
        line.on_checkpoint(checkpoint(3 * KIB**2, 512 * KIB, 1_250))
        assert terminal.lines == ["checkpoint 4: 512.0 KiB of 3.0 MiB in 1.2 s, 0 s ago"]

    def test_how_long_ago_it_is_goes_by_the_clock(
        self, line: ProgressLine, terminal: Terminal, clock: ManualClock
    ) -> None:
        line.on_checkpoint(checkpoint())
        clock.time_ms += 42_000
        line.on_epoch(epoch(8))
        assert terminal.lines[-1].endswith("checkpoint 4: 0 B of 0 B in 0.0 s, 42 s ago")

    def test_the_newest_is_shown(self, line: ProgressLine, terminal: Terminal) -> None:
        line.on_checkpoint(checkpoint(1))
        line.on_checkpoint(CheckpointStats(5, 9, size_bytes=2))
        assert terminal.lines[-1].startswith("checkpoint 5: 0 B of 2 B in ")

    @pytest.mark.parametrize(
        ("size", "shown"),
        [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (KIB**2, "1.0 MiB"),
            (5 * KIB**3, "5.0 GiB"),
            (2 * KIB**4, "2.0 TiB"),
            (3 * KIB**5, "3072.0 TiB"),
        ],
    )
    def test_sizes_have_units(self, line: ProgressLine, terminal: Terminal, size: int, shown: str) -> None:
        line.on_checkpoint(checkpoint(size))
        assert terminal.lines[-1].startswith(f"checkpoint 4: 0 B of {shown} in ")

    def test_a_failed_checkpoint_is_not_shown_as_the_last(
        self, line: ProgressLine, terminal: Terminal
    ) -> None:
        line.on_checkpoint(checkpoint(1))
        line.on_checkpoint_failed(CheckpointStats(5, 9, failure="disk full"))
        line.on_epoch(epoch())
        assert "checkpoint 4: " in terminal.lines[-1]


class TestLine:
    def test_all_is_on_one_line_that_is_written_over(self, line: ProgressLine, terminal: Terminal) -> None:
        line.on_epoch(epoch(7))
        line.on_checkpoint(checkpoint(KIB, 10, 100))
        line.on_epoch(epoch(8))
        assert terminal.lines == [
            "epoch 7 | 5,000 records/s",
            "epoch 7 | 5,000 records/s | checkpoint 4: 10 B of 1.0 KiB in 0.1 s, 0 s ago",
            "epoch 8 | 5,000 records/s | checkpoint 4: 10 B of 1.0 KiB in 0.1 s, 0 s ago",
        ]
        assert "\n" not in terminal.getvalue()

    def test_nothing_is_shown_before_there_is_something(self, line: ProgressLine, terminal: Terminal) -> None:
        assert terminal.getvalue() == ""

    def test_what_is_shown_is_to_be_seen_at_once(self, line: ProgressLine, terminal: Terminal) -> None:
        line.on_epoch(epoch())
        assert terminal.flushed == len(terminal.getvalue())
        line.on_end(JobStatus.FINISHED)
        assert terminal.flushed == len(terminal.getvalue())

    def test_restarts_are_shown_from_then_on(self, line: ProgressLine, terminal: Terminal) -> None:
        line.on_epoch(epoch(7))
        line.on_restart(1, SlotLostError("gone"))
        line.on_epoch(epoch(8))
        line.on_restart(2, SlotLostError("gone"))
        assert terminal.lines[1:] == [
            "epoch 7 | 5,000 records/s | restarts 1",
            "epoch 8 | 5,000 records/s | restarts 1",
            "epoch 8 | 5,000 records/s | restarts 2",
        ]

    @pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED])
    def test_the_end_leaves_the_line_with_how_it_ended(
        self, line: ProgressLine, terminal: Terminal, status: JobStatus
    ) -> None:
        line.on_epoch(epoch(7))
        line.on_end(status)
        assert terminal.lines[-1] == f"epoch 7 | 5,000 records/s | {status.name}\n"

    def test_a_job_that_ends_before_its_first_epoch_says_just_that(
        self, line: ProgressLine, terminal: Terminal
    ) -> None:
        line.on_end(JobStatus.FAILED)
        assert terminal.lines[-1] == "FAILED\n"

    def test_a_restart_before_the_first_epoch_says_just_that(
        self, line: ProgressLine, terminal: Terminal
    ) -> None:
        line.on_restart(1, SlotLostError("gone"))
        assert terminal.lines == ["restarts 1"]

    @pytest.mark.parametrize(
        "error", [BrokenPipeError("no reader"), ValueError("I/O operation on closed file")], ids=repr
    )
    @pytest.mark.parametrize("method", ["write", "flush"])
    def test_a_stream_that_is_broken_is_nobodys_failure(
        self, line: ProgressLine, terminal: Terminal, error: Exception, method: str
    ) -> None:
        setattr(terminal, method, raising(error))
        line.on_epoch(epoch())
        line.on_checkpoint(checkpoint())
        line.on_restart(1, SlotLostError("gone"))
        line.on_end(JobStatus.FAILED)

    def test_what_is_printed_and_logged_appears_above(
        self, line: ProgressLine, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, terminal)
        handler = logging.StreamHandler()
        logging.getLogger("pyflinkstate").addHandler(handler)
        try:
            line.on_epoch(epoch(7))
            print("printed")
            logging.getLogger("pyflinkstate.job").warning("logged")
            line.on_end(JobStatus.FINISHED)
        finally:
            logging.getLogger("pyflinkstate").removeHandler(handler)
        shown = "epoch 7 | 5,000 records/s"
        end = f"{shown} | FINISHED"
        assert terminal.lines == [shown, f"printed\n{shown}", f"logged\n{shown}", end, f"{end}\n"]
        assert (sys.stdout, sys.stderr, handler.stream) == (terminal, terminal, terminal)

    def test_a_stream_that_is_not_a_terminal_gets_the_last_line(self, clock: ManualClock) -> None:
        plain = io.StringIO()
        line = ProgressLine(plain, clock)
        line.on_epoch(epoch(7))
        line.on_end(JobStatus.FINISHED)
        assert plain.getvalue() == "epoch 7 | 5,000 records/s | FINISHED\n"

    def test_it_is_a_listener(self, line: ProgressLine) -> None:
        assert isinstance(line, JobListener)
