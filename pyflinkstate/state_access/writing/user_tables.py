"""The tables that users give, and the values that their cells stand for.

Arrow and pandas have no tuples and no rows: both come back from them as structs, which Python sees as dicts,
maps come back as lists of pairs, and big numbers as the texts that ``Checkpoint.entries`` gives. Cells of
Python's own lists and dicts never become Arrow, which would make lists of tuples, for example.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api import (
    ArrayTypeInfo,
    ArrowObject,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    Row,
    RowKind,
    RowTypeInfo,
    TupleTypeInfo,
    TypedValue,
    TypeInformation,
    names_of,
    row_of,
    safe_repr,
)
from pyflinkstate.backends.types import arrow_type, value_of_cell
from pyflinkstate.errors import StateTableError

T = TypeVar("T")
#: The cells of a column, as Arrow or as Python has them.
Cells: TypeAlias = "pa.Array | list[Any]"
#: Converts a cell to the value that it represents.
Shape = Callable[[Any], TypedValue]

_KINDS = "give a table, a pandas DataFrame, a dict of columns or a list of dicts"


@attrs.frozen
class UserTable:
    """A table in the form in which it was given.

    Attributes:
        names: the names of its columns, in which one may be twice.
        columns: the columns by name, all of the same length.
    """

    names: Sequence[str]
    columns: Mapping[str, Cells]

    def __attrs_post_init__(self) -> None:
        """Raise ``ValueError`` if the columns differ in length."""
        lengths = {name: len(cells) for name, cells in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"its columns have different lengths: {lengths}")

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return next((len(cells) for cells in self.columns.values()), 0)


def user_table(table: ArrowObject, what: str) -> UserTable:
    """Return a table, batch, reader, pandas ``DataFrame``, dict of columns or list of dicts by its columns.

    Raises:
        StateTableError: it is none of these; the message begins with ``what``.
    """
    found: UserTable = _converted(table, what, _user_table)
    return found


def arrow_table(table: object, what: str) -> pa.Table:
    """Return a table, record batch, reader, pandas ``DataFrame`` or dict of columns as an Arrow table.

    Raises:
        StateTableError: it is none of these; the message begins with ``what``.
    """
    return _converted(table, what, _arrow_table)


def _converted(table: ArrowObject, what: str, convert: Callable[[ArrowObject], T]) -> T:
    try:
        return convert(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise StateTableError(f"{what}: {safe_repr(table)} cannot be made an Arrow table: {error}") from error


def _user_table(table: ArrowObject) -> UserTable:
    if isinstance(table, Mapping):
        return UserTable(list(table), {name: _cells(given) for name, given in table.items()})
    if isinstance(table, list):
        return _of_rows(table)
    if hasattr(table, "iloc"):
        return _of_frame(table)
    found = _arrow_table(table)
    columns = [column.combine_chunks() for column in found.columns]
    return UserTable(found.column_names, dict(zip(found.column_names, columns, strict=True)))


def _cells(given: object) -> Cells:
    if isinstance(given, (list, tuple)):
        return list(map(_plain, given))
    if isinstance(given, (str, bytes)):
        raise TypeError(f"a column is a list of values, not {safe_repr(given)}")
    array = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _plain(cell: object) -> object:
    return cell.item() if isinstance(cell, np.generic) else cell


def _of_rows(rows: list[Any]) -> UserTable:
    if not all(isinstance(row, Mapping) for row in rows):
        raise TypeError(_KINDS)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return UserTable(names, {name: [_plain(row.get(name)) for row in rows] for name in names})


def _of_frame(frame: ArrowObject) -> UserTable:
    if not frame.columns.is_unique:
        raise ValueError("it has a column twice")
    return UserTable(list(frame.columns), {name: _of_series(frame[name]) for name in frame.columns})


def _of_series(series: ArrowObject) -> Cells:
    """Return a column of pandas, in which NaN stands for no value."""
    if series.dtype == object:
        return [None if cell != cell else cell for cell in map(_comparable, series)]
    return _cells(pa.Array.from_pandas(series))


def _comparable(cell: object) -> Any:
    return cell.tolist() if isinstance(cell, np.ndarray) else cell


def _arrow_table(table: object) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "to_arrow"):  # a StateTable, or a table of another library
        return _arrow_table(table.to_arrow())
    if hasattr(table, "read_all"):
        return table.read_all()
    if isinstance(table, Mapping):
        return pa.table(dict(table))
    if not hasattr(table, "iloc"):
        raise TypeError(_KINDS)
    return pa.Table.from_pandas(table, preserve_index=False)


# --- values --------------------------------------------------------------------------------------------


def python_cells(cells: Cells) -> list[Any]:
    """Return the cells of a column as Python has them."""
    found: list[Any] = cells if isinstance(cells, list) else cells.to_pylist()
    return found


def shaped(type_info: TypeInformation, cells: Cells, pickled: Shape) -> Iterator[TypedValue]:
    """Yield the values of cells. Cells that match no value are passed through; the type rejects them.

    Args:
        type_info: the type of the values.
        cells: the column.
        pickled: what becomes of values without a declared type, and of such parts of others.

    Raises (when it is read):
        StateTableError: a string is not a number, or ``pickled`` refuses a value.

    >>> from pyflinkstate.api.types import Types
    >>> pair = Types.TUPLE([Types.STRING(), Types.BIG_DEC()])
    >>> list(shaped(pair, [{"f0": "a", "f1": "1.50"}], repr))
    [('a', Decimal('1.50'))]
    """
    for cell in python_cells(cells):
        try:
            value = _value_of(type_info, cell, pickled)
        except (ValueError, TypeError, decimal.InvalidOperation) as error:
            raise StateTableError(f"{safe_repr(cell)} does not fit {type_info}: {error}") from error
        yield value


def _value_of(type_info: TypeInformation, cell: Any, pickled: Shape) -> TypedValue:
    parts = type_info.parts()
    if isinstance(type_info, ExternalTypeInfo):
        return _value_of(parts[0], cell, pickled)
    if cell is None:
        return None
    if isinstance(type_info, PickledBytesTypeInfo):
        return pickled(cell)
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)):
        elements = _comparable(cell)
        is_list = isinstance(elements, (list, tuple))
        return [_value_of(parts[0], one, pickled) for one in elements] if is_list else elements
    if isinstance(type_info, MapTypeInfo):
        return _map_of(parts, dict(cell) if isinstance(cell, list) else cell, pickled)
    if isinstance(type_info, TupleTypeInfo):
        names = [field.name for field in arrow_type(type_info)]
        is_struct = isinstance(cell, Mapping) and set(cell) == set(names)
        return _tuple_of(parts, [cell[name] for name in names] if is_struct else cell, pickled)
    if isinstance(type_info, RowTypeInfo):
        return _row_of(type_info, cell, pickled)
    return value_of_cell(type_info)(cell)


def _map_of(parts: Sequence[TypeInformation], cell: object, pickled: Shape) -> TypedValue:
    if not isinstance(cell, Mapping):
        return cell
    of_key, of_item = parts
    return {_value_of(of_key, key, pickled): _value_of(of_item, item, pickled) for key, item in cell.items()}


def _tuple_of(parts: Sequence[TypeInformation], fields: Any, pickled: Shape) -> TypedValue:
    if not isinstance(fields, (list, tuple)) or len(fields) != len(parts):
        return fields
    return tuple([_value_of(part, field, pickled) for part, field in zip(parts, fields, strict=True)])


def _row_of(type_info: RowTypeInfo, cell: object, pickled: Shape) -> TypedValue:
    """Return a row from a struct, a row, or as many fields; the struct may have the kind of row as well."""
    names, kind_name = type_info.field_names, arrow_type(type_info).field(0).name
    fields = cell
    if isinstance(cell, Row):
        fields = cell.as_dict() if names_of(cell) else list(cell)
    if isinstance(fields, (list, tuple)) and len(fields) == len(names):
        fields = dict(zip(names, fields, strict=True))
    if not isinstance(fields, Mapping) or set(fields) - {kind_name} != set(names):
        return cell
    kind = cell.get_row_kind() if isinstance(cell, Row) else RowKind(fields.get(kind_name) or 0)
    return row_of(
        [_value_of(part, fields[name], pickled) for part, name in zip(type_info.parts(), names, strict=True)],
        names,
        kind,
    )
