"""The events of a job as JSON objects, which the journal keeps and a story is made of.

Each has ``event``, the kind, and ``at``, the milliseconds since 1970. A reader leaves out kinds and fields
that it does not know, so later versions may add some.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from numbers import Integral
from typing import Any, TypeVar

import attrs

from pyflinkstate.api import JsonObject, safe_repr
from pyflinkstate.backends.format import KeyGroupsStateHandle, OperatorSubtaskState
from pyflinkstate.errors import JobFailedError, PyFlinkStateError
from pyflinkstate.runtime.master import CheckpointPart, CheckpointStats, EpochReport, JobDescription
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.sinks import SinkTotals
from pyflinkstate.runtime.wire import MetricValue, SlotOutput, SubtaskStatus

#: Longer messages of failures are cut in the middle.
MOST_TEXT = 8_000
#: Maximum number of values of users' metrics kept for an epoch.
MOST_METRICS = 2_000
#: Number of parts into which the key groups of an operator are summed, to show skew.
KEY_GROUP_PARTS = 64

_T = TypeVar("_T")

SAMPLE, OUTPUT = "sample", "output"
#: The events that are shown and not kept in the journal: they have records, or are too many.
NOT_KEPT = frozenset({SAMPLE, OUTPUT})
#: Estimated bytes of a failure, without calling ``str`` of a user's object.
BYTES_OF_FAILURE = 4 * MOST_TEXT
#: Estimated bytes of a count with its name, a metric, and a section of a state file.
_BYTES_OF_COUNT, _BYTES_OF_METRIC, _BYTES_OF_SECTION = 150, 300, 200


def bytes_of_report(report: EpochReport) -> int:
    """Estimate the bytes of a report, in a step for each task."""
    counts = sum(map(len, report.counts.values())) + len(report.totals) + len(report.watermarks)
    metrics = sum(map(len, report.metrics.values()))
    latencies = sum(map(len, report.latencies_ms.values()))
    counts += len(report.statuses) + latencies
    return counts * _BYTES_OF_COUNT + metrics * _BYTES_OF_METRIC


def bytes_of_parts(parts: Iterable[CheckpointPart]) -> int:
    """Return about how many bytes the parts of a checkpoint take; this costs a step for each state."""
    handles = (handle for part in parts for handle in _keyed_handles(part.state))
    sections = sum(len(groups) for handle in handles for groups in handle.sections.values())
    return sections * _BYTES_OF_SECTION


def started(
    at: int, job: JobDescription, directory: str | None, settings: dict[str, str] | None = None
) -> JsonObject:
    """The job begins a run; ``directory`` is that of its checkpoints."""
    return {
        "event": "started",
        "at": at,
        "job": json.loads(json.dumps({**attrs.asdict(job), "settings": settings or {}})),
        "directory": directory,
    }


def epoch_ended(at: int, report: EpochReport) -> JsonObject:
    """An epoch has run."""
    stats = report.stats
    return {
        "event": "epoch",
        "at": at,
        "epoch": stats.epoch,
        "records": stats.records,
        "duration_ms": stats.duration_ms,
        "attempt": stats.restarts,
        "phases_ms": report.phases_ms,
        "counts": _by_name(report.counts.values()),
        "subtasks": _by_subtask(report.counts),
        "totals": report.totals,
        "watermarks": report.watermarks,
        "metrics": _metrics(report),
        "slots": {operator: _columns(own) for operator, own in _by_operator(report.statuses).items()},
        "latencies_ms": _latencies(report.latencies_ms),
        "in_flight": report.in_flight,
    }


def sampled(at: int, epoch: int, samples: dict[str, list[str]]) -> JsonObject:
    """A few records of sampled streams, which are shown and not kept."""
    return {"event": SAMPLE, "at": at, "epoch": epoch, "records": samples}


def printed(at: int, output: SlotOutput) -> JsonObject:
    """Lines that user code printed or logged in a slot, which are shown and not kept."""
    return {
        "event": OUTPUT,
        "at": at,
        "slot": str(output.slot),
        "lines": [list(line) for line in output.lines],
    }


def _columns(statuses: dict[int, SubtaskStatus]) -> JsonObject:
    """Return what the slots of an operator know of themselves: a list for each fact, by subtask."""
    rows = [statuses.get(number) for number in range(max(statuses) + 1)]
    times = {
        name: [None if row is None else round(getattr(row, f"{name}_ns") / 1e6, 3) for row in rows]
        for name in ("busy", "idle", "back_pressured")
    }
    rest = {
        name: [None if row is None else getattr(row, name) for row in rows]
        for name in ("memory_bytes", "timers")
    }
    disks = [None if row is None or row.disk is None else attrs.asdict(row.disk) for row in rows]
    limit = max((row.memory_limit_bytes or 0 for row in statuses.values()), default=0)
    return {
        **{f"{name}_ms": each for name, each in times.items()},
        **rest,
        "memory_limit_bytes": limit or None,
        "disk": disks if any(disks) else [],
    }


def _latencies(tasks: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """Return the latencies of each operator from each source, those of all subtasks together."""
    found: dict[str, dict[str, list[float]]] = {}
    for operator, own in _by_operator(tasks).items():
        for source, latencies in chain.from_iterable(of_subtask.items() for of_subtask in own.values()):
            of_source = found.setdefault(operator, {}).setdefault(source, [])
            of_source += [round(latency_ms, 3) for latency_ms in latencies]
    return found


def _by_name(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for own in counts:
        total.update(own)
    return dict(total)


def _by_subtask(counts: dict[str, dict[str, int]]) -> dict[str, list[int]]:
    """Return the records that each subtask of each keyed operator has received."""
    received = {
        task: sum(count for name, count in own.items() if name.endswith(".records_in"))
        for task, own in counts.items()
        if any(name.endswith(".records_in") for name in own)
    }
    return {
        operator: [own.get(number, 0) for number in range(max(own) + 1)]
        for operator, own in _by_operator(received).items()
    }


def _by_operator(tasks: dict[str, _T]) -> dict[str, dict[int, _T]]:
    """Return what is known of tasks by operator and number; names that say neither are left out."""
    found: dict[str, dict[int, _T]] = {}
    for task, one in tasks.items():
        operator, _, rest = task.rpartition("[")
        number = rest.removesuffix("]")
        if operator and number.isdecimal():
            found.setdefault(operator, {})[int(number)] = one
    return found


def _metrics(report: EpochReport) -> list[JsonObject]:
    all_of_them = [
        {"task": task, "name": name, **_value(value)}
        for task, values in sorted(report.metrics.items())
        for name, value in sorted(values.items())
    ]
    return all_of_them[:MOST_METRICS]


def _value(value: MetricValue) -> JsonObject:
    """Return a metric without zeros, and without NaN and infinity, which JSON cannot express."""
    told = {name: _number(one) for name, one in attrs.asdict(value).items() if name != "kind"}
    return {"kind": value.kind, **{name: number for name, number in told.items() if number}}


def _number(value: Any) -> float | None:
    """Return a number as Python's own; functions may count in numpy's."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(value) if isinstance(value, Integral) else number


def committed(at: int, epoch: int, duration_ms: int, sinks: SinkTotals) -> JsonObject:
    """The output up to an epoch is committed."""
    return {"event": "committed", "at": at, "epoch": epoch, "duration_ms": duration_ms, "sinks": sinks}


def checkpoint_ended(at: int, stats: CheckpointStats, parts: tuple[CheckpointPart, ...] = ()) -> JsonObject:
    """A checkpoint or savepoint has completed or failed."""
    told = attrs.asdict(stats)
    if stats.failure is not None:
        told["failure"] = cut(stats.failure)
    subtasks = [
        [
            part.slot.operator_id,
            part.slot.subtask,
            part.sync_ms,
            part.async_ms,
            part.state.size_bytes,
            part.checkpointed_bytes,
        ]
        for part in sorted(parts, key=lambda part: (part.slot.operator_id, part.slot.subtask))
    ]
    return {
        "event": "checkpoint",
        "at": at,
        "stats": told,
        "subtasks": subtasks,
        "states": state_sizes((part.slot.operator_id, part.state) for part in parts),
        "full_write_bytes": sum(_full_write_bytes(part.state) for part in parts) if parts else None,
    }


def _full_write_bytes(state: OperatorSubtaskState) -> int:
    """Return the size of a subtask's state when all of it was last written, without the increments since."""
    handles = [handle for handle in (state.managed_keyed, state.raw_keyed) if handle is not None]
    return state.size_bytes - sum(one.size_bytes for handle in handles for one in handle.increments)


def state_sizes(states: Iterable[tuple[str, OperatorSubtaskState]]) -> JsonObject:
    """Return the bytes of each state of each operator, and of its key groups, in order and in equal parts."""
    sizes: dict[str, defaultdict[str, int]] = {}
    groups: dict[str, defaultdict[int, int]] = {}
    for operator, state in states:
        of_states = sizes.setdefault(operator, defaultdict(int))
        of_groups = groups.setdefault(operator, defaultdict(int))
        for name, group, size in _sections(state):
            of_states[name] += size
            if group is not None:
                of_groups[group] += size
    return {
        operator: {"bytes": dict(own), "key_groups": _parts(groups[operator])}
        for operator, own in sizes.items()
    }


def _sections(state: OperatorSubtaskState) -> Iterator[tuple[str, int | None, int]]:
    """Yield the name, the key group (if any) and the bytes of all that a subtask has stored."""
    for handle in _keyed_handles(state):
        yield from () if handle.native is None else handle.native.sizes()
        for name, sections in handle.sections.items():
            for group, section in sections.items():
                yield name, group, section.length
    if state.managed_operator is not None:
        for name, entry in state.managed_operator.states.items():
            yield name, None, entry.section.length
    if state.raw_operator is not None:
        for section in state.raw_operator.partitions:
            yield "raw operator state", None, section.length


def _keyed_handles(state: OperatorSubtaskState) -> Iterator[KeyGroupsStateHandle]:
    """Yield the handles of a subtask's keyed state, and those of their increments."""
    for handle in (state.managed_keyed, state.raw_keyed):
        if handle is not None:
            yield from (handle, *handle.increments)


def _parts(sizes: dict[int, int]) -> list[int]:
    """Add up neighbours, so that at most ``KEY_GROUP_PARTS`` numbers are left."""
    if not sizes:
        return []
    count = max(sizes) + 1
    width = -(-count // KEY_GROUP_PARTS)
    return [
        sum(sizes.get(group, 0) for group in range(begin, min(begin + width, count)))
        for begin in range(0, count, width)
    ]


def restarted(at: int, attempt: int, error: BaseException) -> JsonObject:
    """The job goes back to its last checkpoint."""
    return {"event": "restarted", "at": at, "attempt": attempt, "failure": failure(error)}


def failed(at: int, error: BaseException) -> JsonObject:
    """The job has failed for good."""
    return {"event": "failed", "at": at, "failure": failure(error)}


def ended(at: int, status: JobStatus) -> JsonObject:
    """The job has ended."""
    return {"event": "ended", "at": at, "status": status.name}


def left_out(at: int, count: int) -> JsonObject:
    """Events that were not kept, because they came faster than they could be written."""
    return {"event": "left out", "at": at, "count": count}


def failure(error: BaseException) -> JsonObject:
    """Return a failure: where it happened, and the message with the user's traceback."""
    cause = error.__cause__ if isinstance(error, JobFailedError) and error.__cause__ is not None else error
    context = cause.context if isinstance(cause, PyFlinkStateError) else {}
    known = {name: cut(_text(context[name])) for name in ("operator", "key", "record") if name in context}
    if known.get("key") == "None":  # there was no key, as no key is None
        del known["key"]
    return {
        "type": str(context.get("cause_type", type(cause).__name__)),
        "message": cut(_text(cause)),
        "operator": known.get("operator"),
        "key": known.get("key"),
        "record": known.get("record"),
    }


def _text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return safe_repr(value)


def cut(text: str) -> str:
    """Return a string without its middle if it is long: the ends of a traceback say the most."""
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
