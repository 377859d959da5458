"""The names of ``pyflink.metrics``: metrics that a function keeps about itself."""

from pyflinkstate.api import (
    Counter as Counter,
    Distribution as Distribution,
    Meter as Meter,
    Metric as Metric,
    MetricGroup as MetricGroup,
)
