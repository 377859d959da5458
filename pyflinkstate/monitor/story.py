"""A job as its events describe it: the same whether they come from the job or from its journal.

Everything has a bound. Details beyond it are dropped, the oldest first, and sums go on.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from pyflinkstate.api.values import JsonObject
from pyflinkstate.monitor.log_tail import LogTail

MOST_EPOCHS = 500
MOST_CHECKPOINTS = 500
MOST_FAILURES = 100
#: How many recent checkpoints keep their per-subtask details.
MOST_DETAILS = 20
#: A rate covers the epochs that ended within this many milliseconds, or the last one.
RATE_OVER_MS = 10_000
#: At most this many epochs keep the times of each subtask.
MOST_TIMES = 20
#: How a subtask spends its time, in ms.
TIMES = ("busy_ms", "idle_ms", "back_pressured_ms")

#: The status of a job without an event of its end.
RUNNING, RESTARTING = "RUNNING", "RESTARTING"
#: The event with which each further file of a journal begins.
JOB = "job"


class JobStory:
    """One job, as its events describe it."""

    def __init__(self) -> None:
        #: Grows with each event.
        self.version = 0
        self.job: JsonObject = {"job_id": "", "name": "", "vertices": [], "edges": [], "restored_from": None}
        self.directory: str | None = None
        #: The job's own folder, if that is where all this was read.
        self.folder: str | None = None
        self.status = RUNNING
        self.started_ms: int | None = None
        self.ended_ms: int | None = None
        #: The time of the job's last event.
        self.heard_ms: int | None = None
        self.runs = 0
        self.restarts = 0
        self.left_out = 0
        self.epochs: deque[JsonObject] = deque(maxlen=MOST_EPOCHS)
        self.committed = 0
        self.last_commit: JsonObject | None = None
        self.checkpoints: deque[JsonObject] = deque(maxlen=MOST_CHECKPOINTS)
        self.checkpoint_counts: Counter[str] = Counter()
        self.failures: deque[JsonObject] = deque(maxlen=MOST_FAILURES)
        self.totals: dict[str, int] = {}
        self.watermarks: dict[str, int] = {}
        self.metrics: list[JsonObject] = []
        self.subtasks: dict[str, list[int]] = {}
        #: The last facts of each operator's slots, and how they spent the last seconds.
        self.slots: JsonObject = {}
        self._times: deque[tuple[int, JsonObject]] = deque(maxlen=MOST_TIMES)
        self.states: JsonObject = {}
        #: A few records of each sampled stream, with their epoch.
        self.samples: JsonObject = {}
        self.logs = LogTail()

    def take(self, event: JsonObject) -> None:
        """Process an event.

        Raises:
            KeyError, TypeError, ValueError: it is not an event of a job; the story is undefined then.
        """
        apply = _APPLY.get(event["event"])
        if apply is None or (event["event"] == JOB and self.started_ms is not None):
            return
        apply(self, event)
        self.heard_ms = int(event["at"])
        self.version += 1

    def _started(self, event: JsonObject) -> None:
        self.job = event["job"]
        self.directory = event.get("directory")
        self.status, self.started_ms, self.ended_ms = RUNNING, int(event["at"]), None
        self.runs += 1
        self.restarts = 0
        self.subtasks = {}
        self.slots = {}
        self._times.clear()

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
        }

    def _job(self, event: JsonObject) -> None:
        self.job = event["job"]
        self.directory = event.get("directory")
        self.started_ms = int(event["started_ms"])
        self.runs, self.restarts = int(event["runs"]), int(event["restarts"])

    def _epoch(self, event: JsonObject) -> None:
        self.status = RUNNING
        self.totals = event["totals"]
        self.watermarks = event["watermarks"]
        self.metrics = event["metrics"]
        for operator, received in event["subtasks"].items():
            self._received(operator, received)
        self._slots(int(event["at"]), event.get("slots", {}))
        kept = ("epoch", "at", "records", "duration_ms", "attempt", "phases_ms", "counts")
        self.epochs.append({name: event[name] for name in kept} | {"commit_ms": None})

    def _slots(self, at: int, slots: JsonObject) -> None:
        """Add the facts of slots; a subtask without records in an epoch was not asked then."""
        self.slots = {**self.slots, **slots}
        self._times.append((at, slots))
        while self._times[0][0] < at - RATE_OVER_MS:
            self._times.popleft()

    def _received(self, operator: str, received: list[int]) -> None:
        before = self.subtasks.get(operator, [])
        length = max(len(before), len(received))
        wide = [0] * (length - len(before)), [0] * (length - len(received))
        self.subtasks[operator] = [
            a + b for a, b in zip([*before, *wide[0]], [*received, *wide[1]], strict=True)
        ]

    def _committed(self, event: JsonObject) -> None:
        self.committed = int(event["epoch"])
        self.last_commit = event
        for epoch in reversed(self.epochs):
            if epoch["epoch"] == event["epoch"]:
                epoch["commit_ms"] = event["duration_ms"]
                return

    def _checkpoint(self, event: JsonObject) -> None:
        stats = event["stats"]
        self.checkpoints.append({**stats, "subtasks": event["subtasks"], "at": event["at"]})
        if len(self.checkpoints) > MOST_DETAILS:
            self.checkpoints[-MOST_DETAILS - 1]["subtasks"] = []
        self.checkpoint_counts[_kind_of(stats)] += 1
        if stats["failure"] is None:
            self.states = event["states"]

    def _sampled(self, event: JsonObject) -> None:
        told = {
            stream: {"epoch": event["epoch"], "at": event["at"], "records": records}
            for stream, records in event["records"].items()
        }
        self.samples = {**self.samples, **told}

    def _printed(self, event: JsonObject) -> None:
        self.logs.add(int(event["at"]), event["slot"], event["lines"])

    def _restarted(self, event: JsonObject) -> None:
        self.status = RESTARTING
        self.restarts = int(event["attempt"])
        self._failed(event)

    def _failed(self, event: JsonObject) -> None:
        self.failures.append({**event["failure"], "at": event["at"], "restarts": event.get("attempt")})

    def _ended(self, event: JsonObject) -> None:
        self.status, self.ended_ms = str(event["status"]), int(event["at"])

    def _left_out(self, event: JsonObject) -> None:
        self.left_out += int(event["count"])

    # --- derived values ----------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, by its events."""
        return self.ended_ms is not None

    def rates(self) -> dict[str, float]:
        """Return the records a second of the last epochs, by the names of the counts."""
        recent = self._recent()
        counts: Counter[str] = Counter()
        for epoch in recent:
            counts.update(epoch["counts"])
        if not recent:
            return {}
        first = recent[0]
        lasted_ms = max(1, recent[-1]["at"] - first["at"] + first["duration_ms"])
        return {name: count * 1000 / lasted_ms for name, count in counts.items()}

    def time_shares(self) -> dict[str, JsonObject]:
        """Return where the time of each subtask went in the last moments, in ms of a second, by operator."""
        sums: dict[str, dict[str, Counter[int]]] = {}
        for _, slots in self._times:
            for operator, told in slots.items():
                of_operator = sums.setdefault(operator, {name: Counter() for name in TIMES})
                for name in TIMES:
                    of_operator[name].update({n: ms for n, ms in enumerate(told[name]) if ms is not None})
        return {operator: _shares(own) for operator, own in sums.items()}

    def _recent(self) -> list[JsonObject]:
        if not self.epochs:
            return []
        since = self.epochs[-1]["at"] - RATE_OVER_MS
        recent: list[JsonObject] = []
        for epoch in reversed(self.epochs):
            if recent and epoch["at"] < since:
                break
            recent.append(epoch)
        return recent[::-1]

    def last_checkpoint(self) -> JsonObject | None:
        """Return the newest checkpoint or savepoint that completed."""
        done = (checkpoint for checkpoint in reversed(self.checkpoints) if checkpoint["failure"] is None)
        return next(done, None)


def _shares(sums: dict[str, Counter[int]]) -> JsonObject:
    """Return the ms of each second that each subtask spent in each way; None for one without reports."""
    count = 1 + max((number for own in sums.values() for number in own), default=-1)
    whole = [sum(own[number] for own in sums.values()) for number in range(count)]
    return {
        f"{name}_per_s": [
            round(own[number] * 1000 / total) if total else None for number, total in enumerate(whole)
        ]
        for name, own in sums.items()
    }


def _kind_of(stats: JsonObject) -> str:
    if stats["failure"] is not None:
        return "failed"
    return "savepoints" if stats["is_savepoint"] else "completed"


_APPLY: dict[str, Callable[[JobStory, JsonObject], None]] = {
    "started": JobStory._started,
    JOB: JobStory._job,
    "epoch": JobStory._epoch,
    "committed": JobStory._committed,
    "checkpoint": JobStory._checkpoint,
    "restarted": JobStory._restarted,
    "failed": JobStory._failed,
    "ended": JobStory._ended,
    "left out": JobStory._left_out,
    "sample": JobStory._sampled,
    "output": JobStory._printed,
}
