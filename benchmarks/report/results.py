"""The runs of a benchmark, what they come to, and their file."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path
from typing import Any

import attrs

from report.programs import lower_is_better

RESULTS = Path(__file__).parents[1] / "results"


@attrs.frozen
class Figure:
    """What a figure came to in all runs.

    Attributes:
        worst: the largest value where lower is better, else the smallest.
        median: of all runs.
        spread: the largest minus the smallest, as a share of the median.
        values: of the runs, in their order.
    """

    worst: float
    median: float
    spread: float
    values: tuple[float, ...]


def figure_of(key: str, values: tuple[float, ...]) -> Figure:
    """Return what the runs' values of a figure come to."""
    worst = max(values) if lower_is_better(key) else min(values)
    median = statistics.median(values)
    spread = (max(values) - min(values)) / abs(median) if median else 0.0
    return Figure(worst, median, round(spread, 4), values)


@attrs.frozen
class Run:
    """One call of the program.

    Attributes:
        figures: all that it printed.
        load_before, load_after: the load average of a minute.
        busy_before: the share of the cores that was in use just before, or None where this is unknown.
    """

    figures: dict[str, Any]
    load_before: float
    load_after: float
    busy_before: float | None = None


@attrs.frozen
class Result:
    """A benchmark's runs and their conditions."""

    benchmark: str
    arguments: tuple[str, ...]
    is_on_one_core: bool
    commit: str
    machine: dict[str, str | int]
    versions: dict[str, str]
    runs: tuple[Run, ...] = ()

    def can_go_on_as(self, other: Result) -> bool:
        """Return whether runs of both belong together."""
        return attrs.evolve(self, runs=()) == attrs.evolve(other, runs=())

    def with_run(self, run: Run) -> Result:
        """Return the result with one more run, which must have the figures of the others."""
        if self.runs and run.figures.keys() != self.runs[0].figures.keys():
            raise ValueError(f"{self.benchmark}: the runs have different figures")
        return attrs.evolve(self, runs=(*self.runs, run))

    def figures(self) -> dict[str, Figure]:
        """Return what the runs come to, for all figures that are numbers, or true or false."""
        return {
            key: figure_of(key, tuple(run.figures[key] for run in self.runs))
            for key, value in self.runs[0].figures.items()
            if isinstance(value, int | float)
        }

    def to_json(self) -> str:
        """Return the text of the file, with what the runs come to written out."""
        summary = {
            key: {
                "better": "lower" if lower_is_better(key) else "higher",
                "worst": figure.worst,
                "median": figure.median,
                "spread": figure.spread,
            }
            for key, figure in self.figures().items()
        }
        fields = attrs.asdict(self)
        runs = fields.pop("runs")
        return json.dumps(fields | {"figures": summary, "runs": runs}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Return the result that :meth:`to_json` wrote."""
        fields = json.loads(text)
        fields.pop("figures")
        fields["runs"] = tuple(Run(**run) for run in fields["runs"])
        return cls(**fields | {"arguments": tuple(fields["arguments"])})


def read(path: Path) -> Result | None:
    """Return the result in a file, or None if there is no file."""
    return Result.from_json(path.read_text(encoding="utf-8")) if path.exists() else None


def write(result: Result, folder: Path) -> Path:
    """Write a result's file whole or not at all, and return where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.benchmark}.json"
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(result.to_json())
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    return path


def read_all(folder: Path) -> dict[str, Result]:
    """Return all results of a folder by the names of their benchmarks."""
    found = (Result.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json")))
    return {result.benchmark: result for result in found}
