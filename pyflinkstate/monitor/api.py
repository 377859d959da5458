"""The JSON behind the page, which ``docs/monitoring.md`` describes; later versions may add fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from pyflinkstate.api.values import JsonObject
from pyflinkstate.monitor.story import TIMES, JobStory
from pyflinkstate.runtime.operators import LATE_RECORDS_DROPPED
from pyflinkstate.runtime.wire import SIDE_OUTPUT

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
    return {
        **summary(story, is_live),
        "runs": story.runs,
        "restarts": story.restarts,
        "events_left_out": story.left_out,
        "restored_from": story.job["restored_from"],
        "directory": story.directory,
        "epoch": story.epochs.recent[-1]["epoch"] if story.epochs.recent else 0,
        "committed_epoch": story.epochs.committed,
        "operators": operators(story),
        "edges": story.job["edges"],
        "watermarks": story.measured.watermarks,
        "checkpoint_counts": dict(story.checkpoints.counts),
        "last_checkpoint": _without_subtasks(story.checkpoints.last()),
        "last_failure": story.failures[-1] if story.failures else None,
    }


def operators(story: JobStory) -> list[JsonObject]:
    """Return the operators of a job with their counts, rates, watermarks and subtasks."""
    rates, shares, side, late = (
        story.epochs.rates(),
        story.measured.time_shares(),
        _side_outputs(story),
        _late(story),
    )
    return [
        {
            **_operator(story, vertex, rates),
            **_subtasks(story, vertex, shares),
            "side_outputs": side.get(vertex["name"], {}),
            "records_late": late[vertex["name"]],
        }
        for vertex in story.job["vertices"]
    ]


def _subtasks(story: JobStory, vertex: dict[str, Any], shares: dict[str, JsonObject]) -> JsonObject:
    """Return a list for each fact of the subtasks of an operator; empty ones if it has no slots."""
    slots, spent = story.measured.slots.get(vertex["id"], {}), shares.get(vertex["id"], {})
    return {
        **{f"{name}_per_s": spent.get(f"{name}_per_s", []) for name in TIMES},
        "memory_bytes": slots.get("memory_bytes", []),
        "memory_limit_bytes": slots.get("memory_limit_bytes"),
        "timers": slots.get("timers", []),
    }


def _operator(story: JobStory, vertex: dict[str, Any], rates: dict[str, float]) -> JsonObject:
    name = vertex["name"]
    received = story.measured.received.get(vertex["id"], [])
    return {
        **vertex,
        **{count: story.measured.totals.get(f"{name}.{count}") for count in _COUNTS},
        "records_in_per_s": rates.get(f"{name}.records_in"),
        "records_out_per_s": rates.get(f"{name}.records_out"),
        "watermark_ms": story.measured.watermarks.get(vertex["id"]),
        "subtask_records": received,
        "skew": skew(received),
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
        "samples": {"samples": story.samples},
        "metrics": {"metrics": story.measured.metrics[:SHOWN_METRICS]},
        "failures": {"failures": list(story.failures)[-SHOWN:]},
    }


def _without_subtasks(checkpoint: JsonObject | None) -> JsonObject | None:
    if checkpoint is None:
        return None
    return {name: value for name, value in checkpoint.items() if name != "subtasks"}


#: The answers of ``/api/jobs/<id>/<name>``; the empty name is the job itself.
VIEWS: dict[str, Callable[[JobStory, bool], JsonObject]] = {
    "": job,
    "epochs": lambda story, _: {"epochs": [*story.epochs.recent]},
    "checkpoints": checkpoints,
    "failures": lambda story, _: {"failures": [*story.failures]},
    "state": state,
    "metrics": lambda story, _: {"metrics": story.measured.metrics},
    "samples": lambda story, _: {"samples": story.samples},
    "page": page,
}
