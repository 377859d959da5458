"""The text of a record for ``print()`` and for text files, as in PyFlink.

A record without a declared type is printed as in Python, ``('a', True)``. A ``ROW`` is printed as a change,
``+I[a, ...]``, with its fields as in Python. Every other declared type is printed as in Java:
``(a,true,1.0E10)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Record, Reduced
from pyflinkstate.backends.types import text_of_type
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.sinks.sinks import DriverSink

#: Returns the text of a value.
_Show = Callable[[Record], str]


@attrs.frozen
class RecordText:
    """Returns the text of records of a stream.

    Args:
        operator: the operator whose results they are.
        type_info: the type of the stream.
    """

    operator: str
    type_info: TypeInformation
    _show: _Show = attrs.field(init=False, eq=False, repr=False)

    @_show.default
    def _show_of_type(self) -> _Show:
        return text_of_type(self.type_info)

    def __reduce__(self) -> Reduced:
        return RecordText, (self.operator, self.type_info)

    def __call__(self, record: Record) -> str:
        """Return the text.

        Raises:
            BadRecordError: the record does not fit the type of the stream.
        """
        if isinstance(self.type_info, PickledBytesTypeInfo):
            return self._show(record)
        try:
            return self._show(self.type_info.check(record))
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: a result does not fit the type of its stream, "
                f"{self.type_info}: {error}; record {safe_repr(record)}",
                operator=self.operator,
                record=safe_repr(record),
            ) from None


class PrintSink(DriverSink):
    """Prints texts in the driver as Flink's print sink does.

    Args:
        identifier: put before each line, if there is one.
        parallelism: the parallelism of the sink; from 2 on, each line shows its subtask, counted from 1.
    """

    def __init__(self, identifier: str | None, parallelism: int) -> None:
        super().__init__(self._print)
        self._identifier = identifier
        self.parallelism = parallelism

    def _print(self, partition: int, values: Iterable[str]) -> None:
        subtask = str(partition % self.parallelism + 1) if self.parallelism > 1 else ""
        prefix = ":".join(part for part in (self._identifier, subtask) if part)
        for value in values:
            print(f"{prefix}> {value}" if prefix else value)
