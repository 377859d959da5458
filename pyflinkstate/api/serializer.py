"""How the namespaces of user-defined windows are written (``pyflink.common.serializer``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO, Generic

from pyflinkstate.api.type_variables import T


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
