"""What a vertex measures besides records: latency, and the waits of sources that are read live.

A *marker* is a message of a channel that is no frame: the id of a source, and when its task sent the marker
(Flink's latency markers). It queues behind the frames that are ahead of it. Each vertex that reads it notes
how long it was on its way, and passes it on to one subtask of each operator behind. So a marker waits where
records wait, and no function sees it. The two times are wall-clock times, perhaps of two hosts.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import attrs

from pyflinkstate.api import T
from pyflinkstate.runtime.slots import MARKER
from pyflinkstate.runtime.wire import dumps, loads

#: Maximum number of latencies that a vertex keeps of each source in an epoch (Flink: history-size).
MOST_LATENCIES = 128


@attrs.frozen
class Marking:
    """Which markers accompany the frames of a source: its id, and their interval in ms."""

    source: str
    interval_ms: int


class Markers:
    """The markers of one vertex: those that it sends, and the latencies of those that it has received.

    Args:
        now_s: returns the seconds since 1970.
    """

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        #: By source and operator behind: when the last marker was sent.
        self._sent_s: dict[tuple[str, str], float] = {}
        self._latencies_ms = self._none()

    @staticmethod
    def _none() -> defaultdict[str, deque[float]]:
        return defaultdict(partial(deque, maxlen=MOST_LATENCIES))

    def due(self, marking: Marking, operator_id: str) -> bytes | None:
        """Return a marker for an operator, or None if the last one is younger than the interval."""
        now_s, of_operator = self._now_s(), (marking.source, operator_id)
        sent_s = self._sent_s.get(of_operator)
        if sent_s is not None and 0 <= now_s - sent_s < marking.interval_ms / 1000:
            return None
        self._sent_s[of_operator] = now_s
        return MARKER + dumps((marking.source, now_s))

    def note(self, marker: bytes) -> None:
        """Note the latency of a marker that has been received; it is 0 if the other host's clock is ahead."""
        source, sent_s = loads(marker[len(MARKER) :])
        self._latencies_ms[source].append(max(0.0, (self._now_s() - sent_s) * 1000))

    def take(self) -> dict[str, list[float]]:
        """Return the latencies in ms by the ids of sources, and begin again."""
        taken, self._latencies_ms = self._latencies_ms, self._none()
        return {source: [*latencies] for source, latencies in taken.items()}


def idling(
    parts: Iterable[T],
    idle_ns: list[int],
    now_ns: Callable[[], int] = time.perf_counter_ns,
    cpu_ns: Callable[[], int] = time.thread_time_ns,
) -> Iterator[T]:
    """Yield the parts of a source that is read live, and append how long the thread waited for them.

    That is the time in which it asked for a part and did not compute.
    """
    waited, reading = 0, iter(parts)
    while True:
        began, computed = now_ns(), cpu_ns()
        part = next(reading, None)
        waited += now_ns() - began - (cpu_ns() - computed)
        if part is None:
            break
        yield part
    idle_ns.append(max(0, waited))
