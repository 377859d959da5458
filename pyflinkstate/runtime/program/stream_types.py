"""The types of the records in streams."""

from __future__ import annotations

from collections.abc import Iterable

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import (
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from pyflinkstate.api.values import Record
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators import Projection
from pyflinkstate.runtime.plan import WATERMARKS, ChainNode, Node, PartitionNode, StatefulNode, UnionNode

#: Stateless operators that pass records on unchanged.
_KEEPS_TYPE = frozenset({"filter", WATERMARKS})


def type_of(node: Node) -> TypeInformation:
    """Return the declared type of a node's results, or the pickled type if there is none."""
    projections: list[Projection] = []
    while (before := _has_type_of(node)) is not None:
        if isinstance(node, ChainNode) and isinstance(node.function, Projection):
            projections.append(node.function)
        node = before
    found: TypeInformation = getattr(node, "output_type", None) or Types.PICKLED_BYTE_ARRAY()
    for projection in reversed(projections):
        found = _projected(found, projection.indexes)
    return found


def _has_type_of(node: Node) -> Node | None:
    """Return the node whose results have the same type, or from which some fields are kept."""
    if isinstance(node, UnionNode):
        return node.parents[0]
    if isinstance(node, PartitionNode):
        return node.parent
    if getattr(node, "output_type", None) is not None:
        return None
    if isinstance(node, StatefulNode):
        return node.parent if node.keeps_type else None
    if isinstance(node, ChainNode):
        keeps = node.kind in _KEEPS_TYPE or isinstance(node.function, Projection)
        return node.parent if keeps else None
    return None


def _projected(type_info: TypeInformation, indexes: tuple[int, ...]) -> TypeInformation:
    if not isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return Types.PICKLED_BYTE_ARRAY()
    fields = type_info.get_field_types()
    if max(indexes) >= len(fields):
        raise ConfigurationError(f"project({max(indexes)}): {type_info} has {len(fields)} fields, from 0")
    return Types.TUPLE([fields[index] for index in indexes])


def check_same_type(nodes: tuple[Node, ...]) -> None:
    """Raise ``ConfigurationError`` unless the streams of a union have the same type."""
    first = type_of(nodes[0])
    for node in nodes[1:]:
        if type_of(node) != first:
            raise ConfigurationError(
                f"Cannot union streams of different types: {first!r} and {type_of(node)!r}; map() with an "
                f"output_type gives them the same type"
            )


# --- conversion at a source -------------------------------------------------------------------


def converted_at_source(records: Iterable[Record], type_info: TypeInformation, operator: str) -> list[Record]:
    """Return records in the form of the type; a ``FLOAT`` is rounded to 32 bits.

    Raises:
        BadRecordError: a record does not fit the type.
    """
    converted = []
    for record in records:
        try:
            converted.append(type_info.rounded(type_info.check(record)))
        except ValueError as error:
            shown = safe_repr(record)
            raise BadRecordError(
                f"operator {operator!r}: a record does not fit type_info: {error}; record {shown}",
                operator=operator,
                record=shown,
            ) from None
    return converted
