"""The keys of rows, as users of DataFrames name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import SelectKey
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.spark import row_batches

#: The name of a column, several names, or a function of the row.
KeyColumns: TypeAlias = "str | list[str] | tuple[str, ...] | SelectKey"


def columns_of(key: KeyColumns) -> list[str]:
    """Return the columns of a key; none if it is a function of the row.

    Raises:
        ConfigurationError: it is none of the three, or names no column.
    """
    if callable(key):
        return []
    names: list[Any] = list(key) if isinstance(key, (list, tuple)) else [key]
    if not names:
        raise ConfigurationError(
            f"key={key!r} names no column, so that all rows would have one key: give the names of columns, "
            f"or a function of the row"
        )
    # What else has several names may have no order, or be used up when it is looked at.
    if isinstance(key, Iterable) and not (isinstance(key, (str, list, tuple)) or _is_column(key)):
        raise ConfigurationError(
            f"key= takes the name of a column, a list of names or a function of the row, not {safe_repr(key)}"
        )
    for name in names:
        check_name("key=", name)
    return names


def check_name(option: str, name: object) -> None:
    """Check that a column is given by its name.

    Raises:
        ConfigurationError: it is a ``Column`` of Spark's, or anything else.
    """
    if _is_column(name):
        told = str(name).removeprefix("Column<'").removesuffix("'>")
        raise ConfigurationError(f"{option} is the name of a column, not a Column: {told!r}")
    if not isinstance(name, str):
        raise ConfigurationError(
            f"{option} is the name of a column, or a function of the row, not {safe_repr(name)}"
        )


def _is_column(name: object) -> bool:
    return type(name).__name__ == "Column" and type(name).__module__.startswith("pyspark.")


def selector(key: KeyColumns, columns: list[str] | None, of: str = "") -> SelectKey:
    """Return what selects the key of a row.

    Args:
        key: the key.
        columns: the columns of the rows, if they are known.
        of: where the rows come from, for the error.

    Raises:
        ConfigurationError: there is no such column.
    """
    if callable(key):
        return key
    names = columns_of(key)
    missing = [name for name in names if columns is not None and name not in columns]
    if missing:
        where = f"{of}: " if of else ""
        raise ConfigurationError(
            f"{where}there is no column {missing[0]!r}; the columns are {', '.join(columns or ())}"
        )
    return row_batches.ColumnKey(tuple(names))
