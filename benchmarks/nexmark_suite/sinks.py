"""Where the results of a query go: into a count when it is measured, into a table when it is checked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import attrs

from nexmark_suite.views import Row


class BlackHole:
    """Counts the records, in the tasks, and drops them, as the Nexmark suite's sink does."""

    def __init__(self) -> None:
        self.records = 0

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...

    def writer(self, epoch: int) -> BlackHoleWriter:
        return BlackHoleWriter()

    def prepare(self, epoch: int, results: list[Any]) -> None:
        self.records += sum(results)

    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


class BlackHoleWriter:
    def write(self, partition: int, records: Iterator[Row]) -> Iterator[int]:
        yield sum(1 for _ in records)


class ResultTable:
    """Keeps the result table in the driver: all rows, or the last row of each key."""

    def __init__(self, key: Callable[[Row], Hashable] | None) -> None:
        self._key = key
        self._rows: dict[Hashable, Row] = {}

    def rows(self) -> list[Row]:
        """Return the table so far."""
        return list(self._rows.values())

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...

    def writer(self, epoch: int) -> TableWriter:
        return TableWriter(self._key, epoch)

    def prepare(self, epoch: int, results: list[Any]) -> None:
        for rows in results:
            self._rows.update(rows)

    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


@attrs.frozen
class TableWriter:
    """Reduces a partition to the last row of each key; without a key, rows are told apart by their place."""

    key: Callable[[Row], Hashable] | None
    epoch: int

    def write(self, partition: int, records: Iterator[Row]) -> Iterator[dict[Hashable, Row]]:
        if self.key is None:
            yield {(self.epoch, partition, place): row for place, row in enumerate(records)}
        else:
            yield {self.key(row): row for row in records}
