"""Questions to the live state of a slot: each waits for the end of an epoch, and is answered beside the next.

The asker has a connection of its own. If it leaves, or takes its answer too slowly, what was frozen for it is
released, so no asker makes the state hold copies for ever. While records are processed, the thread that
answers rests after each batch, because both need the interpreter lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs
import pyarrow as pa

from pyflinkstate.errors import PyFlinkStateError, StateQueryError
from pyflinkstate.runtime.slots.frozen_state import FrozenState
from pyflinkstate.runtime.wire import AnswerEnded, AskState, Channel, QuestionRefused

Outcome = FrozenState | QuestionRefused


class Question:
    """A question, until its asker has the answer or has left."""

    def __init__(self, ask: AskState) -> None:
        self.ask = ask
        self.has_left = False
        self._settled = threading.Event()
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None

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
                return AnswerEnded(_too_slow(limits.answer_s))
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


def _too_slow(answer_s: float) -> StateQueryError:
    return StateQueryError(
        f"the answer took longer than {answer_s:g} s, and what was frozen for it has been released: read it "
        f"faster, or ask for fewer keys"
    )
