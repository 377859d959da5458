"""Sends what user code prints and logs in a slot to the driver, line by line.

The streams that a slot inherits lead to the executor that started it, and a slot may outlive its executor.
So a line is handed over for the driver first, and what an inherited stream raises is ignored.
"""

from __future__ import annotations

import contextlib
import io
import logging
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TextIO

#: How long lines wait so that others can be sent with them.
INTERVAL_S = 0.2
#: Maximum number of waiting lines; if the driver is too slow, the oldest are dropped and counted.
MAX_WAITING = 10_000
#: Longer lines are sent in pieces of this many characters: a progress bar may never end its line.
MAX_LINE = 10_000
#: The errors of a stream if nobody reads it, if it was closed, if it cannot encode a character, or if a
#: signal handler writes in the middle of a write.
STREAM_ERRORS = (OSError, ValueError, RuntimeError)

Lines = tuple[tuple[int, str], ...]


class OutputForwarder:
    """Sends lines in the background, in order.

    ``send`` takes lines with their levels, and raises ``OSError`` if the driver is gone.
    """

    def __init__(self, send: Callable[[Lines], None]) -> None:
        self._send = send
        self._lines: deque[tuple[int, str]] = deque()
        self._dropped = 0
        #: Reentrant, because a signal handler or a ``__del__`` may print in the middle of ``add``.
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        #: Has an item if something waits; unlike an event, it may be told of that by a signal handler.
        self._something: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._tees: tuple[_Tee, ...] = ()

    def install(self) -> None:
        """Forward ``sys.stdout``, ``sys.stderr`` and the root logger, which go on writing where they can."""
        stderr = sys.stderr
        sys.stdout = out = _Tee(sys.stdout, lambda line: self.add(logging.INFO, line))
        sys.stderr = err = _Tee(stderr, lambda line: self.add(logging.WARNING, line))
        self._tees = (out, err)
        handler = _Handler(self, stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.INFO)
        self.start()

    def start(self) -> None:
        """Start to send."""
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, level: int, line: str) -> None:
        """Queue a line to be sent soon."""
        with self._lock:
            if len(self._lines) >= MAX_WAITING:
                self._lines.popleft()
                self._dropped += 1
            self._lines.append((level, line))
        if self._something.empty():
            self._something.put(None)

    def flush(self) -> None:
        """Send all lines, including one without an end."""
        for tee in self._tees:
            tee.end_line()
        self._send_waiting()

    def _send_waiting(self) -> None:
        with self._sending:
            with self._lock:
                lines, self._lines = self._lines, deque()
                dropped, self._dropped = self._dropped, 0
            lost = dropped + len(lines)
            if dropped:
                lines.appendleft((logging.WARNING, f"(lines that were dropped: {dropped})"))
            if lines:
                self._send_or_count(tuple(lines), lost)

    def _send_or_count(self, lines: Lines, lost: int) -> None:
        """Send lines; if that fails, ``lost`` lines are dropped."""
        try:
            self._send(lines)
        except BaseException:
            with self._lock:
                self._dropped += lost
            raise

    def _run(self) -> None:
        pause = threading.Event()
        try:
            while True:
                self._something.get()
                pause.wait(INTERVAL_S)
                self._send_and_go_on()
        except OSError:
            return  # the driver is gone, and the slot is about to hear of it

    def _send_and_go_on(self) -> None:
        """Send what waits; lines that cannot be sent are dropped, and later ones may be sent."""
        try:
            self._send_waiting()
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - no error may end the output
            pass


class _Tee(io.TextIOBase):
    """Passes on each line, or pieces of an endless line, and writes it to a stream. Thread-safe."""

    def __init__(self, stream: TextIO, add: Callable[[str], None]) -> None:
        self._stream = stream
        self._add = add
        self._rest = ""
        #: Reentrant, because a signal handler may print in the middle of a print.
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._add_in_pieces(line)
            if len(self._rest) > MAX_LINE:
                whole = len(self._rest) // MAX_LINE * MAX_LINE
                pieces, self._rest = self._rest[:whole], self._rest[whole:]
                self._add_in_pieces(pieces)
            with contextlib.suppress(*STREAM_ERRORS):
                self._stream.write(text)
        return len(text)

    def _add_in_pieces(self, line: str) -> None:
        for start in range(0, max(1, len(line)), MAX_LINE):
            self._add(line[start : start + MAX_LINE])

    def flush(self) -> None:
        with contextlib.suppress(*STREAM_ERRORS):
            self._stream.flush()

    @property
    def buffer(self) -> Any:
        """The stream of bytes, which are not passed on as lines."""
        return self._stream.buffer

    def end_line(self) -> None:
        """Pass on an incomplete line."""
        with self._lock:
            rest, self._rest = self._rest, ""
            if rest:
                self._add(rest)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a stream's own is read-only too
        return self._stream.encoding

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


class _Handler(logging.Handler):
    def __init__(self, forwarder: OutputForwarder, stream: TextIO) -> None:
        super().__init__()
        self._forwarder = forwarder
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - like the handlers of ``logging``
            self.handleError(record)
            return
        self._forwarder.add(record.levelno, line)
        with contextlib.suppress(*STREAM_ERRORS):
            self._stream.write(line + "\n")
