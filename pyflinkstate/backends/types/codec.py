"""What a backend knows of one type, and the one way in which types are walked.

Most of what is to be known of a type with parts follows from what is known of its parts: a list becomes an
Arrow list of what its elements become. So the functions of a :class:`Codec` do not look into the parts
themselves. They are given what was found for each of them, and :func:`walk` is the only place that goes from
a type to its parts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue

R = TypeVar("R")

#: Turns a value into another one.
Convert = Callable[[TypedValue], TypedValue]
#: Turns a value into one that Arrow takes; None where it is one already.
ToArrow = Convert | None
#: Returns the values of a column; what stands for a null is not looked at.
FromArrow = Callable[[pa.Array], list[TypedValue]]
#: Makes an independent copy of a value; None says that it cannot change in place.
Copy = Convert | None
#: Checks a value that is to be stored in the place of another one, or of None; raises ``ValueError``.
Recheck = Callable[[TypedValue, TypedValue], TypedValue]
#: Returns the Java hash code of a key; None where values cannot be keys.
JavaHash = Callable[[TypedValue], int]
#: Makes the text of a value that is not None.
Show = Callable[[TypedValue], str]


def unchanged(value: TypedValue) -> TypedValue:
    """Return ``value``. Where a conversion is this very function, no value has to be looked at."""
    return value


def in_order(was: TypedValue, now: TypedValue) -> list[int | None]:
    """Return that each part of ``now`` is the one of ``was`` at the same place."""
    before, after = len(was.parts()), len(now.parts())
    if before != after:
        raise ValueError(f"{was} has {before} fields, and {now} has {after}, without names to tell which")
    return list(range(after))


def walk(type_info: TypeInformation, visit: Callable[[TypeInformation, list[R]], R]) -> R:
    """Return what ``visit`` gives for a type and what it gave for its parts, from the innermost out.

    >>> from pyflinkstate.api.types import Types
    >>> walk(Types.LIST(Types.TUPLE([Types.LONG()])), lambda type_info, parts: 1 + max(parts, default=0))
    3
    """
    return visit(type_info, [walk(part, visit) for part in type_info.parts()])


def column_values(array: pa.Array) -> list[TypedValue]:
    """Return what ``to_pylist`` does, several times as fast for the most frequent types."""
    arrow = array.type
    numeric = pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    if (
        (numeric and not array.null_count)
        or pa.types.is_large_string(arrow)
        or pa.types.is_large_binary(arrow)
    ):
        values: list[TypedValue] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    values = array.to_pylist()
    return values  # noqa: RET504 - mypy wants its type


@attrs.frozen(kw_only=True)
class Codec:
    """All that is to be known of a type beyond its check.

    Where a function takes a sequence, it has what the same function of each part's codec gave, in order. What
    comes before it is the type itself.

    Attributes:
        name: what a checkpoint calls the type.
        arrow: the Arrow type of its columns.
        to_arrow: what turns a value into one that Arrow takes.
        from_arrow: what turns a column into values.
        copier: what copies a value, of what copies its parts.
        makes_new: ``check`` gives a new value where values can change; of its parts their types say the same.
        recheck: what checks a value without looking again at what is stored already; None where all of it has
            to be checked. Its last argument says whether the parts of a value cannot change in place.
        java_hash: what gives a key's hash code; None where values cannot be keys.
        hash_version: since when the hash has been what it is; see ``KEY_HASH_VERSION``.
        text: what prints a value as Flink does.
        is_composite: a checkpoint writes the parts, too.
        details: what a checkpoint writes of the type between its name and its parts.
        detail_count: how many details there are.
        make: the type of these details and parts; None where a checkpoint has no such type.
        may_become: the names of other types that a program may ask for in its place. Values stay as they are:
            nothing that fits the type is refused by any of these.
        places: for each part of the type that is asked for the place of the part that becomes it, None where
            it is new; raises ``ValueError`` where that cannot be told.
        converted: what converts a value to the type that is asked for, of both types, places, and what
            converts the part that becomes each part; ``unchanged`` where nothing is to be done. None where
            the parts cannot change.
        key_parts: so many parts, from the first, are what values are found by.
    """

    name: str
    arrow: Callable[[TypedValue, Sequence[pa.DataType]], pa.DataType]
    to_arrow: Callable[[TypedValue, Sequence[ToArrow]], ToArrow] = lambda _, parts: None
    from_arrow: Callable[[TypedValue, Sequence[FromArrow]], FromArrow] = lambda _, parts: column_values
    copier: Callable[[Sequence[Copy]], Copy] = lambda parts: copy.deepcopy
    makes_new: bool = True
    recheck: Callable[[TypedValue, Sequence[Recheck | None], bool], Recheck | None] = lambda _, parts, flat: (
        None
    )
    java_hash: Callable[[TypedValue, Sequence[JavaHash | None]], JavaHash | None] = lambda _, parts: None
    hash_version: int = 1
    text: Callable[[TypedValue, Sequence[Show]], Show] = lambda _, parts: str
    is_composite: bool = False
    details: Callable[[TypedValue], tuple[TypedValue, ...]] = lambda _: ()
    detail_count: int = 0
    make: Callable[..., TypeInformation] | None = None
    may_become: frozenset[str] = frozenset()
    places: Callable[[TypedValue, TypedValue], list[int | None]] = in_order
    converted: Callable[[TypedValue, TypedValue, Sequence[int | None], Sequence[Convert]], Convert] | None = (
        None
    )
    key_parts: int = 0
