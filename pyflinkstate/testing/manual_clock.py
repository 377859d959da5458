"""A clock that only tests move."""

from __future__ import annotations

import attrs


@attrs.define
class ManualClock:
    """The processing time of a harness; several harnesses may share one clock.

    Call it to get the time. Setting ``now_ms`` fires no timers; ``set_processing_time()`` of a harness does
    both.

    Attributes:
        now_ms: the time, in milliseconds since 1970.
    """

    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms
