"""Reporters of metrics: their life, what they are told, and OpenTelemetry with its own SDK."""

from __future__ import annotations

import gzip
import http.server
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from support_job import JobRun
from support_runtime import PATIENCE_S, ManualClock
from support_web import EVIL, JOB_ID, story

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.metrics.otel import OpenTelemetryReporter
from pyflinkstate.metrics.reporter import MetricReporter, ReportedMetric
from pyflinkstate.monitor.api import all_metrics, prometheus_text
from pyflinkstate.monitor.hub import Monitor, Reporting
from pyflinkstate.monitor.jobs import Jobs, MonitoredJob

pytestmark = pytest.mark.timeout(60)


class Noting(MetricReporter):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.added: set[str] = set()
        self.removed: set[str] = set()
        self.reports: queue.SimpleQueue[Sequence[ReportedMetric]] = queue.SimpleQueue()

    def open(self) -> None:
        self.told.append("open")

    def notify_of_added_metric(self, metric: ReportedMetric) -> None:
        self.added.add(metric.name)

    def notify_of_removed_metric(self, metric: ReportedMetric) -> None:
        self.removed.add(metric.name)

    def report(self, metrics: Sequence[ReportedMetric]) -> None:
        self.told.append("report")
        self.reports.put(metrics)

    def close(self) -> None:
        self.told.append("close")


class Steps(threading.Event):
    """Lets the thread of a reporter take as many turns as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def wait(self, timeout: float | None = None) -> bool:
        return self.turns.get(timeout=PATIENCE_S)

    def set(self) -> None:
        self.turns.put(True)


Metrics = Callable[[], list[ReportedMetric]]


@pytest.fixture
def jobs() -> Jobs:
    made = Jobs()
    made.add(MonitoredJob(story(), threading.Lock()))
    return made


@pytest.fixture
def metrics_now(jobs: Jobs) -> Metrics:
    return partial(all_metrics, jobs, ManualClock())


def test_a_reporter_is_told_what_prometheus_reads_until_it_is_closed(metrics_now: Metrics) -> None:
    reporter, steps = Noting(), Steps()
    reporting = Reporting(reporter, metrics_now, 10, steps)
    for _ in range(2):
        steps.turns.put(False)
        metrics = reporter.reports.get(timeout=PATIENCE_S)
        assert prometheus_text(metrics) == prometheus_text(metrics_now())
    reporting.close()
    assert reporter.told == ["open", "report", "report", "report", "close"]
    assert reporter.added == {metric.name for metric in metrics_now()}
    assert reporter.removed == set()


def test_metrics_that_go_are_told(jobs: Jobs, metrics_now: Metrics) -> None:
    reporter, steps = Noting(), Steps()
    reporting = Reporting(reporter, metrics_now, 10, steps)
    steps.turns.put(False)
    reporter.reports.get(timeout=PATIENCE_S)
    (shown,) = jobs.begun()
    with shown.lock:
        shown.story.measured.watermarks = {}
    reporting.close()
    assert reporter.removed == {"flink_taskmanager_job_task_operator_currentOutputWatermark"}


def test_a_reporter_that_raises_is_told_again(metrics_now: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    class Rude(Noting):
        def report(self, metrics: Sequence[ReportedMetric]) -> None:
            super().report(metrics)
            raise ZeroDivisionError("rude")

    reporter, steps = Rude(), Steps()
    reporting = Reporting(reporter, metrics_now, 10, steps)
    for _ in range(2):
        steps.turns.put(False)
        reporter.reports.get(timeout=PATIENCE_S)
    reporting.close()
    assert reporter.told[-1] == "close"
    assert "metric reporter Rude has raised an error" in caplog.text


def test_a_monitor_tells_its_reporters_of_its_jobs(run: JobRun) -> None:
    monitor, reporter = Monitor(), Noting()
    monitor.add_reporter(reporter, 3_600_000)
    run.listeners = (monitor.observe(None),)
    run.run()
    monitor.close()
    metrics = reporter.reports.get(timeout=PATIENCE_S)
    found = {metric.name: metric for metric in metrics}
    assert found["pyflinkstate_job_is_over"].value == 1
    assert dict(found["pyflinkstate_epoch"].labels)["job_name"] == "orders"
    assert reporter.told == ["open", "report", "close"]


def test_what_open_raises_is_raised_where_the_reporter_is_added() -> None:
    class Closed(Noting):
        def open(self) -> None:
            raise ConfigurationError("no way in")

    monitor = Monitor()
    with pytest.raises(ConfigurationError, match="no way in"):
        monitor.add_reporter(Closed(), 1_000)
    monitor.close()


# --- OpenTelemetry ----------------------------------------------------------------------------------

export = pytest.importorskip("opentelemetry.sdk.metrics.export")


def points(data: Any) -> dict[tuple[str, tuple[tuple[str, Any], ...]], Any]:
    """Return the values of all points by name and labels."""
    return {
        (metric.name, tuple(sorted(point.attributes.items()))): point.value
        for of_resource in data.resource_metrics
        for of_scope in of_resource.scope_metrics
        for metric in of_scope.metrics
        for point in metric.data.data_points
    }


def test_open_telemetry_has_the_same_names_values_and_labels(metrics_now: Metrics) -> None:
    reader = export.InMemoryMetricReader()
    reporter = OpenTelemetryReporter(reader=reader, resource={"service.namespace": "shop"})
    reporter.open()
    for _ in range(2):
        reporter.report(metrics_now())
    data = reader.get_metrics_data()
    assert points(data) == {
        (metric.name.lower(), tuple(sorted(metric.labels))): metric.value for metric in metrics_now()
    }
    resource = data.resource_metrics[0].resource.attributes
    assert (resource["service.name"], resource["service.namespace"]) == ("pyflinkstate", "shop")
    kinds = {
        metric.name: type(metric.data).__name__
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
    }
    assert kinds["flink_taskmanager_job_task_operator_numrecordsin"] == "Sum"
    assert kinds["flink_taskmanager_job_task_busytimemspersecond"] == "Gauge"
    reporter.close()


def test_what_has_gone_is_not_exported_any_more(metrics_now: Metrics) -> None:
    reader = export.InMemoryMetricReader()
    reporter = OpenTelemetryReporter(reader=reader)
    reporter.open()
    reporter.report(metrics_now())
    reporter.report([ReportedMetric("late_comer", 7, (("job_name", "bad\ud800name"),))])
    assert points(reader.get_metrics_data()) == {("late_comer", (("job_name", "bad?name"),)): 7}
    reporter.close()


@pytest.fixture
def collector() -> Iterator[tuple[str, queue.SimpleQueue[bytes]]]:
    """An endpoint on this host that takes what is exported."""
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_packed = self.headers.get("Content-Encoding") == "gzip"
            received.put(gzip.decompress(body) if is_packed else body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/metrics", received
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_otlp_endpoint_is_sent_each_report(
    metrics_now: Metrics, collector: tuple[str, queue.SimpleQueue[bytes]]
) -> None:
    messages = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    endpoint, received = collector
    reporter = OpenTelemetryReporter(endpoint)
    reporter.open()
    reporter.report(metrics_now())
    request = messages.ExportMetricsServiceRequest.FromString(received.get(timeout=PATIENCE_S))
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert {metric.name for metric in metrics} == {metric.name.lower() for metric in metrics_now()}
    (restarts,) = [metric for metric in metrics if metric.name == "flink_jobmanager_job_numrestarts"]
    (point,) = restarts.gauge.data_points
    labels = {one.key: one.value.string_value for one in point.attributes}
    assert labels == {"job_id": JOB_ID, "job_name": EVIL}
    assert point.as_int == 1
    reporter.close()


def test_a_reporter_that_is_opened_again_exports_again(
    metrics_now: Metrics, collector: tuple[str, queue.SimpleQueue[bytes]]
) -> None:
    endpoint, received = collector
    reporter = OpenTelemetryReporter(endpoint)
    for _ in range(2):
        reporter.open()
        reporter.report(metrics_now())
        assert b"numrestarts" in received.get(timeout=PATIENCE_S)
        reporter.close()
        while not received.empty():  # what the end exports
            received.get()


def test_without_open_telemetry_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyflinkstate\[otel\]'"):
        OpenTelemetryReporter().open()
