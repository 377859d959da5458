"""Questions to the live state of jobs on real slots: what is answered, after which epoch, and when not."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
from slot_functions import CountRecords, EveryKind, Late, Padded
from support_job import GrowingSource, JobRun, numbers, once
from support_runtime import PATIENCE_S, ManualClock
from support_slots import in_thread, outcome

from pyflinkstate import KeyedProcessFunction, Types
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.errors import (
    ConfigurationError,
    InvalidKeyError,
    JobCancelledError,
    SparkJobError,
    StateQueryError,
    StateQueryTimeoutError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime import queries
from pyflinkstate.runtime.master import Job
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.state_access import open_checkpoint
from pyflinkstate.state_access.live import LiveTable, query, query_value

pytestmark = pytest.mark.timeout(120)

UID = "states"
LONG = Types.LONG()


def first_key_of(subtask: int, parallelism: int = 2) -> int:
    """Return a key that a subtask owns."""

    def owner(key: int) -> int:
        return KeyHasher(LONG).key_groups([key], 128)[0] * parallelism // 128

    return next(key for key in range(100) if owner(key) == subtask)


LEFT, RIGHT = first_key_of(0), first_key_of(1)


def keyed(source: SourceNode, function: KeyedProcessFunction, key: Callable[[Any], Any]) -> StatefulNode:
    return StatefulNode(source, key, LONG, function, "states", uid=UID)


def run_of(end: Any, storage: CheckpointFolders | None = None, **settings: Any) -> JobRun:
    return JobRun(end, storage=storage, **{"parallelism": 2, **settings})


def asked_when_idle(
    function: KeyedProcessFunction,
    ask: Callable[[Job], Any],
    storage: CheckpointFolders | None = None,
    key: Callable[[Any], Any] = lambda n: n % 4,
    **settings: Any,
) -> Any:
    """Return what is answered between two epochs, after all records and before the end of the job."""
    answers: list[Any] = []

    def when_idle(source: GrowingSource) -> None:
        if storage is not None and last_checkpoint(jobs[0]) != len(run.runner.requests):
            return  # the last epoch has no checkpoint yet
        if not answers:
            answers.append(ask(jobs[0]))
        source.is_over = True

    source = SourceNode(GrowingSource(9, when_idle), "numbers")
    run = run_of(keyed(source, function, key), storage, **settings)
    jobs = [run.job()]
    for _ in jobs[0].run():
        pass
    return answers[0]


def last_checkpoint(job: Job) -> int | None:
    """Return the epoch of the last checkpoint."""
    made = job.result().checkpoints
    return made[-1].epoch if made else None


def ask(job: Job, state: str, keys: Any = None, namespace: Any = None, **settings: Any) -> LiveTable:
    return query(job.queries, UID, state, keys, namespace, settings.get("timeout_s", PATIENCE_S))


def value(job: Job, state: str, key: Any, namespace: Any = None) -> Any:
    return query_value(job.queries, UID, state, key, namespace, PATIENCE_S)


def rows(table: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(table, key=repr)


# --- what is answered ----------------------------------------------------------------------------------

STATES = ["value", "list", "map", "living", "pickled", "reducing", "aggregating"]


@pytest.mark.parametrize("async_snapshots", [True, False])
def test_the_answer_is_what_the_checkpoint_of_the_same_epoch_has(
    storage: CheckpointFolders, async_snapshots: bool
) -> None:
    def both(job: Job) -> list[Any]:
        checkpoint = open_checkpoint(job.result().checkpoints[-1].uri)
        found = []
        for state in STATES:
            for keys in (None, [LEFT, RIGHT, 77], []):
                live = ask(job, state, keys)
                kept = checkpoint.entries(UID, state, keys, allow_pickle=True)
                assert live.epoch == last_checkpoint(job)
                assert live.schema == checkpoint.entries(UID, state).schema, state
                found.append((state, keys, rows(live), rows(kept.rows())))
        return found

    backend = HashMapStateBackend(async_snapshots=async_snapshots)
    for state, keys, live, kept in asked_when_idle(EveryKind(), both, storage, state_backend=backend):
        assert live == kept, state
        assert bool(live) == (keys != []), state


def test_a_value_is_given_as_the_program_knows_it() -> None:
    states = ("value", "list", "map", "reducing", "aggregating", "pickled")
    found = asked_when_idle(EveryKind(), lambda job: {state: value(job, state, 3) for state in states})
    assert found == {
        "value": 7,
        "list": ["é3", "\U0001f600", "é7", "\U0001f600"],
        "map": {"n0": 3, "": -7, "n1": 7},
        "reducing": 10,
        "aggregating": [10, 2],
        "pickled": {"n": 7 + 1j},
    }
    assert asked_when_idle(EveryKind(), lambda job: value(job, "value", 99)) is None


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_slots_of_other_hosts_answer_over_tcp(is_encrypted: bool) -> None:
    """Several batches come at once there, and more of them than was asked for is read ahead."""

    def over_tcp(job: Job) -> list[Any]:
        live = job.queries._live

        def without_unix_sockets() -> Any:
            slots = live()
            far = {slot: attrs.evolve(at, unix_path=None) for slot, at in slots.addresses.items()}
            return attrs.evolve(slots, addresses=far)

        job.queries._live = without_unix_sockets
        padded = ask(job, "padding").to_arrow()
        return [sorted(padded.column("key").to_pylist()), len(value(job, "padding", 3)), job._slots._secret]

    keys, length, secret = asked_when_idle(Padded(), over_tcp, is_encrypted=is_encrypted)
    assert (keys, length) == ([0, 1, 2, 3], 2_000_000)
    assert is_encrypted == (b"CERTIFICATE" in secret)


def test_batches_are_arrow_and_a_stream_is_read_once() -> None:
    def read(job: Job) -> list[Any]:
        streamed, named = ask(job, "value"), ask(job, "value", [1])
        tables = [streamed.to_arrow(), named.to_arrow(), named.to_arrow()]
        with pytest.raises(StateQueryError, match="has been read already"):
            streamed.to_arrow()
        frame = ask(job, "value").to_pandas()
        return [table.num_rows for table in tables] + [sorted(frame["value"])]

    assert asked_when_idle(EveryKind(), read) == [4, 1, 1, [5, 6, 7, 8]]


def test_values_that_have_expired_by_the_jobs_clock_are_left_out() -> None:
    def kept(job: Job) -> list[int]:
        answers = [ask(job, state, keys) for state in ("living", "value") for keys in (None, [3])]
        return [len(rows(answer)) for answer in answers]

    years_later = ManualClock(4_000_000_000_000)
    assert asked_when_idle(EveryKind(), kept) == [9, 2, 4, 1]
    assert asked_when_idle(EveryKind(), kept, clock=years_later) == [0, 0, 4, 1]


def test_state_that_a_function_asks_for_late_is_found() -> None:
    assert asked_when_idle(Late(), lambda job: value(job, "late", LEFT), key=lambda n: RIGHT) is None
    assert asked_when_idle(Late(), lambda job: value(job, "late", RIGHT), key=lambda n: RIGHT) == 8


# --- what is not -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "error", "said"),
    [
        (lambda job: query(job.queries, "other", "value", None, None, 9), UnknownOperatorError, "'states'"),
        (lambda job: ask(job, "valeu"), UnknownStateError, "'value', 'list', 'map'"),
        (lambda job: ask(job, "valeu", [1]), UnknownStateError, "'value', 'list', 'map'"),
        (lambda job: ask(job, "value", ["one"]), InvalidKeyError, "'states' has keys of LONG"),
        (lambda job: ask(job, "value", "abc"), ConfigurationError, "keys is a list, not 'abc'"),
        (lambda job: ask(job, "value", range(100_001)), ConfigurationError, "at most 100,000 keys"),
        (lambda job: ask(job, "value", [1], namespace=3), StateQueryError, "has no namespaces"),
        (lambda job: ask(job, "value", timeout_s=0), ConfigurationError, "timeout_s"),
    ],
)
def test_a_wrong_question_is_refused(
    question: Callable[[Job], Any], error: type[Exception], said: str
) -> None:
    def refused(job: Job) -> str:
        with pytest.raises(error) as caught:
            question(job)
        assert value(job, "value", 3) == 7, "the job still answers"
        return str(caught.value)

    assert said in asked_when_idle(EveryKind(), refused)


def test_so_many_may_ask_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_AT_ONCE", 2)

    def crowd(job: Job) -> str:
        first, second = ask(job, "value"), ask(job, "value")
        with pytest.raises(StateQueryError) as caught:
            ask(job, "value")
        first.close()
        del second  # nobody reads it any more
        for _ in range(3):
            ask(job, "value").to_arrow()
            ask(job, "value", [1])
            with ask(job, "value"):
                pass
        return str(caught.value)

    assert "2 questions to the job are open" in asked_when_idle(EveryKind(), crowd)


def test_a_job_that_is_over_says_where_its_state_is() -> None:
    job = run_of(keyed(numbers(), CountRecords(), lambda n: n)).run()
    with pytest.raises(StateQueryError, match="open_checkpoint"):
        ask(job, "count")


def test_a_job_without_slots_yet_is_waited_for() -> None:
    job = run_of(keyed(numbers(), CountRecords(), lambda n: n)).job()
    with pytest.raises(StateQueryTimeoutError, match=r"within 0\.1 s: the question waits for the job to st"):
        ask(job, "count", timeout_s=0.1)


def test_an_answer_waits_for_the_end_of_the_epoch_and_says_so(storage: CheckpointFolders) -> None:
    said: list[str] = []
    answers: list[queue.SimpleQueue[Any]] = []
    run = run_of(keyed(until_answered(6, answers), CountRecords(), lambda n: n), storage)

    def in_the_second(request: Any) -> None:
        if request.link.epoch == 2 and not answers:
            with pytest.raises(StateQueryTimeoutError) as caught:
                ask(run.job(), "count", timeout_s=0.1)
            said.append(str(caught.value))
            answers.append(in_thread(lambda: len(rows(ask(run.job(), "count")))))

    run.runner.before = in_the_second
    run.run()
    assert "waits for the end of epoch 2" in said[0]
    assert outcome(answers[0]) == 6


# --- failures --------------------------------------------------------------------------------------------


def test_a_question_outlives_a_restart(storage: CheckpointFolders) -> None:
    """It is asked in the epoch that fails, and answered by the next attempt."""
    answers: list[queue.SimpleQueue[Any]] = []
    counted = keyed(until_answered(9, answers), CountRecords(), lambda n: n % 3)
    run = run_of(counted, storage, restart=FixedDelayRestart(1, 0))
    fails = once(SparkJobError("an executor was lost"), 2)

    def before(request: Any) -> None:
        if request.link.epoch == 2 and not answers:
            sent = threading.Event()
            run.job().queries._live = told(run.job().queries._live, sent)
            answers.append(in_thread(lambda: rows(ask(run.job(), "count"))))
            assert sent.wait(PATIENCE_S)
        fails(request)

    run.runner.before = before
    run.run()
    assert run.job().result().restarts == 1
    found = outcome(answers[0])
    assert [row["key"] for row in found] == [0, 1, 2]
    assert len({row["value"] for row in found}) == 1


def until_answered(available: int, answers: list[queue.SimpleQueue[Any]]) -> SourceNode:
    """Return a source, three numbers an epoch, that goes on until there is an answer."""

    def when_idle(source: GrowingSource) -> None:
        source.is_over = bool(answers) and not answers[0].empty()

    return SourceNode(GrowingSource(available, when_idle), "numbers")


def test_a_question_that_comes_too_late_is_asked_again() -> None:
    def late(job: Job) -> tuple[list[int], int]:
        live, told_epochs = job.queries._live, [1, 2]

        def behind() -> Any:
            slots = live()
            return attrs.evolve(slots, epoch=told_epochs.pop(0)) if told_epochs else slots

        job.queries._live = behind
        found = ask(job, "value")
        return sorted(row["key"] for row in found), found.epoch

    assert asked_when_idle(EveryKind(), late) == ([0, 1, 2, 3], 3)


def told(live: Callable[[], Any], asked_for: threading.Event) -> Callable[[], Any]:
    """Return the same function, which also tells that the epoch was asked for."""

    def also() -> Any:
        asked_for.set()
        return live()

    return also


def test_a_cancelled_job_answers_no_more(storage: CheckpointFolders) -> None:
    said: list[Any] = []

    def cancelled(job: Job) -> None:
        said.append(in_thread(lambda: [ask(job, "count").epoch for _ in range(10_000)]))
        job.cancel()

    with pytest.raises(JobCancelledError):
        asked_when_idle(CountRecords(), cancelled, storage)
    assert isinstance(outcome(said[0]), StateQueryError)
