"""Which unauthenticated connections of a listener stay open. No sockets: the clock is passed in.

A new connection is always accepted, and never waits for another one. When there are too many, the oldest is
cut off. A connection that has sent a right hello, which only those who know the secret can make, has begun to
prove itself: it counts towards a reserve of its own, so strangers never cost it its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import attrs

#: A listener with unauthenticated connections looks at their time at most this often.
_SHORTEST_WAIT_S = 0.1
#: A connection.
C = TypeVar("C")


@attrs.frozen
class HandshakeLimits:
    """Limits for peers that have not proved yet that they know the secret.

    Attributes:
        timeout_s: the time for the whole handshake, even if its bytes trickle in.
        connections: how many connections without a right hello each listener may have.
        reserve: how many that have sent one it may have besides.
        crowd: from this many without a right hello on, each of them has less time.
        crowd_timeout_s: that time.
        now_s: returns monotonic time.
    """

    timeout_s: float = 30.0
    connections: int = 128
    reserve: int = 256
    crowd: int = 32
    crowd_timeout_s: float = 2.0
    now_s: Callable[[], float] = time.monotonic


LIMITS = HandshakeLimits()


class Strangers(Generic[C]):
    """The connections of one listener that are not authenticated yet, the oldest first. Thread-safe."""

    def __init__(self, limits: HandshakeLimits) -> None:
        self._limits = limits
        #: When each came.
        self._unproved: dict[C, float] = {}
        self._begun: dict[C, float] = {}
        self._lock = threading.Lock()

    def admit(self, connection: C) -> list[C]:
        """Add a new connection; return the older ones to cut off."""
        with self._lock:
            self._unproved[connection] = self._limits.now_s()
            return _take_oldest(self._unproved, self._limits.connections)

    def begin(self, connection: C) -> list[C]:
        """Record that a connection has sent a right hello; return the older ones like it to cut off."""
        with self._lock:
            came_s = self._unproved.pop(connection, None)
            if came_s is None:  # it was cut off meanwhile
                return []
            self._begun[connection] = came_s
            return _take_oldest(self._begun, self._limits.reserve)

    def leave(self, connection: C) -> None:
        """Remove a connection that is authenticated or gone."""
        with self._lock:
            self._unproved.pop(connection, None)
            self._begun.pop(connection, None)

    def take_late(self) -> list[C]:
        """Remove and return the connections whose time for the handshake is over."""
        late: list[C] = []
        with self._lock:
            now_s = self._limits.now_s()
            for known, timeout_s in self._timeouts_s():
                over = [connection for connection, came_s in known.items() if now_s - came_s >= timeout_s]
                for connection in over:
                    del known[connection]
                late += over
        return late

    def wait_s(self) -> float | None:
        """Return after how many seconds to call ``take_late``; None if there is no such connection."""
        with self._lock:
            oldest = [
                (next(iter(known.values())), timeout_s) for known, timeout_s in self._timeouts_s() if known
            ]
            if not oldest:
                return None
            now_s = self._limits.now_s()
            return max(_SHORTEST_WAIT_S, min(came_s + timeout_s - now_s for came_s, timeout_s in oldest))

    def is_crowd(self) -> bool:
        """Return whether there are so many without a right hello that each has less time."""
        return len(self._unproved) >= self._limits.crowd

    def _timeouts_s(self) -> tuple[tuple[dict[C, float], float], ...]:
        limits = self._limits
        unproved_s = min(limits.timeout_s, limits.crowd_timeout_s) if self.is_crowd() else limits.timeout_s
        return (self._unproved, unproved_s), (self._begun, limits.timeout_s)


def _take_oldest(connections: dict[C, float], most: int) -> list[C]:
    """Remove and return the oldest connections beyond ``most``."""
    surplus = list(connections)[: max(0, len(connections) - most)]
    for connection in surplus:
        del connections[connection]
    return surplus
