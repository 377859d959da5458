"""What there is to measure of a job, under Flink's names where Flink has the metric.

The names are those of Flink's ``PrometheusReporter`` with its default scopes. As there, a user's counter is a
gauge, because it can be decreased.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyflinkstate.api.metric_reporter import ReportedMetric as Sample
from pyflinkstate.api.values import JsonObject
from pyflinkstate.monitor.api import operators
from pyflinkstate.monitor.story import JobStory

_JOB = "flink_jobmanager_job_"
_TASK = "flink_taskmanager_job_task_"
_OPERATOR = f"{_TASK}operator_"
_OWN = "pyflinkstate_"
_ODD = re.compile(r"[^a-zA-Z0-9_]")
_COUNTERS = {
    "records_in": ("numRecordsIn", "Records that the operator has received."),
    "records_out": ("numRecordsOut", "Records that the operator has emitted."),
    "records_dropped": ("numRecordsDropped", "Records that a filter has dropped."),
    "records_malformed": ("numRecordsMalformed", "Records that could not be parsed."),
}
_TIMES = {
    "busy_ms_per_s": ("busyTimeMsPerSecond", "The ms of each second in which the subtask processes."),
    "idle_ms_per_s": ("idleTimeMsPerSecond", "The ms of each second in which it waits for input."),
    "back_pressured_ms_per_s": (
        "backPressuredTimeMsPerSecond",
        "The ms of each second in which it waits until its output is taken.",
    ),
}
_SLOTS = {
    "memory_bytes": ("slot_memory_bytes", "The memory of the subtask's process."),
    "timers": ("timers", "The timers of the subtask that are pending."),
}
_RATES = {
    "records_in_per_s": ("numRecordsInPerSecond", "Records that the operator receives a second."),
    "records_out_per_s": ("numRecordsOutPerSecond", "Records that the operator emits a second."),
}


def metric_name(name: str) -> str:
    """Return a name that Prometheus takes.

    >>> metric_name("cache.hits-total")
    'cache_hits_total'
    """
    return _ODD.sub("_", name)


def samples(story: JobStory, now_ms: int) -> Iterator[Sample]:
    """Yield all metrics of a job at a moment, in ms since 1970."""
    labels = (("job_id", str(story.job["job_id"])), ("job_name", str(story.job["name"])))
    yield from _of_job(story, labels, now_ms)
    yield from _of_checkpoints(story, labels)
    yield from _of_epoch(story, labels)
    for operator in operators(story):
        yield from _of_operator(operator, labels)
    yield from _state_sizes(story, labels)
    names = _operator_names(story)
    for metric in story.metrics:
        yield from _of_user(metric, names, labels)


_Labels = tuple[tuple[str, str], ...]


def _of_job(story: JobStory, labels: _Labels, now_ms: int) -> Iterator[Sample]:
    yield Sample(f"{_JOB}numRestarts", story.restarts, labels, "Restarts of this run.")
    if story.started_ms is not None:
        until_ms = now_ms if story.ended_ms is None else story.ended_ms
        uptime_ms = max(0, until_ms - story.started_ms)
        yield Sample(f"{_JOB}uptime", uptime_ms, labels, "How long this run has lasted, in ms.")
    yield Sample(f"{_OWN}job_is_over", int(story.is_over), labels, "1 if the job has ended.")


def _of_checkpoints(story: JobStory, labels: _Labels) -> Iterator[Sample]:
    counts = story.checkpoint_counts
    completed = counts["completed"] + counts["savepoints"]
    yield Sample(f"{_JOB}numberOfCompletedCheckpoints", completed, labels, "Checkpoints that completed.")
    yield Sample(f"{_JOB}numberOfFailedCheckpoints", counts["failed"], labels, "Checkpoints that failed.")
    yield Sample(f"{_JOB}totalNumberOfCheckpoints", completed + counts["failed"], labels, "All checkpoints.")
    last = story.last_checkpoint()
    if last is None:
        return
    yield Sample(f"{_JOB}lastCompletedCheckpointId", last["checkpoint_id"], labels, "The id of the last one.")
    yield Sample(f"{_JOB}lastCheckpointDuration", last["duration_ms"], labels, "How long it took, in ms.")
    yield Sample(f"{_JOB}lastCheckpointSize", last["checkpointed_bytes"], labels, "Bytes written for it.")
    yield Sample(f"{_JOB}lastCheckpointFullSize", last["size_bytes"], labels, "Bytes that it needs.")
    yield Sample(f"{_OWN}last_checkpoint_sync_ms", last["sync_ms"], labels, "Its longest synchronous part.")


def _of_epoch(story: JobStory, labels: _Labels) -> Iterator[Sample]:
    if not story.epochs:
        return
    last = story.epochs[-1]
    yield Sample(f"{_OWN}epoch", last["epoch"], labels, "The last epoch that has run.")
    yield Sample(f"{_OWN}epoch_committed", story.committed, labels, "The last epoch whose output is visible.")
    yield Sample(f"{_OWN}epoch_records", last["records"], labels, "Records that the last epoch has read.")
    for phase, lasted_ms in last["phases_ms"].items():
        where = (*labels, ("phase", str(phase)))
        yield Sample(f"{_OWN}epoch_phase_ms", lasted_ms, where, "Where the time of the last epoch went.")


def _of_operator(operator: JsonObject, labels: _Labels) -> Iterator[Sample]:
    where = (*labels, ("operator_id", str(operator["id"])), ("operator_name", str(operator["name"])))
    for field, (name, about) in {**_COUNTERS, **_RATES}.items():
        if operator[field] is not None:
            kind = "counter" if field in _COUNTERS else "gauge"
            yield Sample(f"{_OPERATOR}{name}", operator[field], where, about, kind)
    if operator["watermark_ms"] is not None:
        about = "The watermark of the operator, in ms since 1970."
        yield Sample(f"{_OPERATOR}currentOutputWatermark", operator["watermark_ms"], where, about)
    about = "Records that the operator has emitted to a side output."
    for tag_id, count in operator["side_outputs"].items():
        of_tag = (*where, ("side_output", str(tag_id)))
        yield Sample(f"{_OWN}side_output_records", count, of_tag, about, "counter")
    yield from _of_subtasks(operator, labels)


def _of_subtasks(operator: JsonObject, labels: _Labels) -> Iterator[Sample]:
    task = (*labels, ("task_id", str(operator["id"])), ("task_name", str(operator["name"])))
    for prefix, named in ((_TASK, _TIMES), (_OWN, _SLOTS)):
        for field, (name, about) in named.items():
            for number, value in enumerate(operator[field]):
                if value is not None:
                    yield Sample(f"{prefix}{name}", value, (*task, ("subtask_index", str(number))), about)


def _state_sizes(story: JobStory, labels: _Labels) -> Iterator[Sample]:
    for operator, sizes in story.states.items():
        for state, size in sizes["bytes"].items():
            where = (*labels, ("operator_id", operator), ("state", state))
            yield Sample(f"{_OWN}state_bytes", size, where, "Bytes of a state in the last checkpoint.")


def _operator_names(story: JobStory) -> list[str]:
    """Return the names of all operators, the longest first: a name may be the beginning of another one."""
    chained = (name for edge in story.job["edges"] for name in edge["chain"])
    names = {str(vertex["name"]) for vertex in story.job["vertices"]} | {str(name) for name in chained}
    return sorted(names, key=len, reverse=True)


def _of_user(metric: JsonObject, operators: list[str], labels: _Labels) -> Iterator[Sample]:
    name = str(metric["name"])
    operator = next((one for one in operators if name.startswith(f"{one}.")), name.partition(".")[0])
    task, _, subtask = str(metric["task"]).rpartition("[")
    where = (
        *labels,
        ("operator_name", operator),
        ("subtask_index", subtask.removesuffix("]")),
        ("task_name", task),
    )
    own = _OPERATOR + metric_name(name.removeprefix(f"{operator}."))
    for suffix, field in _USER_FIELDS.get(metric["kind"], ()):
        yield Sample(own + suffix, metric.get(field, 0), where)


#: By the kind of a user's metric: the suffixes of its names, and what they show.
_USER_FIELDS = {
    "counter": (("", "count"),),
    "gauge": (("", "total"),),
    "meter": (("", "rate"), ("_count", "count")),
    "distribution": (("_count", "count"), ("_sum", "total"), ("_min", "minimum"), ("_max", "maximum")),
}
