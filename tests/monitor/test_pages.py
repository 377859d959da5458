"""The JSON behind the page, metrics for Prometheus, and what can be done to a job from its page."""

from __future__ import annotations

import gc
import json
import re
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from slot_functions import CountRecords, EveryKind, Padded, Unbounded
from support_job import GrowingSource, JobRun
from support_runtime import PATIENCE_S
from support_web import EVIL, JOB_ID, Answer, Browser, browser_of, exchange, monitor_with, parse, show, story

from pyflinkstate.api import KeyedProcessFunction, ReportedMetric, Types
from pyflinkstate.errors import JobCancelledError
from pyflinkstate.monitor import api
from pyflinkstate.monitor.api import PROMETHEUS_TYPE, prometheus_text, samples
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.jobs import Recorder
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.monitor.web import pages
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.monitoring import WebPageSettings
from pyflinkstate.runtime.plan.nodes import SourceNode, StatefulNode
from pyflinkstate.runtime.queries import MOST_AT_ONCE
from pyflinkstate.runtime.sinks.sinks import DriverSink

pytestmark = pytest.mark.timeout(120)

SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*)\} (-?[\d.e+-]+)')


@pytest.fixture
def browser() -> Iterator[Browser]:
    monitor = monitor_with(story(), story("b" * 32, "other"))
    yield browser_of(monitor).enter()
    monitor.close()


def test_the_list_of_jobs(browser: Browser) -> None:
    jobs = browser.ask("/api/jobs").json()["jobs"]
    assert [(job["id"], job["name"], job["status"], job["is_live"]) for job in jobs] == [
        (JOB_ID, EVIL, "RESTARTING", False),
        ("b" * 32, "other", "RESTARTING", False),
    ]


def test_a_job(browser: Browser) -> None:
    job = browser.ask(f"/api/jobs/{JOB_ID}").json()
    assert (job["epoch"], job["committed_epoch"], job["restarts"]) == (1, 1, 1)
    assert job["checkpoint_counts"] == {"completed": 1, "failed": 1}
    assert job["last_checkpoint"]["checkpoint_id"] == 1
    assert job["last_failure"]["record"] == EVIL
    source, keyed = job["operators"]
    assert (source["records_out"], source["records_in"], source["skew"]) == (10, None, None)
    assert (keyed["records_in"], keyed["records_in_per_s"], keyed["skew"]) == (10, 20.0, 1.6)
    assert keyed["subtask_records"] == [8, 2]
    assert keyed["busy_ms_per_s"] == [180, 900]
    assert (source["back_pressured_ms_per_s"], job["epochs_in_flight"]) == ([750], 2)
    assert keyed["latency_ms"] == {"in-0": {"p50": 50, "p99": 99, "max": 100}}
    assert keyed["timers"] == [3, 0]
    assert keyed["memory_limit_bytes"] == 100 << 20
    assert keyed["side_outputs"] == {EVIL: 2}
    assert keyed["records_late"] == 4


@pytest.mark.parametrize("name", sorted(api.VIEWS))
def test_every_view_is_json_without_markup(browser: Browser, name: str) -> None:
    answer = browser.ask(f"/api/jobs/{JOB_ID}/{name}".rstrip("/"))
    assert answer.headers["content-type"] == "application/json"
    assert b"<" not in answer.body
    assert answer.json()


def test_the_state_of_a_job(browser: Browser) -> None:
    state = browser.ask(f"/api/jobs/{JOB_ID}/state").json()
    assert state == {
        "checkpoint_id": 1,
        "operators": {EVIL: {"bytes": {EVIL: 2500}, "key_groups": [100, 2400], "subtasks": [1000, 2000]}},
    }


@pytest.mark.parametrize(
    "path",
    [
        f"/api/jobs/{'c' * 32}",
        f"/api/jobs/{JOB_ID}/none",
        f"/api/jobs/{JOB_ID}/epochs/1",
        "/api",
        "/api/jobs/",
    ],
)
def test_what_is_not_there(browser: Browser, path: str) -> None:
    assert browser.ask(path).status == 404


def test_a_story_that_is_empty_has_every_view() -> None:
    for view in api.VIEWS.values():
        json.dumps(view(JobStory(), False))


DISK = {
    "flink_taskmanager_job_task_operator_rocksdb_total_sst_files_size",
    "pyflinkstate_state_memory_bytes",
    "pyflinkstate_state_hit_rate",
}


def test_metrics_have_the_form_and_flinks_names(browser: Browser) -> None:
    answer = browser.ask("/metrics")
    assert answer.headers["content-type"] == PROMETHEUS_TYPE
    lines = answer.body.decode().splitlines()
    samples = [SAMPLE.fullmatch(line) for line in lines if not line.startswith("#")]
    assert all(samples)
    names = {sample[1] for sample in samples if sample is not None}
    assert {
        "flink_jobmanager_job_numRestarts",
        "flink_jobmanager_job_uptime",
        "flink_jobmanager_job_lastCheckpointDuration",
        "flink_jobmanager_job_lastCheckpointSize",
        "flink_jobmanager_job_numberOfCompletedCheckpoints",
        "flink_jobmanager_job_numberOfFailedCheckpoints",
        "flink_taskmanager_job_task_operator_numRecordsIn",
        "flink_taskmanager_job_task_operator_numRecordsOutPerSecond",
        "flink_taskmanager_job_task_operator_currentOutputWatermark",
        "flink_taskmanager_job_task_operator_cache_hits_total",
        "flink_taskmanager_job_task_operator_load_count",
        "flink_taskmanager_job_task_operator_numLateRecordsDropped",
        "flink_taskmanager_job_task_busyTimeMsPerSecond",
        "flink_taskmanager_job_task_idleTimeMsPerSecond",
        "flink_taskmanager_job_task_backPressuredTimeMsPerSecond",
        "pyflinkstate_epoch_phase_ms",
        "pyflinkstate_epochs_in_flight",
        "pyflinkstate_latency_ms",
        "pyflinkstate_side_output_records",
        "pyflinkstate_slot_memory_bytes",
        "pyflinkstate_timers",
        "pyflinkstate_state_bytes",
    } <= names
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_state_on_disk_is_told_by_subtask_and_by_state() -> None:
    of_disk = [one for one in samples(story(), 0) if one.name in DISK]
    found = {(one.name, dict(one.labels).get("state")): one for one in of_disk}
    told = {key: (one.value, dict(one.labels)["subtask_index"]) for key, one in found.items()}
    assert told == {
        ("flink_taskmanager_job_task_operator_rocksdb_total_sst_files_size", None): (7 << 20, "0"),
        ("pyflinkstate_state_memory_bytes", EVIL): (3 << 20, "0"),
        ("pyflinkstate_state_hit_rate", EVIL): (0.75, "0"),
    }


def test_a_metric_of_a_function_says_where_it_is_from() -> None:
    found = {sample.name: sample for sample in samples(story(), 0)}
    hits = found["flink_taskmanager_job_task_operator_cache_hits_total"]
    assert hits.value == 7
    assert dict(hits.labels)["subtask_index"] == "1"
    assert dict(hits.labels)["operator_name"] == EVIL


def test_sinks_tell_of_commits_and_bytes() -> None:
    made = story()
    sinks = {"in": {"commits": 7, "size_bytes": 900}, EVIL: {"commits": 7, "size_bytes": None}}
    made.take({"event": "committed", "at": 1, "epoch": 2, "duration_ms": 1, "sinks": sinks})
    found = [(one.name.rpartition("_")[2], one.value, dict(one.labels)["task_id"]) for one in samples(made, 0)
             if "operator_success" in one.name or one.name.endswith("numBytesSend")]  # fmt: skip
    assert found == [
        ("successfulCommittables", 7, "in-0"),
        ("numBytesSend", 900, "in-0"),
        ("successfulCommittables", 7, EVIL),
    ]


def test_the_time_of_each_subtask_is_told_as_flink_tells_it() -> None:
    times = [one for one in samples(story(), 0) if one.name.endswith("TimeMsPerSecond")]
    of_source = [one for one in times if ("task_id", "in-0") in one.labels]
    found = [one for one in times if one not in of_source]
    told = {(one.name.rpartition("_")[2], dict(one.labels)["subtask_index"]): one.value for one in found}
    assert told == {
        ("busyTimeMsPerSecond", "0"): 180,
        ("idleTimeMsPerSecond", "0"): 810,
        ("backPressuredTimeMsPerSecond", "0"): 10,
        ("busyTimeMsPerSecond", "1"): 900,
        ("idleTimeMsPerSecond", "1"): 50,
        ("backPressuredTimeMsPerSecond", "1"): 50,
    }
    assert {dict(one.labels)["task_id"] for one in [*found, *of_source]} == {EVIL, "in-0"}
    assert [one.value for one in of_source] == [250, 0, 750]


def test_latencies_are_told_by_source_and_quantile() -> None:
    found = [one for one in samples(story(), 0) if one.name == "pyflinkstate_latency_ms"]
    labels = [dict(one.labels) for one in found]
    assert {(one["operator_id"], one["source_id"]) for one in labels} == {(EVIL, "in-0")}
    assert {one["quantile"]: sample.value for one, sample in zip(labels, found, strict=True)} == {
        "0.5": 50,
        "0.99": 99,
        "1": 100,
    }


def test_another_run_begins_without_latencies() -> None:
    made = story()
    made.take({"event": "started", "at": 1, "job": made.job})
    assert made.measured.latencies_ms(EVIL) == {}


def test_labels_cannot_break_out() -> None:
    sample = ReportedMetric("a", 1, (("name", 'x"} 1\nevil 1\\'),))
    assert prometheus_text([sample]) == '# TYPE a gauge\na{name="x\\"} 1\\nevil 1\\\\"} 1\n'


def test_a_name_that_utf_8_cannot_say_is_shown_without_it() -> None:
    monitor = monitor_with(story(name="bad\ud800name"))
    body = browser_of(monitor).enter().ask("/metrics").body.decode()
    assert 'job_name="bad?name"' in body
    monitor.close()


def test_a_page_does_not_keep_jobs_in_memory(run: JobRun, live: Callable[..., tuple[Job, Browser]]) -> None:
    job, browser = live()
    list(job.run())
    known = weakref.ref(job)
    del job
    run.listeners, run._job = (), None
    gc.collect()
    assert known() is None
    assert len(browser.ask("/api/jobs").json()["jobs"]) == 1


def test_answers_of_older_versions_are_not_kept() -> None:
    monitor = monitor_with()
    browser = browser_of(monitor).enter()
    for number in range(5):
        show(monitor, story(f"{number:032x}"))
        path = f"/api/jobs/{number:032x}/page"
        assert browser.ask(path).status == 200
    assert monitor._pages is not None
    assert list(monitor._pages._cache[1]) == [path]
    monitor.close()


@pytest.fixture
def live(run: JobRun) -> Iterator[Callable[..., tuple[Job, Browser]]]:
    """Make a job with its page; the job has not begun."""
    monitor = Monitor(WebPageSettings(), run.clock)

    def live(savepoints: str | None = None) -> tuple[Job, Browser]:
        assert run.storage is not None
        observer = monitor.observe(run.storage.uri)
        run.listeners = (observer,)
        job = run.job()
        monitor.attach(observer, job, savepoints)
        return job, browser_of(monitor).enter()

    yield live
    monitor.close()


def posted(browser: Browser, job: Job, action: str) -> tuple[int, Any]:
    token = browser.action_token or ""
    answer = browser.ask(f"/api/jobs/{job.job_id}/{action}", "POST", x_action_token=token)
    return answer.status, answer.json()["message"]


def acted(run: JobRun, live: tuple[Job, Browser], action: str) -> Any:
    """Act on a job in its first epoch, when the page knows of it; return the answer after its end."""
    job, browser = live
    known = threading.Event()
    told: list[Any] = []
    recorder = next(one for one in run.listeners if isinstance(one, Recorder))
    recorder._changed = known.set

    def hook(request: Any) -> None:
        if not told:
            assert known.wait(PATIENCE_S)
            told.append(posted(browser, job, action))

    run.runner.before = hook
    with suppress(JobCancelledError):
        list(job.run())
    (answer,) = told
    return answer


def test_a_job_is_cancelled_from_its_page(run: JobRun, live: Callable[..., tuple[Job, Browser]]) -> None:
    job, browser = live()
    assert acted(run, (job, browser), "cancel") == (202, "The job is being cancelled.")
    assert browser.ask(f"/api/jobs/{job.job_id}").json()["status"] == "CANCELED"
    assert posted(browser, job, "cancel") == (409, "The job is not running any more.")


def test_a_job_is_stopped_with_a_savepoint_from_its_page(
    run: JobRun, live: Callable[..., tuple[Job, Browser]], tmp_path: Path
) -> None:
    job, browser = live(str(tmp_path / "savepoints"))
    assert acted(run, (job, browser), "stop")[0] == 202
    shown = browser.ask(f"/api/jobs/{job.job_id}/checkpoints").json()
    assert shown["counts"]["savepoints"] == 1
    savepoint = next(one for one in shown["checkpoints"] if one["is_savepoint"])
    assert savepoint["uri"].startswith(str(tmp_path / "savepoints"))
    assert browser.ask(f"/api/jobs/{job.job_id}").json()["status"] == "FINISHED"


def test_the_threads_of_a_slot_are_told_as_its_lines(
    run: JobRun, live: Callable[..., tuple[Job, Browser]]
) -> None:
    job, browser = live()
    answers: list[int] = []

    def hook(request: Any) -> None:
        if request.link.epoch == 2:
            token = browser.action_token or ""
            for of in ("stream=counts&subtask=1", "stream=counts&subtask=7", "stream=counts&subtask=x"):
                path = f"/api/jobs/{job.job_id}/threads?{of}"
                answers.append(browser.ask(path, "POST", x_action_token=token).status)

    run.runner.before = hook
    list(job.run())
    assert answers == [202, 409, 409]
    found = browser.ask(f"/api/jobs/{job.job_id}/logs?slot=counts%5B1%5D").json()["lines"]
    lines = [line for _, _, level, line in found if level == "INFO"]
    assert any(line.startswith("Thread ") and '"MainThread"' in line for line in lines)
    assert any("_listen_to_driver (" in line and "slot.py:" in line for line in lines)


def test_a_savepoint_needs_a_directory(run: JobRun, live: Callable[..., tuple[Job, Browser]]) -> None:
    status, text = acted(run, live(), "savepoint")
    assert status == 409
    assert "set_default_savepoint_directory()" in text


# --- questions to live state over HTTP: who may ask, what is answered, and what is refused --------


QUESTION = {"operator": "states", "state": "value"}


def answered(question: dict[str, Any], *of_job: Any) -> Answer:
    """Return the answer to a question; ``of_job`` is the function, the keys and their type."""
    made: Answer = asked_when_idle(
        lambda browser, job: post(browser, job.job_id, {**QUESTION, **question}), *of_job
    )
    return made


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
        answers = [
            post(browser, job.job_id, {**QUESTION, "keys": [3, 99]}),
            post(browser, job.job_id, {**QUESTION, "limit": 3}),
            post(browser, job.job_id, {**QUESTION, "state": "map", "keys": [1]}),
            post(browser, job.job_id, {**QUESTION, "state": "pickled", "keys": [1]}),
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
    answer = answered({"format": "arrow"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert "content-length" not in answer.headers
    table = pa.ipc.open_stream(answer.body).read_all()
    assert sorted(table.column("value").to_pylist()) == [5, 6, 7, 8]


def test_markup_in_keys_and_values_stays_text() -> None:
    answer = answered({"state": "count"}, CountRecords(), lambda n: "<script>", Types.STRING())
    assert b"<" not in answer.body
    assert answer.json()["rows"] == [{"key": "<script>", "value": 9}]


def test_an_answer_ends_after_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_JSON_BYTES", 2_500_000)
    found = answered({"state": "padding"}, Padded()).json()
    assert (len(found["rows"]), found["is_complete"]) == (1, False)


@pytest.mark.parametrize(
    ("question", "status", "said"),
    [
        ({"operator": "other"}, 404, "no operator 'other'"),
        ({"state": "other"}, 404, "it has 'value'"),
        ({"keys": ["x"]}, 400, "keys of LONG"),
        ({"namespace": "x"}, 409, "has no namespaces"),
        ({"namespace": {"start": 0, "end": 1}}, 409, "no namespaces"),
    ],
)
def test_an_impossible_question_is_told_why(question: Any, status: int, said: str) -> None:
    answer = answered(question)
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
    answer = pages.answer(None, data)  # type: ignore[arg-type]
    assert answer.status_code == 400
    assert said in json.loads(answer.body)["message"]


def test_numbers_that_json_does_not_have_are_texts() -> None:
    answer = answered({"state": "ratios", "keys": [1]}, Unbounded())
    found = json.loads(answer.body, parse_constant=pytest.fail)
    values = {row["map_key"]: row["value"] for row in found["rows"]}
    assert values == {"none": "nan", "all": "inf", "half": 0.5}


def test_a_job_that_cannot_answer_soon_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "WAIT_S", 0.05)

    def ask(browser: Browser, job: Job) -> Answer:
        job.queries._live = lambda: None
        return post(browser, job.job_id, QUESTION)

    answer = asked_when_idle(ask)
    assert answer.status == 503
    assert "to restart" in answer.json()["message"]


def test_only_those_who_may_act_may_ask() -> None:
    def ask(browser: Browser, job: Job) -> list[int]:
        browser.enter()
        cookie = {"authorization": "", "cookie": browser.cookie or ""}
        return [
            post(browser, job.job_id, QUESTION, authorization="").status,
            post(browser, job.job_id, QUESTION, authorization="Bearer wrong").status,
            post(browser, job.job_id, QUESTION, host="evil.example").status,
            post(browser, job.job_id, QUESTION, **cookie).status,
            post(browser, job.job_id, QUESTION, **cookie, x_action_token=browser.action_token or "").status,
            post(browser, job.job_id, QUESTION, origin="http://evil.example").status,
            post(browser, job.job_id, QUESTION).status,
            browser.ask(f"/api/jobs/{job.job_id}/query").status,
        ]

    assert asked_when_idle(ask) == [401, 401, 421, 403, 200, 403, 200, 404]


def test_a_page_without_actions_answers_programs_with_the_token() -> None:
    answer = asked_when_idle(lambda browser, job: post(browser, job.job_id, QUESTION), has_actions=False)
    assert answer.status == 200


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
