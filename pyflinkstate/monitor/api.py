"""What is told of a job: the JSON behind the page, and metrics. ``docs/monitoring.md`` describes both.

Later versions may add fields. The names of metrics are those of Flink's ``PrometheusReporter`` with its
default scopes. As there, a user's counter is a gauge, because it can be decreased.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyflinkstate.api import JsonObject, ReportedMetric, ReportedMetric as Sample
from pyflinkstate.monitor.jobs import Jobs
from pyflinkstate.monitor.story import TIMES, JobStory
from pyflinkstate.runtime.operators import LATE_RECORDS_DROPPED
from pyflinkstate.runtime.wire import SIDE_OUTPUT, Clock

#: Number of items of each list on the page.
SHOWN = 60
SHOWN_METRICS = 200
_COUNTS = ("records_in", "records_out", "records_dropped", "records_malformed")


def summary(story: JobStory, is_live: bool) -> JsonObject:
    """Return a job's row in the list of jobs."""
    return {
        "id": story.job["job_id"],
        "name": story.job["name"],
        "status": story.status,
        "is_live": is_live and not story.is_over,
        "started_ms": story.started_ms,
        "ended_ms": story.ended_ms,
        "heard_ms": story.heard_ms,
    }


def job(story: JobStory, is_live: bool) -> JsonObject:
    """Return a job: its operators, and the last of everything."""
    last = story.checkpoints.last()
    return {
        **summary(story, is_live),
        "runs": story.runs,
        "restarts": story.restarts,
        "events_left_out": story.left_out,
        "restored_from": story.job["restored_from"],
        "directory": story.directory,
        "settings": story.job.get("settings", {}),
        "epoch": story.epochs.recent[-1]["epoch"] if story.epochs.recent else 0,
        "committed_epoch": story.epochs.committed,
        "epochs_in_flight": story.measured.in_flight,
        "operators": operators(story),
        "edges": story.job["edges"],
        "watermarks": story.measured.watermarks,
        "checkpoint_counts": dict(story.checkpoints.counts),
        "last_checkpoint": last and {name: value for name, value in last.items() if name != "subtasks"},
        "last_failure": story.failures[-1] if story.failures else None,
    }


def operators(story: JobStory) -> list[JsonObject]:
    """Return the operators of a job with their counts, watermarks and subtasks, and rates until its end."""
    rates = {} if story.is_over else story.epochs.rates()
    shares = story.measured.time_shares()
    side, late = _side_outputs(story), _late(story)
    return [
        {
            **_operator(story, vertex, rates, shares.get(vertex["id"], {})),
            "side_outputs": side.get(vertex["name"], {}),
            "records_late": late[vertex["name"]],
        }
        for vertex in story.job["vertices"]
    ]


def _operator(
    story: JobStory,
    vertex: dict[str, Any],
    rates: dict[str, float],
    shares: dict[str, list[int | None]],
) -> JsonObject:
    """Return an operator; what is known of each of its subtasks is a list, empty if it has no slots."""
    name, measured = vertex["name"], story.measured
    received, slots = measured.received.get(vertex["id"], []), measured.slots.get(vertex["id"], {})
    return {
        **vertex,
        **{count: measured.totals.get(f"{name}.{count}") for count in _COUNTS},
        "records_in_per_s": rates.get(f"{name}.records_in"),
        "records_out_per_s": rates.get(f"{name}.records_out"),
        "watermark_ms": measured.watermarks.get(vertex["id"]),
        "subtask_records": received,
        "skew": skew(received),
        **{f"{spent}_per_s": shares.get(f"{spent}_per_s", []) for spent in TIMES},
        "memory_bytes": slots.get("memory_bytes", []),
        "memory_limit_bytes": slots.get("memory_limit_bytes"),
        "timers": slots.get("timers", []),
        "disk": slots.get("disk", []),
        "latency_ms": measured.latencies_ms(vertex["id"]),
    }


def _side_outputs(story: JobStory) -> dict[str, dict[str, int]]:
    """Return the records of side outputs, by the names of operators and the ids of tags."""
    found: dict[str, dict[str, int]] = {}
    for name, count in story.measured.totals.items():
        operator, is_side, tag_id = name.partition(SIDE_OUTPUT)
        if is_side:
            found.setdefault(operator, {})[tag_id] = count
    return found


def _late(story: JobStory) -> Counter[str]:
    """Return the late records that operators have dropped since their slots began, by their names."""
    found: Counter[str] = Counter()
    for metric in story.measured.metrics:
        operator, dot, name = str(metric["name"]).rpartition(".")
        if dot and name == LATE_RECORDS_DROPPED:
            found[operator] += int(metric.get("count", 0))
    return found


def skew(parts: list[int]) -> float | None:
    """Return the largest part as a multiple of the mean; None if there are no parts.

    >>> skew([30, 10, 20])
    1.5
    """
    total = sum(parts)
    return max(parts) * len(parts) / total if total else None


def checkpoints(story: JobStory, _: bool) -> dict[str, Any]:
    """Return the last checkpoints and savepoints, the oldest first."""
    return {"counts": dict(story.checkpoints.counts), "checkpoints": list(story.checkpoints.recent)}


def state(story: JobStory, _: bool) -> JsonObject:
    """Return the sizes in the newest checkpoint of each operator, state, subtask and part of key groups."""
    last = story.checkpoints.last()
    sizes: dict[str, dict[int, int]] = {}
    for operator, number, _sync, _async, size, _written in (last or {}).get("subtasks", []):
        sizes.setdefault(operator, {})[number] = size
    return {
        "checkpoint_id": None if last is None else last["checkpoint_id"],
        "operators": {
            operator: {**of_states, "subtasks": [size for _, size in sorted(sizes.get(operator, {}).items())]}
            for operator, of_states in story.checkpoints.states.items()
        },
    }


def page(story: JobStory, is_live: bool) -> JsonObject:
    """Return everything that the page shows in one answer."""
    of_checkpoints = checkpoints(story, is_live)
    return {
        "job": job(story, is_live),
        "epochs": {"epochs": list(story.epochs.recent)[-SHOWN:]},
        "checkpoints": {**of_checkpoints, "checkpoints": of_checkpoints["checkpoints"][-SHOWN:]},
        "state": state(story, is_live),
        "samples": {"samples": story.measured.samples},
        "metrics": {"metrics": story.measured.metrics[:SHOWN_METRICS]},
        "failures": {"failures": list(story.failures)[-SHOWN:]},
        "history": {"steps": story.history.told()},
    }


#: The answers of ``/api/jobs/<id>/<name>``; the empty name is the job itself.
VIEWS: dict[str, Callable[[JobStory, bool], JsonObject]] = {
    "": job,
    "epochs": lambda story, _: {"epochs": [*story.epochs.recent]},
    "checkpoints": checkpoints,
    "failures": lambda story, _: {"failures": [*story.failures]},
    "history": lambda story, _: {"steps": story.history.told()},
    "state": state,
    "metrics": lambda story, _: {"metrics": story.measured.metrics},
    "samples": lambda story, _: {"samples": story.measured.samples},
    "page": page,
}


_JOB = "flink_jobmanager_job_"
_TASK = "flink_taskmanager_job_task_"
_OPERATOR = f"{_TASK}operator_"
_OWN = "pyflinkstate_"
_LAST_CHECKPOINT = (
    (f"{_JOB}lastCompletedCheckpointId", "checkpoint_id", "The id of the last one."),
    (
        f"{_JOB}lastCheckpointDuration",
        "duration_ms",
        "The ms from the first subtask at its barrier until it was complete.",
    ),
    (f"{_JOB}lastCheckpointSize", "checkpointed_bytes", "Bytes written for it."),
    (
        f"{_JOB}lastCheckpointFullSize",
        "size_bytes",
        "Bytes that a restore from it reads, increments included.",
    ),
    (f"{_OWN}last_checkpoint_sync_ms", "sync_ms", "The longest synchronous part of any subtask, in ms."),
    (f"{_OWN}last_checkpoint_async_ms", "async_ms", "The longest asynchronous part of any subtask, in ms."),
)
#: What Prometheus does not take in a name.
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
_STATES = {
    "memory_bytes": ("state_memory_bytes", "The approximate memory of a state of which a part is on disk."),
    "hit_rates": (
        "state_hit_rate",
        "The share of the records of the last epoch whose entry of the state was in memory, of 1.",
    ),
}
#: By the value of Prometheus's label.
_QUANTILES = {"0.5": "p50", "0.99": "p99", "1": "max"}
_RATES = {
    "records_in_per_s": ("numRecordsInPerSecond", "Records that the operator receives a second."),
    "records_out_per_s": ("numRecordsOutPerSecond", "Records that the operator emits a second."),
}


def all_metrics(jobs: Jobs, clock: Clock) -> list[Sample]:
    """Return the present metrics of all jobs that have begun, also of those that have ended."""
    found: list[Sample] = []
    for shown in jobs.begun():
        with shown.lock:
            found += samples(shown.story, clock.now_ms())
    return found


def samples(story: JobStory, now_ms: int) -> Iterator[Sample]:
    """Yield all metrics of a job at a moment, in ms since 1970."""
    labels = (("job_id", str(story.job["job_id"])), ("job_name", str(story.job["name"])))
    yield from _of_job(story, labels, now_ms)
    yield from _of_checkpoints(story, labels)
    yield from _of_epoch(story, labels)
    scopes = _Scopes(story, labels)
    for operator in operators(story):
        yield from _of_operator(operator, scopes.of_operator(str(operator["id"])))
    yield from _of_sinks(story, scopes)
    yield from _state_sizes(story, scopes)
    for metric in story.measured.metrics:
        yield from _of_user(metric, scopes)


_Labels = tuple[tuple[str, str], ...]


class _Scopes:
    """The labels of what is measured in an operator: Flink's scope variables, one set for all of its metrics.

    ``operator_name`` and ``task_name`` are names in the program; ``operator_id`` and ``task_id`` are the uid,
    or the id that the job gave. Several operators may run in one task. An operator without state that runs in
    the task of another one has no id, so its name stands for it.
    """

    def __init__(self, story: JobStory, labels: _Labels) -> None:
        self._labels = labels
        vertices = story.job["vertices"]
        self._names = {str(vertex["id"]): str(vertex["name"]) for vertex in vertices}
        self._ids = {name: id_ for id_, name in reversed(self._names.items())}
        chained = (str(name) for edge in story.job["edges"] for name in edge["chain"])
        #: The longest first: a name may be the beginning of another one.
        self._operators = sorted({*self._ids, *chained}, key=len, reverse=True)

    def of_operator(self, operator_id: str) -> _Labels:
        """Return the labels of an operator that has a task to itself."""
        name = self._names.get(operator_id, operator_id)
        return self._scope(operator_id, name, operator_id, name)

    def of_function(self, metric: dict[str, Any]) -> tuple[str, _Labels]:
        """Return the name that a function gave its metric, and the labels of its subtask."""
        full = str(metric["name"])
        known = (one for one in self._operators if full.startswith(f"{one}."))
        operator = next(known, full.partition(".")[0])
        task, _, number = str(metric["task"]).rpartition("[")
        task_id = task if task in self._names else self._ids.get(task, task)
        task_name = self._names.get(task_id, task)
        operator_id = task_id if operator == task_name else self._ids.get(operator, operator)
        where = self._scope(operator_id, operator, task_id, task_name)
        return full.removeprefix(f"{operator}."), (*where, ("subtask_index", number.removesuffix("]")))

    def _scope(self, operator_id: str, operator_name: str, task_id: str, task_name: str) -> _Labels:
        return (
            *self._labels,
            ("operator_id", operator_id),
            ("operator_name", operator_name),
            ("task_id", task_id),
            ("task_name", task_name),
        )


def _of_job(story: JobStory, labels: _Labels, now_ms: int) -> Iterator[Sample]:
    yield Sample(f"{_JOB}numRestarts", story.restarts, labels, "Restarts of this run.")
    if story.started_ms is not None:
        until_ms = now_ms if story.ended_ms is None else story.ended_ms
        uptime_ms = max(0, until_ms - story.started_ms)
        yield Sample(f"{_JOB}uptime", uptime_ms, labels, "How long this run has lasted, in ms.")
    yield Sample(f"{_OWN}job_is_over", int(story.is_over), labels, "1 if the job has ended.")


def _of_checkpoints(story: JobStory, labels: _Labels) -> Iterator[Sample]:
    counts = story.checkpoints.counts
    completed = counts["completed"] + counts["savepoints"]
    yield Sample(f"{_JOB}numberOfCompletedCheckpoints", completed, labels, "Checkpoints that completed.")
    yield Sample(f"{_JOB}numberOfFailedCheckpoints", counts["failed"], labels, "Checkpoints that failed.")
    yield Sample(f"{_JOB}totalNumberOfCheckpoints", completed + counts["failed"], labels, "All checkpoints.")
    last = story.checkpoints.last()
    if last is None:
        return
    for name, field, about in _LAST_CHECKPOINT:
        yield Sample(name, last[field], labels, about)


def _of_epoch(story: JobStory, labels: _Labels) -> Iterator[Sample]:
    if not story.epochs.recent:
        return
    last = story.epochs.recent[-1]
    yield Sample(f"{_OWN}epoch", last["epoch"], labels, "The last epoch that has run.")
    yield Sample(
        f"{_OWN}epoch_committed", story.epochs.committed, labels, "The last epoch whose output is visible."
    )
    if story.measured.in_flight is not None:
        about = "The epochs that were planned or running when the last one ended, itself included."
        yield Sample(f"{_OWN}epochs_in_flight", story.measured.in_flight, labels, about)
    yield Sample(f"{_OWN}epoch_records", last["records"], labels, "Records that the last epoch has read.")
    for phase, lasted_ms in last["phases_ms"].items():
        where = (*labels, ("phase", str(phase)))
        yield Sample(f"{_OWN}epoch_phase_ms", lasted_ms, where, "Where the time of the last epoch went.")


def _of_operator(operator: dict[str, Any], where: _Labels) -> Iterator[Sample]:
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
    about = "How long the last latency markers of a source took to the operator, in ms: quantiles."
    for source_id, latencies in operator["latency_ms"].items():
        for quantile, name in _QUANTILES.items():
            of_quantile = (*where, ("source_id", str(source_id)), ("quantile", quantile))
            yield Sample(f"{_OWN}latency_ms", latencies[name], of_quantile, about)
    yield from _of_subtasks(operator, where)


def _of_subtasks(operator: dict[str, Any], where: _Labels) -> Iterator[Sample]:
    for prefix, named in ((_TASK, _TIMES), (_OWN, _SLOTS)):
        for field, (name, about) in named.items():
            for number, value in enumerate(operator[field]):
                if value is not None:
                    yield Sample(f"{prefix}{name}", value, (*where, ("subtask_index", str(number))), about)
    for number, disk in enumerate(operator["disk"]):
        if disk is not None:
            yield from _of_disk(disk, (*where, ("subtask_index", str(number))))


def _of_disk(disk: dict[str, dict[str, float | None]], where: _Labels) -> Iterator[Sample]:
    for name, value in disk["properties"].items():
        about = f"RocksDB's property {name} of the subtask's store."
        yield Sample(f"{_OPERATOR}rocksdb_{_ODD.sub('_', name)}", value or 0, where, about)
    for field, (name, about) in _STATES.items():
        for state, value in disk[field].items():
            if value is not None:
                yield Sample(f"{_OWN}{name}", value, (*where, ("state", state)), about)


#: By the field of the totals of a sink.
_SINKS = {
    "commits": ("successfulCommittables", "Commits of the sink in this run."),
    "records": ("numRecordsSend", "Records that the sink has prepared in this run."),
    "size_bytes": ("numBytesSend", "Bytes that the sink has written in this run."),
}


def _of_sinks(story: JobStory, scopes: _Scopes) -> Iterator[Sample]:
    ids = {vertex["name"]: str(vertex["id"]) for vertex in story.job["vertices"]}
    for sink, totals in story.epochs.sinks.items():
        for field, (name, about) in _SINKS.items():
            if (value := totals.get(field)) is not None:
                where = scopes.of_operator(ids.get(sink, sink))
                yield Sample(f"{_OPERATOR}{name}", value, where, about, "counter")


def _state_sizes(story: JobStory, scopes: _Scopes) -> Iterator[Sample]:
    about = "Bytes of a state in the files that a restore of the last checkpoint reads."
    for operator, sizes in story.checkpoints.states.items():
        for state, size in sizes["bytes"].items():
            where = (*scopes.of_operator(operator), ("state", state))
            yield Sample(f"{_OWN}state_bytes", size, where, about)


def _of_user(metric: dict[str, Any], scopes: _Scopes) -> Iterator[Sample]:
    name, where = scopes.of_function(metric)
    for suffix, field in _USER_FIELDS.get(metric["kind"], ()):
        yield Sample(_OPERATOR + _ODD.sub("_", name) + suffix, metric.get(field, 0), where)


#: By the kind of a user's metric: the suffixes of its names, and what they show.
_USER_FIELDS = {
    "counter": (("", "count"),),
    "gauge": (("", "total"),),
    "meter": (("", "rate"), ("_count", "count")),
    "distribution": (("_count", "count"), ("_sum", "total"), ("_min", "minimum"), ("_max", "maximum")),
}


PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(found: Iterable[ReportedMetric]) -> str:
    """Return samples as text, those of one metric together."""
    by_name: dict[str, list[ReportedMetric]] = {}
    for sample in found:
        by_name.setdefault(sample.name, []).append(sample)
    return "".join(_written(same) for _, same in sorted(by_name.items()))


def _written(same: list[ReportedMetric]) -> str:
    first = same[0]
    about = f"# HELP {first.name} {first.help}\n" if first.help else ""
    lines = {sample.labels: f"{sample.name}{_braced(sample)} {sample.value}\n" for sample in same}
    return f"{about}# TYPE {first.name} {first.kind}\n" + "".join(lines.values())


def _braced(sample: ReportedMetric) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels) + "}"


def _escaped(value: str) -> str:
    """Escape characters that would end a value; those that UTF-8 cannot encode become ``?``."""
    value = value.encode("utf-8", "replace").decode("utf-8")
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
