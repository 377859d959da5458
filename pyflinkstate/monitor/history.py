"""How a job has developed: a few series over time, in steps that coarsen.

Each step (a second, a minute, an hour) has its own buckets, and every value goes into a bucket of each step.
So no bucket is ever computed from others, and the oldest ones are simply dropped. A bucket holds the sum or
the greatest of its values, by the name of the series.

No clock is read here: the times are those of the events. A journal that has dropped its oldest files begins
with a copy of the history; events until the time of that copy are in it already, and do not count again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypedDict

import attrs

#: The length of each step in ms, and the number of its buckets: 5 minutes, 4 hours, 14 days.
STEPS = ((1_000, 300), (60_000, 240), (3_600_000, 336))
#: The series that add up; of every other one, a bucket has the greatest value.
ADDED = ("records_in", "records_out", "restarts")
SERIES = (
    *ADDED,
    "epoch_ms",
    "latency_ms",
    "watermark_lag_ms",
    "memory_bytes",
    "checkpoint_ms",
    "checkpoint_bytes",
    "restored_bytes",
    "full_write_bytes",
)
_DIGITS = 3

#: By the begin of a bucket, divided by the step: the values by series.
_Buckets = dict[int, dict[str, float]]


class ToldStep(TypedDict):
    """The buckets of a step as JSON, the oldest first.

    Attributes:
        step_ms: the length of a bucket.
        buckets: the greatest number of buckets.
        at: their begins, in units of the step since 1970.
        series: the values by name; None in a bucket without any.
    """

    step_ms: int
    buckets: int
    at: list[int]
    series: dict[str, list[float | None]]


@attrs.define
class History:
    """The series of one job; ``steps`` has the buckets of each step, in the order of ``STEPS``."""

    steps: list[_Buckets] = attrs.Factory(lambda: [{} for _ in STEPS])
    #: The time until which events are in a copy that was loaded.
    _loaded_ms: int | None = attrs.field(default=None, eq=False)

    def add(self, at: int, values: dict[str, float | None], since: int | None = None) -> None:
        """Add values to series.

        Args:
            at: the time of the event, in ms since 1970.
            values: by series; None and unknown values are left out.
            since: if given, sums are spread evenly from then until ``at``.
        """
        if self._loaded_ms is not None and at <= self._loaded_ms:
            return
        begin = at if since is None else min(since, at)
        for (step_ms, count), buckets in zip(STEPS, self.steps, strict=True):
            for name, value in values.items():
                if value is None:
                    continue
                if name in ADDED:
                    _spread(buckets, step_ms, name, value, (max(begin, at - step_ms * count), at))
                else:
                    bucket = buckets.setdefault(at // step_ms, {})
                    bucket[name] = max(value, bucket.get(name, value))
            _forget_oldest(buckets, count)

    def told(self) -> list[ToldStep]:
        """Return the steps as JSON, the oldest bucket of each first."""
        return [_told(*step, buckets) for step, buckets in zip(STEPS, self.steps, strict=True)]

    def load(self, at: int, told: Iterable[ToldStep]) -> None:
        """Go on from what ``told`` returned at a time.

        Raises:
            KeyError, TypeError, ValueError: it was not returned there.
        """
        known = {int(step["step_ms"]): step for step in told}
        for place, (step_ms, count) in enumerate(STEPS):
            if step_ms in known:
                self.steps[place] = _loaded(known[step_ms], count)
        self._loaded_ms = at

    def _check(self) -> None:
        """Assert what always holds."""
        for (_, count), buckets in zip(STEPS, self.steps, strict=True):
            assert len(buckets) <= count, "there are never more buckets than the bound"
            assert all(values.keys() <= set(SERIES) for values in buckets.values()), "series are known"


def _spread(buckets: _Buckets, step_ms: int, name: str, amount: float, span: tuple[int, int]) -> None:
    """Divide an amount among the buckets that a span of time touches, by the share that each has of it."""
    begin, end = span
    for place in range(begin // step_ms, end // step_ms + 1):
        inside_ms = min(end, (place + 1) * step_ms) - max(begin, place * step_ms)
        part = amount * inside_ms / (end - begin) if end > begin else amount
        if part or not amount:
            bucket = buckets.setdefault(place, {})
            bucket[name] = bucket.get(name, 0) + part


def _forget_oldest(buckets: _Buckets, count: int) -> None:
    for place in sorted(buckets)[: max(0, len(buckets) - count)]:
        del buckets[place]


def _told(step_ms: int, count: int, buckets: _Buckets) -> ToldStep:
    places = sorted(buckets)
    names = [name for name in SERIES if any(name in values for values in buckets.values())]
    return {
        "step_ms": step_ms,
        "buckets": count,
        "at": [*places],
        "series": {name: [_rounded(buckets[place].get(name)) for place in places] for name in names},
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


def _loaded(told: ToldStep, count: int) -> _Buckets:
    places = [int(place) for place in told["at"]][-count:]
    buckets: _Buckets = {place: {} for place in places}
    for name in SERIES:
        for place, value in zip(places, told["series"].get(name, [])[-count:], strict=False):
            if value is not None and math.isfinite(value):
                buckets[place][name] = float(value)
    return buckets
