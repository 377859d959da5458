"""Spark's ``Row`` with the names in its class, which is made and asked several times as fast.

Spark keeps the list of names in each row, and looks a name up in it at each access. Here a row is a tuple
with a descriptor for each name, like that of a ``namedtuple``. In all else it is the same: names that a tuple
has already, such as ``count``, stay methods, and a pickle or a copy is a plain ``Row``.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

from pyspark.sql import Row

from pyflinkstate.api.values import Record

#: Makes a row of its values.
MakeRow = Callable[[Iterable[Any]], Record]


@lru_cache(maxsize=1000)
def row_maker(names: tuple[str, ...]) -> MakeRow:
    """Return the class of rows with these names; if a name occurs twice, it is that of the first field.

    >>> row = row_maker(("user", "n"))(("ann", 1))
    >>> row, row.user, row["n"], row[1], isinstance(row, Row)
    (Row(user='ann', n=1), 'ann', 1, 1, True)
    """
    positions = _positions(len(names))
    getters = vars(positions)  # they are empty as soon as garbage is collected and nobody holds the class
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    fields = {name: getters[f"at_{place}"] for name, place in places.items() if _is_free(name)}
    made = type("Row", (Row,), {**fields, "__fields__": list(names), "__module__": Row.__module__})
    return partial(tuple.__new__, made)


def _positions(count: int) -> type:
    return namedtuple("_Positions", [f"at_{place}" for place in range(count)])


def _is_free(name: str) -> bool:
    return not name.startswith("__") and not hasattr(Row, name)
