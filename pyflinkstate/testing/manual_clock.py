"""A clock that stands still."""

from __future__ import annotations

import attrs


@attrs.define
class ManualClock:
    """The time of the machine, as a harness sees it; several harnesses may share one.

    Calling it gives the time. Setting it fires no timers: ``set_processing_time()`` of a harness does both.

    Attributes:
        now_ms: the time, in milliseconds since 1970.
    """

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms
