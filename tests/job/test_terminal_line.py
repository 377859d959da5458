"""The line of progress and what else is written to its terminal: neither is put into the other."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.runtime.job.reports.terminal import TerminalLine


def screen(written: str) -> list[str]:
    """Return the rows that a terminal shows after this: it knows carriage return, erase, and line feed."""
    rows, column = [""], 0
    written = written.replace("\r\n", "\n").replace("\x1b[K", "\0")
    for character in written:
        if character == "\n":
            rows.append("")
            column = 0
        elif character == "\r":
            column = 0
        elif character == "\0":
            rows[-1] = rows[-1][:column]
        else:
            rows[-1] = rows[-1][:column] + character + rows[-1][column + 1 :]
            column += 1
    return rows


class Terminal(io.StringIO):
    """Standard output and standard error of one program, on one terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def rows(self) -> list[str]:
        return screen(self.getvalue())


@attrs.define
class Program:
    """What a program has in ``sys``."""

    stdout: Any
    stderr: Any

    def print(self, text: str, end: str = "\n") -> None:
        """Print to the standard output that there is now."""
        print(text, end=end, file=self.stdout)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


@pytest.fixture
def program(terminal: Terminal) -> Program:
    return Program(terminal, terminal)


@pytest.fixture
def line(terminal: Terminal, program: Program) -> TerminalLine:
    return TerminalLine(terminal, program)


@pytest.fixture
def logger(terminal: Terminal) -> Iterator[logging.Logger]:
    """A logger whose handler took hold of the stream before there was a line."""
    logger = logging.getLogger("of.a.program")
    handler = logging.StreamHandler(terminal)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)


class TestPrints:
    def test_they_come_above_the_line(self, line: TerminalLine, terminal: Terminal, program: Program) -> None:
        line.show("epoch 1 | 0 records/s")
        program.print("1")
        assert terminal.rows == ["1", "epoch 1 | 0 records/s"]
        program.print("2\n3")
        line.show("epoch 2")
        assert terminal.rows == ["1", "2", "3", "epoch 2"]

    def test_one_that_does_not_end_its_line_is_not_written_over(
        self, line: TerminalLine, terminal: Terminal, program: Program
    ) -> None:
        line.show("epoch 1")
        program.print("counting: ", end="")
        line.show("epoch 2")
        assert terminal.rows == ["counting: "]
        program.print("done")
        assert terminal.rows == ["counting: done", "epoch 2"]

    def test_the_end_leaves_such_a_one_too(
        self, line: TerminalLine, terminal: Terminal, program: Program
    ) -> None:
        line.show("epoch 1")
        program.print("counting: ", end="")
        line.leave("epoch 1 | FINISHED")
        assert terminal.rows == ["counting: ", "epoch 1 | FINISHED", ""]

    def test_after_the_end_nothing_is_in_between(
        self, line: TerminalLine, terminal: Terminal, program: Program
    ) -> None:
        line.show("epoch 1")
        kept = program.stdout
        line.leave("FINISHED")
        assert (program.stdout, program.stderr) == (terminal, terminal)
        print("by who has kept it", file=kept)
        assert terminal.rows == ["FINISHED", "by who has kept it", ""]

    def test_all_of_a_stream_is_still_there(
        self, line: TerminalLine, terminal: Terminal, program: Program
    ) -> None:
        line.show("epoch 1")
        program.stdout.writelines(["1\n", "2\n"])
        assert program.stdout.isatty()
        assert program.stdout.write("") == 0
        assert terminal.rows == ["1", "2", "epoch 1"]

    def test_two_lines_at_once(self, line: TerminalLine, terminal: Terminal, program: Program) -> None:
        line.show("first")
        second = TerminalLine(program.stderr, program)
        second.show("second")
        program.print("1")
        line.leave("first is over")
        program.print("2")
        second.leave("second is over")
        program.print("3")
        assert [row for row in terminal.rows if "second" not in row] == ["1", "first is over", "2", "3", ""]


class TestLogs:
    def test_they_come_above_the_line(
        self, line: TerminalLine, terminal: Terminal, program: Program, logger: logging.Logger
    ) -> None:
        line.show("epoch 1")
        logger.warning("look at this")
        assert terminal.rows == ["look at this", "epoch 1"]
        line.leave("FINISHED")
        logger.warning("and at that")
        assert terminal.rows == ["look at this", "FINISHED", "and at that", ""]


class Printing(logging.StreamHandler[Any]):
    """Prints with its lock held, as handlers write, but not before another thread asks for that lock."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.stderr)
        self._program = program
        self.emits, self.is_wanted = threading.Event(), threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        before = self._program.stdout
        self.emits.set()
        assert self.is_wanted.wait(PATIENCE_S)
        for stream in (before, self._program.stdout):
            print(record.getMessage(), file=stream)

    def setStream(self, stream: Any) -> Any:
        self.is_wanted.set()
        return super().setStream(stream)


@pytest.mark.parametrize("call", ["show", "leave"])
def test_a_thread_that_logs_and_the_line_do_not_wait_for_each_other(
    line: TerminalLine, terminal: Terminal, program: Program, call: str
) -> None:
    logger = logging.getLogger("of.a.program")
    handler = Printing(program)
    logger.addHandler(handler)
    try:
        if call == "leave":
            line.show("epoch 1")
        handler.is_wanted.clear()
        threads = [
            threading.Thread(target=logger.warning, args=("look at this",), daemon=True),
            threading.Thread(target=getattr(line, call), args=("epoch 2",), daemon=True),
        ]
        threads[0].start()
        assert handler.emits.wait(PATIENCE_S)
        threads[1].start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in threads)
        assert "look at this" in terminal.rows
        line.leave("FINISHED")
    finally:
        logger.removeHandler(handler)


class TestWhereThereIsNoTerminal:
    def test_a_file_is_left_alone(self, terminal: Terminal) -> None:
        """``python program.py > results.txt``: the line is on the terminal, the results in the file."""
        file = io.StringIO()
        program = Program(file, terminal)
        line = TerminalLine(terminal, program)
        line.show("epoch 1")
        assert program.stdout is file
        program.print("1")
        assert file.getvalue() == "1\n"
        line.leave("FINISHED")
        assert terminal.rows == ["FINISHED", ""]

    def test_nothing_is_taken_hold_of(self, terminal: Terminal, program: Program) -> None:
        TerminalLine(io.StringIO(), program).show("epoch 1")
        assert program.stdout is terminal


PROGRAM = """
import logging, sys
from pyflinkstate import EpochStats, JobStatus
from pyflinkstate.runtime.job import ProgressLine
from pyflinkstate.runtime.wire import SystemClock
line = ProgressLine(sys.stderr, SystemClock())
for n in range(3):
    line.on_epoch(EpochStats(n, 0, 10, 0))
    print("result", n)
logging.getLogger("pyflinkstate.job").warning("once more")
line.on_end(JobStatus.FINISHED)
print("all")
"""


def test_on_a_real_terminal() -> None:
    mine, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=theirs, stderr=theirs) as program:
        os.close(theirs)
        written = b""
        try:
            while data := os.read(mine, 4096):
                written += data
        except OSError:
            pass  # the program has ended, and with it the terminal
        os.close(mine)
    assert program.returncode == 0
    assert screen(written.decode()) == [
        "result 0",
        "result 1",
        "result 2",
        "once more",
        "epoch 2 | 0 records/s | FINISHED",
        "all",
        "",
    ]


@pytest.mark.parametrize(("columns", "shown"), [(40, 39), (0, 100)])
def test_a_line_is_cut_where_its_terminal_ends(columns: int, shown: int) -> None:
    """A terminal that does not know its width says 0."""
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w", encoding="utf-8") as stream:
        TerminalLine(stream).show("x" * 100)
        seen = screen(os.read(mine, 4096).decode())
    os.close(mine)
    assert seen == ["x" * shown]
