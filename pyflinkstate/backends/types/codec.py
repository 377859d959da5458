"""Codecs: what a backend knows about one type, and the one function that walks types.

Most properties of a type with parts follow from those of its parts: a list becomes an Arrow list of what its
elements become. So the functions of a :class:`Codec` do not look into the parts themselves. They get the
results for each part, and :func:`walk` is the only place that goes from a type to its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs
import pyarrow as pa

from pyflinkstate.api import TypedValue, TypeInformation
from pyflinkstate.backends.values import own_copy

R = TypeVar("R")

#: Turns a value into another one.
Convert = Callable[[Any], Any]
#: Turns a value into one that Arrow takes; None if Arrow takes it as it is.
ToArrow = Convert | None
#: Returns the values of a column; the result for a null is ignored.
FromArrow = Callable[[pa.Array], list[Any]]
#: Makes an independent copy of a value; None means that it cannot change in place.
Copy = Convert | None
#: Checks a value that is to replace a stored one, or None; raises ``ValueError``.
Recheck = Callable[[Any, Any], object]
#: Returns the Java hash code of a key; None if values cannot be keys.
JavaHash = Callable[[Any], int]
#: Returns the text of a value that is not None.
Show = Callable[[Any], str]


def unchanged(value: TypedValue) -> TypedValue:
    """Return ``value``. A conversion that is this very function can be skipped."""
    return value


def in_order(was: TypeInformation, now: TypeInformation) -> list[int | None]:
    """Match the parts of two types by their places; raise ``ValueError`` if their numbers differ."""
    before, after = len(was.parts()), len(now.parts())
    if before != after:
        raise ValueError(f"{was} has {before} fields, and {now} has {after}, without names to tell which")
    return list(range(after))


def walk(type_info: TypeInformation, visit: Callable[[TypeInformation, list[R]], R]) -> R:
    """Call ``visit`` with a type and its results for the parts, innermost first; return the result.

    >>> from pyflinkstate.api.types import Types
    >>> walk(Types.LIST(Types.TUPLE([Types.LONG()])), lambda type_info, parts: 1 + max(parts, default=0))
    3
    """
    return visit(type_info, [walk(part, visit) for part in type_info.parts()])


def column_values(array: pa.Array) -> list[Any]:
    """Return the same as ``to_pylist``, several times as fast for the most frequent types."""
    arrow = array.type
    numeric = pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    is_text = pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow)
    is_quick = is_text or (numeric and not array.null_count)
    values: list[object] = array.to_numpy(zero_copy_only=False).tolist() if is_quick else array.to_pylist()
    return values


@attrs.frozen
class WrittenForm:
    """How values of a type are written as a string, where they are not written as JSON.

    Attributes:
        example: a value that is written so.
        read: returns the value, or raises ``ValueError`` or ``ArithmeticError``.
    """

    example: str
    read: Callable[[str], TypedValue]


@attrs.frozen(kw_only=True)
class Codec:
    """All that a backend needs to know about a type besides its check.

    If a function takes a sequence, it holds the results of the same function for each part, in order. The
    argument before it is the type itself.

    Attributes:
        name: the name of the type in a checkpoint.
        arrow: the Arrow type of its columns.
        to_arrow: returns the function that turns a value into one that Arrow takes.
        from_arrow: returns the function that turns a column into values.
        copier: returns the function that copies a value, made of those that copy its parts.
        makes_new: whether ``check`` returns a new value if values can change; the parts' codecs say so for
            them.
        recheck: returns the function that checks a value but skips what is already stored, or None if all of
            it must be checked. The last arguments say whether the parts of a value cannot change in place,
            and whether ``check`` makes all of a value anew that can.
        java_hash: returns the function that hashes a key, or None if values cannot be keys.
        hash_version: the version since which the hash has been the same; see ``KEY_HASH_VERSION``.
        text: returns the function that prints a value as Flink does.
        is_composite: whether a checkpoint writes the parts too.
        details: returns what a checkpoint writes between the name of the type and its parts.
        detail_count: how many details there are.
        make: returns the type with these details and parts; None if no checkpoint has such a type.
        may_become: the names of other types to which it may migrate; all of its values fit those as they are.
        places: returns, for each part of the requested type, the place of the old part that becomes it, or
            None if the part is new; raises ``ValueError`` if that cannot be told.
        converted: returns the function that converts a value to the requested type, from both types, the
            places and the functions that convert the parts; ``unchanged`` if values stay as they are. None if
            the parts cannot change.
        key_parts: how many of the first parts are keys, by which values are looked up.
        may_be_nan: whether a value, apart from its parts, may be NaN.
        written: how a key is written on the command line; None if it is written as JSON.
        value_of_cell: converts the cell of a user's table that has the form of the Arrow column.
        exact: the only class that values have, if ``check`` returns each value of that class unchanged.
    """

    name: str
    arrow: Callable[[Any, Sequence[pa.DataType]], pa.DataType]
    to_arrow: Callable[[Any, Sequence[ToArrow]], ToArrow] = lambda _, parts: None
    from_arrow: Callable[[Any, Sequence[FromArrow]], FromArrow] = lambda _, parts: column_values
    copier: Callable[[Sequence[Copy]], Copy] = lambda parts: own_copy
    makes_new: bool = True
    recheck: Callable[[Any, Sequence[Recheck | None], bool, bool], Recheck | None] = lambda _, parts, *how: (
        None
    )
    java_hash: Callable[[Any, Sequence[JavaHash | None]], JavaHash | None] = lambda _, parts: None
    hash_version: int = 1
    text: Callable[[Any, Sequence[Show]], Show] = lambda _, parts: str
    is_composite: bool = False
    details: Callable[[Any], tuple[TypedValue, ...]] = lambda _: ()
    detail_count: int = 0
    make: Callable[..., TypeInformation] | None = None
    may_become: frozenset[str] = frozenset()
    places: Callable[[Any, Any], list[int | None]] = in_order
    converted: Callable[[Any, Any, Sequence[int | None], Sequence[Convert]], Convert] | None = None
    key_parts: int = 0
    may_be_nan: bool = False
    written: WrittenForm | None = None
    value_of_cell: Convert = unchanged
    exact: type | None = None
