"""The metrics of one subtask, and how the driver combines those of several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from pyflinkstate.api import Counter, Distribution, Meter, MetricGroup, T
from pyflinkstate.errors import ConfigurationError


@attrs.frozen
class MetricValue:
    """The value of a metric at one moment.

    Attributes:
        kind: ``"counter"``, ``"gauge"``, ``"meter"`` or ``"distribution"``.
        count: the count of a counter, or the number of events or values of other kinds.
        rate: the events per second of a meter.
        total: the sum of the values of a distribution.
        minimum: the least of these values, or of all subtasks' gauges; None if there are none.
        maximum: the greatest of them.
    """

    kind: str
    count: int = 0
    rate: float = 0.0
    total: float = 0
    minimum: object = None
    maximum: Any = None

    @property
    def mean(self) -> float:
        """The mean of the values of a distribution, or of all subtasks' gauges; 0 if there are none."""
        return self.total / self.count if self.count else 0.0

    def plus(self, other: MetricValue) -> MetricValue:
        """Return both combined."""
        return MetricValue(
            self.kind,
            self.count + other.count,
            self.rate + other.rate,
            self.total + other.total,
            _best(min, self.minimum, other.minimum),
            _best(max, self.maximum, other.maximum),
        )

    def then(self, later: MetricValue) -> MetricValue:
        """Return the value over repeated runs of a task: counts are summed, the rest is the last run's."""
        return later if self.kind == "gauge" else attrs.evolve(self.plus(later), rate=later.rate)


#: Values of metrics by name, ``"<group>.<name>"``.
MetricValues = dict[str, MetricValue]


#: Between the name of an operator and the id of a tag in the name of a count.
SIDE_OUTPUT = ".side_output."


def side_output_count(operator: str, tag_id: str) -> str:
    """Return the name of the count of the records that an operator emits to a side output."""
    return f"{operator}{SIDE_OUTPUT}{tag_id}"


def _best(choose: Callable[..., T], one: T | None, other: T | None) -> T | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def added_up(many: Iterable[MetricValues]) -> MetricValues:
    """Return the combined metrics of several subtasks."""
    total: MetricValues = {}
    for values in many:
        for name, value in values.items():
            total[name] = total[name].plus(value) if name in total else value
    return total


@attrs.define(eq=False)
class _Counter(Counter):
    _count: int = 0

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count

    def value(self) -> MetricValue:
        return MetricValue("counter", self._count)


class _Meter(Meter):
    def __init__(self, now_ms: Callable[[], int], time_span_ms: int) -> None:
        self._now_ms = now_ms
        self._time_span_ms = time_span_ms
        self._count = 0
        #: When the count was read, and its value then.
        self._seen: deque[tuple[int, int]] = deque([(now_ms(), 0)])

    def mark_event(self, value: int = 1) -> None:
        self._count += value

    def get_count(self) -> int:
        return self._count

    def value(self) -> MetricValue:
        now = self._now_ms()
        if now < self._seen[-1][0]:  # the clock was set back
            self._seen = deque([(now, self._count)])
        self._seen.append((now, self._count))
        while len(self._seen) > 2 and now - self._seen[1][0] >= self._time_span_ms:
            self._seen.popleft()
        since, before = self._seen[0]
        passed_s = (now - since) / 1000
        return MetricValue("meter", self._count, (self._count - before) / passed_s if passed_s > 0 else 0.0)


@attrs.define(eq=False)
class _Distribution(Distribution):
    _value: MetricValue = MetricValue("distribution")

    def update(self, value: int) -> None:
        self._value = self._value.plus(MetricValue("distribution", 1, 0.0, value, value, value))

    def value(self) -> MetricValue:
        return self._value


@attrs.frozen
class _Gauge:
    """A gauge, which calls the user's function."""

    name: str
    ask: Callable[[], object]

    def value(self) -> MetricValue:
        found = self.ask()
        if not isinstance(found, (int, float)):
            raise ConfigurationError(
                f"gauge {self.name}: its function returned {found!r}, which is not a number"
            )
        return MetricValue("gauge", 1, 0.0, found, found, found)


class OperatorMetrics(MetricGroup):
    """See :class:`~pyflinkstate.api.metrics.MetricGroup`. All groups of a subtask share one dict."""

    def __init__(
        self, now_ms: Callable[[], int], prefix: str = "", metrics: dict[str, object] | None = None
    ) -> None:
        self.now_ms = now_ms
        self._prefix = prefix
        self.metrics: dict[str, Any] = {} if metrics is None else metrics

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        full = name if extra is None else f"{name}.{extra}"
        return OperatorMetrics(self.now_ms, f"{self._prefix}{full}.", self.metrics)

    def counter(self, name: str) -> Counter:
        return self._get_or_make(name, _Counter, _Counter)

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        if not callable(obj):
            raise ConfigurationError(f"gauge {self._prefix}{name}: a function is needed, not {obj!r}")
        gauge = _Gauge(self._prefix + name, obj)
        self._get_or_make(name, _Gauge, lambda: gauge)
        self.metrics[gauge.name] = gauge

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        span_ms = time_span_in_seconds * 1000
        return self._get_or_make(name, _Meter, lambda: _Meter(self.now_ms, span_ms))

    def distribution(self, name: str) -> Distribution:
        return self._get_or_make(name, _Distribution, _Distribution)

    def _get_or_make(self, name: str, kind: type[T], make: Callable[[], T]) -> T:
        metric = self.metrics.setdefault(self._prefix + name, None) or make()
        if not isinstance(metric, kind):
            raise ConfigurationError(f"metric {self._prefix}{name} already exists with another kind")
        self.metrics[self._prefix + name] = metric
        return metric

    def values(self) -> MetricValues:
        """Return the values of all metrics; errors of a gauge's function are passed on."""
        return {name: metric.value() for name, metric in self.metrics.items()}
