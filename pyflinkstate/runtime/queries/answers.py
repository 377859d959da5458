"""The interface of answers to questions, which ``pyflinkstate.state_access`` implements.

Rooms above are not imported from here. The reader is loaded by its name when somebody asks.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Protocol

import pyarrow as pa

from pyflinkstate.api.values import ArrowObject, JsonObject

_READER = "pyflinkstate.state_access.live"


class StateAnswer(Protocol):
    """The interface of :class:`pyflinkstate.state_access.live.LiveTable`."""

    @property
    def epoch(self) -> int:
        """The epoch after which the state was frozen."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches as they come."""

    def to_reader(self) -> pa.RecordBatchReader:
        """Return Arrow's reader of the batches."""

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""

    def to_pandas(self) -> ArrowObject:
        """Return all rows as a pandas ``DataFrame``."""

    def to_duckdb(self, connection: ArrowObject, name: str | None = None) -> ArrowObject:
        """Return a DuckDB relation of all rows."""

    def rows(self) -> Iterator[JsonObject]:
        """Yield each row as a dict of Python values."""

    def __iter__(self) -> Iterator[JsonObject]:
        """Yield each row as a dict of Python values."""

    def close(self) -> None:
        """Release the state that slots still keep for this answer."""

    def __enter__(self) -> StateAnswer:
        """Return the answer, which is closed at the end of the ``with`` block."""

    def __exit__(self, *_: object) -> None:
        """Close it."""


def state_reader() -> ModuleType:
    """Return the module whose ``query`` and ``query_value`` ask a job's ``StateQueries``."""
    return importlib.import_module(_READER)
