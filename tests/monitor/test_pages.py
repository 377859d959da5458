"""The JSON behind the page, metrics for Prometheus, and what can be done to a job from its page."""

from __future__ import annotations

import gc
import json
import re
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from support_job import JobRun
from support_runtime import PATIENCE_S
from support_web import EVIL, JOB_ID, Browser, browser_of, monitor_with, show, story

from pyflinkstate.api.metric_reporter import ReportedMetric
from pyflinkstate.errors import JobCancelledError
from pyflinkstate.monitor import api
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.metrics import prometheus
from pyflinkstate.monitor.metrics.job_metrics import samples
from pyflinkstate.monitor.recorder import Recorder
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.monitoring import WebPageSettings

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


def test_metrics_have_the_form_and_flinks_names(browser: Browser) -> None:
    answer = browser.ask("/metrics")
    assert answer.headers["content-type"] == prometheus.CONTENT_TYPE
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
        "pyflinkstate_side_output_records",
        "pyflinkstate_slot_memory_bytes",
        "pyflinkstate_timers",
        "pyflinkstate_state_bytes",
    } <= names
    types = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))


def test_a_metric_of_a_function_says_where_it_is_from() -> None:
    found = {sample.name: sample for sample in samples(story(), 0)}
    hits = found["flink_taskmanager_job_task_operator_cache_hits_total"]
    assert hits.value == 7
    assert dict(hits.labels)["subtask_index"] == "1"
    assert dict(hits.labels)["operator_name"] == EVIL


def test_the_time_of_each_subtask_is_told_as_flink_tells_it() -> None:
    found = [one for one in samples(story(), 0) if one.name.endswith("TimeMsPerSecond")]
    told = {(one.name.rpartition("_")[2], dict(one.labels)["subtask_index"]): one.value for one in found}
    assert told == {
        ("busyTimeMsPerSecond", "0"): 180,
        ("idleTimeMsPerSecond", "0"): 810,
        ("backPressuredTimeMsPerSecond", "0"): 10,
        ("busyTimeMsPerSecond", "1"): 900,
        ("idleTimeMsPerSecond", "1"): 50,
        ("backPressuredTimeMsPerSecond", "1"): 50,
    }
    assert {dict(one.labels)["task_id"] for one in found} == {EVIL}


def test_labels_cannot_break_out() -> None:
    sample = ReportedMetric("a", 1, (("name", 'x"} 1\nevil 1\\'),))
    assert prometheus.text([sample]) == '# TYPE a gauge\na{name="x\\"} 1\\nevil 1\\\\"} 1\n'


def test_a_name_that_utf_8_cannot_say_is_shown_without_it() -> None:
    monitor = monitor_with(story(name="bad\ud800name"))
    body = browser_of(monitor).enter().ask("/metrics").body.decode()
    assert 'job_name="bad?name"' in body
    monitor.close()


def test_a_page_does_not_keep_jobs_in_memory(run: JobRun) -> None:
    monitor, job, browser = live(run, None)
    for _ in job.run():
        pass
    known = weakref.ref(job)
    del job
    run.listeners = ()
    gc.collect()
    assert known() is None
    assert len(browser.ask("/api/jobs").json()["jobs"]) == 1
    monitor.close()


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


def live(run: JobRun, savepoints: str | None) -> tuple[Monitor, Job, Browser]:
    """Return a job with its page; the job has not begun."""
    monitor = Monitor(WebPageSettings(), run.clock)
    assert run.storage is not None
    observer = monitor.observe(run.storage.uri)
    run.listeners = (observer,)
    job = run.job()
    monitor.attach(observer, job, savepoints)
    return monitor, job, browser_of(monitor).enter()


def posted(browser: Browser, job: Job, action: str) -> tuple[int, Any]:
    token = browser.action_token or ""
    answer = browser.ask(f"/api/jobs/{job.job_id}/{action}", "POST", x_action_token=token)
    return answer.status, answer.json()["message"]


def in_first_epoch(run: JobRun, do: Any) -> None:
    """Do something while the first epoch runs and the page knows of the job."""
    known, done = threading.Event(), threading.Event()
    recorder = next(one for one in run.listeners if isinstance(one, Recorder))
    recorder._changed = known.set

    def hook(request: Any) -> None:
        if not done.is_set():
            done.set()
            assert known.wait(PATIENCE_S)
            do()

    run.runner.before = hook


def test_a_job_is_cancelled_from_its_page(run: JobRun) -> None:
    monitor, job, browser = live(run, None)
    told: list[Any] = []
    in_first_epoch(run, lambda: told.append(posted(browser, job, "cancel")))
    with pytest.raises(JobCancelledError):
        for _ in job.run():
            pass
    assert told == [(202, "The job is being cancelled.")]
    assert browser.ask(f"/api/jobs/{job.job_id}").json()["status"] == "CANCELED"
    assert posted(browser, job, "cancel") == (409, "The job is not running any more.")
    monitor.close()


def test_a_job_is_stopped_with_a_savepoint_from_its_page(run: JobRun, tmp_path: Any) -> None:
    monitor, job, browser = live(run, str(tmp_path / "savepoints"))
    in_first_epoch(run, lambda: posted(browser, job, "stop"))
    for _ in job.run():
        pass
    shown = browser.ask(f"/api/jobs/{job.job_id}/checkpoints").json()
    assert shown["counts"]["savepoints"] == 1
    savepoint = next(one for one in shown["checkpoints"] if one["is_savepoint"])
    assert savepoint["uri"].startswith(str(tmp_path / "savepoints"))
    assert browser.ask(f"/api/jobs/{job.job_id}").json()["status"] == "FINISHED"
    monitor.close()


def test_a_savepoint_needs_a_directory(run: JobRun) -> None:
    monitor, job, browser = live(run, None)
    told: list[Any] = []
    in_first_epoch(run, lambda: told.append(posted(browser, job, "savepoint")))
    for _ in job.run():
        pass
    assert told[0][0] == 409
    assert "set_default_savepoint_directory()" in told[0][1]
    monitor.close()
