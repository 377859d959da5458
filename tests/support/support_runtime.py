"""What the runtime tests share: a clock, metadata, and bounded waiting.

Only the clock, the network's far end and Spark are replaced; everything else is the real thing.
"""

from __future__ import annotations

import queue
import select
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs

import pyflinkstate
from pyflinkstate import Types
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    CheckpointMetadata,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorSubtaskState,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import RuntimeFailure
from pyflinkstate.runtime.wire import Channel, CheckpointAck, CheckpointDecline, SlotId

PACKAGE = str(Path(pyflinkstate.__file__).parent)
PICKLED = Types.PICKLED_BYTE_ARRAY()
#: Nothing that a test waits for takes so long; it is only there so that a broken test ends.
PATIENCE_S = 20.0


class ManualClock:
    """Stands still unless told to go on; each question may cost ``step_ms``. Wall time may also be set."""

    def __init__(self, now_ms: int = 1_700_000_000_000, step_ms: int = 0) -> None:
        self.time_ms = now_ms
        self.step_ms = step_ms
        self._set_by_ms = now_ms - 5_000_000
        self.slept: list[int] = []
        #: Called when somebody waits, before the time has passed.
        self.on_sleep: Callable[[int], None] = lambda _: None

    def now_ms(self) -> int:
        self.time_ms += self.step_ms
        return self.time_ms

    def monotonic_ms(self) -> int:
        self.time_ms += self.step_ms
        return self.time_ms - self._set_by_ms

    def set(self, by_ms: int) -> None:
        """Set wall time forward, or back; nothing has passed."""
        self.time_ms += by_ms
        self._set_by_ms += by_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.on_sleep(duration_ms)
        self.slept.append(duration_ms)
        self.time_ms += duration_ms

    def receive(self, mailbox: queue.SimpleQueue[Any], timeout_ms: int) -> Any | None:
        try:
            return mailbox.get_nowait()
        except queue.Empty:
            self.sleep_ms(timeout_ms)
            return None


def handle(start: int = 0, end: int = 127, data: bytes = b"state") -> KeyGroupsStateHandle:
    """Return a handle of some key groups; what it points at is no state file."""
    return KeyGroupsStateHandle(KeyGroupRange(start, end), ByteStreamStateHandle(data), {})


def ack(checkpoint_id: int, slot: SlotId, data: bytes = b"state") -> CheckpointAck:
    return CheckpointAck(checkpoint_id, slot, OperatorSubtaskState(handle(data=data)), 0.5, 1.5)


def decline(checkpoint_id: int, slot: SlotId, reason: str = "disk full") -> CheckpointDecline:
    return CheckpointDecline(checkpoint_id, slot, RuntimeFailure(reason))


def metadata(
    checkpoint_id: int = 1,
    job_id: str = "0" * 32,
    job_name: str = "orders",
    timestamp_ms: int = 1_000,
    operators: Iterable[OperatorState] = (),
    **changes: Any,
) -> CheckpointMetadata:
    """Return metadata of a checkpoint."""
    made = CheckpointMetadata(
        checkpoint_id=checkpoint_id,
        job_id=job_id,
        job_name=job_name,
        epoch=checkpoint_id,
        source_position={"index": 10, "length": 20},
        counters={"collection.records_out": 10},
        timestamp_ms=timestamp_ms,
        operators=tuple(operators),
    )
    return attrs.evolve(made, **changes)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below ``folder``, by its path there."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def receive(connection: Channel) -> Any:
    """Return the next message; fails where none comes."""
    assert connection.poll(PATIENCE_S), "no message came"
    return connection.recv()


def next_event(events: queue.SimpleQueue[Any], kind: type) -> Any:
    """Return the next event of a kind, passing over others."""
    while not isinstance(event := events.get(timeout=PATIENCE_S), kind):
        pass
    return event


def wait_for_exit(pid_fd: int) -> None:
    """Return when the process behind ``os.pidfd_open`` has ended; fails where it goes on."""
    ready, _, _ = select.select([pid_fd], [], [], PATIENCE_S)
    assert ready, "the process has not ended"


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises ``error`` whatever it is called with."""

    def raise_it(*_: Any, **__: Any) -> Any:
        raise error

    return raise_it
