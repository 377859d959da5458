"""What a real job tells its recorder, and what of it is found beside its checkpoints."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slot_functions import KeyedAside, KeyedMeasured, KeyedPrints, MapMeasured
from support_job import JobRun, numbers
from support_runtime import PATIENCE_S, PICKLED, raising
from support_web import read_journal

from pyflinkstate.api import OutputTag, ProcessFunction
from pyflinkstate.errors import PyFlinkStateError, UserFunctionError
from pyflinkstate.monitor import jobs as recording
from pyflinkstate.monitor.api import operators, samples
from pyflinkstate.monitor.events import _value
from pyflinkstate.monitor.jobs import LEAST_BYTES, Recorder
from pyflinkstate.monitor.journal import Journal
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.runtime.master.job_reporter import PHASES, JobReporter
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.observe import (
    EpochReport,
    EpochStats,
    JobDescription,
    JobObserver,
    describe,
)
from pyflinkstate.runtime.plan.nodes import ChainNode, SideOutputNode, SinkNode, StatefulNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart, JobStatus
from pyflinkstate.runtime.sinks import FileSink
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.metrics import MetricValue

pytestmark = pytest.mark.timeout(60)

EVIL = "<script>alert(1)</script>"


def watched(run: JobRun) -> tuple[Job, Recorder]:
    """Return a job that does not run yet, and its recorder."""
    recorder = Recorder(run.clock, None if run.storage is None else run.storage.uri)
    run.listeners = (recorder,)
    return run.job(), recorder


def recorded(run: JobRun) -> tuple[Job, Recorder]:
    """Run a job to its end, with a recorder; failures are recorded too."""
    job, recorder = watched(run)
    try:
        for _ in job.run():
            pass
    except PyFlinkStateError:
        pass
    return job, recorder


def retold(storage: CheckpointFolders, job: Job) -> JobStory:
    """Return the story that the journal tells."""
    story = JobStory()
    for event in read_journal(f"{storage.uri}/{job.job_id}"):
        story.take(event)
    return story


def held_back(run: JobRun, queue_bytes: int) -> tuple[Recorder, threading.Event]:
    """Return a recorder of a job that has begun, which takes events only when the event is set."""
    held = threading.Event()
    recorder = Recorder(run.clock, changed=lambda: held.wait(PATIENCE_S) and None, queue_bytes=queue_bytes)
    recorder.on_start(_description())
    return recorder, held


def known(story: JobStory) -> dict[str, Any]:
    return {name: value for name, value in vars(story).items() if name != "logs"}


def test_a_job_is_told_whole(run: JobRun) -> None:
    _, recorder = recorded(run)
    story = recorder.story
    assert story.status == "FINISHED"
    assert [epoch["records"] for epoch in story.epochs.recent] == [3, 3, 3, 1]
    assert [epoch["epoch"] for epoch in story.epochs.recent] == [1, 2, 3, 4]
    assert story.epochs.committed == 4
    assert story.measured.totals["numbers.records_out"] == 10
    assert story.measured.totals["count.records_in"] == 10
    assert sum(story.measured.received["counts"]) == 10
    assert story.epochs.recent[-1]["commit_ms"] is not None


def test_the_journal_tells_the_same_story(run: JobRun, storage: CheckpointFolders) -> None:
    job, recorder = recorded(run)
    assert known(retold(storage, job)) == known(recorder.story)


def test_what_the_job_consists_of(run: JobRun) -> None:
    _, recorder = recorded(run)
    told = recorder.story.job
    assert told["name"] == "orders"
    assert [(one["id"], one["kind"], one["parallelism"]) for one in told["vertices"]] == [
        ("numbers-0", "source", None),
        ("counts", "keyed", 2),
        ("sink-2", "sink", None),
    ]
    assert [(edge["source"], edge["target"], list(edge["chain"])) for edge in told["edges"]] == [
        ("numbers-0", "counts", ["tens"]),
        ("counts", "sink-2", []),
    ]


def test_where_the_time_of_each_subtask_went(run: JobRun) -> None:
    _, recorder = recorded(run)
    (operator,) = [one for one in operators(recorder.story) if one["kind"] == "keyed"]
    shares = [operator[f"{name}_ms_per_s"] for name in ("busy", "idle", "back_pressured")]
    assert [len(each) for each in shares] == [2, 2, 2]
    assert all(998 <= sum(of_subtask) <= 1002 for of_subtask in zip(*shares, strict=True))
    assert all(size > 1 << 20 for size in operator["memory_bytes"])
    assert operator["timers"] == [0, 0]


def test_another_run_has_other_slots(run: JobRun) -> None:
    _, recorder = recorded(run)
    story = recorder.story
    assert story.measured.time_shares()
    story.take({"event": "started", "at": 1, "job": story.job})
    assert (story.measured.time_shares(), story.measured.slots) == ({}, {})


def test_side_outputs_are_counted(run: JobRun) -> None:
    """Those of an operator with state, and those of one without."""
    split: Any = ChainNode(numbers(), "process", Split(), "split")
    counts = StatefulNode(split, lambda n: n % 2, PICKLED, KeyedAside(), "count", uid="counts")
    run.end = counts
    others = {"odd": split, "aside": counts}
    run.others = [
        SinkNode(SideOutputNode(node, tag, tag), DriverSink(lambda _, values: None), tag)
        for tag, node in others.items()
    ]
    job, recorder = recorded(run)
    found = {one["name"]: one["side_outputs"] for one in operators(recorder.story)}
    assert found["split"] == {"odd": 5}
    assert found["count"] == {"aside": 5}
    assert job.result().accumulators["split.side_output.odd"] == 5


def test_a_few_records_of_a_stream_are_told_while_somebody_looks(run: JobRun) -> None:
    """They are in no journal, and of a stream that nobody looks at there are none."""
    shared: Any = ChainNode(numbers(100, 50), "map", lambda n: -n, "shared")
    counts = StatefulNode(shared, lambda n: n % 2, PICKLED, KeyedAside(), "count", uid="counts")
    run.end = counts
    run.others = [SinkNode(shared, DriverSink(lambda _, values: None), "all")]
    job, recorder = watched(run)
    wanted = ["numbers-0", "shared-1", "counts"]

    def look(request: Any) -> None:
        for stream in wanted:
            job.sample(stream, 60_000 if request.link.epoch == 1 else 0)
        sampled.append(request.link.sampled)

    sampled: list[frozenset[str]] = []
    run.runner.after = look
    list(job.run())
    assert sampled[:2] == [frozenset(), frozenset(wanted)]
    told = recorder.story.measured.samples
    assert set(told) == {*wanted, "counts.side_output.aside"}
    assert told["numbers-0"]["records"] == [str(n) for n in range(50, 70)]
    assert told["shared-1"]["records"] == [str(-n) for n in range(50, 70)]
    assert told["counts"]["records"] == []
    assert len(told["counts.side_output.aside"]["records"]) == 20
    assert told["counts"]["epoch"] == 2
    assert run.storage is not None
    assert retold(run.storage, job).measured.samples == {}


def test_the_input_of_a_sink_can_be_looked_at_and_long_records_are_cut(run: JobRun) -> None:
    run.end = ChainNode(numbers(), "map", lambda n: "x" * 10_000, "wide")
    job, recorder = watched(run)
    sink = next(one for one in describe(job._actions.plan, "", "").vertices if one.kind == "sink")
    job.sample(sink.id, 60_000)
    list(job.run())
    records = recorder.story.measured.samples[sink.id]["records"]
    assert 1 <= len(records) <= 3
    assert all(len(record) <= 303 for record in records)


def test_a_record_that_cannot_be_shown_does_not_fail_the_job(run: JobRun) -> None:
    run.end = ChainNode(numbers(), "map", lambda n: Unspeakable(), "odd")
    job, recorder = watched(run)
    job.sample("sink-1", 60_000)
    list(job.run())
    assert "whose repr raised" in recorder.story.measured.samples["sink-1"]["records"][0]


def test_lines_of_slots_are_kept_and_found(run: JobRun) -> None:
    counts = StatefulNode(numbers(), lambda n: n % 2, PICKLED, KeyedPrints(), "count", uid="counts")
    run.end = counts
    _, recorder = recorded(run)
    logs = recorder.story.logs
    found = logs.found()
    assert {line for *_, line in found["lines"]} == {f"saw {n}" for n in range(10)}
    assert {slot for _, slot, *_ in found["lines"]} <= {"counts[0]", "counts[1]"}
    assert [line for *_, line in logs.found("SAW 7")["lines"]] == ["saw 7"]
    assert logs.found("saw", "counts[", 30)["matching"] == 0


def test_checkpoints_with_what_each_subtask_did(run: JobRun) -> None:
    _, recorder = recorded(run)
    last = recorder.story.checkpoints.recent[-1]
    assert last["failure"] is None
    assert last["epoch"] == 4
    assert [(operator, number) for operator, number, *_ in last["subtasks"]] == [("counts", 0), ("counts", 1)]
    assert sum(size for *_, size, _ in last["subtasks"]) == last["size_bytes"]
    sizes = recorder.story.checkpoints.states["counts"]
    assert 0 < sizes["bytes"]["count"] <= last["size_bytes"]
    assert sum(sizes["key_groups"]) == sizes["bytes"]["count"]
    assert len(sizes["key_groups"]) <= 64


def test_the_phases_of_an_epoch_are_its_time(run: JobRun) -> None:
    run.clock.step_ms = 1
    run.epochs_ahead = 0  # an epoch that was read ahead has no time for reading
    _, recorder = recorded(run)
    for epoch in recorder.story.epochs.recent:
        assert list(epoch["phases_ms"]) == list(PHASES)
        assert all(lasted > 0 for lasted in epoch["phases_ms"].values())


def test_a_failure_says_where_and_with_which_record(run: JobRun) -> None:
    bad: Any = ChainNode(numbers(), "map", lambda n: {n: EVIL}[1], EVIL)
    run.end, run.name = bad, EVIL
    _, recorder = recorded(run)
    assert recorder.story.status == "FAILED"
    (failure,) = recorder.story.failures
    assert failure["operator"] == EVIL
    assert (failure["record"], failure["key"]) == ("0", None)
    assert failure["type"] == "KeyError"
    assert "test_recorder.py" in failure["message"]


def test_a_restart_is_told_with_its_reason_and_by_a_journal_of_many_files(
    run: JobRun, storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its files begin with changes nothing of a job whose start is there."""
    monkeypatch.setattr(recording, "Journal", partial(Journal, segment_bytes=1, most_segments=1000))
    run.restart = FixedDelayRestart(1, 0)
    failures = iter([UserFunctionError("poison", operator="tens", record=EVIL, key="k")])

    def fail_once(request: Any) -> None:
        for error in failures:
            raise error

    run.runner.after = fail_once
    job, recorder = recorded(run)
    (failure,) = recorder.story.failures
    assert (failure["record"], failure["key"], failure["restarts"]) == (EVIL, "k", 1)
    assert (recorder.story.status, recorder.story.restarts) == ("FINISHED", 1)
    assert recorder.story.measured.totals["numbers.records_out"] == 10
    events = read_journal(f"{storage.uri}/{job.job_id}")
    heads = [(one["runs"], one["restarts"]) for one in events if one["event"] == "job"]
    assert (heads[0][0], heads[-1]) == (1, (1, 1))
    assert known(retold(storage, job)) == known(recorder.story)


def test_what_a_sink_has_done_is_told(run: JobRun, tmp_path: Path) -> None:
    run.sink = FileSink(tmp_path / "out", "text")
    _, recorder = recorded(run)
    lines = [path.read_text() for path in (tmp_path / "out").glob("epoch=*/part-*")]
    told = recorder.story.epochs.sinks["sink"]
    assert told == {"commits": len(run.heard.checkpoints), "records": 10, "size_bytes": sum(map(len, lines))}


def test_a_run_goes_on_with_the_history_of_the_runs_before(run: JobRun, storage: CheckpointFolders) -> None:
    job, first = recorded(run)
    second = Recorder(run.clock, storage.uri)
    second.on_start(_description(job.job_id))
    second.on_end(JobStatus.CANCELED)
    assert first.story.history.told()[0]["series"]["records_in"] != []
    assert second.story.history.told() == first.story.history.told()
    assert (second.story.runs, len(second.story.epochs.recent)) == (1, 0)


def test_metrics_of_functions_are_told(run: JobRun) -> None:
    run.end = StatefulNode(numbers(), lambda n: 0, PICKLED, KeyedMeasured(), "measured", uid="m")
    _, recorder = recorded(run)
    told = {(one["name"], one["kind"]) for one in recorder.story.measured.metrics}
    assert ("measured.seen", "counter") in told
    assert ("measured.own.answer", "gauge") in told


#: What says where in a program something was measured.
SCOPE = ("operator_id", "operator_name", "task_id", "task_name")


def test_all_metrics_of_operators_can_be_joined(run: JobRun) -> None:
    """A chained function, an operator with state, its subtasks and its states say alike where they are."""
    mapped = ChainNode(numbers(), "map", MapMeasured(), "mapped")
    run.end = StatefulNode(mapped, lambda n: 0, PICKLED, KeyedMeasured(), "measured", uid="m")
    _, recorder = recorded(run)
    found = [
        (sample.name, dict(sample.labels))
        for sample in samples(recorder.story, 0)
        if sample.name.startswith(("flink_taskmanager_", "pyflinkstate_slot_", "pyflinkstate_timers"))
    ]
    scopes = {tuple(labels[name] for name in SCOPE) for _, labels in found}
    source, *_, sink = recorder.story.job["vertices"]
    assert scopes == {
        (sink["id"], "sink", sink["id"], "sink"),
        ("m", "measured", "m", "measured"),
        ("mapped", "mapped", source["id"], source["name"]),
        (source["id"], source["name"], source["id"], source["name"]),
    }
    seen = {labels["task_id"] for name, labels in found if name.endswith("_operator_seen")}
    assert seen == {"m", source["id"]}


def test_the_size_of_a_state_says_which_operator_has_it(run: JobRun) -> None:
    _, recorder = recorded(run)
    sizes = [dict(sample.labels) for sample in samples(recorder.story, 0) if "state_bytes" in sample.name]
    assert {tuple(labels[name] for name in SCOPE) for labels in sizes} == {
        ("counts", "count", "counts", "count")
    }


def test_a_job_without_checkpoints_is_told_without_a_journal(run: JobRun) -> None:
    run.storage = None
    _, recorder = recorded(run)
    assert recorder.story.status == "FINISHED"
    assert [epoch["records"] for epoch in recorder.story.epochs.recent] == [10]


def test_what_waits_is_bounded_in_bytes(run: JobRun) -> None:
    """A few reports of a large job take as much as many of a small one."""
    recorder, held = held_back(run, 1 << 20)
    counts = {f"count[{n}]": {"count.records_in": n} for n in range(2000)}
    for number in range(20):
        report = EpochReport(EpochStats(number, 1, 1, 0), {}, counts, {}, {}, {})
        recorder.on_epoch_report(report)
    held.set()
    recorder.on_end(JobStatus.FINISHED)
    assert 1 <= len(recorder.story.epochs.recent) <= 6
    assert recorder.story.left_out == 20 - len(recorder.story.epochs.recent)


def test_events_that_come_too_fast_are_counted_and_left_out_and_the_end_is_recorded(
    run: JobRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits neither for its events nor for its end, and the thread ends later."""
    monkeypatch.setattr("pyflinkstate.monitor.jobs.END_TIMEOUT_S", 0.0)
    recorder, held = held_back(run, 4 * LEAST_BYTES)
    for number in range(50):
        recorder.on_commit(number, 1, {})
    recorder.on_end(JobStatus.FINISHED)
    held.set()
    recorder._thread.join(PATIENCE_S)
    assert not recorder._thread.is_alive()
    assert recorder.story.left_out >= 40
    assert recorder.story.status == "FINISHED"
    assert recorder.story.is_over


@pytest.mark.parametrize(
    ("method", "message"),
    [("__init__", "no journal is kept"), ("write", "events are missing in the journal")],
)
@pytest.mark.parametrize("error", [ZeroDivisionError("odd"), OSError("the disk is away")], ids=repr)
def test_a_file_system_that_raises_anything_costs_the_journal_and_not_the_job(
    run: JobRun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: str,
    message: str,
    error: Exception,
) -> None:
    monkeypatch.setattr(Journal, method, raising(error))
    _, recorder = recorded(run)
    assert recorder.story.status == "FINISHED"
    assert message in caplog.text


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


def test_an_error_that_cannot_be_shown_is_told(run: JobRun) -> None:
    recorder = Recorder(run.clock)
    recorder.on_start(_description())
    recorder.on_failure(Unspeakable())
    recorder.on_end(JobStatus.FAILED)
    assert recorder.story.status == "FAILED"
    (failure,) = recorder.story.failures
    assert failure["type"] == "Unspeakable"
    assert "whose repr raised ZeroDivisionError" in failure["message"]


def test_an_event_that_cannot_be_recorded_costs_no_other_one(
    run: JobRun, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(run.clock)
    recorder.on_start(_description())
    recorder._put(raising(ZeroDivisionError()))
    recorder.on_commit(7, 1, {})
    recorder.on_end(JobStatus.FINISHED)
    assert (recorder.story.epochs.committed, recorder.story.status) == (7, "FINISHED")
    assert "an event is not recorded" in caplog.text


def test_a_backlog_is_written_a_piece_at_a_time(run: JobRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast events come, those of a moment are written when it is over."""
    monkeypatch.setattr("pyflinkstate.monitor.jobs.WRITE_EVERY_S", 0.0)
    recorder = Recorder(run.clock)
    written: list[int] = []
    monkeypatch.setattr(recorder, "_lines", lambda make: [b"line"])
    monkeypatch.setattr(recorder, "_write", lambda lines: written.append(len(lines)))
    for number in range(3):
        recorder.on_commit(number, 1, {})
    for _ in range(3):
        assert recorder._take_batch()
    assert written == [1, 1, 1]


def test_numbers_of_numpy_and_odd_ones_are_told_as_json_has_them() -> None:
    told = _value(MetricValue("distribution", np.int64(3), 0.0, np.float32(1.5), 10**400, float("inf")))
    assert json.dumps(told) == '{"kind": "distribution", "count": 3, "total": 1.5}'
    odd: Any = MetricValue("gauge", 1, 0.0, "text", None, 2)  # type: ignore[arg-type]
    assert _value(odd) == {"kind": "gauge", "count": 1, "maximum": 2}


ODD, ASIDE = OutputTag("odd"), OutputTag("aside")


class Split(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (ODD, value) if value % 2 else value


class Rude(JobObserver):
    """Raises whatever it is told."""

    def __getattribute__(self, name: str) -> Any:
        return raising(ZeroDivisionError(name)) if name.startswith("on_") else super().__getattribute__(name)


def test_a_listener_that_raises_costs_neither_the_job_nor_the_others_anything(
    run: JobRun, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(run.clock)
    run.listeners = (Rude(), recorder)
    job = run.run()
    assert job.status is JobStatus.FINISHED
    assert recorder.story.status == "FINISHED"
    assert recorder.story.measured.totals["numbers.records_out"] == 10
    assert len(recorder.story.checkpoints.recent) == len(run.heard.checkpoints)
    told = {record.exc_info[1].args[0] for record in caplog.records if record.exc_info and record.exc_info[1]}
    assert told == {
        "on_start",
        "on_epoch",
        "on_epoch_report",
        "on_checkpoint_written",
        "on_checkpoint",
        "on_commit",
        "on_end",
    }


def test_a_system_without_threads_costs_the_record_and_not_the_job(
    run: JobRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(run.clock)
    monkeypatch.setattr(recorder._thread, "start", raising(RuntimeError("can't start new thread")))
    run.listeners = (recorder,)
    run.run()
    assert run.heard.ended == [JobStatus.FINISHED]
    assert "can't start new thread" in caplog.text


def test_nothing_is_reported_of_an_epoch_that_nobody_observes(
    run: JobRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobReporter, "_report", raising(AssertionError("who asked for it?")))
    run.run()
    assert run.heard.ended == [JobStatus.FINISHED]


def test_an_observer_hears_after_the_listener(run: JobRun) -> None:
    heard: list[Any] = []

    class Both(JobObserver):
        def on_epoch(self, stats: EpochStats) -> None:
            heard.append(stats)

        def on_epoch_report(self, report: EpochReport) -> None:
            heard.append(report.stats)

    run.listeners = (Both(),)
    run.run()
    assert heard[0] == heard[1]
    assert len(heard) == 8


def _description(job_id: str = "a" * 32) -> Any:
    return JobDescription(job_id, "orders", (), ())
