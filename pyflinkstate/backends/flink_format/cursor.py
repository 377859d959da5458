"""A cursor over bytes that others wrote: the one place that decides whether something may be read.

Lengths and counts in a savepoint may lie. Each read goes through :meth:`Reader.advance`, which compares a
length with the bytes that are left before anything is allocated. Every element that is counted takes at least
one byte, so :meth:`Reader.count` refuses a count that is greater than the number of bytes left.

All numbers are big-endian. mypyc compiles this file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError

if TYPE_CHECKING:
    from mypy_extensions import i64

_SIGNED: Final = struct.Struct(">q")


class Reader:
    """Reads ``data`` from ``at`` to before ``end``.

    Args:
        data: the bytes.
        origin: where they begin in their file, for messages.
    """

    __slots__ = ("at", "data", "end", "origin")

    def __init__(self, data: bytes, origin: int = 0) -> None:
        self.data = data
        self.at: i64 = 0
        self.end: i64 = len(data)
        self.origin = origin

    def damaged(self, problem: str) -> CorruptCheckpointError:
        """Return the error for a problem at the current position."""
        offset = self.origin + self.at
        return CorruptCheckpointError(f"at byte {offset}: {problem}", offset=offset)

    def advance(self, size: i64) -> i64:
        """Go past ``size`` bytes, and return the position of the first of them.

        Raises:
            CorruptCheckpointError: fewer bytes are left.
        """
        at = self.at
        left = self.end - at
        if size < 0 or size > left:
            raise self.damaged(f"{size} bytes are needed, and {left} are left")
        self.at = at + size
        return at

    def take(self, size: i64) -> bytes:
        """Return the next ``size`` bytes."""
        at = self.advance(size)
        return self.data[at : at + size]

    def rest(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(self.end - self.at)

    def byte(self) -> i64:
        """Return the next byte."""
        return self.data[self.advance(1)]

    def unsigned(self, size: i64) -> i64:
        """Return a number of ``size`` bytes, at most 4. A negative length becomes too large a one."""
        at = self.advance(size)
        data = self.data
        number: i64 = 0
        for place in range(at, at + size):
            number = number << 8 | data[place]
        return number

    def long(self) -> int:
        """Return a signed number of 8 bytes."""
        number: int = _SIGNED.unpack_from(self.data, self.advance(8))[0]
        return number

    def count(self) -> i64:
        """Return the number of the elements that follow, each of which takes at least one byte."""
        number = self.unsigned(4)
        if number > self.end - self.at:
            raise self.damaged(f"{number} elements are announced, and {self.end - self.at} bytes are left")
        return number

    def varint(self) -> i64:
        """Return a number in groups of 7 bits, the lowest first; the top bit says that more follow."""
        number: i64 = 0
        shift: i64 = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
            if shift > 28:
                raise self.damaged("a number has more than 32 bits")

    def utf(self) -> str:
        """Return a string that Java's ``writeUTF`` wrote."""
        encoded = self.take(self.unsigned(2)).replace(b"\xc0\x80", b"\0")
        units = encoded.decode("utf-8", "surrogatepass")
        return units.encode("utf-16", "surrogatepass").decode("utf-16")

    def expect(self, number: i64, problem: str) -> None:
        """Read a number of 4 bytes; raise ``CorruptCheckpointError`` if it is another one."""
        found = self.unsigned(4)
        if found != number:
            raise self.damaged(f"{problem}: {found} instead of {number}")

    def version(self, what: str, first: i64, last: i64) -> i64:
        """Read the version of something; raise ``IncompatibleCheckpointError`` if it is not one of these."""
        found = self.unsigned(4)
        if not first <= found <= last:
            known = f"version {last} is" if first == last else f"versions {first} to {last} are"
            raise IncompatibleCheckpointError(
                f"{what} has version {found}, and {known} read: take the savepoint with Flink 1.20 to 2.3",
                version=found,
                offset=self.origin + self.at,
            )
        return found

    def enter(self) -> i64:
        """Read a length, and end after as many bytes; return the end until now, for :meth:`leave`."""
        whole = self.end
        size = self.unsigned(4)
        begin = self.advance(size)
        self.at = begin
        self.end = begin + size
        return whole

    def leave(self, whole: i64) -> None:
        """End at ``whole`` again; raise ``CorruptCheckpointError`` if what was entered has more bytes."""
        if self.at != self.end:
            raise self.damaged(f"{self.end - self.at} bytes are left, which no value needs")
        self.end = whole


def varint(number: i64) -> bytes:
    """Return the bytes that :meth:`Reader.varint` reads."""
    if number < 0x80:
        return _SHORT[number]
    groups = []
    while number >= 0x80:
        groups.append(_SHORT[number & 0x7F | 0x80])
        number >>= 7
    groups.append(_SHORT[number])
    return b"".join(groups)


_SHORT: Final = [bytes([number]) for number in range(256)]


def four_bytes(*numbers: int) -> bytes:
    """Return numbers in 4 bytes each."""
    return b"".join([number.to_bytes(4, "big") for number in numbers])


def utf(text: str) -> bytes:
    """Return the bytes of Java's ``writeUTF``, which encodes each UTF-16 unit on its own.

    Raises:
        ValueError: there are more than 65,535.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    each = [chr(units[place] << 8 | units[place + 1]) for place in range(0, len(units), 2)]
    encoded = "".join(each).encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(encoded) > 0xFFFF:
        raise ValueError(f"a name of {len(encoded)} bytes is too long, Java allows 65535: {text[:50]}...")
    return len(encoded).to_bytes(2, "big") + encoded
