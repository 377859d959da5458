"""Questions to a slot: after which epoch they are answered, and how an asker that dawdles is cut off."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import attrs
import pyarrow as pa
import pytest
from backend_support import make_backend, state_of
from slot_functions import CountRecords, Padded
from support_runtime import receive
from support_slots import Driver, Slot, frames_for, in_thread, opened, outcome

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.format import StateCodec
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.errors import BadRecordError, StateValueError
from pyflinkstate.runtime.slots.frozen_state import freeze
from pyflinkstate.runtime.slots.questions import AnswerLimits, Question, answer
from pyflinkstate.runtime.wire import AnswerEnded, AskState, Channel, QuestionRefused, StateFrozen

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]

RECORDS = [("a", 0), ("a", 1), ("b", 2)]


def asked(slot: Slot, epoch: int, state: str = "count") -> Channel:
    connection = opened(slot.connect())
    connection.send(AskState(epoch, state))
    return connection


def answered(connection: Channel) -> dict[Any, Any]:
    """Return the values by their keys."""
    head = receive(connection)
    assert isinstance(head, StateFrozen)
    assert head.meta is not None
    schema = StateCodec(Types.PICKLED_BYTE_ARRAY(), head.meta, None).schema
    found = {}
    while data := connection.recv_bytes():
        rows = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        found.update(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))
    assert receive(connection) == AnswerEnded()
    return found


# --- after which epoch ---------------------------------------------------------------------------------


def test_a_slot_answers_for_the_end_of_the_epoch_and_for_no_other(driver: Driver) -> None:
    slot = driver.start_slot(CountRecords())
    slot.feed(1, RECORDS)
    assert sorted(answered(asked(slot, 1)).values()) == [1, 2]
    ahead = asked(slot, 2)
    assert not ahead.poll(0.3), "it waits for the end of the epoch that has not begun"
    slot.feed(2, RECORDS)
    assert sorted(answered(ahead).values()) == [2, 4]
    for epoch in (1, 4):
        refused = receive(asked(slot, epoch))
        assert isinstance(refused, QuestionRefused)
        assert refused.is_late


def test_a_question_in_the_middle_of_an_epoch_is_answered_at_its_end(driver: Driver) -> None:
    slot = driver.start_slot(CountRecords())
    (frame,) = frames_for(RECORDS)[0]
    late: list[Channel] = []

    def frames() -> Iterator[bytes]:
        yield frame
        late.append(asked(slot, 1))
        assert not late[0].poll(0.3)
        yield frame

    list(slot.run(1, frames()))
    assert sorted(answered(late[0]).values()) == [2, 4]


def test_a_question_about_an_epoch_that_fails_is_to_be_asked_again(driver: Driver) -> None:
    slot = driver.start_slot(CountRecords())
    waiting = asked(slot, 1)
    assert not waiting.poll(0.3)
    with pytest.raises(BadRecordError):
        list(slot.run(1, [b"no frame"]))
    refused = receive(waiting)
    assert isinstance(refused, QuestionRefused)
    assert refused.is_late


def test_an_answer_streams_while_records_are_processed(driver: Driver) -> None:
    slot = driver.start_slot(Padded())  # its state is far more than sockets hold
    slot.feed(1, [(f"k{n}", 0) for n in range(4)])
    first = asked(slot, 1, "padding")
    head = receive(first)
    assert isinstance(head, StateFrozen)
    slot.feed(2, [(f"k{n}", 1) for n in range(8)])
    assert head.meta is not None
    schema = StateCodec(Types.PICKLED_BYTE_ARRAY(), head.meta, None).schema
    values: list[str] = []
    while data := first.recv_bytes():
        values += pa.ipc.read_record_batch(pa.py_buffer(data), schema).column("value").to_pylist()
    assert len(values) == 4


# --- askers that cost too much -------------------------------------------------------------------------


@attrs.define
class Standing:
    """A slot that stands still, with the state of a backend."""

    backend: HeapKeyedStateBackend
    is_fed: bool = False
    questions: list[Question] = attrs.Factory(list)

    def put(self, question: Question) -> None:
        self.questions.append(question)
        question.settle(lambda: freeze(self.backend, question.ask))

    def open_snapshots(self) -> int:
        maps: Any = self.backend.registered_kv_states["text"].maps
        return sum(len(one._snapshot_versions) for one in maps)


class Silent(Standing):
    """It does not answer."""

    def put(self, question: Question) -> None:
        self.questions.append(question)


@pytest.fixture
def standing() -> Standing:
    backend = make_backend(Types.LONG())
    for key in range(64):
        state_of(backend, ValueStateDescriptor("text", Types.STRING()), key).update("x" * 100_000)
    return Standing(backend)


def pair() -> tuple[Channel, Channel]:
    one, other = socket.socketpair()
    return opened(Channel(one)), opened(Channel(other))


def test_a_reader_that_takes_nothing_is_cut_off(standing: Standing) -> None:
    ours, asker = pair()
    serving = in_thread(lambda: answer(standing, AskState(1, "text"), ours, AnswerLimits(message_s=0.2)))
    assert isinstance(receive(asker), StateFrozen)
    assert isinstance(outcome(serving), OSError)
    assert standing.open_snapshots() == 0
    received = in_thread(lambda: [asker.recv_bytes() for _ in range(100)])
    assert isinstance(outcome(received), (EOFError, OSError))


def test_a_reader_that_takes_too_long_in_all_is_told(standing: Standing) -> None:
    ours, asker = pair()
    times = iter(range(0, 10_000, 3))
    limits = AnswerLimits(answer_s=5, now_s=lambda: next(times))
    serving = in_thread(lambda: answer(standing, AskState(1, "text"), ours, limits))
    receive(asker)
    while asker.recv_bytes():
        pass
    ended = receive(asker)
    assert "took longer than 5 s" in str(ended.error)
    assert outcome(serving) is None
    assert standing.open_snapshots() == 0


def test_an_asker_that_leaves_lets_its_state_go(standing: Standing) -> None:
    ours, asker = pair()
    serving = in_thread(lambda: answer(standing, AskState(1, "text"), ours))
    receive(asker)
    asker.close()
    assert isinstance(outcome(serving), OSError)
    assert standing.open_snapshots() == 0


def test_an_asker_that_leaves_before_the_end_of_the_epoch_gets_no_state(standing: Standing) -> None:
    ours, asker = pair()
    silent = Silent(standing.backend)
    serving = in_thread(lambda: answer(silent, AskState(2, "text"), ours, AnswerLimits(look_s=0.01)))
    asker.close()
    assert outcome(serving) is None
    (question,) = silent.questions
    question.settle(lambda: freeze(standing.backend, question.ask))
    assert standing.open_snapshots() == 0


def test_the_reader_of_state_rests_only_while_records_are_processed(standing: Standing) -> None:
    rested: list[float] = []

    def read() -> None:
        ours, asker = pair()
        limits = AnswerLimits(rest=rested.append)
        serving = in_thread(lambda: answer(standing, AskState(1, "text"), ours, limits))
        receive(asker)
        while asker.recv_bytes():
            pass
        assert outcome(serving) is None

    read()
    assert rested == []
    standing.is_fed = True
    read()
    assert len(rested) > 1


def test_a_value_that_does_not_fit_its_type_is_told_at_the_end(standing: Standing) -> None:
    descriptor = ValueStateDescriptor("numbers", Types.LIST(Types.LONG()))
    numbers = [1, 2]
    state_of(standing.backend, descriptor, 1).update(numbers)
    state_of(standing.backend, descriptor, 1).value().append("three")
    ours, asker = pair()
    serving = in_thread(lambda: answer(standing, AskState(1, "numbers"), ours))
    receive(asker)
    assert asker.recv_bytes() == b""
    assert isinstance(receive(asker).error, StateValueError)
    assert outcome(serving) is None
