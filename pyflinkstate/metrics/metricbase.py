"""PyFlink's ``pyflink.metrics.metricbase``."""

from pyflinkstate.api import (
    Counter as Counter,
    Distribution as Distribution,
    Meter as Meter,
    Metric as Metric,
    MetricGroup as MetricGroup,
)
