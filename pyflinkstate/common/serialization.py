"""PyFlink's ``pyflink.common.serialization``."""

from pyflinkstate.api import (
    ByteArraySchema as ByteArraySchema,
    DeserializationSchema as DeserializationSchema,
    Encoder as Encoder,
    RowFieldExtractorSchema as RowFieldExtractorSchema,
    SerializationSchema as SerializationSchema,
    SimpleStringSchema as SimpleStringSchema,
)
