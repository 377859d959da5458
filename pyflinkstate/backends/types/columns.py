"""Arrow columns of Python values.

pyarrow's own conversion asks whether a value is one of pandas, and so loads pandas where that is installed:
0.3 s and 40 MiB of each slot. Until something else has loaded it, columns of common classes are put together
here. That takes up to three times as long, so large columns are worth pandas.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence, Sized
from itertools import chain
from types import NoneType

import attrs
import numpy as np
import pyarrow as pa

#: Columns of more values are left to pyarrow.
MOST_VALUES = 4096
#: The buffers behind the bitmap of nulls, and the children, of a column of values without None.
_Parts = tuple[list[pa.Buffer], list[pa.Array]]


@attrs.frozen
class _Way:
    """How columns of an Arrow type are put together.

    Attributes:
        kind: the class that all values must have.
        parts: returns the parts of a column.
    """

    kind: type
    parts: Callable[..., _Parts]


def column_of(values: Sequence[object], arrow: pa.DataType) -> pa.Array:
    """Return the array that ``pa.array(values, arrow)`` returns, and try to load no pandas."""
    if len(values) > MOST_VALUES or "pandas" in sys.modules:
        return pa.array(values, arrow)
    return put_together(values, arrow)


def put_together(values: Sequence[object], arrow: pa.DataType) -> pa.Array:
    """Return the array that ``pa.array(values, arrow)`` returns; it is called only if it must be."""
    kinds = set(map(type, values))
    has_none = NoneType in kinds
    kinds.discard(NoneType)
    if not kinds:
        return pa.nulls(len(values), arrow)
    way = _WAYS.get(arrow.id)
    if way is None or kinds != {way.kind}:
        return pa.array(values, arrow)
    validity, filled = None, values
    if has_none:
        validity = _bits([value is not None for value in values])
        none = (None,) * arrow.num_fields if way.kind is tuple else way.kind()
        filled = [none if value is None else value for value in values]
    try:
        buffers, children = way.parts(filled, arrow)
    except (OverflowError, ValueError):
        return pa.array(values, arrow)  # which says what does not fit
    return pa.Array.from_buffers(arrow, len(values), [validity, *buffers], children=children)


def _bits(values: Sequence[object]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.array(values, bool), bitorder="little"))


def _offsets(values: Sequence[Sized], kind: type[np.signedinteger] = np.int64) -> pa.Buffer:
    offsets = np.zeros(len(values) + 1, kind)
    np.cumsum(np.fromiter(map(len, values), kind, len(values)), out=offsets[1:])
    return pa.py_buffer(offsets)


def _numbers(code: str) -> Callable[[Sequence[int | float], pa.DataType], _Parts]:
    return lambda values, _: ([pa.py_buffer(array(code, values))], [])


def _texts(values: Sequence[str], arrow: pa.DataType) -> _Parts:
    text = "".join(values)
    if text.isascii():
        return [_offsets(values), pa.py_buffer(text.encode())], []
    return _binaries([value.encode() for value in values], arrow)


def _binaries(values: Sequence[bytes], _: pa.DataType) -> _Parts:
    return [_offsets(values), pa.py_buffer(b"".join(values))], []


def _structs(values: Sequence[tuple[object, ...]], arrow: pa.StructType) -> _Parts:
    columns = zip(arrow, zip(*values, strict=True), strict=True)
    return [], [put_together(column, field.type) for field, column in columns]


def _lists(values: Sequence[list[object]], arrow: pa.LargeListType) -> _Parts:
    return [_offsets(values)], [put_together([*chain.from_iterable(values)], arrow.value_type)]


def _maps(values: Sequence[list[object]], arrow: pa.MapType) -> _Parts:
    entry = pa.struct([arrow.key_field, arrow.item_field])
    return [_offsets(values, np.int32)], [put_together([*chain.from_iterable(values)], entry)]


_WAYS = {
    pa.bool_().id: _Way(bool, lambda values, _: ([_bits(values)], [])),
    pa.int8().id: _Way(int, _numbers("b")),
    pa.int16().id: _Way(int, _numbers("h")),
    pa.int32().id: _Way(int, _numbers("i")),
    pa.int64().id: _Way(int, _numbers("q")),
    pa.float64().id: _Way(float, _numbers("d")),
    pa.large_string().id: _Way(str, _texts),
    pa.large_binary().id: _Way(bytes, _binaries),
    pa.struct([]).id: _Way(tuple, _structs),
    pa.large_list(pa.null()).id: _Way(list, _lists),
    pa.map_(pa.int8(), pa.int8()).id: _Way(list, _maps),
}
