"""The bytes of values: one form for each way in which Flink's serializers write.

A form knows neither types nor class names: the serializers (``serializers.py``) say which type has which
form. Parts of a value are written one after the other, and only the form tells where one ends. mypyc compiles
this file, because each value of a savepoint goes through it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

from pyflinkstate.api import Row, RowKind, row_of
from pyflinkstate.backends.flink_format.cursor import Reader, varint

if TYPE_CHECKING:
    from mypy_extensions import i64

_SIZE: Final = struct.Struct(">I")
_SCALE: Final = struct.Struct(">i")

#: The length of values whose length varies.
VARIABLE: Final = -1


class Form:
    """How values of one type are written.

    Attributes:
        length: the length of each value in bytes as Flink states it (``TypeSerializer.getLength``);
            :data:`VARIABLE` if it varies.
    """

    length: int = VARIABLE

    def encode(self, value: object) -> bytes:
        """Return the bytes of a value; one that does not fit its type raises one of ``MISFITS``."""
        raise NotImplementedError

    def decode(self, source: Reader) -> object:
        """Return the value that is next; raise ``CorruptCheckpointError`` or ``ValueError``."""
        raise NotImplementedError


class Number(Form):
    """A number, or a boolean, as :mod:`struct` writes it."""

    def __init__(self, code: str) -> None:
        form = struct.Struct(f">{code}")
        self.length = form.size
        self._pack = form.pack
        self._unpack = form.unpack_from

    def encode(self, value: object) -> bytes:
        return self._pack(value)

    def decode(self, source: Reader) -> object:
        return self._unpack(source.data, source.advance(self.length))[0]


class Fields(Form):
    """A value made of a fixed number of numbers.

    Args:
        codes: how :mod:`struct` writes them.
        make: makes the value.
        fields: returns the numbers of a value.
        null: the numbers that stand for None, if any do.
        length: the length that Flink states, if it is another one.
    """

    def __init__(
        self,
        codes: str,
        make: Callable[..., object],
        fields: Callable[[object], tuple[object, ...]],
        null: tuple[int, ...] | None = None,
        length: int = VARIABLE,
    ) -> None:
        form = struct.Struct(f">{codes}")
        self.length = form.size if length < 0 else length
        self._size = form.size
        self._pack = form.pack
        self._unpack = form.unpack_from
        self._make = make
        self._fields = fields
        self._absent = null

    def encode(self, value: object) -> bytes:
        if value is None and self._absent is not None:
            return self._pack(*self._absent)
        return self._pack(*self._fields(value))

    def decode(self, source: Reader) -> object:
        numbers = self._unpack(source.data, source.advance(self._size))
        if numbers == self._absent:
            return None
        try:
            return self._make(*numbers)
        except (ArithmeticError, ValueError) as error:
            raise source.damaged(f"{numbers} is no value that Python has: {error}") from None


class Opaque(Form):
    """Values of an unknown serializer: all bytes that there are."""

    def encode(self, value: object) -> bytes:
        return cast(bytes, value)

    def decode(self, source: Reader) -> object:
        return source.rest()


class Text(Form):
    """A string: its number of UTF-16 units plus one, and each unit; None is a zero (``StringValue``)."""

    def encode(self, value: object) -> bytes:
        if value is None:
            return b"\0"
        text = cast(str, value)
        if text.isascii():
            return varint(len(text) + 1) + text.encode("ascii")
        units = text.encode("utf-16-be", "surrogatepass")
        chunks = [varint(units[place] << 8 | units[place + 1]) for place in range(0, len(units), 2)]
        return varint(len(chunks) + 1) + b"".join(chunks)

    def decode(self, source: Reader) -> object:
        size = source.varint() - 1
        if size < 0:
            return None
        at = source.at
        encoded = source.take(size)  # each unit takes at least one byte
        if encoded.isascii():
            return encoded.decode("ascii")
        source.at = at
        units = bytearray()
        for _ in range(size):
            unit: int = source.varint()
            units += unit.to_bytes(2, "big")
        return units.decode("utf-16-be")


class Bytes(Form):
    """Bytes after their number."""

    def encode(self, value: object) -> bytes:
        data = cast(bytes, value)
        return _SIZE.pack(len(data)) + data

    def decode(self, source: Reader) -> object:
        return source.take(source.unsigned(4))


class Mapped(Form):
    """A value that is written as one of another form.

    Args:
        form: the other form.
        load: makes the value of one of that form.
        dump: returns the value of that form.
    """

    def __init__(
        self, form: Form, load: Callable[[object], object], dump: Callable[[object], object]
    ) -> None:
        self.length = form.length
        self._form = form
        self._load = load
        self._dump = dump

    def encode(self, value: object) -> bytes:
        return self._form.encode(self._dump(value))

    def decode(self, source: Reader) -> object:
        return self._load(self._form.decode(source))


#: Integers that are written as 1, 2 and 3.
_SHORTCUTS: Final = [0, 1, 10]


class BigInteger(Form):
    """An integer: its length in bytes plus 4; less stands for None, 0, 1 and 10."""

    def encode(self, value: object) -> bytes:
        if value is None:
            return _SIZE.pack(0)
        number = cast(int, value)
        if number in _SHORTCUTS:
            return _SIZE.pack(_SHORTCUTS.index(number) + 1)
        size = (number if number > 0 else number + 1).bit_length() // 8 + 1
        return _SIZE.pack(size + 4) + number.to_bytes(size, "big", signed=True)

    def decode(self, source: Reader) -> object:
        size = source.unsigned(4)
        if size < 4:
            return None if size == 0 else _SHORTCUTS[size - 1]
        return int.from_bytes(source.take(size - 4), "big", signed=True)


class BigDecimal(BigInteger):
    """A decimal number: the digits as an integer, and how many of them are after the point."""

    def encode(self, value: object) -> bytes:
        if value is None:
            return super().encode(None)
        sign, digits, exponent = cast(Decimal, value).as_tuple()
        if not isinstance(exponent, int):
            raise ValueError(f"Java's BigDecimal has no {value}")
        return super().encode(int(Decimal((sign, digits, 0)))) + _SCALE.pack(-exponent)

    def decode(self, source: Reader) -> object:
        unscaled = super().decode(source)
        if unscaled is None:
            return None
        sign, digits, _ = Decimal(cast(int, unscaled)).as_tuple()
        return Decimal((sign, digits, -_SCALE.unpack_from(source.data, source.advance(4))[0]))


# --- many of one type ----------------------------------------------------------------------------------


class PrimitiveArray(Form):
    """Numbers after their number, all at once."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._size: i64 = struct.calcsize(f">{code}")

    def encode(self, value: object) -> bytes:
        items = cast(list[object], value)
        return struct.pack(f">I{len(items)}{self._code}", len(items), *items)

    def decode(self, source: Reader) -> object:
        number = source.unsigned(4)
        return list(
            struct.unpack_from(f">{number}{self._code}", source.data, source.advance(number * self._size))
        )


class List(Form):
    """Elements after their number."""

    def __init__(self, element: Form) -> None:
        self.element = element

    def encode(self, value: object) -> bytes:
        items, element = cast(list[object], value), self.element
        return _SIZE.pack(len(items)) + b"".join([element.encode(item) for item in items])

    def decode(self, source: Reader) -> object:
        element = self.element
        return [element.decode(source) for _ in range(source.count())]


class Map(Form):
    """Keys and values after their number; a byte before each value says whether it is None."""

    def __init__(self, key: Form, item: Form) -> None:
        self.key = key
        self.item = Nullable(item, b"\0", b"\1")

    def encode(self, value: object) -> bytes:
        entries = cast(dict[object, object], value)
        key, item = self.key, self.item
        chunks = [key.encode(name) + item.encode(entry) for name, entry in entries.items()]
        return _SIZE.pack(len(entries)) + b"".join(chunks)

    def decode(self, source: Reader) -> object:
        key, item = self.key, self.item
        return {key.decode(source): item.decode(source) for _ in range(source.count())}


class Blocks(Form):
    """Elements in blocks, each after its number; an empty block is the last one (Avro)."""

    def __init__(self, element: Form) -> None:
        self._element = element

    def encode(self, value: object) -> bytes:
        items = cast(list[object], value)
        chunks = [self._element.encode(item) for item in items]
        return b"".join([varint(len(items)), *chunks, b"\0"]) if items else b"\0"

    def decode(self, source: Reader) -> object:
        element = self._element
        found: list[object] = []
        while (number := source.varint()) > 0:
            found += [element.decode(source) for _ in range(number)]  # each takes at least one byte
        return found


# --- one of several types ------------------------------------------------------------------------------


class Nullable(Form):
    """A value or None, which the bytes before it tell.

    Args:
        part: the form of the value.
        some: the bytes before a value.
        none: the bytes in place of one, at least as many.
    """

    def __init__(self, part: Form, some: bytes, none: bytes) -> None:
        is_fixed = 0 <= part.length == len(none) - len(some)
        self.length = len(none) if is_fixed else VARIABLE
        self._part = part
        self._some = some
        self._none = none

    def encode(self, value: object) -> bytes:
        return self._none if value is None else self._some + self._part.encode(value)

    def decode(self, source: Reader) -> object:
        begin = source.take(len(self._some))
        if begin == self._some:
            return self._part.decode(source)
        if not self._none.startswith(begin):
            raise source.damaged(f"{begin.hex()} does not tell whether there is a value")
        source.advance(len(self._none) - len(begin))
        return None


class Tuple(Form):
    """Values of several types one after the other, as a tuple."""

    def __init__(self, parts: Sequence[Form]) -> None:
        lengths = [part.length for part in parts]
        self.length = VARIABLE if min(lengths) < 0 else sum(lengths)
        self._parts = list(parts)

    def encode(self, value: object) -> bytes:
        items = cast(tuple[object, ...], value)
        return b"".join([part.encode(item) for part, item in zip(self._parts, items, strict=True)])

    def decode(self, source: Reader) -> object:
        return tuple([part.decode(source) for part in self._parts])


def record(parts: Sequence[Form], names: tuple[str, ...]) -> Form:
    """Return the form of rows whose values are one after the other."""
    return Mapped(
        Tuple(parts),
        lambda fields: row_of(cast(tuple[object, ...], fields), names),
        lambda row: tuple(cast(Row, row)),
    )


class Fielded(Form):
    """A row: two bits for its kind, a bit for each field that is None, and the other fields."""

    def __init__(self, parts: Sequence[Form], names: tuple[str, ...]) -> None:
        self._parts = list(parts)
        self._names = names
        self._mask_size: i64 = (len(parts) + 2 + 7) // 8

    def encode(self, value: object) -> bytes:
        row: Row = cast(Row, value)
        fields: list[object] = row[:]
        parts = self._parts
        if len(fields) != len(parts):
            raise ValueError(f"{len(fields)} fields in the place of {len(parts)}")
        mask: int = _ROW_KINDS.index(row.get_row_kind())
        chunks = [b""]
        for place in range(len(parts)):
            item = fields[place]
            mask <<= 1
            if item is None:
                mask |= 1
            else:
                chunks.append(parts[place].encode(item))
        size: int = self._mask_size
        chunks[0] = (mask << size * 8 - len(fields) - 2).to_bytes(size, "big")
        return b"".join(chunks)

    def decode(self, source: Reader) -> object:
        at = source.advance(self._mask_size)
        data = source.data
        first: i64 = data[at]
        kind = _ROW_KINDS[first >> 6]
        fields: list[object] = []
        place: i64 = 2
        for part in self._parts:
            bit = data[at + (place >> 3)] >> (7 - (place & 7)) & 1
            fields.append(None if bit else part.decode(source))
            place += 1
        return row_of(fields, self._names, kind)


#: By the first two bits of a mask; the first one is the low bit of the kind.
_ROW_KINDS: Final = [RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.UPDATE_BEFORE, RowKind.DELETE]

_IS_NULL: Final = 1
_NO_SUBCLASS: Final = 2
_IS_SUBCLASS: Final = 4
_IS_TAGGED_SUBCLASS: Final = 8


class Pojo(Form):
    """An object of a Java class, as a row of its fields.

    Args:
        parts: the forms of the fields.
        names: their names.
        subclasses: the forms of the subclasses that were registered, in order.
        others: the forms of other subclasses, by their names.
    """

    def __init__(
        self,
        parts: Sequence[Form],
        names: tuple[str, ...],
        subclasses: Sequence[Form] = (),
        others: dict[str, Form] | None = None,
    ) -> None:
        self._own = record([Nullable(part, b"\0", b"\1") for part in parts], names)
        self._subclasses = list(subclasses)
        self._others = others or {}

    def encode(self, value: object) -> bytes:
        if value is None:
            return bytes([_IS_NULL])
        return bytes([_NO_SUBCLASS]) + self._own.encode(value)

    def decode(self, source: Reader) -> object:
        flags = source.byte()
        if flags == _IS_NULL:
            return None
        if flags == _NO_SUBCLASS:
            return self._own.decode(source)
        if flags == _IS_SUBCLASS:
            name = source.utf()
            if name in self._others:
                return self._others[name].decode(source)
            raise source.damaged(f"the snapshot of the class does not know its subclass {name}")
        tag = source.byte()
        if flags != _IS_TAGGED_SUBCLASS or tag >= len(self._subclasses):
            raise source.damaged(f"{flags} is not how an object begins")
        return self._subclasses[tag].decode(source)
