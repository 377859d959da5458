"""What stays from one epoch to the next in a process that stays: clients of sources, open functions."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Kept:
    """Things that are kept by a key until they are taken, or the process ends its part in a job.

    In a process that does not stay nothing is kept: it is closed at once.

    Who takes something has it alone. So nothing is used twice at a time, and what a failed attempt has left
    is not taken by another one that begins elsewhere.
    """

    def __init__(self) -> None:
        #: The things, and what closes each.
        self._kept: dict[object, tuple[object, Callable[[], None]]] = {}
        self._lock = threading.Lock()
        self._stays = False

    def stay(self) -> None:
        """Keep things from now on."""
        self._stays = True

    def keep(self, key: object, thing: object, close: Callable[[], None]) -> None:
        """Keep something; what was kept by this key is closed."""
        with self._lock:
            old = self._kept.pop(key, None) if self._stays else (thing, close)
            if self._stays:
                self._kept[key] = thing, close
        if old is not None:
            old[1]()

    def take(self, key: object) -> object:
        """Return what is kept, or None."""
        with self._lock:
            return self._kept.pop(key, (None, None))[0]

    def take_all(self) -> list[Callable[[], None]]:
        """Forget all that is kept, and keep nothing any more; return what closes it."""
        with self._lock:
            kept, self._kept, self._stays = self._kept, {}, False
        return [close for _, close in kept.values()]


#: What is kept in this process.
KEPT = Kept()
