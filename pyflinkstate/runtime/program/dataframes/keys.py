"""The keys of rows, as users of DataFrames name them."""

from __future__ import annotations

from typing import TypeAlias

from pyflinkstate.api.values import SelectKey
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.spark import arrow

#: The name of a column, several names, or a function of the row.
Key: TypeAlias = "str | list[str] | SelectKey"


def columns_of(key: Key) -> list[str]:
    """Return the columns of a key; none if it is a function of the row."""
    if callable(key):
        return []
    return [key] if isinstance(key, str) else list(key)


def selector(key: Key, columns: list[str] | None, of: str = "") -> SelectKey:
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
    return arrow.ColumnKey(tuple(names))
