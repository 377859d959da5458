"""How typed values become Arrow columns, and come back.

A declared type has an Arrow type, so that a checkpoint can be read by pyarrow, pandas or DuckDB without
running any code of ours. ``PICKLED_BYTE_ARRAY`` is a binary column of pickles: loading it runs code, so it is
loaded only from the user's own checkpoint, and a declared type never goes through it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.backends.types.atoms import WIDE_FLOAT
from pyflinkstate.backends.types.codec import FromArrow, ToArrow, walk
from pyflinkstate.backends.types.table import codec_of


def arrow_type(type_info: TypeInformation, float_type: pa.DataType = WIDE_FLOAT) -> pa.DataType:
    """Return the Arrow type that a column of ``type_info`` has in a checkpoint.

    Args:
        type_info: the type.
        float_type: what ``FLOAT`` numbers have; earlier files have ``NARROW_FLOAT``.
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
    """Return the values that :func:`encode_column` was given.

    Columns inside columns are decoded as columns: a Python object is made once, by Arrow, for each value.
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
