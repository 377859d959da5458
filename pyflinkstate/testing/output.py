"""The output of an operator under test, in order."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.values import Record
from pyflinkstate.testing.checked_output import CheckedOutput


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


class WithOutput:
    """What all harnesses have in common: access to the operator's output."""

    def __init__(self) -> None:
        self._collected = CollectedOutput()

    def get_output(self) -> list[StreamRecord | Watermark]:
        """Return all results and watermarks of the main output so far, in order."""
        return list(self._collected.main)

    def extract_output_values(self) -> list[Record]:
        """Return the values of all results of the main output so far."""
        return [item.value for item in self._collected.main if isinstance(item, StreamRecord)]

    def get_side_output(self, output_tag: OutputTag) -> list[StreamRecord]:
        """Return all results of a side output so far, or none if the tag was never used.

        Raises:
            BadRecordError: a result does not fit the tag's type.
        """
        checked = CheckedOutput(f"side output {output_tag.tag_id}", output_tag.type_info)
        return [
            attrs.evolve(record, value=checked(record.value))
            for record in self._collected.side.get(output_tag.tag_id, ())
        ]

    def extract_side_output_values(self, output_tag: OutputTag) -> list[Record]:
        """Return the values of all results of a side output so far."""
        return [record.value for record in self.get_side_output(output_tag)]
