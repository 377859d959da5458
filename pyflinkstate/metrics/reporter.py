"""Receivers of the metrics of jobs (Flink: ``org.apache.flink.metrics.reporter``)."""

from pyflinkstate.api import MetricReporter as MetricReporter, ReportedMetric as ReportedMetric
