"""Frozen state from slots: record batches, as they come, from all slots at once."""

from __future__ import annotations

import contextlib
import select
import weakref
from collections.abc import Callable, Iterator, Sequence

import attrs
import pyarrow as pa

from pyflinkstate.backends.format import StateCodec
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import PyFlinkStateError, StateQueryError, StateQueryTimeoutError
from pyflinkstate.runtime.plan import SettledOperator
from pyflinkstate.runtime.wire import AnswerEnded, Channel


@attrs.define(eq=False, slots=False)
class LiveEntries:
    """The entries of one state after one epoch, as the slots send them. They can be read once.

    The slots keep what they have frozen until it is read, or :meth:`close` is called, or nobody refers to
    this object any more.

    Attributes:
        operator: the operator.
        meta: describes the state.
        epoch: the epoch after which the state was frozen.
        now_ms: the job's time when it was frozen, in ms since 1970.
    """

    operator: SettledOperator
    meta: RegisteredStateMeta
    epoch: int
    now_ms: int
    _channels: Sequence[Channel] = attrs.field(repr=False)
    _timeout_s: float = attrs.field(repr=False)
    _on_close: Callable[[], None] = attrs.field(repr=False)
    #: Idempotent, and called by the garbage collector if nobody else does.
    close: Callable[[], None] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Close the connections when this object is collected."""
        self.close = weakref.finalize(self, _closed, self._channels, self._on_close)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of ``key``, ``namespace`` if there is one, and ``value``, in no particular order.

        Raises:
            StateQueryError: a slot has died, or has cut the answer off because it was read too slowly.
        """
        schema = StateCodec(self.operator.node.key_type, self.meta, None).schema
        try:
            for data in self._messages():
                yield pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        except (EOFError, OSError) as error:
            if isinstance(error, PyFlinkStateError):
                raise
            raise StateQueryError(
                f"a slot of operator {self.operator.operator_id!r} ended or cut off its answer: the job "
                f"restarts or ends, or the answer was read too slowly; ask again",
                operator=self.operator.operator_id,
            ) from error
        finally:
            self.close()

    def _messages(self) -> Iterator[bytes]:
        waiting = list(self._channels)
        while waiting:
            for channel in self._ready(waiting):
                if data := channel.recv_bytes():
                    yield data
                else:
                    _check_end(channel.recv())
                    waiting.remove(channel)

    def _ready(self, waiting: list[Channel]) -> list[Channel]:
        """Return the channels that have data to read."""
        ready = [channel for channel in waiting if channel.poll()]  # an encrypted one may have read ahead
        if ready:
            return ready
        sockets = select.poll()
        for channel in waiting:
            channel.watch(sockets, select.POLLIN)
        descriptors = {descriptor for descriptor, _ in sockets.poll(self._timeout_s * 1000)}
        if not descriptors:
            raise StateQueryTimeoutError(
                f"no slot of operator {self.operator.operator_id!r} has sent anything for "
                f"{self._timeout_s:g} s",
                operator=self.operator.operator_id,
            )
        return [channel for channel in waiting if channel.fileno() in descriptors]


def _check_end(ended: AnswerEnded) -> None:
    if ended.error is not None:
        raise ended.error


def _closed(channels: Sequence[Channel], on_close: Callable[[], None]) -> None:
    close_all(channels)
    on_close()


def close_all(channels: Sequence[Channel]) -> None:
    """Close connections; the slots release what they have frozen for them."""
    for channel in channels:
        with contextlib.suppress(OSError):
            channel.close()
