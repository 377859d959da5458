"""Metrics of jobs for OpenTelemetry, under the same names as for Prometheus; needs ``pyflinkstate[otel]``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyflinkstate.api import MetricReporter, ReportedMetric
from pyflinkstate.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricReader

__all__ = ["OpenTelemetryReporter"]

_Labels = tuple[tuple[str, str], ...]


class OpenTelemetryReporter(MetricReporter):
    """Exports the metrics of jobs with OpenTelemetry's SDK.

    A counter is an observable counter, everything else an observable gauge; labels are attributes. Names of
    OpenTelemetry do not tell upper from lower case, and the SDK writes them in lower case.

    Args:
        endpoint: such as ``"http://collector:4318/v1/metrics"``, for OTLP over HTTP. Default: what
            OpenTelemetry's environment variables say (``OTEL_EXPORTER_OTLP_ENDPOINT``), or port 4318 of this
            host.
        headers: sent with each export, such as credentials.
        resource: attributes of all metrics; ``service.name`` is ``pyflinkstate`` unless it is given.
        reader: collects the metrics instead of an export to ``endpoint``.

    Raises:
        ConfigurationError: :meth:`open` finds no OpenTelemetry.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        resource: Mapping[str, str] | None = None,
        reader: MetricReader | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._headers = None if headers is None else dict(headers)
        self._resource = {"service.name": "pyflinkstate", **(resource or {})}
        self._reader = reader
        self._provider: MeterProvider | None = None
        self._meter: Meter | None = None
        #: By name: the present values by labels.
        self._values: dict[str, dict[_Labels, float]] = {}

    def open(self) -> None:
        try:
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.resources import Resource

            reader = self._exporting() if self._reader is None else self._reader
        except ImportError as error:
            raise ConfigurationError(
                f"OpenTelemetryReporter needs OpenTelemetry ({error}): pip install 'pyflinkstate[otel]'"
            ) from error
        self._provider = MeterProvider([reader], Resource.create(self._resource), shutdown_on_exit=False)
        self._meter = self._provider.get_meter("pyflinkstate")
        self._values = {}  # a new meter has no instruments

    def _exporting(self) -> MetricReader:
        """Return a reader that exports on request, with each report."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        exporter = OTLPMetricExporter(self._endpoint, headers=self._headers)
        return PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)

    def report(self, metrics: Sequence[ReportedMetric]) -> None:
        assert self._provider is not None
        values: dict[str, dict[_Labels, float]] = {}
        for metric in metrics:
            values.setdefault(metric.name, {})[metric.labels] = metric.value
        new = {metric.name: metric for metric in metrics if metric.name not in self._values}
        # A name stays known when nothing has it any more: an instrument cannot be taken away.
        self._values = {**{name: {} for name in self._values}, **values}
        for metric in new.values():
            self._add(metric)
        self._provider.force_flush()

    def _add(self, metric: ReportedMetric) -> None:
        assert self._meter is not None
        is_counter = metric.kind == "counter"
        make = self._meter.create_observable_counter if is_counter else self._meter.create_observable_gauge
        make(metric.name, [self._observer(metric.name)], description=metric.help)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, _attributes(labels)) for labels, value in self._values[name].items()]

        return observe

    def close(self) -> None:
        if self._provider is not None:
            self._provider.shutdown()
            self._provider = None


def _attributes(labels: _Labels) -> dict[str, str]:
    """Return labels that UTF-8 can encode; a job's name from a command line may have other characters."""
    return {name: text.encode("utf-8", "replace").decode("utf-8") for name, text in labels}
