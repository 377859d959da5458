"""A job as its events describe it: the same whether they come from the job or from its journal.

Everything has a bound. Details beyond it are dropped, the oldest first, and sums go on.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import takewhile, zip_longest
from typing import Any

import attrs

from pyflinkstate.api import JsonObject
from pyflinkstate.monitor.history import History
from pyflinkstate.runtime.wire import SIDE_OUTPUT

MOST_EPOCHS = 500
MOST_CHECKPOINTS = 500
MOST_FAILURES = 100
#: How many recent checkpoints keep their per-subtask details.
MOST_DETAILS = 20
#: A rate covers the epochs that ended within this many milliseconds, or the last one.
RATE_OVER_MS = 10_000
#: At most this many epochs keep the times of each subtask.
MOST_TIMES = 20
#: At most this many latencies of an operator from a source are kept, the newest ones.
MOST_LATENCIES = 500
#: How a subtask spends its time, in ms.
TIMES = ("busy_ms", "idle_ms", "back_pressured_ms")

#: The status of a job without an event of its end.
RUNNING, RESTARTING = "RUNNING", "RESTARTING"
#: The event with which each further file of a journal begins.
JOB = "job"

#: By the way in which subtasks spend their time: the ms of each second for each of them.
_Shares = dict[str, list[int | None]]

_log = logging.getLogger("pyflinkstate.monitor")


@attrs.define
class EpochHistory:
    """The last epochs, the oldest first, and the number of the last one whose output is visible."""

    recent: deque[dict[str, Any]] = attrs.Factory(partial(deque, maxlen=MOST_EPOCHS))
    committed: int = 0
    #: What each sink has done in this run.
    sinks: dict[str, dict[str, int | None]] = attrs.Factory(dict)

    def take(self, event: dict[str, Any]) -> None:
        """Take in an epoch that has run."""
        kept = ("epoch", "at", "records", "duration_ms", "attempt", "phases_ms", "counts")
        self.recent.append({name: event[name] for name in kept} | {"commit_ms": None})

    def commit(self, event: dict[str, Any]) -> None:
        """Take in a commit, which may be that of several epochs."""
        self.committed, self.sinks = int(event["epoch"]), dict(event.get("sinks", {}))
        for epoch in reversed(self.recent):
            if epoch["epoch"] == event["epoch"]:
                epoch["commit_ms"] = event["duration_ms"]
                return

    def rates(self) -> dict[str, float]:
        """Return the records a second of the last epochs, by the names of the counts."""
        if not self.recent:
            return {}
        last = self.recent[-1]
        since = last["at"] - RATE_OVER_MS
        covered = [*takewhile(lambda epoch: epoch["at"] >= since, reversed(self.recent))]
        counts: Counter[str] = Counter()
        for epoch in covered:
            counts.update(epoch["counts"])
        lasted_ms = max(1, last["at"] - covered[-1]["at"] + covered[-1]["duration_ms"])
        return {name: count * 1000 / lasted_ms for name, count in counts.items()}


@attrs.define
class CheckpointHistory:
    """The last checkpoints, the oldest first, their counts, and the sizes of state in the newest one."""

    recent: deque[dict[str, Any]] = attrs.Factory(partial(deque, maxlen=MOST_CHECKPOINTS))
    counts: Counter[str] = attrs.Factory(Counter)
    states: dict[str, Any] = attrs.Factory(dict)

    def take(self, event: dict[str, Any]) -> dict[str, float | None]:
        """Take in a checkpoint that has completed or failed; return what it adds to the job's history."""
        stats = event["stats"]
        self.recent.append({**stats, "subtasks": event["subtasks"], "at": event["at"]})
        if len(self.recent) > MOST_DETAILS:
            self.recent[-MOST_DETAILS - 1]["subtasks"] = []
        self.counts[_kind_of(stats)] += 1
        if stats["failure"] is not None:
            return {}
        self.states = event["states"]
        return {
            "checkpoint_ms": stats["duration_ms"],
            "checkpoint_bytes": stats["checkpointed_bytes"],
            "restored_bytes": None if stats["is_savepoint"] else stats["size_bytes"],
            "full_write_bytes": event.get("full_write_bytes"),
        }

    def last(self) -> dict[str, Any] | None:
        """Return the newest checkpoint or savepoint that completed."""
        done = (checkpoint for checkpoint in reversed(self.recent) if checkpoint["failure"] is None)
        return next(done, None)


@attrs.define
class Measured:
    """What operators, functions and slots have measured until the last epoch.

    Attributes:
        received: the records that each subtask has received in this run, by operator.
        slots: what the slots of each operator told last.
        in_flight: how many epochs were planned or running when the last one ended.
    """

    totals: dict[str, int] = attrs.Factory(dict)
    watermarks: dict[str, int] = attrs.Factory(dict)
    metrics: list[dict[str, Any]] = attrs.Factory(list)
    received: dict[str, list[int]] = attrs.Factory(dict)
    slots: dict[str, Any] = attrs.Factory(dict)
    in_flight: int | None = None
    #: A few records of each stream that somebody looked at, with their epoch.
    samples: JsonObject = attrs.Factory(dict)
    #: Where the time of the slots went in the last moments.
    _times: deque[tuple[int, dict[str, Any]]] = attrs.Factory(partial(deque, maxlen=MOST_TIMES))
    #: By operator and source: the last latencies of markers.
    _latencies_ms: dict[tuple[str, str], deque[float]] = attrs.Factory(dict)

    def begin(self) -> None:
        """Forget the slots of the run before."""
        self.received, self.slots = {}, {}
        self._times.clear()
        self._latencies_ms.clear()

    def take(self, event: dict[str, Any]) -> None:
        """Take in an epoch; a subtask without records in an epoch was not asked then."""
        self.totals, self.watermarks, self.metrics = (
            event[name] for name in ("totals", "watermarks", "metrics")
        )
        for operator, received in event["subtasks"].items():
            pairs = zip_longest(self.received.get(operator, []), received, fillvalue=0)
            self.received[operator] = [before + now for before, now in pairs]
        at, slots = int(event["at"]), event.get("slots", {})
        self.slots = {**self.slots, **slots}
        self._times.append((at, slots))
        while self._times[0][0] < at - RATE_OVER_MS:
            self._times.popleft()
        self.in_flight = event.get("in_flight")
        for operator, sources in event.get("latencies_ms", {}).items():
            for source, latencies in sources.items():
                kept = self._latencies_ms.setdefault((operator, source), deque(maxlen=MOST_LATENCIES))
                kept.extend(latencies)

    def time_shares(self) -> dict[str, _Shares]:
        """Return where the time of each subtask went in the last moments, in ms of a second, by operator."""
        sums: dict[str, dict[str, Counter[int]]] = {}
        for _, slots in self._times:
            for operator, told in slots.items():
                of_operator = sums.setdefault(operator, {name: Counter() for name in TIMES})
                for name in TIMES:
                    of_operator[name].update({n: ms for n, ms in enumerate(told[name]) if ms is not None})
        return {operator: _shares(own) for operator, own in sums.items()}

    def latencies_ms(self, operator: str) -> dict[str, dict[str, float]]:
        """Return the quantiles of the last latencies of an operator, by the ids of sources."""
        return {
            source: quantiles([*latencies])
            for (of_operator, source), latencies in self._latencies_ms.items()
            if of_operator == operator
        }


def quantiles(values: list[float]) -> dict[str, float]:
    """Return the median, the 99th percentile and the greatest of some values.

    >>> quantiles([4.0, 1.0, 3.0])
    {'p50': 3.0, 'p99': 4.0, 'max': 4.0}
    """
    ordered = sorted(values)
    of = {"p50": 50, "p99": 99, "max": 100}
    return {name: ordered[-(-len(ordered) * percent // 100) - 1] for name, percent in of.items()}


class JobStory:
    """One job, as its events describe it."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {
            "job_id": "",
            "name": "",
            "vertices": [],
            "edges": [],
            "restored_from": None,
            "settings": {},
        }
        self.directory: str | None = None
        self.status = RUNNING
        self.started_ms: int | None = None
        self.ended_ms: int | None = None
        #: The time of the job's last event.
        self.heard_ms: int | None = None
        self.runs = 0
        self.restarts = 0
        self.left_out = 0
        self.epochs = EpochHistory()
        self.checkpoints = CheckpointHistory()
        self.failures: deque[dict[str, Any]] = deque(maxlen=MOST_FAILURES)
        self.measured = Measured()
        self.logs = LogTail()
        self.history = History()

    def take(self, event: dict[str, Any]) -> None:
        """Process an event.

        Raises:
            KeyError, TypeError, ValueError: it is not an event of a job; the story is undefined then.
        """
        apply = _APPLY.get(event["event"])
        if apply is None or (event["event"] == JOB and self.started_ms is not None):
            return
        apply(self, event)
        self.heard_ms = int(event["at"])

    def head(self) -> JsonObject:
        """Return an event that identifies the job, for readers that no longer find its start."""
        return {
            "event": JOB,
            "at": self.heard_ms,
            "job": self.job,
            "directory": self.directory,
            "started_ms": self.started_ms,
            "runs": self.runs,
            "restarts": self.restarts,
            "history": self.history.told(),
        }

    @property
    def is_over(self) -> bool:
        """Whether the job has told of its end."""
        return self.ended_ms is not None

    def _started(self, event: dict[str, Any]) -> None:
        self.job = event["job"]
        self.directory = event.get("directory")
        self.status, self.started_ms, self.ended_ms = RUNNING, int(event["at"]), None
        self.runs += 1
        self.restarts = 0
        self.measured.begin()

    def _job(self, event: dict[str, Any]) -> None:
        self.job = event["job"]
        self.directory = event.get("directory")
        self.started_ms = int(event["started_ms"])
        self.runs, self.restarts = int(event["runs"]), int(event["restarts"])
        self.history.load(int(event["at"]), event.get("history", []))

    def _epoch(self, event: dict[str, Any]) -> None:
        self.status = RUNNING
        before = self.epochs.recent[-1]["at"] if self.epochs.recent else 0
        self.measured.take(event)
        self.epochs.take(event)
        at = int(event["at"])
        began = max(int(before), at - int(event["duration_ms"]))
        self.history.add(
            at, _values_of_epoch(event, _outputs(self.job["vertices"], self.job["edges"])), began
        )

    def _sampled(self, event: dict[str, Any]) -> None:
        told = {
            stream: {"epoch": event["epoch"], "at": event["at"], "records": records}
            for stream, records in event["records"].items()
        }
        self.measured.samples = {**self.measured.samples, **told}

    def _restarted(self, event: dict[str, Any]) -> None:
        self.status = RESTARTING
        self.restarts = int(event["attempt"])
        self.history.add(int(event["at"]), {"restarts": 1})
        self._failed(event)

    def _failed(self, event: dict[str, Any]) -> None:
        self.failures.append({**event["failure"], "at": event["at"], "restarts": event.get("attempt")})

    def _ended(self, event: dict[str, Any]) -> None:
        self.status, self.ended_ms = str(event["status"]), int(event["at"])

    def _left_out(self, event: dict[str, Any]) -> None:
        self.left_out += int(event["count"])


def take_all(story: JobStory, events: Iterable[dict[str, Any]]) -> None:
    """Process events; those that make no sense are left out."""
    for event in events:
        try:
            story.take(event)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            _log.warning("an event %r of a journal is left out: %r", event.get("event"), error)


def _outputs(vertices: list[dict[str, str]], edges: list[dict[str, str | None]]) -> set[str]:
    """Return the names of the counts of records that are sent to sinks."""
    names = {vertex["id"]: vertex["name"] for vertex in vertices}
    sinks = {vertex["id"] for vertex in vertices if vertex["kind"] == "sink"}
    sources = [
        (names.get(edge["source"] or ""), edge["side_output"]) for edge in edges if edge["target"] in sinks
    ]
    return {f"{name}.records_out" if side is None else f"{name}{SIDE_OUTPUT}{side}" for name, side in sources}


def _values_of_epoch(event: dict[str, Any], outputs: set[str]) -> dict[str, float | None]:
    """Return what an epoch adds to the history."""
    latencies = (one for of in event.get("latencies_ms", {}).values() for each in of.values() for one in each)
    memory = (size for of in event.get("slots", {}).values() for size in of["memory_bytes"] if size)
    watermarks = event["watermarks"].values()
    return {
        "records_in": event["records"],
        "records_out": sum(event["counts"].get(name, 0) for name in outputs) if outputs else None,
        "epoch_ms": event["duration_ms"],
        "latency_ms": max(latencies, default=None),
        "watermark_lag_ms": max(0, event["at"] - min(watermarks)) if watermarks else None,
        "memory_bytes": max(memory, default=None),
    }


def _shares(sums: dict[str, Counter[int]]) -> _Shares:
    """Return the ms of each second that each subtask spent in each way; None for one without reports."""
    count = 1 + max((number for own in sums.values() for number in own), default=-1)
    whole = [sum(own[number] for own in sums.values()) for number in range(count)]
    return {
        f"{name}_per_s": [
            round(own[number] * 1000 / total) if total else None for number, total in enumerate(whole)
        ]
        for name, own in sums.items()
    }


def _kind_of(stats: dict[str, Any]) -> str:
    if stats["failure"] is not None:
        return "failed"
    return "savepoints" if stats["is_savepoint"] else "completed"


_APPLY: dict[str, Callable[[JobStory, dict[str, Any]], None]] = {
    "started": JobStory._started,
    JOB: JobStory._job,
    "epoch": JobStory._epoch,
    "committed": lambda story, event: story.epochs.commit(event),
    "checkpoint": lambda story, event: story.history.add(int(event["at"]), story.checkpoints.take(event)),
    "restarted": JobStory._restarted,
    "failed": JobStory._failed,
    "ended": JobStory._ended,
    "left out": JobStory._left_out,
    "sample": JobStory._sampled,
    "output": lambda story, event: story.logs.add(int(event["at"]), event["slot"], event["lines"]),
}


MOST_BYTES = 1 << 19
#: Longer lines are cut.
MOST_CHARS = 2_000
#: Maximum number of lines in an answer, the newest ones.
MOST_SHOWN = 500
#: Bytes of a line in addition to its text.
_BYTES_OF_LINE = 100


@attrs.define
class LogTail:
    """Keeps the last lines.

    Attributes:
        most_bytes: the maximum size of all lines.
        forgotten: the number of lines that have been dropped, the oldest first.
    """

    most_bytes: int = MOST_BYTES
    forgotten: int = 0
    _lines: deque[tuple[int, str, int, str]] = attrs.Factory(deque)
    _bytes: int = 0

    def add(self, at: int, slot: str, lines: Iterable[tuple[int, str]]) -> None:
        """Add lines of a slot with their levels; drop the oldest if there are too many."""
        for level, line in lines:
            kept = str(line)[:MOST_CHARS]
            self._lines.append((at, slot, int(level), kept))
            self._bytes += _size(slot, kept)
        while self._bytes > self.most_bytes:
            _, of_slot, _, dropped = self._lines.popleft()
            self._bytes -= _size(of_slot, dropped)
            self.forgotten += 1

    def found(self, contains: str = "", slot: str = "", level: int = 0) -> JsonObject:
        """Return the newest lines that match a filter, the oldest of them first.

        Args:
            contains: a string that the line contains, ignoring case.
            slot: a string that the name of its slot contains.
            level: the lowest level, as ``logging`` counts them.
        """
        wanted, name = contains.casefold(), slot.casefold()
        matching = [
            line
            for line in self._lines
            if line[2] >= level and name in line[1].casefold() and wanted in line[3].casefold()
        ]
        return {
            "kept": len(self._lines),
            "forgotten": self.forgotten,
            "matching": len(matching),
            "lines": [
                [at, of_slot, logging.getLevelName(own), text]
                for at, of_slot, own, text in matching[-MOST_SHOWN:]
            ],
        }


def _size(slot: str, line: str) -> int:
    return _BYTES_OF_LINE + len(slot) + 4 * len(line)
