"""Questions to the live state of a slot: each waits for the end of an epoch, and is answered beside the next.

To freeze a state is to take the snapshot of its maps, or of those of the wanted keys: the owner of the state
waits for that and for nothing else. It goes on with its records and copies the buckets that it changes, while
another thread reads what was frozen, batch by batch, and releases each key group when all of it is in
batches. If snapshots are synchronous, the state cannot be frozen. Its batches are then made at once, as a
checkpoint's are.

The asker has a connection of its own. If it leaves, or takes its answer too slowly, what was frozen for it is
released, so no asker makes the state hold copies for ever. While records are processed, the thread that
answers rests after each batch, because both need the interpreter lock.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Protocol

import attrs
import pyarrow as pa

from pyflinkstate.api import Key, Namespace, Stored, safe_repr
from pyflinkstate.backends.format import KeyGroupEntries, StateCodec
from pyflinkstate.backends.heap import (
    ABSENT,
    HeapKeyedStateBackend,
    StateMapSnapshot,
    StateTable,
    to_batch,
)
from pyflinkstate.errors import PyFlinkStateError, StateQueryError
from pyflinkstate.runtime.wire import AnswerEnded, AskState, Channel, QuestionRefused, StateFrozen

#: Approximate size of a batch in bytes, and its largest number of rows: the owner waits for the interpreter
#: lock while a batch is made.
BATCH_BYTES = 512 << 10
MOST_ROWS = 8_192
#: The first batch, which tells how large rows are.
FIRST_ROWS = 32
#: A batch has at most this many times the rows of the batch before it.
_GROWTH = 8

#: Entry keys and their values, in the same order.
Columns = tuple[list[Hashable], list[Stored]]


class FrozenState:
    """The wanted entries of one state. It must be released.

    Args:
        head: the first part of the answer.
        groups: a snapshot of each key group, each with the wanted keys; None for all.
        namespace: the wanted namespace alone; empty for all.
        codec: makes record batches; None if there is no such state.
        is_copied: whether the batches must be made before the owner goes on.
    """

    def __init__(
        self,
        head: StateFrozen,
        groups: list[tuple[StateMapSnapshot, tuple[Key, ...] | None]],
        namespace: tuple[Namespace, ...] = (),
        codec: StateCodec | None = None,
        is_copied: bool = False,
    ) -> None:
        self.head = head
        self._groups = groups
        self._namespace = namespace
        self._codec = codec
        self._is_namespaced = head.meta is not None and head.meta.is_namespaced
        self._can_look_up = not is_copied
        self._copied = list(self._batches()) if is_copied else None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries once; each key group is released when all of it is in batches.

        Raises:
            StateValueError: a value does not fit its declared type.
        """
        return self._batches() if self._copied is None else iter(self._copied)

    def release(self) -> None:
        """Let the maps forget what is not yet released. Idempotent, on any thread."""
        for snapshot, _ in self._groups:
            snapshot.release()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._codec is None:
            return
        portions, collected = _Portions(), _Collected()
        try:
            for keys, values in portions.of(self._columns(collected)):
                batch = to_batch(self._codec, self._entries(keys, values))
                collected.note_written(len(keys))
                yield batch
                portions.adapt(len(keys), batch.nbytes)
        finally:
            self.release()

    def _entries(self, entry_keys: list[Hashable], values: list[Stored]) -> KeyGroupEntries:
        if not self._is_namespaced:
            return KeyGroupEntries(0, entry_keys, None, values)
        pairs: list[tuple[Key, Namespace]] = entry_keys  # type: ignore[assignment]
        return KeyGroupEntries(0, [key for key, _ in pairs], [space for _, space in pairs], values)

    def _columns(self, collected: _Collected) -> Iterator[Columns]:
        for snapshot, keys in self._groups:
            for columns in self._of_group(snapshot, keys):
                collected.note_read(len(columns[0]))
                yield columns
            collected.note_end(snapshot)

    def _of_group(self, snapshot: StateMapSnapshot, keys: tuple[Key, ...] | None) -> Iterator[Columns]:
        has_entry_keys = not self._is_namespaced or bool(self._namespace)
        if keys is not None and has_entry_keys and self._can_look_up:
            yield _looked_up(
                snapshot, [(key, *self._namespace) for key in keys] if self._namespace else list(keys)
            )
        elif keys is None and not self._namespace:
            yield from snapshot.parts()
        else:
            yield from (_filtered(part, self._filter(keys)) for part in snapshot.parts())

    def _filter(self, keys: tuple[Key, ...] | None) -> Callable[[Hashable], bool]:
        """Return whether an entry key is wanted."""
        wanted: Collection[Key] = frozenset(keys or ())
        if not self._is_namespaced:
            return wanted.__contains__

        def is_wanted(entry_key: Hashable) -> bool:
            pair: tuple[Key, Namespace] = entry_key  # type: ignore[assignment]
            is_in = not self._namespace or pair[1] == self._namespace[0]
            return is_in and (keys is None or pair[0] in wanted)

        return is_wanted


def freeze(backend: HeapKeyedStateBackend, ask: AskState) -> FrozenState:
    """Freeze the entries that a question is about; only between two epochs, on the thread of the owner.

    Raises:
        StateQueryError: the state has no namespaces, or the namespace is of another type.
    """
    table = backend.registered_kv_states.get(ask.state)
    known = tuple(backend.registered_kv_states)
    if table is None:
        return FrozenState(StateFrozen(None, known), [])
    namespace = _checked(table, ask.namespace)
    codec = StateCodec(backend.key_type, table.meta, None)
    head = StateFrozen(table.meta, known)
    groups = _snapshots(table, ask)
    try:
        return FrozenState(head, groups, namespace, codec, is_copied=not backend.async_snapshots)
    except BaseException:
        for snapshot, _ in groups:
            snapshot.release()
        raise


def _snapshots(table: StateTable, ask: AskState) -> list[tuple[StateMapSnapshot, tuple[Key, ...] | None]]:
    if ask.keys is None:
        return [(state_map.snapshot(), None) for state_map in table.maps]
    return [(table.map_of(key_group).snapshot(), keys) for key_group, keys in ask.keys.items()]


def _checked(table: StateTable, namespace: tuple[Namespace, ...]) -> tuple[Namespace, ...]:
    meta = table.meta
    if namespace and not meta.is_namespaced:
        raise StateQueryError(
            f"state {meta.name!r} has no namespaces: ask for it without one", state=meta.name
        )
    try:
        return tuple(map(meta.namespace_type.check_key, namespace))
    except ValueError as error:
        raise StateQueryError(
            f"state {meta.name!r} has namespaces of {meta.namespace_type}, not {safe_repr(namespace[0])}: "
            f"{error}",
            state=meta.name,
        ) from error


def _looked_up(snapshot: StateMapSnapshot, entry_keys: list[Hashable]) -> Columns:
    found = snapshot.look_up(entry_keys)
    kept = [row for row, value in enumerate(found) if value is not ABSENT]
    return [entry_keys[row] for row in kept], [found[row] for row in kept]


def _filtered(columns: Columns, is_wanted: Callable[[Hashable], bool]) -> Columns:
    keys, values = columns
    kept = [row for row, key in enumerate(keys) if is_wanted(key)]
    return [keys[row] for row in kept], [values[row] for row in kept]


class _Portions:
    """Cuts columns into portions that make batches of the right size."""

    def __init__(self) -> None:
        self._rows = FIRST_ROWS

    def of(self, columns: Iterable[Columns]) -> Iterator[Columns]:
        """Yield the same entries in portions."""
        keys: list[Hashable] = []
        values: list[Stored] = []
        for more_keys, more_values in columns:
            keys += more_keys
            values += more_values
            while len(keys) >= (count := self._rows):
                yield keys[:count], values[:count]
                del keys[:count], values[:count]
        if keys:
            yield keys, values

    def adapt(self, rows: int, size_bytes: int) -> None:
        """Let the next portion be as large as it should be, as one of ``rows`` had this size."""
        self._rows = max(1, min(BATCH_BYTES * rows // max(size_bytes, 1), _GROWTH * self._rows, MOST_ROWS))


class _Collected:
    """Key groups that have been read, each held until all of its entries are in batches.

    What is read are the values themselves: once a snapshot is released, its owner changes them in place.
    """

    def __init__(self) -> None:
        self._read = self._written = 0
        #: Number of rows read at the end of each key group, in order.
        self._held: deque[tuple[int, StateMapSnapshot]] = deque()

    def note_read(self, rows: int) -> None:
        """Record that rows of the current key group have been read."""
        self._read += rows

    def note_end(self, snapshot: StateMapSnapshot) -> None:
        """Record that the current key group, of which this is the snapshot, has been read to its end."""
        self._held.append((self._read, snapshot))
        self._release()

    def note_written(self, rows: int) -> None:
        """Record that the next rows are in a batch."""
        self._written += rows
        self._release()

    def _release(self) -> None:
        while self._held and self._held[0][0] <= self._written:
            self._held.popleft()[1].release()


Outcome = FrozenState | QuestionRefused


@attrs.define(eq=False)
class Question:
    """A question, until its asker has the answer or has left."""

    ask: AskState
    has_left: bool = attrs.field(init=False, default=False)
    _settled: threading.Event = attrs.field(init=False, factory=threading.Event)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _outcome: Outcome | None = attrs.field(init=False, default=None)

    def settle(self, outcome: Callable[[], Outcome]) -> None:
        """Answer the question, or refuse it, unless its asker has left meanwhile."""
        with self._lock:
            if not self.has_left:
                self._outcome = outcome()
        self._settled.set()

    def wait(self, timeout_s: float) -> Outcome | None:
        """Return the answer or the refusal when it is there, or None after ``timeout_s``."""
        self._settled.wait(timeout_s)
        return self._outcome

    def leave(self) -> None:
        """Give the question up, and release what was frozen for it. Idempotent."""
        with self._lock:
            self.has_left = True
            outcome, self._outcome = self._outcome, None
        if isinstance(outcome, FrozenState):
            outcome.release()


@attrs.frozen
class AnswerLimits:
    """The limits of a question.

    Attributes:
        look_s: interval of the checks whether a waiting client has disconnected, in seconds.
        message_s: how long an asker may take for one message.
        answer_s: how long an answer may take, from the moment when the state was frozen.
        rest_ratio: how long to rest after each batch while records are processed, for each second of
            processor time that it took.
        now_s: returns monotonic time.
        rest: sleeps for some seconds.
    """

    look_s: float = 0.25
    message_s: float = 10.0
    answer_s: float = 600.0
    rest_ratio: float = 5.0
    now_s: Callable[[], float] = time.monotonic
    rest: Callable[[float], None] = time.sleep


LIMITS = AnswerLimits()


class AnswersQuestions(Protocol):
    """The service of a slot, as far as questions are concerned."""

    @property
    def is_fed(self) -> bool:
        """Whether an epoch is being fed."""

    def put(self, question: Question) -> None:
        """Answer or refuse a question, now or at the end of an epoch."""


def answer(service: AnswersQuestions, ask: AskState, asker: Channel, limits: AnswerLimits = LIMITS) -> None:
    """Answer a question on the connection of its asker, which sends nothing more."""
    question = Question(ask)
    service.put(question)
    try:
        while (outcome := question.wait(limits.look_s)) is None:
            if asker.poll():
                return  # it has left
        asker.limit_messages(limits.message_s)
        if isinstance(outcome, QuestionRefused):
            asker.send(outcome)
            return
        asker.send(outcome.head)
        ended = _send_entries(service, outcome, asker, limits)
        asker.send_bytes(b"")
        asker.send(ended)
    finally:
        question.leave()


def _send_entries(
    service: AnswersQuestions, state: FrozenState, asker: Channel, limits: AnswerLimits
) -> AnswerEnded:
    until_s = limits.now_s() + limits.answer_s
    try:
        for batch in _rested(service, state.batches(), limits):
            asker.send_bytes(batch.serialize().to_pybytes())
            if limits.now_s() > until_s:
                too_slow = StateQueryError(
                    f"the answer took longer than {limits.answer_s:g} s, and what was frozen for it has been "
                    f"released: read it faster, or ask for fewer keys"
                )
                return AnswerEnded(too_slow)
    except PyFlinkStateError as error:
        if isinstance(error, OSError):
            raise
        return AnswerEnded(error)
    return AnswerEnded()


def _rested(
    service: AnswersQuestions, batches: Iterator[pa.RecordBatch], limits: AnswerLimits
) -> Iterator[pa.RecordBatch]:
    began_s = time.thread_time()
    for batch in batches:
        yield batch
        spent_s = time.thread_time() - began_s
        if service.is_fed:
            limits.rest(limits.rest_ratio * spent_s)
        began_s = time.thread_time()
