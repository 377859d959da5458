"""The base of all harnesses: access to the operator's output, and the end of a ``with`` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TypeVar

import attrs

from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.values import Record, Setting
from pyflinkstate.runtime.operators import close_after_error
from pyflinkstate.runtime.program import EnvironmentSettings
from pyflinkstate.testing.checked_output import CheckedOutput
from pyflinkstate.testing.output import CollectedOutput, StreamRecord, Watermark

H = TypeVar("H", bound="Harness")


class Harness(ABC):
    """The base of all harnesses: has the operator's output, and is closed at the end of a ``with`` block.

    Args:
        job_parameters: what ``get_job_parameter`` returns, by name: the global parameters of the job.
    """

    def __init__(self, job_parameters: Mapping[str, Setting] | None = None) -> None:
        self._collected = CollectedOutput()
        settings = EnvironmentSettings(lambda: 1)
        settings.put(job_parameters=job_parameters or {})
        self._job_parameters = settings.job_parameters

    @abstractmethod
    def close(self) -> None:
        """Close the functions."""

    def __enter__(self: H) -> H:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            close_after_error(self.close)

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
