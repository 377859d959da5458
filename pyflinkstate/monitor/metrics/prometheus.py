"""Metrics as Prometheus reads them: the text format 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable

from pyflinkstate.api.metrics import ReportedMetric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(found: Iterable[ReportedMetric]) -> str:
    """Return samples as text, those of one metric together."""
    by_name: dict[str, list[ReportedMetric]] = {}
    for sample in found:
        by_name.setdefault(sample.name, []).append(sample)
    return "".join(_written(same) for _, same in sorted(by_name.items()))


def _written(same: list[ReportedMetric]) -> str:
    first = same[0]
    about = f"# HELP {first.name} {first.help}\n" if first.help else ""
    lines = {sample.labels: f"{sample.name}{_labels(sample)} {sample.value}\n" for sample in same}
    return f"{about}# TYPE {first.name} {first.kind}\n" + "".join(lines.values())


def _labels(sample: ReportedMetric) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels) + "}"


def _escaped(value: str) -> str:
    """Escape characters that would end a value; those that UTF-8 cannot encode become ``?``."""
    value = value.encode("utf-8", "replace").decode("utf-8")
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
