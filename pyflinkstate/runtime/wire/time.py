"""Time: the clock that is passed to the runtime, waits that end when the other side is gone, and event time.

A clock has two readings. Wall-clock time says when something happened, for people and for files; it is also
the processing time of timers and time to live, and can be set back or forward. Monotonic time says how long
something took: intervals, timeouts and delays use it. Tests pass another clock.

Event time travels from the tasks that make watermarks to the subtasks that merge them. A watermark travels in
the frame with the records that it follows. Each Spark partition that feeds a subtask is a channel; the
channels that come from the same part of the plan form a *branch*. Every channel opens with the watermark of
its branch, so a subtask knows all of its channels before the first record, and closes at the end of the
epoch. The watermark of a branch is the least of its channels that had records, that of a subtask the least of
its branches that are not idle; it never goes back.
"""

from __future__ import annotations

import enum
import queue
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

import attrs

from pyflinkstate.api import MAX_WATERMARK, NO_WATERMARK, T
from pyflinkstate.backends.wall_clock import wall_clock_ms


class Clock(Protocol):
    """Returns the time and waits for events."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970; they may jump."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since some moment; they never jump, and mean nothing in another process."""

    def receive(self, mailbox: queue.SimpleQueue[T], timeout_ms: int) -> T | None:
        """Return the next event of a mailbox, or None if none comes within ``timeout_ms``."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """See :class:`Clock`."""
        return wall_clock_ms()

    def monotonic_ms(self) -> int:
        """See :class:`Clock`."""
        return time.monotonic_ns() // 1_000_000

    def receive(self, mailbox: queue.SimpleQueue[T], timeout_ms: int) -> T | None:
        """See :class:`Clock`."""
        return next_of(mailbox)(timeout_ms / 1000)


#: How long a wait lasts before it checks whether the other side is still alive.
LOOK_EVERY_S = 1.0


def wait_for(
    look: Callable[[float], T | None],
    lost: Callable[[], BaseException | None],
    look_every_s: float = LOOK_EVERY_S,
) -> T:
    """Return what ``look`` finds. Between two looks, check that the other side is still alive.

    Args:
        look: waits for up to this many seconds, and returns None if nothing has come.
        lost: returns the error to raise if nothing can come any more, otherwise None.
        look_every_s: how long one look waits.
    """
    while (found := look(look_every_s)) is None:
        error = lost()
        if error is None:
            continue
        found = look(0)  # it may have come just before the other side ended
        if found is None:
            raise error
        break
    return found


def next_of(mailbox: queue.SimpleQueue[T]) -> Callable[[float], T | None]:
    """Return a ``look`` for :func:`wait_for` that takes the next item of a queue."""

    def look(timeout_s: float) -> T | None:
        try:
            return take(mailbox, timeout_s)
        except queue.Empty:
            return None

    return look


def take(mailbox: queue.SimpleQueue[T], timeout_s: float | None) -> T:
    """Return the next item of a queue that one thread reads; raise ``queue.Empty`` if none comes in time.

    CPython's ``get`` may wait for ever: where its lock is free although the queue is empty, it takes the lock
    and computes what is left of the time-out, and if that is negative by then, it waits without one. After
    ``get_nowait`` the lock is taken.
    """
    with suppress(queue.Empty):
        return mailbox.get_nowait()
    return mailbox.get(timeout=timeout_s)


def joined(thread: threading.Thread) -> Callable[[float], bool | None]:
    """Return a ``look`` for :func:`wait_for` that waits for the end of a thread."""

    def look(timeout_s: float) -> bool | None:
        thread.join(timeout_s)
        return None if thread.is_alive() else True

    return look


def result_of(future: Future[T], lost: Callable[[], BaseException | None]) -> T:
    """Return the result of a future, or raise its error, or that of ``lost``; see :func:`wait_for`."""
    wait_for(lambda timeout_s: bool(futures.wait([future], timeout_s).done) or None, lost)
    return future.result(timeout=0)


def steady(clock: Clock) -> Callable[[], int]:
    """Return a function that tells wall-clock time in ms and ignores later changes of the clock."""
    began_ms = clock.now_ms() - clock.monotonic_ms()
    return lambda: began_ms + clock.monotonic_ms()


@attrs.define
class TaskTime:
    """The time of a task's present record; one object serves all records.

    Attributes:
        timestamp: the timestamp of the record, in ms since 1970, or None.
        watermark: the watermark after the record.
        is_idle: whether the stream holds back no other.
    """

    timestamp: int | None = None
    watermark: int = NO_WATERMARK
    is_idle: bool = False


class ChannelEvent(enum.IntEnum):
    """The place of a frame in a channel's epoch."""

    OPEN = 0
    RECORDS = 1
    CLOSE = 2
    #: The channel had no records in this epoch.
    CLOSE_EMPTY = 3


@attrs.frozen
class FrameTime:
    """The event time of a frame.

    Attributes:
        branch: the part of the plan it comes from, as its number among the inputs of the operator.
        channel: the partition it comes from.
        watermark: the watermark after the frame's records.
        event: its place in the channel's epoch.
        is_idle: whether the branch holds back no other.
    """

    branch: int
    channel: int
    watermark: int
    event: ChannelEvent = ChannelEvent.RECORDS
    is_idle: bool = False


@attrs.define
class _Branch:
    """The channels of one branch in one epoch."""

    opening: int
    is_idle: bool
    #: The channels that count: those that have not closed without records.
    channels: dict[int, int] = attrs.Factory(dict)

    def open(self, time: FrameTime) -> None:
        self.opening = min(self.opening, time.watermark)
        self.channels[time.channel] = time.watermark

    def watermark(self) -> int:
        return max(self.opening, min(self.channels.values(), default=self.opening))


@attrs.define(eq=False)
class WatermarkMerger:
    """Computes the watermark of one subtask from those of its channels.

    Args:
        watermark: its value at the end of the previous epoch.
    """

    watermark: int = NO_WATERMARK
    _branches: dict[int, _Branch] = attrs.field(init=False, factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether every branch of this epoch is idle."""
        return bool(self._branches) and all(branch.is_idle for branch in self._branches.values())

    def begin_epoch(self) -> None:
        """Forget the channels: they last as long as an epoch."""
        self._branches.clear()

    def open(self) -> bool:
        """Advance to the least watermark with which a branch opened; return whether that was an advance.

        To be called when all channels are open, before the first record. A subtask is there already, as all
        branches open with what it ended the epoch before with, or less. But if it was restored from the end
        of its input, nobody knows its watermark, and only its branches know theirs.
        """
        return self.advance_to(
            min([branch.opening for branch in self._branches.values()], default=NO_WATERMARK)
        )

    def advance(self, time: FrameTime) -> bool:
        """Process a frame; return whether the subtask's watermark has advanced."""
        branch = self._branches.get(time.branch)
        if branch is None:
            branch = self._branches[time.branch] = _Branch(time.watermark, time.is_idle)
        branch.is_idle = branch.is_idle and time.is_idle  # until its first record
        if time.event is ChannelEvent.OPEN:  # other branches have yet to open, and may be behind
            branch.open(time)
            return False
        if time.event is ChannelEvent.CLOSE_EMPTY and time.watermark < MAX_WATERMARK:
            branch.channels.pop(time.channel, None)
        else:
            branch.channels[time.channel] = time.watermark
        own = (branch.watermark() for branch in self._branches.values() if not branch.is_idle)
        return self.advance_to(min(own, default=NO_WATERMARK))

    def advance_to(self, watermark: int) -> bool:
        """Advance to ``watermark`` if it is later; return whether it was."""
        if watermark <= self.watermark:
            return False
        self.watermark = watermark
        return True


@attrs.frozen
class EventTimeProgress:
    """The event time of tasks when an epoch begins.

    Attributes:
        watermarks: the watermarks of assigners and operators, by their ids.
        idle: the assigners whose stream has had no records for longer than its idle timeout.
    """

    watermarks: dict[str, int] = attrs.Factory(dict)
    idle: frozenset[str] = frozenset()
