"""The channels that feed a slot directly, and the alignment of their barriers.

Each process that sends records to a slot has one channel to it, which stays open for the whole attempt. What
comes in a channel is in order: the openings of an epoch, its frames, and an empty message, the barrier at its
end. The barriers of an epoch are *aligned* when every channel has delivered its own: a channel that is ahead
is not read until then, so nothing is buffered here but a few frames, and the sender waits in its socket.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

import attrs

from pyflinkstate.errors import EpochBrokenOffError
from pyflinkstate.runtime.slots.slot_service import SlotService
from pyflinkstate.runtime.slots.time_shares import TimeShares
from pyflinkstate.runtime.wire import LOOK_EVERY_S, Channel, ChannelEvent, InputFrame, SlotId, take, wait_for

#: How many frames of a channel are read before the slot has processed the first one of them.
FRAMES_AHEAD = 3
#: The barrier at the end of an epoch.
BARRIER = b""
#: A frame without records, at which a slot looks what is due.
NOTHING = InputFrame(b"", (), ()).encode()
#: The first byte of a marker of latency, with which no frame begins: frames are pickles.
MARKER = b"M"


class _Gate:
    """Lets the thread that reads one channel go on."""

    def __init__(self) -> None:
        self.frames = threading.Semaphore(FRAMES_AHEAD)
        self.epochs = threading.Semaphore(0)


class Inputs:
    """The channels of one slot.

    Args:
        lost: returns why nothing will come any more, or None; it is asked again and again during a wait.

    Attributes:
        marked: called with a marker of latency when all that came before it is processed.
    """

    def __init__(self, lost: Callable[[], BaseException | None]) -> None:
        self.marked: Callable[[bytes], None] = lambda marker: None
        self._lost = lost
        self._mail: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        self._gates: dict[str, _Gate] = {}

    def read(self, sender: str, channel: Channel) -> None:
        """Read a channel until it ends; each channel has a thread of its own."""
        gate = self._gates[sender] = _Gate()
        try:
            while True:
                data = channel.recv_bytes()
                self._mail.put((sender, data))
                self._pass(gate.frames if data else gate.epochs)
        finally:
            self._mail.put((sender, None))

    def _next(self, rest_s: float) -> tuple[str, bytes | None] | None:
        """Return what has come; None if nothing comes for some seconds."""
        with suppress(queue.Empty):
            return take(self._mail, min(rest_s, LOOK_EVERY_S))
        if (error := self._lost()) is not None:
            raise error
        return None

    def wake_up(self) -> None:
        """Have who waits for frames look whether any will come."""
        self._mail.put(("somewhere", None))

    def _pass(self, gate: threading.Semaphore) -> None:
        wait_for(lambda timeout_s: gate.acquire(timeout=timeout_s) or None, self._lost)

    def epoch(
        self, senders: Collection[str], openings: int, rest_s: Callable[[], float] = lambda: LOOK_EVERY_S
    ) -> Iterator[bytes]:
        """Yield the frames of an epoch until all barriers are aligned.

        Args:
            senders: the names of all that send.
            openings: how many openings they send.
            rest_s: returns how long to wait if nothing comes; then a frame without records is yielded.

        Raises:
            EpochBrokenOffError: a channel has ended before its barrier.
        """
        alignment = Alignment(senders, openings)
        while alignment.waiting:
            mail = self._next(LOOK_EVERY_S if alignment.openings else rest_s())
            if mail is None:
                yield from () if alignment.openings else (NOTHING,)
                continue
            sender, data = mail
            if data is None:
                raise self._lost() or EpochBrokenOffError(
                    f"the channel from {sender} has ended in the middle of an epoch"
                )
            for frame in alignment.take(sender, data):
                if frame.startswith(MARKER):
                    self.marked(frame)
                else:
                    yield frame
            if data:
                self._gates[sender].frames.release()
        for sender in senders:
            self._gates[sender].epochs.release()


class Alignment:
    """What may be processed of the frames of one epoch, and whose barriers have not come.

    No frame of records is processed before the openings of all partitions have come, so who merges their
    watermarks knows all of them. Meanwhile all channels are read: an opening may come behind the records of
    another partition.

    Args:
        senders: the names of all that send.
        openings: how many openings they send.
    """

    def __init__(self, senders: Collection[str], openings: int) -> None:
        self.waiting = set(senders)
        #: How many openings have not come.
        self.openings = openings
        self._held: list[bytes] = []

    def take(self, sender: str, data: bytes) -> list[bytes]:
        """Return the frames that may be processed now that one, or a barrier, has come."""
        if not data:
            self.waiting.remove(sender)
            return []
        if not self.openings:
            return [data]
        if not _is_opening(data):
            self._held.append(data)
            return []
        self.openings -= 1
        if self.openings:
            return [data]
        held, self._held = self._held, []
        return [data, NOTHING, *held]  # what is behind learns where this vertex begins


def _is_opening(data: bytes) -> bool:
    time = None if data.startswith(MARKER) else InputFrame.decode(data).time
    return time is not None and time.event is ChannelEvent.OPEN


@attrs.frozen
class Host:
    """What runs the programs of one vertex.

    Attributes:
        vertex: the vertex: a slot, a subtask of an exchange, or a task of the sources.
        inputs: the channels to it.
        service: the state and the function of a slot; None elsewhere.
        shares: where its time goes.
    """

    vertex: SlotId
    inputs: Inputs
    service: SlotService | None = None
    shares: TimeShares = attrs.Factory(TimeShares)


class Visitor(ABC):
    """The first message of a connection that says itself how the connection is served.

    An engine has such messages, whose classes a slot need not know.
    """

    @abstractmethod
    def serve(self, host: Host, channel: Channel) -> None:
        """Serve the connection until it ends, on a thread of its own."""


@attrs.frozen
class OpenChannel(Visitor):
    """The first message of a channel: frames of ``sender`` for ``target`` follow."""

    sender: str
    target: SlotId

    def serve(self, host: Host, channel: Channel) -> None:
        """See :class:`Visitor`."""
        host.inputs.read(self.sender, channel)
