"""Questions to live state over HTTP: who may ask, what is answered, and what is refused."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from live_functions import CountRecords, EveryKind, Padded, Unbounded
from support_job import GrowingSource, JobRun
from support_runtime import PATIENCE_S
from support_web import JOB_ID, Answer, Browser, browser_of, exchange, monitor_with, parse, story

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import Types
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.web import state_query
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.monitoring import WebPageSettings
from pyflinkstate.runtime.plan.nodes import SourceNode, StatefulNode
from pyflinkstate.runtime.queries.asking import MOST_AT_ONCE
from pyflinkstate.runtime.sinks.sinks import DriverSink

pytestmark = pytest.mark.timeout(120)

EVIL = "<script>"
QUESTION = {"operator": "states", "state": "value"}


def post(browser: Browser, job_id: str, body: Any, **headers: str) -> Answer:
    """Ask as a program that has the token, unless headers say otherwise."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"host": f"127.0.0.1:{browser.port}", "authorization": f"Bearer {browser.token}", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value)
    head = f"POST /api/jobs/{job_id}/query HTTP/1.1\r\n{lines}content-length: {len(data)}\r\n\r\n"
    return parse(exchange(browser.port, head.encode("latin-1") + data))


def asked_when_idle(
    ask: Callable[[Browser, Job], Any],
    function: KeyedProcessFunction | None = None,
    key_of: Callable[[int], Any] = lambda n: n % 4,
    key_type: Any = None,
    **page: Any,
) -> Any:
    """Return what is answered to a page between two epochs of a job."""
    answers: list[Any] = []
    known = threading.Event()

    def when_idle(source: GrowingSource) -> None:
        if known.is_set():
            answers.append(ask(browser, job))
            source.is_over = True

    counted = StatefulNode(
        SourceNode(GrowingSource(9, when_idle), "numbers"),
        key_of,
        key_type or Types.LONG(),
        function or EveryKind(),
        "states",
        uid="states",
    )
    run = JobRun(counted, DriverSink(lambda *_: None), parallelism=2)
    monitor = Monitor(WebPageSettings(**page), run.clock)
    browser = browser_of(monitor)
    recorder: Any = monitor.observe(None)
    recorder._changed = known.set
    run.listeners = (recorder,)
    job = run.job()
    monitor.attach(recorder, job, None)
    for _ in job.run():
        pass
    monitor.close()
    return answers[0]


def test_named_keys_and_scans_are_answered_as_json() -> None:
    def ask(browser: Browser, job: Job) -> list[Any]:
        question = {"operator": "states", "state": "value"}
        answers = [
            post(browser, job.job_id, {**question, "keys": [3, 99]}),
            post(browser, job.job_id, {**question, "limit": 3}),
            post(browser, job.job_id, {**question, "state": "map", "keys": [1]}),
            post(browser, job.job_id, {**question, "state": "pickled", "keys": [1]}),
        ]
        assert all(answer.status == 200 for answer in answers)
        assert answers[0].headers["content-type"] == "application/json"
        return [answer.json() for answer in answers]

    named, scanned, mapped, pickled = asked_when_idle(ask)
    assert named == {
        "epoch": 3,
        "columns": [{"name": "key", "type": "int64"}, {"name": "value", "type": "int64"}],
        "rows": [{"key": 3, "value": 7}],
        "is_complete": True,
    }
    assert (len(scanned["rows"]), scanned["is_complete"]) == (3, False)
    assert sorted(row["map_key"] for row in mapped["rows"]) == ["", "n1", "n2"]
    assert pickled["rows"][0]["value"].startswith("<pickle, ")


def test_a_scan_is_answered_as_an_arrow_stream() -> None:
    def ask(browser: Browser, job: Job) -> Answer:
        return post(browser, job.job_id, {"operator": "states", "state": "value", "format": "arrow"})

    answer = asked_when_idle(ask)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert "content-length" not in answer.headers
    table = pa.ipc.open_stream(answer.body).read_all()
    assert sorted(table.column("value").to_pylist()) == [5, 6, 7, 8]


def test_markup_in_keys_and_values_stays_text() -> None:
    def ask(browser: Browser, job: Job) -> Answer:
        return post(browser, job.job_id, {"operator": "states", "state": "count"})

    answer = asked_when_idle(ask, CountRecords(), lambda n: EVIL, Types.STRING())
    assert b"<" not in answer.body
    assert answer.json()["rows"] == [{"key": EVIL, "value": 9}]


def test_an_answer_ends_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_query, "MOST_JSON_BYTES", 2_500_000)

    def ask(browser: Browser, job: Job) -> Any:
        return post(browser, job.job_id, {"operator": "states", "state": "padding"}).json()

    found = asked_when_idle(ask, Padded())
    assert (len(found["rows"]), found["is_complete"]) == (1, False)


@pytest.mark.parametrize(
    ("question", "status", "said"),
    [
        ({"operator": "other", "state": "value"}, 404, "no operator 'other'"),
        ({"operator": "states", "state": "other"}, 404, "it has 'value'"),
        ({"operator": "states", "state": "value", "keys": ["x"]}, 400, "keys of LONG"),
        ({"operator": "states", "state": "value", "namespace": "x"}, 409, "has no namespaces"),
        ({"operator": "states", "state": "value", "namespace": {"start": 0, "end": 1}}, 409, "no namespaces"),
    ],
)
def test_an_impossible_question_is_told_why(question: Any, status: int, said: str) -> None:
    answer = asked_when_idle(lambda browser, job: post(browser, job.job_id, question))
    assert answer.status == status
    assert said in answer.json()["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"[" * 4_000, "must be JSON"),
        (b"\xff", "must be JSON"),
        ([], "a JSON object"),
        ({"operator": "states"}, 'must have "state"'),
        ({"operator": 1, "state": "value"}, 'must have "operator"'),
        ({**QUESTION, "keys": "3"}, '"keys" must be a list'),
        ({**QUESTION, "keys": [{}]}, "a key cannot be"),
        ({**QUESTION, "limit": 10_001}, '"limit" must be'),
        ({**QUESTION, "limit": True}, '"limit" must be'),
        ({**QUESTION, "format": "csv"}, '"format" must be'),
        ({**QUESTION, "namespace": {"start": 0}}, "a window must have"),
    ],
    ids=repr,
)
def test_a_body_that_is_no_question_is_told_why(body: Any, said: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = state_query.answer(None, data)  # type: ignore[arg-type]
    assert answer.status_code == 400
    assert said in json.loads(answer.body)["message"]


def test_what_is_said_of_it_comes_over_http() -> None:
    answer = asked_when_idle(lambda browser, job: post(browser, job.job_id, {"operator": "states"}))
    assert answer.status == 400
    assert answer.json() == {"message": 'a question must have "state", a string'}


def test_numbers_that_json_does_not_have_are_texts() -> None:
    def ask(browser: Browser, job: Job) -> Any:
        return post(browser, job.job_id, {"operator": "states", "state": "ratios", "keys": [1]})

    found = json.loads(asked_when_idle(ask, Unbounded()).body, parse_constant=pytest.fail)
    values = {row["map_key"]: row["value"] for row in found["rows"]}
    assert values == {"none": "nan", "all": "inf", "half": 0.5}


def test_a_job_that_cannot_answer_soon_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_query, "WAIT_S", 0.05)

    def ask(browser: Browser, job: Job) -> Answer:
        job.queries._live = lambda: None
        return post(browser, job.job_id, {"operator": "states", "state": "value"})

    answer = asked_when_idle(ask)
    assert answer.status == 503
    assert "to restart" in answer.json()["message"]


def test_only_those_who_may_act_may_ask() -> None:
    def ask(browser: Browser, job: Job) -> list[int]:
        question = {"operator": "states", "state": "value"}
        browser.enter()
        cookie = {"authorization": "", "cookie": browser.cookie or ""}
        return [
            post(browser, job.job_id, question, authorization="").status,
            post(browser, job.job_id, question, authorization="Bearer wrong").status,
            post(browser, job.job_id, question, host="evil.example").status,
            post(browser, job.job_id, question, **cookie).status,
            post(browser, job.job_id, question, **cookie, x_action_token=browser.action_token or "").status,
            post(browser, job.job_id, question, origin="http://evil.example").status,
            post(browser, job.job_id, question).status,
            browser.ask(f"/api/jobs/{job.job_id}/query").status,
        ]

    assert asked_when_idle(ask) == [401, 401, 421, 403, 200, 403, 200, 404]


def test_a_page_without_actions_answers_programs_with_the_token() -> None:
    def ask(browser: Browser, job: Job) -> int:
        return post(browser, job.job_id, {"operator": "states", "state": "value"}).status

    assert asked_when_idle(ask, has_actions=False) == 200


def test_a_job_that_does_not_run_here_has_no_answers() -> None:
    monitor = monitor_with(story())
    browser = browser_of(monitor)
    for job_id in (JOB_ID, "c" * 32):
        answer = post(browser, job_id, {"operator": "states", "state": "value"})
        assert (answer.status, "does not run" in answer.json()["message"]) == (409, True)
    monitor.close()


def test_a_reader_that_leaves_frees_what_was_kept_for_it() -> None:
    def ask(browser: Browser, job: Job) -> bool:
        body = json.dumps({"operator": "states", "state": "padding", "format": "arrow"}).encode()
        head = (
            f"POST /api/jobs/{job.job_id}/query HTTP/1.1\r\nhost: localhost\r\n"
            f"authorization: Bearer {browser.token}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", browser.port), timeout=PATIENCE_S) as connection:
                connection.sendall(head.encode() + body)
                assert connection.recv(12) == b"HTTP/1.1 200"
        return all(job.queries._free.acquire(timeout=PATIENCE_S) for _ in range(MOST_AT_ONCE))

    assert asked_when_idle(ask, Padded())
