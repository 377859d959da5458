"""PyFlink's ``pyflink.common.serialization``."""

from __future__ import annotations

from pyflinkstate.api.encoder import Encoder
from pyflinkstate.api.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    RowFieldExtractorSchema,
    SerializationSchema,
    SimpleStringSchema,
)

__all__ = [
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]
