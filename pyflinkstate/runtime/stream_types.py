"""What type the records of a stream have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pyflinkstate.api.row import Row
from pyflinkstate.api.types import (
    ArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.chain import WATERMARKS
from pyflinkstate.runtime.failures import shorten
from pyflinkstate.runtime.keyed_functions import Projection
from pyflinkstate.runtime.plan import ChainNode, KeyedNode, Node, UnionNode

#: Operators without state that give the records that they get.
_KEEPS_TYPE = frozenset({"filter", WATERMARKS})


def type_of(node: Node) -> TypeInformation:
    """Return the type of a node's results: the declared one, else pickled."""
    if isinstance(node, UnionNode):
        return type_of(node.parents[0])
    declared: TypeInformation | None = getattr(node, "output_type", None)
    if declared is not None:
        return declared
    if isinstance(node, KeyedNode) and node.keeps_type:
        return type_of(node.parent)
    if isinstance(node, ChainNode):
        if node.kind in _KEEPS_TYPE:
            return type_of(node.parent)
        if isinstance(node.function, Projection):
            return _projected(type_of(node.parent), node.function.indexes)
    return Types.PICKLED_BYTE_ARRAY()


def _projected(type_info: TypeInformation, indexes: tuple[int, ...]) -> TypeInformation:
    if not isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return Types.PICKLED_BYTE_ARRAY()
    fields = type_info.get_field_types()
    if max(indexes) >= len(fields):
        raise ConfigurationError(f"project({max(indexes)}): {type_info} has {len(fields)} fields, from 0")
    return Types.TUPLE([fields[index] for index in indexes])


def check_same_type(nodes: tuple[Node, ...]) -> None:
    """Raise ``ConfigurationError`` unless the streams that are to be one have one type."""
    first = type_of(nodes[0])
    for node in nodes[1:]:
        if type_of(node) != first:
            raise ConfigurationError(
                f"Cannot union streams of different types: {first!r} and {type_of(node)!r}; map() with an "
                f"output_type makes them alike"
            )


# --- what a source does to records -------------------------------------------------------------------

#: Rounds the numbers in a value; None where the type has none of 32 bits.
_Round = Callable[[Any], Any] | None


def converted_at_source(records: Iterable[Any], type_info: TypeInformation, operator: str) -> list[Any]:
    """Return records as the type has them; a ``FLOAT`` is rounded to 32 bits here, and nowhere else.

    Raises:
        BadRecordError: one does not fit.
    """
    round_floats = _rounding(type_info)
    converted = []
    for record in records:
        try:
            value = type_info.check(record)
        except ValueError as error:
            raise BadRecordError(
                f"operator {operator!r}: a record does not fit type_info: {error}; record {shorten(record)}",
                operator=operator,
                record=shorten(record),
            ) from None
        converted.append(value if round_floats is None else round_floats(value))
    return converted


def _rounding(type_info: TypeInformation) -> _Round:
    if type_info.kind:
        return _to_32_bits if type_info.kind == "FLOAT" else None
    if isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return _rounding_of_fields(type_info)
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)):
        part = _rounding(type_info.element_type)
        return None if part is None else lambda value: [_unless_none(part, item) for item in value]
    if isinstance(type_info, MapTypeInfo):
        key, item = _rounding(type_info.key_type_info), _rounding(type_info.value_type_info)
        if key is None and item is None:
            return None
        return lambda value: {_unless_none(key, k): _unless_none(item, v) for k, v in value.items()}
    return None


def _rounding_of_fields(type_info: TupleTypeInfo | RowTypeInfo) -> _Round:
    parts = {index: part for index, field in enumerate(type_info.field_types) if (part := _rounding(field))}
    if not parts:
        return None

    def of_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(_unless_none(parts.get(index), item) for index, item in enumerate(value))

    def of_row(row: Row) -> Row:
        for index, part in parts.items():
            row[index] = _unless_none(part, row[index])
        return row

    return of_row if isinstance(type_info, RowTypeInfo) else of_tuple


def _unless_none(convert: _Round, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _to_32_bits(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))
