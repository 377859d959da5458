"""NaN in what must be found again: in keys, and in namespaces.

NaN does not equal itself. A tuple or ``Row`` with NaN in it equals only one with the very same object, which
a copy or a restored value never is. Every access to a map whose keys may hold NaN asks for it, so this file
is compiled.
"""

from __future__ import annotations

from pyflinkstate.api import Row, TypedValue


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
