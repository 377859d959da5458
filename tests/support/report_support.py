"""Results of benchmarks that nobody ran, to see what is drawn of them."""

from __future__ import annotations

from typing import Any

from report.programs import BENCHMARKS, ENGINES, MARKS, OPERATORS, OURS, QUERIES
from report.results import Result, Run

MACHINE: dict[str, str | int] = {
    "cpu": "A Processor",
    "cores": 2,
    "memory_gib": 8,
    "os": "An OS",
    "architecture": "x86_64",
}
VERSIONS = {
    "python": "3.11.1",
    "java": "17.0.1",
    "pyflinkstate": "0.1.0",
    "pyspark": "4.3.0",
    "pyarrow": "26.0.0",
    "numpy": "2.4.0",
    "cloudpickle": "3.1.0",
}
#: A run is this much better or worse than the marks ask.
NOISE = (1.2, 1.1, 1.3)


def begun(name: str, **changes: Any) -> Result:
    """Return a result without runs."""
    fields = {"arguments": (), "is_on_one_core": BENCHMARKS[name].is_on_one_core, "commit": "c" * 40}
    return Result(name, **{**fields, "machine": MACHINE, "versions": VERSIONS, **changes})


def result_of(name: str, *runs: dict[str, Any]) -> Result:
    """Return a result with these figures."""
    result = begun(name)
    for figures in runs:
        result = result.with_run(Run(figures, 0.1, 1.9, 0.02))
    return result


def whole(name: str) -> Result:
    """Return a result that has all figures which are drawn of a benchmark."""
    return result_of(name, *({**_figures(name, noise), **_marked(name, noise)} for noise in NOISE))


def _marked(name: str, noise: float) -> dict[str, Any]:
    marks = [mark for mark in MARKS if mark.benchmark == name]
    return {m.key: m.asked if isinstance(m.asked, bool) else m.asked * noise for m in marks}


def _figures(name: str, noise: float) -> dict[str, Any]:
    rate = 1_000_000 * noise
    if name == "operators":
        rates = {f"{operator}_records_per_s": rate for operator in OPERATORS}
        return rates | {f"ratio_{operator}": noise for operator in OPERATORS if operator != "value"}
    if name == "nexmark":
        rates = {f"q{number}_records_per_s_per_core": rate / number for number in QUERIES}
        return {f"q{number}_right": True for number in QUERIES} | rates
    if name == "peers_latency":
        return {f"latency_{figure}_ms": 5 * noise for figure in ("p50", "p99", "max")}
    if name.startswith("peers_"):
        work = name.removeprefix("peers_")
        rates = {f"{work}_{engine}_records_per_s": rate for engine in ENGINES}
        times = {f"{work}_times_{engine}": noise for engine in ENGINES if engine != OURS}
        return {"machine": "2 cores", "engines": {"bytewax": "bytewax 0.21.1"}} | rates | times
    return {}
