"""PyFlink's ``pyflink.common.typeinfo``."""

from pyflinkstate.api import (
    BasicArrayTypeInfo as BasicArrayTypeInfo,
    BasicType as BasicType,
    BasicTypeInfo as BasicTypeInfo,
    DateTypeInfo as DateTypeInfo,
    ExternalTypeInfo as ExternalTypeInfo,
    InstantTypeInfo as InstantTypeInfo,
    ListTypeInfo as ListTypeInfo,
    LocalTimeTypeInfo as LocalTimeTypeInfo,
    MapTypeInfo as MapTypeInfo,
    ObjectArrayTypeInfo as ObjectArrayTypeInfo,
    PickledBytesTypeInfo as PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo as PrimitiveArrayTypeInfo,
    RowTypeInfo as RowTypeInfo,
    SqlTimeTypeInfo as SqlTimeTypeInfo,
    TimestampTypeInfo as TimestampTypeInfo,
    TimeTypeInfo as TimeTypeInfo,
    TupleTypeInfo as TupleTypeInfo,
    TypeInformation as TypeInformation,
    Types as Types,
)
