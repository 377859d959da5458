"""Streams for tests that run jobs without an environment and without Spark."""

from __future__ import annotations

from typing import Any

import attrs
from event_time_functions import Third

from pyflinkstate import Available, DataStream, Epoch, Source, SplitEpoch
from pyflinkstate.api import WatermarkAlignment, WatermarkStrategy
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.program import EnvironmentSettings


@attrs.define
class Splits(Source):
    """Records, so many in each split of an epoch."""

    records: list[Any]
    splits: int = 2
    records_per_split: int = 4

    def initial_offset(self) -> int:
        return 0

    def latest_offset(self, start: int, whole: bool) -> Available:
        length = len(self.records)
        end = length if whole else min(start + self.splits * self.records_per_split, length)
        return Available(end, end == length)

    def plan(self, start: int, end: int) -> Epoch:
        return SplitEpoch([self.records[start + n : end : self.splits] for n in range(self.splits)], _read)


def _read(split: list[Any], _: Any) -> list[Any]:
    return split


class Program:
    """Takes the place of an environment while streams are built."""

    def __init__(self) -> None:
        self.assigners = 0
        self._jobs = self
        self._settings = EnvironmentSettings(lambda: 1)

    def next_assigner_number(self) -> int:
        self.assigners += 1
        return self.assigners

    def stream(
        self,
        records: list[Any],
        name: str,
        out_of_orderness: int | None = 0,
        alignment: WatermarkAlignment | None = None,
        splits: int = 2,
    ) -> DataStream:
        """A stream with timestamps."""
        strategy = WatermarkStrategy(out_of_orderness, alignment=alignment).with_timestamp_assigner(Third())
        source = DataStream(self, SourceNode(Splits(records, splits), name))  # type: ignore[arg-type]
        return source.assign_timestamps_and_watermarks(strategy)
