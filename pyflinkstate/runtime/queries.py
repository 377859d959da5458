"""Asks the slots of a running job for the state after one epoch.

All slots stand after the same epoch between two epochs, and at no other time. A question therefore names the
epoch: the one after which the slots stand, or else the one that they process. Each slot answers at the end of
that epoch only. A slot that has gone on already says so, and the question is asked again for the next one. So
neither the job nor its slots have to wait for each other, and all answers are of the same epoch. Record
batches are then read as they come, from all slots at once.

The state after an epoch may not be committed yet: after a failure, the job goes back to its last checkpoint.

``pyflinkstate.state_access`` makes tables of the answers. As no room above is imported from here, it is
loaded by its name when somebody asks.
"""

from __future__ import annotations

import contextlib
import importlib
import select
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import attrs
import pyarrow as pa

from pyflinkstate.api import Key, Namespace, T
from pyflinkstate.backends.format import ArrowRows, StateCodec
from pyflinkstate.backends.keys import operator_index
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import (
    ConfigurationError,
    PyFlinkStateError,
    StateQueryError,
    StateQueryTimeoutError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.plan import SettledOperator
from pyflinkstate.runtime.wire import (
    Address,
    AnswerEnded,
    AskState,
    Channel,
    HandshakeLimits,
    QuestionRefused,
    ServerName,
    SlotId,
    StateFrozen,
    connect,
)


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
                    continue
                ended = channel.recv()
                assert isinstance(ended, AnswerEnded)
                if ended.error is not None:
                    raise ended.error
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


def _closed(channels: Sequence[Channel], on_close: Callable[[], None]) -> None:
    close_all(channels)
    on_close()


def close_all(channels: Sequence[Channel]) -> None:
    """Close connections; the slots release what they have frozen for them."""
    for channel in channels:
        with contextlib.suppress(OSError):
            channel.close()


_READER = "pyflinkstate.state_access.live"


class StateAnswer(ArrowRows):
    """What :class:`pyflinkstate.state_access.live.LiveTable` is for those who ask."""

    __slots__ = ()

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch after which the state was frozen."""

    @abstractmethod
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of Python values, as the program knows them."""

    @abstractmethod
    def close(self) -> None:
        """Release the state that slots still keep for this answer. Idempotent."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the same rows as :meth:`rows`."""
        return self.rows()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def state_reader() -> ModuleType:
    """Return the module whose ``query`` and ``query_value`` ask a job's ``StateQueries``."""
    return importlib.import_module(_READER)


#: Maximum number of open questions to one job: each may make the slots copy what changes meanwhile.
MOST_AT_ONCE = 16
#: Interval at which a question checks whether a job that is starting or restarting can be asked.
_LOOK_S = 0.02


@attrs.frozen
class LiveSlots:
    """The slots of a running job.

    Attributes:
        attempt: the number of the attempt that they belong to.
        epoch: the epoch after which they stand, or will stand when they have processed it.
        addresses: the addresses at which the running slots listen.
        secret: the secret of the job.
    """

    attempt: int
    epoch: int
    addresses: Mapping[SlotId, Address]
    secret: bytes = attrs.field(repr=False)


@attrs.frozen
class StateQuestion:
    """A question about a state of an operator.

    Attributes:
        uid: the operator.
        state: the name of its state.
        keys: the wanted keys by their key groups; None for all keys.
        namespace: the only wanted namespace; empty for all.
    """

    uid: str
    state: str
    keys: Mapping[int, tuple[Key, ...]] | None = None
    namespace: tuple[Namespace, ...] = ()

    def of_subtask(self, epoch: int, operator: SettledOperator, subtask: int) -> AskState:
        """Return the part of the question that is for one slot."""
        if self.keys is None:
            return AskState(epoch, self.state, None, self.namespace)
        own = {group: keys for group, keys in self.keys.items() if _owner(operator, group) == subtask}
        return AskState(epoch, self.state, own, self.namespace)

    def subtasks(self, operator: SettledOperator) -> list[int]:
        """Return the subtasks whose state the question is about."""
        if self.keys is None:
            return list(range(operator.parallelism))
        return sorted({_owner(operator, group) for group in self.keys})


def _owner(operator: SettledOperator, key_group: int) -> int:
    return operator_index(operator.max_parallelism, operator.parallelism, key_group)


@attrs.define
class _AskAgain(Exception):
    """The question cannot be answered now; ``waits_for`` says what it waits for."""

    waits_for: str
    pause_s: float = _LOOK_S


@attrs.frozen
class _Frozen:
    """The state that slots have frozen after an epoch, and the connections on which they send it."""

    epoch: int
    channels: list[Channel]
    heads: list[StateFrozen]

    @property
    def metas(self) -> list[RegisteredStateMeta]:
        """The distinct descriptions of the state, from the slots that have it."""
        found: list[RegisteredStateMeta] = []
        for head in self.heads:
            if head.meta is not None and head.meta not in found:
                found.append(head.meta)
        return found


class StateQueries:
    """Answers questions about one job. Thread-safe.

    Args:
        operators: the operators of the job.
        live: returns its slots, or None while it is starting or restarting; raises ``StateQueryError`` if it
            is over.
        now_ms: returns the job's time, in ms since 1970.
        now_s: returns monotonic time.
    """

    def __init__(
        self,
        operators: Iterable[SettledOperator],
        live: Callable[[], LiveSlots | None],
        now_ms: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._operators = {operator.operator_id: operator for operator in operators}
        self._live = live
        self._now_ms = now_ms
        self._now_s = now_s
        self._free = threading.Semaphore(MOST_AT_ONCE)

    def operator(self, uid: str) -> SettledOperator:
        """Return an operator with state; raise ``UnknownOperatorError`` if there is none of this uid."""
        if uid not in self._operators:
            raise UnknownOperatorError(
                f"the job has no operator {uid!r} with state; it has {_listed(self._operators)}", uid=uid
            )
        return self._operators[uid]

    def ask(self, question: StateQuestion, timeout_s: float) -> LiveEntries:
        """Return the entries that a question is about, when their state is frozen.

        Args:
            question: the question.
            timeout_s: how long to wait for the end of the epoch, or for a job that starts or restarts; and
                then for each part of the answer.

        Raises:
            UnknownOperatorError, UnknownStateError: the job has no such operator or state.
            StateQueryTimeoutError: the state was not frozen in time.
            StateQueryError: the job is over, or too many questions are open.
        """
        operator = self.operator(question.uid)
        if not timeout_s > 0:
            raise ConfigurationError(f"timeout_s must be more than 0, not {timeout_s!r}")
        if not self._free.acquire(blocking=False):
            raise StateQueryError(
                f"{MOST_AT_ONCE} questions to the job are open, and there may not be more: read answers to "
                f"their end, or close() them"
            )
        try:
            frozen = self._await(operator, question, timeout_s)
        except BaseException:
            self._free.release()
            raise
        return LiveEntries(
            operator,
            frozen.metas[0],
            frozen.epoch,
            self._now_ms(),
            frozen.channels,
            timeout_s,
            self._free.release,
        )

    def _await(self, operator: SettledOperator, question: StateQuestion, timeout_s: float) -> _Frozen:
        until_s = self._now_s() + timeout_s
        subtasks = question.subtasks(operator) or [0]
        while True:
            try:
                frozen = self._ask_once(operator, question, subtasks, until_s)
            except _AskAgain as again:
                left_s = until_s - self._now_s()
                if left_s <= 0:
                    raise _too_late(operator, timeout_s, again.waits_for) from again.__cause__
                time.sleep(min(again.pause_s, left_s))
                continue
            if len(frozen.metas) == 1:
                return frozen
            close_all(frozen.channels)
            if frozen.metas or len(subtasks) == operator.parallelism:
                raise _no_answer(operator, question, frozen)
            # Another subtask may know the state already, if functions ask for it with their first record.
            subtasks = list(range(operator.parallelism))

    def _ask_once(
        self, operator: SettledOperator, question: StateQuestion, subtasks: list[int], until_s: float
    ) -> _Frozen:
        """Ask the slots of some subtasks about the same epoch.

        Raises:
            _AskAgain: they are not there, have gone on, or do not answer in time.
        """
        slots, addresses = self._running(operator, subtasks)
        channels: list[Channel] = []
        try:
            for slot, address in addresses.items():
                left_s = max(until_s - self._now_s(), _LOOK_S)  # so that the last look finds a reason, too
                limits = HandshakeLimits(timeout_s=left_s, now_s=self._now_s)
                channels.append(
                    connect(address, ServerName.of_slot(slot, slots.attempt), slots.secret, limits)
                )
            # The epoch is looked up as late as possible, so that the slots have hardly ever gone on.
            epoch = self._epoch_of(slots)
            for channel, subtask in zip(channels, subtasks, strict=True):
                channel.send(question.of_subtask(epoch, operator, subtask))
            heads = [self._head(channel, epoch, until_s) for channel in channels]
        except BaseException as error:
            close_all(channels)
            if isinstance(error, (EOFError, OSError)):
                raise _AskAgain(
                    f"a connection to the slots, which failed ({error}): a slot may have died, and the job "
                    f"restarts, or the network may keep the driver from reaching executors"
                ) from error
            raise
        return _Frozen(epoch, channels, heads)

    def _running(
        self, operator: SettledOperator, subtasks: list[int]
    ) -> tuple[LiveSlots, dict[SlotId, Address]]:
        slots = self._live()
        if slots is None:
            raise _AskAgain("the job to start, or to restart")
        wanted = [SlotId(operator.operator_id, subtask) for subtask in subtasks]
        if not all(slot in slots.addresses for slot in wanted):
            raise _AskAgain("the job's first records, with which its slots start")
        return slots, {slot: slots.addresses[slot] for slot in wanted}

    def _epoch_of(self, slots: LiveSlots) -> int:
        now = self._live()
        if now is None or now.attempt != slots.attempt:
            raise _AskAgain("the job to restart")
        return now.epoch

    def _head(self, channel: Channel, epoch: int, until_s: float) -> StateFrozen:
        if not channel.poll(max(0.0, until_s - self._now_s())):
            raise _AskAgain(f"the end of epoch {epoch}")
        head = channel.recv()
        if isinstance(head, QuestionRefused):
            if head.is_late:
                raise _AskAgain("the end of an epoch", pause_s=0.0)
            raise head.error
        assert isinstance(head, StateFrozen)
        return head


def _too_late(operator: SettledOperator, timeout_s: float, waits_for: str) -> StateQueryTimeoutError:
    return StateQueryTimeoutError(
        f"operator {operator.operator_id!r} has not answered within {timeout_s:g} s: the question waits for "
        f"{waits_for}",
        operator=operator.operator_id,
    )


def _no_answer(
    operator: SettledOperator, question: StateQuestion, frozen: _Frozen
) -> UnknownStateError | StateQueryError:
    uid, state = operator.operator_id, question.state
    if frozen.metas:
        described = " and ".join(map(str, frozen.metas))
        return StateQueryError(
            f"state {state!r} of operator {uid!r} is {described} in different subtasks, because not all of "
            f"them have asked for their restored state yet: ask again later",
            operator=uid,
            state=state,
        )
    known = dict.fromkeys(name for head in frozen.heads for name in head.known)
    return UnknownStateError(
        f"operator {uid!r} has no keyed state {state!r}; it has {_listed(known)}", uid=uid, state=state
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
