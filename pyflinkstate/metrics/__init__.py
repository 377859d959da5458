"""The names of ``pyflink.metrics``: metrics that a function keeps about itself."""

from pyflinkstate.api import Counter, Distribution, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Meter", "Metric", "MetricGroup"]
