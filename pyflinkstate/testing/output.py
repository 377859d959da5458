"""The output of an operator under test, in order."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pyflinkstate.api.values import Record


@attrs.frozen
class StreamRecord:
    """A result (Flink: ``StreamRecord``).

    Attributes:
        value: the result itself.
        timestamp: its event time in ms since 1970, or None.
    """

    value: Record
    timestamp: int | None = None


@attrs.frozen
class Watermark:
    """A watermark that the operator has passed on (Flink: ``Watermark``).

    Attributes:
        timestamp: no more records up to this time will come, in ms since 1970.
    """

    timestamp: int


class CollectedOutput:
    """Everything that an operator has emitted so far."""

    def __init__(self) -> None:
        self.main: list[StreamRecord | Watermark] = []
        self.side: dict[str, list[StreamRecord]] = {}

    def add(self, values: Iterable[Record], timestamps: Iterable[int | None]) -> None:
        """Add results of the main output."""
        self.main.extend(map(StreamRecord, values, timestamps))

    def add_side(self, tag_id: str, values: Iterable[Record], timestamps: Iterable[int | None]) -> None:
        """Add results of a side output."""
        self.side.setdefault(tag_id, []).extend(map(StreamRecord, values, timestamps))
