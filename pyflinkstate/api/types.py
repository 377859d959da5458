"""Type information: what a state, a key or a field holds, checked when a value arrives.

Names are PyFlink's (``pyflink.common.typeinfo``). :class:`Types` makes types; their classes are defined in
``basic_types`` and ``composite_types``, and this module exports them too.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence

from pyflinkstate.api.basic_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    OutputType,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    integer_bounds,
)
from pyflinkstate.api.composite_types import (
    ArrayTypeInfo,
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    check_type,
    declared_type,
)
from pyflinkstate.api.time import Instant
from pyflinkstate.api.values import K, T, V

__all__ = [
    "ArrayTypeInfo",
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "OutputType",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "check_type",
    "declared_type",
    "integer_bounds",
]


class Types:
    """Makes type information, under PyFlink's names (``pyflink.common.Types``)."""

    @staticmethod
    def BOOLEAN() -> TypeInformation[bool]:
        """``bool``."""
        return BasicTypeInfo("BOOLEAN")

    @staticmethod
    def BYTE() -> TypeInformation[int]:
        """An 8-bit ``int``, -128 to 127."""
        return BasicTypeInfo("BYTE")

    @staticmethod
    def SHORT() -> TypeInformation[int]:
        """A 16-bit ``int``."""
        return BasicTypeInfo("SHORT")

    @staticmethod
    def INT() -> TypeInformation[int]:
        """A 32-bit ``int``."""
        return BasicTypeInfo("INT")

    @staticmethod
    def LONG() -> TypeInformation[int]:
        """A 64-bit ``int``."""
        return BasicTypeInfo("LONG")

    @staticmethod
    def FLOAT() -> TypeInformation[float]:
        """``float``.

        Keys, and records that a source converts, are rounded to 32 bits; state values are not.
        """
        return BasicTypeInfo("FLOAT")

    @staticmethod
    def DOUBLE() -> TypeInformation[float]:
        """``float``; an ``int`` is converted."""
        return BasicTypeInfo("DOUBLE")

    @staticmethod
    def CHAR() -> TypeInformation[str]:
        """``str`` of one character."""
        return BasicTypeInfo("CHAR")

    @staticmethod
    def STRING() -> TypeInformation[str]:
        """``str`` without lone surrogates."""
        return BasicTypeInfo("STRING")

    @staticmethod
    def BIG_INT() -> TypeInformation[int]:
        """``int`` of any size."""
        return BasicTypeInfo("BIG_INT")

    @staticmethod
    def BIG_DEC() -> TypeInformation[decimal.Decimal]:
        """``decimal.Decimal``."""
        return BasicTypeInfo("BIG_DEC")

    @staticmethod
    def INSTANT() -> TypeInformation[Instant]:
        """``Instant``: a point in time, to the nanosecond."""
        return InstantTypeInfo()

    @staticmethod
    def SQL_DATE() -> TypeInformation[datetime.date]:
        """``datetime.date``."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation[datetime.time]:
        """``datetime.time`` without a time zone, to the microsecond."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation[datetime.datetime]:
        """``datetime.datetime`` without a time zone, to the microsecond."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any picklable object; the default if no type is declared."""
        return PickledBytesTypeInfo()

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``bytes`` for ``Types.BYTE()``, else a list of numbers, booleans or characters."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation[T]) -> TypeInformation[list[T]]:
        """A list of numbers, booleans, characters or strings; None is a legal element."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation[T]) -> TypeInformation[list[T]]:
        """A list of elements of any type; None is a legal element."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def LIST(element_type_info: TypeInformation[T]) -> TypeInformation[list[T]]:
        """A list of one element type."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def MAP(
        key_type_info: TypeInformation[K], value_type_info: TypeInformation[V]
    ) -> TypeInformation[dict[K, V]]:
        """A dict of one key type and one value type."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """A tuple of fixed field types."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A ``Row`` of fixed field types, whose fields are called ``f0``, ``f1`` ..."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A ``Row`` of fixed field names and types."""
        return RowTypeInfo(field_types, field_names)
