"""One line at the bottom of a terminal, which goes on being the last while others write above it.

What a program prints and logs goes to the same terminal, and would be put into the middle of the line. So as
long as the line is there, ``sys.stdout`` and ``sys.stderr``, and what ``logging`` writes to them, are led
past it: the line is erased, the text is written, and the line is drawn again once that text has ended its
own line. Whoever else writes there (the JVM, a child process) finds the cursor in the first column, and
writes over the line.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TextIO

#: Back to the first column, and clear to the end of the line.
ERASE = "\r\x1b[K"
_SHARED = ("stdout", "stderr")


class TerminalLine:
    """The line, and the streams that are led past it.

    Where the stream cannot be written to any more (a closed terminal, a broken pipe), nothing is shown.

    A handler of ``logging`` writes while it has its own lock, and then waits for that of the line. So whoever
    has the lock of the line must not ask for that of a handler: streams are led, and given back, without it.

    Args:
        stream: where the line is shown; if that is no terminal, all others are left alone.
        shared: has the streams that others write to, ``stdout`` and ``stderr``; by default ``sys``.
    """

    def __init__(self, stream: TextIO, shared: Any = sys) -> None:
        self._stream = stream
        self._shared = shared
        self._text = ""
        #: What others have written last ended its line.
        self._is_free = True
        #: May be taken again by the same thread: a signal handler may print in the middle of a print.
        self._lock = threading.RLock()
        self._led: list[_LedStream] = []

    def show(self, text: str) -> None:
        """Show ``text`` in place of what was there."""
        if not self._text:
            self._lead_others()
        with self._lock:
            self._text = text
            self._draw()

    def leave(self, text: str) -> None:
        """Write ``text`` as the last one, and leave it there."""
        with self._lock:
            self._text = ""
            self._write(("" if self._is_free else "\n") + ERASE + text + "\n")
            given_back, self._led = self._led, []
        for led in given_back:
            led.give_back()

    def write_above(self, write: Callable[[str], Any], flush: Callable[[], None], text: str) -> Any:
        """Have ``write`` write ``text`` where the line is."""
        with self._lock:
            if self._text and self._is_free:
                self._write(ERASE)
            written = write(text)
            if text:
                self._is_free = text.endswith("\n")
            if self._text and self._is_free:
                flush()
                self._draw()
            return written

    def _draw(self) -> None:
        if self._is_free:
            self._write(ERASE + self._cut(self._text) + "\r")

    def _cut(self, text: str) -> str:
        """Return as much as fits: of a line that goes on in the next row only that one could be erased."""
        with suppress(OSError, ValueError):  # it is no terminal
            columns = os.get_terminal_size(self._stream.fileno()).columns
            return text[: columns - 1] if columns else text
        return text

    def _write(self, text: str) -> None:
        # A line that nobody can see is no reason for a job to fail. ValueError is that of a closed stream.
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def _lead_others(self) -> None:
        if _is_terminal(self._stream):
            streams = [name for name in _SHARED if _is_terminal(getattr(self._shared, name))]
            self._led = [_LedStream(self, self._shared, name) for name in streams]


class _LedStream:
    """Stands for a stream that others write to while there is a line on the terminal."""

    def __init__(self, line: TerminalLine, shared: Any, name: str) -> None:
        self._line = line
        self._shared = shared
        self._name = name
        self._stream: TextIO = getattr(shared, name)
        self._handlers = [handler for handler in _handlers() if handler.stream is self._stream]
        setattr(shared, name, self)
        for handler in self._handlers:
            handler.setStream(self)

    def write(self, text: str) -> int:
        """Write past the line."""
        return int(self._line.write_above(self._stream.write, self._stream.flush, text) or 0)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write past the line."""
        self.write("".join(lines))

    def give_back(self) -> None:
        """Give all who write their stream back; who has kept this one goes on with it."""
        if getattr(self._shared, self._name) is self:
            setattr(self._shared, self._name, self._stream)
        for handler in self._handlers:
            if handler.stream is self:
                handler.setStream(self._stream)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_terminal(stream: TextIO | None) -> bool:
    with suppress(OSError, ValueError):  # it is closed
        return stream is not None and stream.isatty()
    return False


def _handlers() -> list[logging.StreamHandler[Any]]:
    """Return the handlers of all loggers that write to a stream."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    found = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    return [handler for handler in found if isinstance(handler, logging.StreamHandler)]
