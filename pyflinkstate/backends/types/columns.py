"""Converts typed values to Arrow columns and back.

Every declared type has an Arrow type, so pyarrow, pandas or DuckDB can read a checkpoint without this
package. ``PICKLED_BYTE_ARRAY`` is a binary column of pickles. Loading pickles runs code, so they are loaded
only from the user's own checkpoint, and values of a declared type are never pickled.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.backends.types.atoms import WIDE_FLOAT
from pyflinkstate.backends.types.codec import FromArrow, ToArrow, walk
from pyflinkstate.backends.types.table import codec_of

#: The errors that :func:`encode_column` raises for a value that does not fit its type.
MISFITS = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def arrow_type(type_info: TypeInformation, float_type: pa.DataType = WIDE_FLOAT) -> pa.DataType:
    """Return the Arrow type of a column of ``type_info`` in a checkpoint.

    Args:
        type_info: the type.
        float_type: the Arrow type of ``FLOAT`` numbers; earlier files have ``NARROW_FLOAT``.
    """

    def arrow(visited: TypeInformation, parts: list[pa.DataType]) -> pa.DataType:
        return float_type if visited.kind == "FLOAT" else codec_of(visited).arrow(visited, parts)

    return walk(type_info, arrow)


def encode_column(type_info: TypeInformation, values: Sequence[TypedValue]) -> pa.Array:
    """Return ``values`` as an Arrow array of ``arrow_type(type_info)``."""
    to_arrow = walk(type_info, _to_arrow)
    if to_arrow is not None:
        values = [None if value is None else to_arrow(value) for value in values]
    return pa.array(values, type=arrow_type(type_info))


def _to_arrow(type_info: TypeInformation, parts: list[ToArrow]) -> ToArrow:
    return codec_of(type_info).to_arrow(type_info, parts)


def decode_column(type_info: TypeInformation, array: pa.Array) -> list[TypedValue]:
    """Return the values that were passed to :func:`encode_column`.

    Columns inside columns are decoded as columns, so that Arrow makes a Python object only once for each
    value.
    """
    return walk(type_info, _from_arrow)(array)


def _from_arrow(type_info: TypeInformation, parts: list[FromArrow]) -> FromArrow:
    decode = codec_of(type_info).from_arrow(type_info, parts)

    def with_nulls(array: pa.Array) -> list[TypedValue]:
        values = decode(array)
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            return [value if there else None for value, there in zip(values, valid, strict=True)]
        return values

    return with_nulls
