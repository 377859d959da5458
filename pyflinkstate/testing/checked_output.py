"""The check of results against their declared type, as after an operator in a job."""

from __future__ import annotations

from pyflinkstate.api.composite_types import declared_type
from pyflinkstate.api.type_information import OutputType
from pyflinkstate.api.types import PickledBytesTypeInfo
from pyflinkstate.api.values import Record
from pyflinkstate.runtime.plan import OutputCheck
from pyflinkstate.runtime.wire import user_failure


class CheckedOutput:
    """Checks results and converts them to the form of their type.

    Args:
        name: the name of the operator.
        output_type: the type of its results; None for anything.
    """

    def __init__(self, name: str, output_type: OutputType | None) -> None:
        self._name = name
        output_type = declared_type("output_type", output_type)
        is_checked = output_type is not None and not isinstance(output_type, PickledBytesTypeInfo)
        self._check = OutputCheck(name, output_type) if output_type is not None and is_checked else None

    def __call__(self, value: Record) -> Record:
        """Return the value in the form of its type; raise ``BadRecordError`` if it does not fit."""
        if self._check is None:
            return value
        try:
            return self._check(value)
        except Exception as error:
            raise user_failure(error, self._name, value) from error
