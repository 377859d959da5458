"""PyFlink's ``pyflink.metrics.metricbase``."""

from __future__ import annotations

from pyflinkstate.api.metrics import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
