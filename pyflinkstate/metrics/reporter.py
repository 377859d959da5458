"""Receivers of the metrics of jobs (Flink: ``org.apache.flink.metrics.reporter``)."""

from __future__ import annotations

from pyflinkstate.api.metric_reporter import MetricReporter, ReportedMetric

__all__ = ["MetricReporter", "ReportedMetric"]
