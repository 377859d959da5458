"""What sinks of tables make of records: rows, and changes of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from pyflinkstate.api import Record, Row, RowKind, safe_repr
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.sinks.file_sink import fields_of, fields_of_row


@attrs.frozen
class RowConverter:
    """Makes rows of dicts, tuples, lists and ``Row``s.

    With a key it makes changes: rows with one more value, whether the row of that key is deleted. Then a
    ``Row`` of kind ``UPDATE_BEFORE`` is left out, as the row that follows it replaces the old one.

    Attributes:
        sink: the name of the sink, for errors.
        columns: the columns of the table, in the order of a row's values.
        key: the columns by which rows replace each other; empty if rows are appended.
    """

    sink: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    def __call__(self, records: Iterator[Record]) -> Iterator[list[Any]]:
        """Yield the rows.

        Raises:
            BadRecordError: a record has other fields, or None in its key, or deletes a row without a key.
        """
        for record in records:
            try:
                if not self.key:
                    yield fields_of(record, self.columns)
                elif not isinstance(record, Row):
                    yield self._change(record, RowKind.INSERT)
                elif (kind := record.get_row_kind()) is not RowKind.UPDATE_BEFORE:
                    yield self._change(fields_of_row(record, self.columns), kind)
            except (TypeError, ValueError) as error:
                raise BadRecordError(
                    f"sink {self.sink!r}: {error}; record {safe_repr(record)}", record=safe_repr(record)
                ) from error

    def _change(self, record: Record, kind: RowKind) -> list[Any]:
        row = fields_of(record, self.columns)
        for name in self.key:
            if row[self.columns.index(name)] is None:
                raise ValueError(f"its key {name!r} is None")
        return [*row, kind is RowKind.DELETE]
