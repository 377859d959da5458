"""NaN in what must be found again: in keys, and in namespaces.

NaN does not equal itself. A tuple or ``Row`` with NaN in it equals only one with the very same object, which
a copy or a restored value never is. Every access to a map whose keys may hold NaN asks for it, so this file
is compiled.
"""

from __future__ import annotations

from typing import Final

from pyflinkstate.api.row import Row
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue

#: The names of the types without parts that have no NaN.
_WITHOUT_NAN: Final = frozenset(
    {
        "BIG_INT",
        "BOOLEAN",
        "BYTE",
        "BYTES",
        "CHAR",
        "COUNT_WINDOW",
        "GLOBAL_WINDOW",
        "INSTANT",
        "INT",
        "LOCAL_DATE",
        "LOCAL_DATE_TIME",
        "LOCAL_TIME",
        "LONG",
        "SHORT",
        "SQL_DATE",
        "SQL_TIME",
        "SQL_TIMESTAMP",
        "STRING",
        "TIME_WINDOW",
    }
)


def may_hold_nan(type_info: TypeInformation) -> bool:
    """Return whether a value of a type may be NaN or have it as a part; True if that is not known."""
    if type_info.name in _WITHOUT_NAN:
        return False
    parts = type_info.parts()
    return not parts or any(may_hold_nan(part) for part in parts)


def refuse_nan(value: TypedValue) -> None:
    """Raise ``ValueError`` if a hashable value is NaN, or a tuple, ``Row`` or frozenset with NaN in it."""
    kind = type(value)
    if kind is str or kind is int:
        return
    if value != value:
        raise ValueError("NaN does not equal itself, so what is kept under it would never be found again")
    if kind is not float and isinstance(value, (tuple, frozenset, Row)):
        for part in value:
            refuse_nan(part)
