"""Questions to the state of a slot: what is frozen, and how it is sent."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pyarrow as pa
import pytest
from backend_support import make_backend, state_of
from slot_functions import CountRecords, Padded
from support_runtime import receive
from support_slots import Driver, Slot, frames_for, in_thread, opened, outcome

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    TimeWindow,
    TimeWindowSerializer,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import StateCodec
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.errors import BadRecordError, StateQueryError, StateValueError
from pyflinkstate.runtime.slots import questions
from pyflinkstate.runtime.slots.questions import AnswerLimits, FrozenState, Question, answer, freeze
from pyflinkstate.runtime.wire import AnswerEnded, AskState, Channel, QuestionRefused, StateFrozen

COUNT = ValueStateDescriptor("count", Types.LONG())
LISTED = ListStateDescriptor("listed", Types.LONG())
MAPPED = MapStateDescriptor("mapped", Types.STRING(), Types.LONG())
BY_WINDOW = ValueStateDescriptor("by window", Types.LONG())
WINDOWS = [TimeWindow(start, start + 10) for start in (0, 10)]

both_kinds = pytest.mark.parametrize("async_snapshots", [True, False], ids=["asynchronous", "synchronous"])


def counting(count: int = 100, **settings: Any) -> HeapKeyedStateBackend:
    """Return a backend in which each key has its own number."""
    backend = make_backend(Types.LONG(), **settings)
    for key in range(count):
        state_of(backend, COUNT, key).update(key)
    return backend


def windowed(**settings: Any) -> HeapKeyedStateBackend:
    """Return a backend in which three keys have a value for each of two windows."""
    backend = make_backend(Types.LONG(), **settings)
    for key in range(3):
        backend.set_current_key(key)
        for window in WINDOWS:
            state = backend.get_partitioned_state(BY_WINDOW, window, TimeWindowSerializer())
            state.update(100 * key + window.start)
    return backend


def named(backend: HeapKeyedStateBackend, *keys: Any) -> dict[int, tuple[Any, ...]]:
    groups: dict[int, tuple[Any, ...]] = {}
    for key in keys:
        groups[backend.key_group_of(key)] = (*groups.get(backend.key_group_of(key), ()), key)
    return groups


def contents(frozen: FrozenState, *columns: str) -> list[Any]:
    names = columns or ("key", "value")
    rows = [row for batch in frozen.batches() for row in batch.to_pylist()]
    return sorted(tuple(map(row.get, names)) for row in rows)


def open_snapshots(backend: HeapKeyedStateBackend, state: str) -> int:
    """Return how many snapshots the maps of a state have to keep."""
    maps: list[Any] = backend.registered_kv_states[state].maps
    return sum(len(one._snapshot_versions) for one in maps)


@both_kinds
def test_what_is_frozen_stays_as_it_was(async_snapshots: bool) -> None:
    backend = counting(async_snapshots=async_snapshots)
    first = freeze(backend, AskState(1, "count"))
    for key in range(50, 150):
        state_of(backend, COUNT, key).update(-key)
    second = freeze(backend, AskState(2, "count"))
    state_of(backend, COUNT, 7).clear()
    third = freeze(backend, AskState(2, "count", named(backend, 7, 60, 999)))
    assert contents(first) == [(key, key) for key in range(100)]
    assert contents(second) == [(key, key if key < 50 else -key) for key in range(150)]
    assert contents(third) == [(60, -60)]


@both_kinds
def test_values_that_change_in_place_stay_too(async_snapshots: bool) -> None:
    backend = make_backend(Types.LONG(), async_snapshots=async_snapshots)
    state_of(backend, LISTED, 1).add_all([1, 2])
    everything, one = (freeze(backend, AskState(1, "listed", keys)) for keys in (None, named(backend, 1)))
    state_of(backend, LISTED, 1).add(3)
    assert contents(everything) == contents(one) == [(1, [1, 2])]


@both_kinds
@pytest.mark.parametrize(
    ("keys", "namespace", "expected"),
    [
        (None, (), [0, 10, 100, 110, 200, 210]),
        (None, (WINDOWS[1],), [10, 110, 210]),
        ((0, 2, 9), (), [0, 10, 200, 210]),
        ((0, 2, 9), (WINDOWS[0],), [0, 200]),
        ((), (WINDOWS[0],), []),
    ],
)
def test_windows_are_picked(async_snapshots: bool, keys: Any, namespace: Any, expected: list[int]) -> None:
    backend = windowed(async_snapshots=async_snapshots)
    groups = None if keys is None else named(backend, *keys)
    frozen = freeze(backend, AskState(1, "by window", groups, namespace))
    found = [row for batch in frozen.batches() for row in batch.to_pylist()]
    assert sorted(row["value"] for row in found) == expected
    assert all(row["namespace"]["start"] == row["value"] % 100 for row in found)


def test_a_namespace_must_be_of_the_right_type() -> None:
    with pytest.raises(StateQueryError, match=r"'by window' has namespaces of .*, not 'today'"):
        freeze(windowed(), AskState(1, "by window", None, ("today",)))
    with pytest.raises(StateQueryError, match="'count' has no namespaces"):
        freeze(counting(), AskState(1, "count", None, (WINDOWS[0],)))


def test_a_state_that_is_not_there_has_no_entries() -> None:
    frozen = freeze(counting(), AskState(1, "other"))
    assert (frozen.head.meta, frozen.head.known) == (None, ("count",))
    assert list(frozen.batches()) == []


def test_only_the_maps_of_the_wanted_keys_are_frozen_and_only_until_they_are_read() -> None:
    backend = counting()
    one = freeze(backend, AskState(1, "count", named(backend, 7)))
    assert open_snapshots(backend, "count") == 1
    everything = freeze(backend, AskState(1, "count"))
    assert open_snapshots(backend, "count") == 129
    contents(one)
    assert open_snapshots(backend, "count") == 128
    next(everything.batches())
    everything.release()
    everything.release()
    assert open_snapshots(backend, "count") == 0
    for state_map in backend.registered_kv_states["count"].maps:
        state_map._check()


def test_batches_are_small_whether_rows_are_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "FIRST_ROWS", 4)
    monkeypatch.setattr(questions, "BATCH_BYTES", 4_000)
    text = ValueStateDescriptor("text", Types.STRING())
    narrow, wide = make_backend(Types.LONG()), make_backend(Types.LONG())
    for key in range(200):
        state_of(narrow, text, key).update("x")
        state_of(wide, text, key).update("x" * 1_000)
    for backend in (narrow, wide):
        batches = list(freeze(backend, AskState(1, "text")).batches())
        assert sum(batch.num_rows for batch in batches) == 200
        assert all(batch.nbytes < 6_000 for batch in batches)
    assert max(batch.num_rows for batch in batches) == 4
    assert max(batch.num_rows for batch in freeze(narrow, AskState(1, "text")).batches()) > 30


IN_PLACE = {
    "list": (LISTED, lambda state, number: state.add(number), lambda number: [number]),
    "map": (MAPPED, lambda state, number: state.put(f"at {number}", number), lambda n: [(f"at {n}", n)]),
}


@pytest.mark.parametrize("are_named", [False, True], ids=["all keys", "some keys"])
@pytest.mark.parametrize("kind", IN_PLACE)
def test_values_stay_as_they_were_until_their_batch_is_made(
    monkeypatch: pytest.MonkeyPatch, kind: str, are_named: bool
) -> None:
    """The owner changes them in place at the very moment in which their batch is made."""
    descriptor, change, expected = IN_PLACE[kind]
    backend = make_backend(Types.LONG())
    for key in range(100):
        change(state_of(backend, descriptor, key), key)
    frozen = freeze(backend, AskState(1, descriptor.name, named(backend, *range(100)) if are_named else None))
    make_batch = questions.to_batch

    def beside(*arguments: Any) -> Any:
        for key in range(100):
            change(state_of(backend, descriptor, key), 1_000)
        return make_batch(*arguments)

    monkeypatch.setattr(questions, "to_batch", beside)
    assert contents(frozen) == [(key, expected(key)) for key in range(100)]
    assert open_snapshots(backend, descriptor.name) == 0


def test_key_groups_are_released_one_after_another_with_their_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "FIRST_ROWS", 10)
    monkeypatch.setattr(questions, "MOST_ROWS", 10)
    backend = counting()
    held = [open_snapshots(backend, "count") for _ in freeze(backend, AskState(1, "count")).batches()]
    assert len(held) == 10
    assert held == sorted(held, reverse=True)
    assert held[0] > 100
    assert held[-1] < 20
    assert open_snapshots(backend, "count") == 0


def test_an_answer_that_ends_early_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise StateValueError("it does not fit")

    backend = counting()
    left = freeze(backend, AskState(1, "count")).batches()
    next(left)
    left.close()
    assert open_snapshots(backend, "count") == 0
    monkeypatch.setattr(questions, "to_batch", refuse)
    with pytest.raises(StateValueError, match="it does not fit"):
        contents(freeze(backend, AskState(1, "count")))
    assert open_snapshots(backend, "count") == 0


pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]

RECORDS = [("a", 0), ("a", 1), ("b", 2)]


def asked(slot: Slot, epoch: int, state: str = "count") -> Channel:
    connection = opened(slot.connect())
    connection.send(AskState(epoch, state))
    return connection


def answered(connection: Channel, beside: Callable[[], object] = lambda: None) -> dict[Any, Any]:
    """Return the values by their keys; something happens between the head of the answer and its batches."""
    head = receive(connection)
    assert isinstance(head, StateFrozen)
    assert head.meta is not None
    beside()
    schema = StateCodec(Types.PICKLED_BYTE_ARRAY(), head.meta, None).schema
    found = {}
    while data := connection.recv_bytes():
        rows = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        found.update(zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True))
    assert receive(connection) == AnswerEnded()
    return found


def is_late(connection: Channel) -> bool:
    refused = receive(connection)
    assert isinstance(refused, QuestionRefused)
    return refused.is_late


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
        assert is_late(asked(slot, epoch))


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
    assert is_late(waiting)


def test_an_answer_streams_while_records_are_processed(driver: Driver) -> None:
    slot = driver.start_slot(Padded())  # its state is far more than sockets hold
    slot.feed(1, [(f"k{n}", 0) for n in range(4)])
    first = asked(slot, 1, "padding")
    assert len(answered(first, lambda: slot.feed(2, [(f"k{n}", 1) for n in range(8)]))) == 4


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
    assert open_snapshots(standing.backend, "text") == 0
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
    assert "took longer than 5 s" in str(receive(asker).error)
    assert outcome(serving) is None
    assert open_snapshots(standing.backend, "text") == 0


def test_an_asker_that_leaves_lets_its_state_go(standing: Standing) -> None:
    ours, asker = pair()
    serving = in_thread(lambda: answer(standing, AskState(1, "text"), ours))
    receive(asker)
    asker.close()
    assert isinstance(outcome(serving), OSError)
    assert open_snapshots(standing.backend, "text") == 0


def test_an_asker_that_leaves_before_the_end_of_the_epoch_gets_no_state(standing: Standing) -> None:
    ours, asker = pair()
    silent = Silent(standing.backend)
    serving = in_thread(lambda: answer(silent, AskState(2, "text"), ours, AnswerLimits(look_s=0.01)))
    asker.close()
    assert outcome(serving) is None
    (question,) = silent.questions
    question.settle(lambda: freeze(standing.backend, question.ask))
    assert open_snapshots(standing.backend, "text") == 0


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
