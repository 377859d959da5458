"""How records and windows become bytes, or lines of text, and back (``pyflink.common.serialization``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, Generic

import attrs

from pyflinkstate.api.checks import at_least
from pyflinkstate.api.row import Row
from pyflinkstate.api.values import IN, OUT, T
from pyflinkstate.errors import BadRecordError, ConfigurationError


class SerializationSchema(ABC, Generic[IN]):
    """Converts records to bytes, for a sink of bytes (Flink: ``SerializationSchema``)."""

    @abstractmethod
    def serialize(self, element: IN, /) -> bytes:
        """Return the bytes of a record, or raise ``BadRecordError``."""


class DeserializationSchema(ABC, Generic[OUT]):
    """Converts the bytes of a source to records (Flink: ``DeserializationSchema``)."""

    @abstractmethod
    def deserialize(self, message: bytes, /) -> OUT:
        """Return the record of some bytes, or raise ``BadRecordError``."""


def check_charset(where: str, charset: str) -> None:
    """Raise ``ConfigurationError`` unless a charset has this name; ``base64`` is another kind of codec."""
    try:
        "".encode(charset)
    except (LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{where}: no charset {charset!r}: name one, such as 'UTF-8'") from error


def _has_charset(schema: object, _: object, charset: str) -> None:
    check_charset(type(schema).__name__, charset)


@attrs.frozen
class SimpleStringSchema(SerializationSchema[str], DeserializationSchema[str]):
    """Strings as bytes in a charset. Characters that it lacks become ``?``, or U+FFFD, as in Java.

    Args:
        charset: the name of a charset, ``UTF-8`` by default.

    Raises:
        ConfigurationError: there is no charset of that name.

    >>> SimpleStringSchema().serialize("né"), SimpleStringSchema("ascii").deserialize(b"abc")
    (b'n\\xc3\\xa9', 'abc')
    """

    charset: str = attrs.field(default="UTF-8", validator=_has_charset)

    def serialize(self, element: str) -> bytes:
        """Return the bytes of a string; ``BadRecordError`` if the value is not a string."""
        if not isinstance(element, str):
            raise BadRecordError(f"SimpleStringSchema takes a str, not {element!r}")
        return element.encode(self.charset, "replace")

    def deserialize(self, message: bytes) -> str:
        """Return the string of some bytes."""
        return bytes(message).decode(self.charset, "replace")


@attrs.frozen
class ByteArraySchema(SerializationSchema[bytes], DeserializationSchema[bytes]):
    """Bytes as they are.

    >>> ByteArraySchema().deserialize(b"ab")
    b'ab'
    """

    def serialize(self, element: bytes) -> bytes:
        """Return the bytes; raise ``BadRecordError`` if the value is not bytes."""
        if not isinstance(element, (bytes, bytearray)):
            raise BadRecordError(f"ByteArraySchema takes bytes, not {element!r}")
        return bytes(element)

    def deserialize(self, message: bytes) -> bytes:
        """Return the bytes."""
        return bytes(message)


def _field_index(index: int) -> int:
    return at_least("RowFieldExtractorSchema: the index of a field", index, 0)


@attrs.frozen
class RowFieldExtractorSchema(SerializationSchema[Row]):
    """The bytes of one field of a row, such as the key with which a record is sent.

    Args:
        field_index: which field, from 0; it must hold bytes.

    Raises:
        ConfigurationError: the index is not a whole number of at least 0.

    >>> RowFieldExtractorSchema(1).serialize(Row("a", b"key"))
    b'key'
    """

    field_index: int = attrs.field(converter=_field_index)

    def serialize(self, element: Row) -> bytes:
        """Return the bytes of the field, which are empty if the row or the field is None.

        Raises:
            BadRecordError: the row has no such field, or the field does not hold bytes.
        """
        if element is None:
            return b""
        try:
            value = element[self.field_index]
        except (IndexError, KeyError, TypeError) as error:
            raise BadRecordError(f"there is no field {self.field_index} in {element!r}") from error
        if value is None:
            return b""
        if not isinstance(value, (bytes, bytearray)):
            raise BadRecordError(f"field {self.field_index} of {element!r} holds no bytes; convert it before")
        return bytes(value)


@attrs.frozen
class Encoder:
    """Writes each record as one line of text, as ``print()`` shows it.

    Raises:
        ConfigurationError: no charset has that name.
    """

    charset_name: str = attrs.field(default="UTF-8", validator=_has_charset)

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder of lines of text."""
        return Encoder(charset_name)


class TypeSerializer(ABC, Generic[T]):
    """Writes elements of one type to a stream of bytes, and reads them again."""

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write ``element`` to ``stream``."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Return the element that comes next in ``stream``."""


class VoidNamespaceSerializer(TypeSerializer[bytes]):
    """Writes the void namespace, that of state without windows, as no bytes at all."""

    def serialize(self, element: bytes, stream: BinaryIO) -> None:
        stream.write(b"")

    def deserialize(self, stream: BinaryIO) -> bytes:
        return b""
