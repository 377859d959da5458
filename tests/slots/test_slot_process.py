"""The process of a slot: its start, its output, its watchdog, and its life beyond its executor."""

from __future__ import annotations

import io
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

import pytest
from slot_functions import Chatter
from support_runtime import PATIENCE_S, next_event, raising
from support_slots import SLOT, Driver

from pyflinkstate.runtime.slots import SlotBootstrap
from pyflinkstate.runtime.slots.process import (
    MAX_LINE,
    MAX_WAITING,
    KernelWatchdog,
    Lines,
    OutputForwarder,
    ThreadWatchdog,
    watchdog,
)
from pyflinkstate.runtime.tasks.slot_client import SLOT_MODULE
from pyflinkstate.runtime.wire import (
    Address,
    SlotId,
    SlotOutput,
    dumps,
)

pytestmark = pytest.mark.timeout(60)


def test_its_main_module_is_not_loaded_already() -> None:
    # Python would say so in a RuntimeWarning, and have each of its classes twice.
    code = (
        f"import importlib.util, sys; assert importlib.util.find_spec({SLOT_MODULE!r}); "
        f"sys.exit({SLOT_MODULE!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0


def test_a_slot_whose_driver_has_gone_says_so_in_one_line() -> None:
    # It was a traceback on the user's terminal, after the job's own last words.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # not listening, and nobody else can take the port
        address = Address(*bound.getsockname())
        bootstrap = dumps(SlotBootstrap(address, b"secret", 1, SlotId("count", 0)))
        command = [sys.executable, "-m", SLOT_MODULE]
        ended = subprocess.run(command, input=bootstrap, capture_output=True, timeout=300, check=False)
    (line,) = ended.stderr.decode().splitlines()
    assert ended.returncode == 1
    assert line.startswith(
        f"state slot count[0]: it ends, as its driver at 127.0.0.1:{address.port} does not answer: "
    )


def test_a_slot_that_cannot_listen_says_so(driver: Driver) -> None:
    """It ended without a word, as if its driver had gone, and with exit code 0."""
    code = (
        "from pyflinkstate.runtime.slots import slot\n"
        "def listen_near_and_far(host): raise OSError('no port is left')\n"
        "slot.listen_near_and_far = listen_near_and_far\n"
        "slot.main()"
    )
    bootstrap = dumps(SlotBootstrap(driver.control.address, driver.secret, 0, SLOT))
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, input=bootstrap, capture_output=True, timeout=300, check=False)
    last = ended.stderr.decode().splitlines()[-1]
    assert last.endswith(f"state slot {SLOT} cannot listen on its host 127.0.0.1: no port is left")
    assert ended.returncode == 1


INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


class Sent:
    """The driver's end; ``batches`` is what came, one item for each message."""

    def __init__(self) -> None:
        self.batches: list[Lines] = []

    def __call__(self, lines: Lines) -> None:
        self.batches.append(lines)

    @property
    def lines(self) -> list[tuple[int, str]]:
        return [line for batch in self.batches for line in batch]


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def forwarder(sent: Sent) -> OutputForwarder:
    """Nothing is taken hold of, and nothing sends but ``flush``."""
    return OutputForwarder(sent)


class TestSending:
    def test_lines_go_together_in_their_order_with_their_levels(
        self, forwarder: OutputForwarder, sent: Sent
    ) -> None:
        lines = ((INFO, "one"), (ERROR, "two"), (INFO, ""), (WARNING, "zwei, 二"))
        for level, line in lines:
            forwarder.add(level, line)
        assert sent.batches == []
        forwarder.flush()
        assert sent.batches == [lines]

    def test_a_line_is_sent_once_and_nothing_is_no_message(
        self, forwarder: OutputForwarder, sent: Sent
    ) -> None:
        for lines in ([], ["one"], [], ["two"]):
            for line in lines:
                forwarder.add(INFO, line)
            forwarder.flush()
        assert sent.batches == [((INFO, "one"),), ((INFO, "two"),)]

    def test_what_is_added_while_others_are_sent_comes_after_them(self) -> None:
        """The driver is slow: meanwhile the next lines wait their turn, and are not lost."""
        sent: list[Lines] = []
        second = threading.Thread(target=lambda: forwarder.flush())
        second_is_sent = threading.Event()

        def send(lines: Lines) -> None:
            if lines == ((INFO, "two"),):
                second_is_sent.set()
            else:
                forwarder.add(INFO, "two")
                second.start()
                assert not second_is_sent.wait(0.1), "it went ahead of the first"
            sent.append(lines)

        forwarder = OutputForwarder(send)
        forwarder.add(INFO, "one")
        forwarder.flush()
        second.join(PATIENCE_S)
        assert sent == [((INFO, "one"),), ((INFO, "two"),)]


class TestTooMany:
    """A driver that is slower than the user's code is no reason to run out of memory."""

    def fill(self, forwarder: OutputForwarder, count: int) -> None:
        for number in range(count):
            forwarder.add(INFO, str(number))

    @pytest.mark.parametrize("too_many", [0, 3])
    def test_the_oldest_are_dropped_and_their_number_is_told_once(
        self, forwarder: OutputForwarder, sent: Sent, too_many: int
    ) -> None:
        self.fill(forwarder, MAX_WAITING + too_many)
        forwarder.flush()
        told = [(WARNING, f"(lines that were dropped: {too_many})")] * bool(too_many)
        assert sent.lines == [*told, *((INFO, str(too_many + number)) for number in range(MAX_WAITING))]
        self.fill(forwarder, 1)
        forwarder.flush()
        assert sent.batches[1] == ((INFO, "0"),)

    def test_the_bound_holds_after_an_interruption(self, forwarder: OutputForwarder, sent: Sent) -> None:
        """A signal handler that adds a line just when another one is added may go beyond it by one."""
        forwarder._lines.extend((INFO, "") for _ in range(MAX_WAITING + 1))
        self.fill(forwarder, 5)
        assert len(forwarder._lines) == MAX_WAITING + 1


class TestInterruptions:
    """A signal handler or a ``__del__`` may print at any moment, also while a line is added or taken."""

    def interrupted(self, forwarder: OutputForwarder, action: Callable[[], None]) -> None:
        """Run an action, and add a line before each line of code that it runs, in the same thread."""

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line":
                forwarder.add(INFO, "again")
            return trace

        def run() -> None:
            sys.settrace(trace)
            try:
                action()
            finally:
                sys.settrace(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it waits for itself"

    def test_a_line_may_be_added_while_another_one_is(self, forwarder: OutputForwarder, sent: Sent) -> None:
        self.interrupted(forwarder, lambda: forwarder.add(INFO, "one"))
        forwarder.flush()
        found = [line for _, line in sent.lines]
        assert found.count("one") == 1
        assert found.count("again") == len(found) - 1 > 2

    def test_or_while_lines_are_sent(self, forwarder: OutputForwarder, sent: Sent) -> None:
        added = 0
        add = forwarder.add

        def counting(level: int, line: str) -> None:
            nonlocal added
            added += 1
            add(level, line)

        forwarder.add = counting  # type: ignore[method-assign]
        self.interrupted(forwarder, forwarder.flush)
        forwarder.flush()
        assert [line for _, line in sent.lines] == ["again"] * added

    def test_a_stream_that_is_in_the_middle_of_a_write_does_not_hurt(self) -> None:
        busy = Process()
        busy.stdout.write = raising(RuntimeError("reentrant call inside <_io.BufferedWriter>"))
        with installed(busy) as process:
            print("one")
        assert process.lines(1) == [(INFO, "one")]


class TestLinesThatCannotBeSent:
    def test_all_of_them_and_those_dropped_before_are_counted(self) -> None:
        held: list[Lines] = []

        def send(lines: Lines) -> None:
            held.append(lines)
            if len(held) == 1:
                raise TypeError("this cannot be pickled")

        forwarder = OutputForwarder(send)
        for number in range(MAX_WAITING + 3):
            forwarder.add(INFO, str(number))
        forwarder._send_and_go_on()
        forwarder.add(INFO, "later")
        forwarder.flush()
        assert held[1] == ((WARNING, f"(lines that were dropped: {MAX_WAITING + 3})"), (INFO, "later"))


class TestBrokenDriver:
    def test_lines_do_not_pile_up(self) -> None:
        held: list[Lines] = []

        def send(lines: Lines) -> None:
            held.append(lines)
            raise ConnectionResetError("the driver is gone")

        forwarder = OutputForwarder(send)
        for number in range(MAX_WAITING * 2):
            forwarder.add(INFO, str(number))
        with pytest.raises(ConnectionResetError):
            forwarder.flush()
        assert len(held[0]) == MAX_WAITING + 1


class Process:
    """A slot's process, as far as its output goes: streams, root logger, and a driver.

    Both streams are ``inherited``, or else each has a buffer.
    """

    def __init__(self, inherited: TextIO | None = None) -> None:
        self.stdout: Any = inherited or io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        self.stderr: Any = inherited or io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        self.messages: queue.SimpleQueue[Lines] = queue.SimpleQueue()
        self.forwarder = OutputForwarder(self.messages.put)

    def lines(self, count: int) -> list[tuple[int, str]]:
        """Return the next lines that the background thread sends."""
        found: list[tuple[int, str]] = []
        while len(found) < count:
            found += self.messages.get(timeout=PATIENCE_S)
        return found

    @staticmethod
    def text(stream: io.TextIOWrapper) -> str:
        buffer = stream.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()

    @staticmethod
    def log(message: Any, *args: Any, level: int = INFO, error: Any = None) -> None:
        """Log as user code does; pytest's own handlers of the root logger do not hear of it."""
        record = logging.LogRecord("users.code", level, "file.py", 1, message, args, error)
        logging.getLogger().handlers[-1].handle(record)


@contextmanager
def installed(made: Process) -> Iterator[Process]:
    """Install the forwarder; afterwards the real streams and the root logger are back."""
    root = logging.getLogger()
    before = sys.stdout, sys.stderr, list(root.handlers), root.level
    sys.stdout, sys.stderr = made.stdout, made.stderr
    try:
        made.forwarder.install()
        yield made
    finally:
        sys.stdout, sys.stderr, root.handlers[:], _ = before
        root.setLevel(before[3])


class TestInstalled:
    """The slot's standard streams and root logger; lines go out in the background."""

    @pytest.mark.parametrize(
        ("parts", "lines"),
        [
            (["hello 5\n"], ["hello 5"]),
            (["a", "b", "c\nd\n\ne", "\n"], ["abc", "d", "", "e"]),
        ],
    )
    def test_a_line_is_sent_when_it_is_whole_and_still_printed(
        self, parts: list[str], lines: list[str]
    ) -> None:
        with installed(Process()) as process:
            for stream in (sys.stdout, sys.stderr):
                for part in parts:
                    print(part, end="", file=stream)
        levels = [(level, line) for level in (INFO, WARNING) for line in lines]
        assert process.lines(len(levels)) == levels
        assert process.text(process.stdout) == process.text(process.stderr) == "".join(parts)

    def test_both_streams_have_their_own_lines(self) -> None:
        with installed(Process()) as process:
            print("out", end="")
            print("err", end="", file=sys.stderr)
            print("put")
            print("or", file=sys.stderr)
        assert process.lines(2) == [(INFO, "output"), (WARNING, "error")]

    def test_what_is_logged_keeps_its_level_and_is_sent_once(self) -> None:
        """It is written to standard error as well, which is listened to too."""
        with installed(Process()) as process:
            process.log("half %d%%", 50, level=ERROR)
            print("end")
        assert process.lines(2) == [(ERROR, "users.code: half 50%"), (INFO, "end")]
        assert process.text(process.stderr) == "users.code: half 50%\n"

    def test_the_root_logger_lets_information_through(self) -> None:
        with installed(Process()):
            assert logging.getLogger().level == INFO
            assert logging.getLogger("users.code").isEnabledFor(INFO)
            assert not logging.getLogger("users.code").isEnabledFor(logging.DEBUG)

    def test_a_traceback_comes_with_its_line(self) -> None:
        with installed(Process()) as process:
            try:
                raise ZeroDivisionError("by zero")
            except ZeroDivisionError:
                process.log("failed", level=ERROR, error=sys.exc_info())
        text = "\n".join(line for _, line in process.lines(1))
        assert text.startswith("users.code: failed\nTraceback")
        assert text.endswith("ZeroDivisionError: by zero")

    def test_a_log_line_that_cannot_be_made_fails_nobody(self) -> None:
        """``logging`` itself tells of it on standard error and goes on."""
        with installed(Process()) as process:
            process.log("%d records", "many")
        assert "Logging error" in process.text(process.stderr)

    def test_what_a_stream_could_do_it_still_can(self) -> None:
        with installed(Process()) as process:
            assert sys.stdout.writable()
            sys.stdout.flush()
            assert not sys.stdout.isatty()
            assert sys.stdout.write("abc\n") == 4
            assert sys.stdout.encoding == process.stdout.encoding
            sys.stdout.buffer.write(b"raw\n")
            with pytest.raises(TypeError):
                sys.stdout.write(b"raw")  # type: ignore[arg-type]
        assert process.text(process.stdout) == "abc\nraw\n"

    @pytest.mark.parametrize("end", ["\n", ""])
    def test_flush_sends_at_once_what_waits_also_without_an_end(self, end: str) -> None:
        with installed(Process()) as process:
            print("closing", end=end)
            process.forwarder.flush()
            assert not process.messages.empty()
        assert process.lines(1) == [(INFO, "closing")]

    def test_a_line_without_end_is_sent_in_pieces(self) -> None:
        """As of a progress bar, which goes back to its beginning and never ends it."""
        with installed(Process()) as process:
            for _ in range(MAX_LINE + 1):
                sys.stdout.write("\r10")
            pieces = [line for _, line in process.lines(3)]
            assert all(len(piece) == MAX_LINE for piece in pieces)
            process.forwarder.flush()
            assert "".join(pieces) + process.lines(1)[0][1] == "\r10" * (MAX_LINE + 1)

    @pytest.mark.parametrize("length", [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE])
    def test_a_long_line_is_sent_whole(self, length: int) -> None:
        with installed(Process()) as process:
            print("x" * length)
            print("next")
            process.forwarder.flush()
            found = [line for _, line in process.lines(1 + -(-length // MAX_LINE))]
            assert ("".join(found[:-1]), found[-1]) == ("x" * length, "next")

    def test_threads_may_print_at_once(self) -> None:
        """Each writes lines in two parts; no part is lost, whichever line it is on."""
        with installed(Process()) as process:
            threads = [threading.Thread(target=lambda: [print("abc") for _ in range(500)]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            sys.stdout.write("end")
            process.forwarder.flush()
            found = []
            while "end" not in "".join(found[-1:]):
                found += [line for _, line in process.lines(1)]
            assert len(found) == 2001
            assert "".join(found).count("abc") == 2000

    def test_a_driver_that_breaks_ends_the_sending_and_nothing_else(self) -> None:
        made, broken = Process(), threading.Event()

        def send(_: Lines) -> None:
            broken.set()
            raise BrokenPipeError("the driver is gone")

        made.forwarder = OutputForwarder(send)
        before = set(threading.enumerate())
        with installed(made) as process:
            (sender,) = set(threading.enumerate()) - before
            print("one")
            assert broken.wait(PATIENCE_S)
            sender.join(PATIENCE_S)
            assert not sender.is_alive()
            print("two")
        assert process.text(process.stdout) == "one\ntwo\n"


@pytest.fixture
def unread() -> Iterator[TextIO]:
    """A stream into a pipe whose reader has gone, as of a slot that has outlived its executor."""
    reads, writes = os.pipe()
    os.close(reads)
    stream = os.fdopen(writes, "w", buffering=1, encoding="utf-8")
    with pytest.raises(BrokenPipeError):
        print("nobody reads this", file=stream)
    yield stream
    with suppress(BrokenPipeError):
        stream.close()


class TestStreamsThatFail:
    """The driver hears of each line, and whoever prints or logs goes on."""

    def test_what_is_printed_is_sent(self, unread: TextIO) -> None:
        with installed(Process(unread)) as process:
            print("hello", flush=True)
            print("oh no", file=sys.stderr, flush=True)
            print("x" * 100_000)
        lines = process.lines(12)
        assert lines[:2] == [(INFO, "hello"), (WARNING, "oh no")]
        assert "".join(line for _, line in lines[2:]) == "x" * 100_000

    def test_what_is_logged_is_sent(self, unread: TextIO) -> None:
        with installed(Process(unread)) as process:
            process.log("half %d%%", 50, level=ERROR)
            process.log("%d records", "many")
            process.log("end")
        lines = process.lines(3)
        assert (ERROR, "users.code: half 50%") in lines
        while (INFO, "users.code: end") not in lines:
            lines += process.lines(1)

    def test_what_is_logged_without_a_handler_is_sent(self, unread: TextIO) -> None:
        """Python logs on standard error then, and only prints an error if it cannot."""
        with installed(Process(unread)) as process:
            logging.getLogger().handlers.clear()
            logging.getLogger("users.code").warning("careful")
        assert process.lines(1) == [(WARNING, "careful")]

    def test_a_stream_that_was_closed(self, unread: TextIO) -> None:
        with suppress(BrokenPipeError):
            unread.close()
        with installed(Process(unread)) as process:
            print("hello", flush=True)
            process.log("once")
        assert process.lines(2) == [(INFO, "hello"), (INFO, "users.code: once")]

    def test_a_stream_that_lacks_a_character(self) -> None:
        ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
        with installed(Process(ascii_only)) as process:
            print("zwei, 二")
            print("two")
        assert process.lines(2) == [(INFO, "zwei, 二"), (INFO, "two")]
        assert process.text(ascii_only) == "\ntwo\n"


BEGIN = """
import re, signal, sys, threading
from pyflinkstate.runtime.slots.process import KernelWatchdog, ThreadWatchdog
dog = {kind}()
{then}
"""


def exit_code(kind: str, then: str) -> int:
    program = BEGIN.format(kind=kind, then=then)
    return subprocess.run([sys.executable, "-c", program], check=False, timeout=PATIENCE_S).returncode


@pytest.mark.parametrize("kind", ["KernelWatchdog", "ThreadWatchdog"])
def test_a_process_that_is_not_fed_ends(kind: str) -> None:
    assert exit_code(kind, "dog.feed(100); threading.Event().wait()") == -signal.SIGKILL


def test_also_when_no_thread_gets_the_interpreter_lock() -> None:
    forever = "dog.feed(100); re.match(r'(a+)+$', 'a' * 100 + 'b')"
    assert exit_code("KernelWatchdog", forever) == -signal.SIGKILL


def test_also_when_it_is_stopped() -> None:
    stopped = "dog.feed(300); signal.raise_signal(signal.SIGSTOP)"
    assert exit_code("KernelWatchdog", stopped) == -signal.SIGKILL


#: Waits for an alarm of the kernel that is later than a feeding of 2 s. It is held back until it is waited
#: for, as nobody would wake up for one that came before.
LATER = (
    "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM}); "
    "signal.setitimer(signal.ITIMER_REAL, 2.1); signal.sigwait({signal.SIGALRM})"
)


def test_one_that_is_fed_lives() -> None:
    """The last feeding counts: the first would have ended it before the alarm."""
    assert exit_code("KernelWatchdog", f"dog.feed(2_000); dog.feed(600_000); {LATER}; sys.exit(7)") == 7


def test_user_code_keeps_its_alarms() -> None:
    alarmed = (
        "import os\n"
        "rang, (woken, wakes) = [], os.pipe()\n"
        "os.set_blocking(wakes, False)\n"
        "signal.set_wakeup_fd(wakes)\n"
        "signal.signal(signal.SIGALRM, lambda *_: rang.append(1))\n"
        "dog.feed(600_000)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "os.read(woken, 1)\n"
        "sys.exit(len(rang) + 4)"
    )
    assert exit_code("KernelWatchdog", alarmed) == 5


def test_a_child_is_not_ended_with_it() -> None:
    forked = (
        "import os\n"
        "dog.feed(2_000)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    {LATER}; os._exit(6)\n"
        "dog.feed(600_000)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert exit_code("KernelWatchdog", forked) == 6


def test_the_thread_ends_the_process_when_its_time_has_come() -> None:
    """Its clock is the test's, and its end an event."""
    now, ended = [0.0], threading.Event()
    dog = ThreadWatchdog(lambda: now[0], ended.set)
    dog.feed(50_000)
    now[0] = 10.0
    dog.feed(50_000)
    now[0] = 60.0
    with dog._fed:
        dog._fed.notify()
    assert ended.wait(PATIENCE_S)


def test_linux_has_the_kernels() -> None:
    if sys.platform == "linux":
        assert isinstance(watchdog(), KernelWatchdog)


class Executor:
    """The reader of what the slots of a Spark worker print."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()

    def end(self) -> None:
        if self.reads >= 0:
            os.close(self.reads)
            os.close(self.writes)
            self.reads = -1


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    made = Executor()
    copy = os.dup

    def of_the_executor(stream: int) -> int:
        return copy(made.writes if stream in (1, 2) else stream)

    monkeypatch.setattr(os, "dup", of_the_executor)
    yield made
    made.end()


def heard(driver: Driver, count: int) -> list[tuple[int, str]]:
    """Return so many of the next lines that slots have said."""
    lines: list[tuple[int, str]] = []
    while len(lines) < count:
        lines += next_event(driver.events, SlotOutput).lines
    return lines


def test_what_a_function_prints_and_logs_reaches_the_driver_and_the_function_goes_on(
    driver: Driver, executor: Executor
) -> None:
    slot = driver.start_slot(Chatter())
    executor.end()
    for epoch in (1, 2):
        record = ("a", epoch)
        assert slot.feed(epoch, [record])[0] == [record]
        assert heard(driver, 3) == [
            (logging.INFO, f"printed {record}"),
            (logging.WARNING, f"warned {record}"),
            (logging.ERROR, f"users.code: logged {record}"),
        ]


def test_as_long_as_there_is_an_executor_it_reads_all_of_it(driver: Driver, executor: Executor) -> None:
    slot = driver.start_slot(Chatter())
    slot.feed(1, [("a", 1)])
    assert len(heard(driver, 3)) == 3
    said = os.read(executor.reads, 10_000).decode()
    assert said.splitlines() == ["printed ('a', 1)", "warned ('a', 1)", "users.code: logged ('a', 1)"]
