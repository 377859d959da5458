"""The base of all harnesses: the operator's output, its clock, and what stands in for storage and time."""

from __future__ import annotations

import asyncio
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, TypeVar

import attrs

from pyflinkstate.api import OutputTag, OutputType, PickledBytesTypeInfo, Record, Setting, T, declared_type
from pyflinkstate.backends.format import ByteStreamStateHandle, StreamStateHandle
from pyflinkstate.errors import CorruptCheckpointError
from pyflinkstate.runtime.operators import close_after_error
from pyflinkstate.runtime.plan import OutputCheck
from pyflinkstate.runtime.program import EnvironmentSettings
from pyflinkstate.runtime.wire import user_failure


@attrs.define
class ManualClock:
    """The processing time of a harness; several harnesses may share one clock.

    Call it to get the time. Setting ``now_ms`` fires no timers; ``set_processing_time()`` of a harness does
    both.

    Attributes:
        now_ms: the time, in milliseconds since 1970.
    """

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


@attrs.frozen
class StreamRecord:
    """A result (Flink: ``StreamRecord``).

    Attributes:
        value: the result itself.
        timestamp: its event time in ms since 1970, or None.
    """

    value: Any
    timestamp: int | None = None


@attrs.frozen
class Watermark:
    """A watermark that the operator has passed on (Flink: ``Watermark``).

    Attributes:
        timestamp: no more records up to this time will come, in ms since 1970.
    """

    timestamp: int


def checked_output(name: str, output_type: OutputType | None) -> Callable[[Record], Record]:
    """Return what checks the results of operator ``name``, and converts them to the form of their type.

    It raises ``BadRecordError`` for a result that does not fit.
    """
    declared = declared_type("output_type", output_type)
    if declared is None or isinstance(declared, PickledBytesTypeInfo):
        return lambda value: value
    check = OutputCheck(name, declared)

    def checked(value: Record) -> Record:
        try:
            return check(value)
        except Exception as error:
            raise user_failure(error, name, value) from error

    return checked


class MemoryCheckpointStream:
    """Collects the written bytes."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self._chunks.append(bytes(data))

    def close_and_get_handle(self) -> StreamStateHandle:
        """Return a handle that contains the bytes."""
        return ByteStreamStateHandle(b"".join(self._chunks))

    def abort(self) -> None:
        """Discard the written bytes."""
        self._chunks.clear()


class MemoryCheckpoint:
    """Makes the streams of one checkpoint, and reads them."""

    def create(self) -> MemoryCheckpointStream:
        """Open a stream."""
        return MemoryCheckpointStream()

    def discard(self, handle: StreamStateHandle) -> None:
        """Do nothing: the handle contains the bytes."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``."""
        assert isinstance(handle, ByteStreamStateHandle)
        data = handle.data[offset : offset + length]
        if len(data) != length:
            raise CorruptCheckpointError(f"{self.describe(handle)} is truncated")
        return data

    def describe(self, handle: StreamStateHandle) -> str:
        """Return a name for the bytes in messages."""
        return f"checkpoint in memory, {handle.size_bytes} bytes"


class JumpingEventLoop(asyncio.SelectorEventLoop):
    """If all tasks wait for time only, it jumps to the next delay or timeout; else it passes as usual.

    The time starts at 0 s. It is independent of the clock of the harness, which is the processing time.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the number of seconds that have passed."""
        return self._jumping.passed_s

    def run_in_executor(  # type: ignore[override]  # it takes the same, in other words
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run ``func`` in a thread; the time does not jump until it has ended."""
        self._jumping.in_threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._jumping.left_thread)
        return future


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for files and measures time."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0
        self.in_threads = 0

    def left_thread(self, _: object) -> None:
        self.in_threads -= 1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # The loop always registers one file of its own, which other threads use to wake it.
        if len(self.get_map()) > 1 or self.in_threads:
            return self._waited(timeout)
        events = super().select(0)
        if not events:
            self.passed_s += timeout
        return events

    def _waited(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = time.monotonic()
        events = super().select(timeout)
        self.passed_s += time.monotonic() - began_s
        return events


H = TypeVar("H", bound="Harness")
#: The values and the timestamps of a side output.
_Columns = tuple[list[Record], list[int | None]]


class Harness(ABC):
    """The base of all harnesses: has the operator's output, and is closed at the end of a ``with`` block.

    Args:
        name: the name of the operator.
        output_type: the type against which results are checked; None for no check.
        clock: the processing time; None for a clock of its own, at 0 ms.
        job_parameters: what ``get_job_parameter`` returns, by name: the global parameters of the job.
    """

    def __init__(
        self,
        name: str,
        output_type: OutputType | None,
        clock: ManualClock | None,
        job_parameters: Mapping[str, Setting] | None,
    ) -> None:
        self.clock = ManualClock() if clock is None else clock
        self._checked = checked_output(name, output_type)
        self._main: list[StreamRecord | Watermark] = []
        self._side: dict[str, list[StreamRecord]] = {}
        settings = EnvironmentSettings(lambda: 1)
        settings.put(job_parameters=job_parameters or {})
        self._job_parameters = settings.job_parameters

    @abstractmethod
    def close(self) -> None:
        """Close the functions."""

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            close_after_error(self.close)

    def get_processing_time(self) -> int:
        """Return the time of the clock, in ms since 1970."""
        return self.clock.now_ms

    def _collect(
        self, values: Iterable[Record], timestamps: Iterable[int | None], side: Mapping[str, _Columns]
    ) -> list[Record]:
        """Add results and side outputs to the output; return the values of the results."""
        checked = [self._checked(value) for value in values]
        self._main.extend(map(StreamRecord, checked, timestamps))
        for tag_id, columns in side.items():
            self._side.setdefault(tag_id, []).extend(map(StreamRecord, *columns))
        return checked

    def get_output(self) -> list[StreamRecord | Watermark]:
        """Return all results and watermarks of the main output so far, in order."""
        return list(self._main)

    def extract_output_values(self) -> list[Any]:
        """Return the values of all results of the main output so far."""
        return [item.value for item in self._main if isinstance(item, StreamRecord)]

    def get_side_output(self, output_tag: OutputTag) -> list[StreamRecord]:
        """Return all results of a side output so far, or none if the tag was never used.

        Raises:
            BadRecordError: a result does not fit the tag's type.
        """
        checked = checked_output(f"side output {output_tag.tag_id}", output_tag.type_info)
        return [
            attrs.evolve(record, value=checked(record.value))
            for record in self._side.get(output_tag.tag_id, ())
        ]

    def extract_side_output_values(self, output_tag: OutputTag) -> list[Any]:
        """Return the values of all results of a side output so far."""
        return [record.value for record in self.get_side_output(output_tag)]
