"""Snapshots of serializers: how a savepoint says with which serializer something was written.

A savepoint does not name types. For each serializer, it has the name of a class, a version, and a body with
what is needed to restore the serializer (``TypeSerializerSnapshot``)::

    SNAPSHOT     = UTF class | i4 version | body
    composite    = i4 911108 | i4 outer version | details | i4 1333245 | i4 1 | i4 n | n x SNAPSHOT
    optional map = i8 0x4f2c69a3d70 | i4 n | n x {UTF name, bool {i4 size, key}, bool {i4 size, value}}

Nothing tells where the body of an unknown class ends. It is taken to be composite if it begins like that, and
to be empty otherwise, as most are. If that is wrong, what follows makes no sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs

from pyflinkstate.api import TypeInformation, Types
from pyflinkstate.backends.flink_format.cursor import Reader, four_bytes, utf
from pyflinkstate.backends.flink_format.forms import Form, Opaque

#: Snapshots inside of snapshots: more than any type has, and few enough for the stack.
MAX_DEPTH = 60

_BEGIN_OUTER, _BEGIN_NESTED, _NESTED_VERSION = 911108, 1333245, 1
_OPTIONAL_MAP = 0x4F2C69A3D70
_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())

#: Returns the form of a serializer, from those of its parts.
MakeForm = Callable[["Serializer", list[Form]], Form]
_NOTHING: Mapping[SerializerRow, MakeForm] = MappingProxyType({})

Details = tuple[object, ...]
Content = tuple[Details, "tuple[Serializer, ...]"]


@attrs.frozen
class Body:
    """How a snapshot is written after its class and version.

    Attributes:
        read: returns the details and the parts, from the bytes and the depth of the snapshot.
        write: returns the bytes for a serializer.
        version: the version of the snapshot.
    """

    read: Callable[[Reader, int], Content]
    write: Callable[[Serializer], bytes]
    version: int = 3


@attrs.frozen(eq=False, kw_only=True)
class SerializerRow:
    """All that is known about one serializer.

    Attributes:
        snapshot: the class of its snapshot.
        form: returns how values are written, from the serializer and the forms of its parts.
        type_info: returns the type of the values.
        java_class: returns the class of the values, which arrays name.
        body: how the snapshot goes on.
        ends_in_part: whether a value ends where its last part does, which therefore may be opaque.
        is_opaque: whether nothing is known of the values of a serializer.
        of: what messages say of it besides its name.
    """

    snapshot: str
    form: MakeForm
    type_info: Callable[[Serializer], TypeInformation]
    java_class: Callable[[Serializer], str] = lambda _: "java.lang.Object"
    body: Body
    ends_in_part: bool = False
    is_opaque: Callable[[Serializer], bool] = lambda _: False
    of: str = ""


@attrs.frozen
class Serializer:
    """A serializer as its snapshot describes it; equal ones have the same snapshot.

    Attributes:
        row: which one it is.
        details: what its snapshot says besides the parts.
        parts: the serializers that it is made of.
        names: the names of the fields of a row, which its snapshot does not have.
    """

    row: SerializerRow
    details: Details = ()
    parts: tuple[Serializer, ...] = ()
    names: tuple[str, ...] = attrs.field(default=(), eq=False)

    @property
    def is_opaque(self) -> bool:
        """Whether its values stay bytes, because nothing tells where they or their parts end."""
        return self.row.is_opaque(self) or (
            any(part.is_opaque for part in self.parts) and not self.row.ends_in_part
        )

    @property
    def has_opaque_part(self) -> bool:
        """Whether it, or a part of it, is opaque."""
        return self.row.is_opaque(self) or any(part.has_opaque_part for part in self.parts)

    def form(self, instead: Mapping[SerializerRow, MakeForm] = _NOTHING) -> Form:
        """Return how its values are written; ``instead`` makes the forms of some rows."""
        if self.is_opaque:
            return Opaque()
        make = instead.get(self.row, self.row.form)
        return make(self, [part.form(instead) for part in self.parts])

    def type_info(self) -> TypeInformation:
        """Return the type of its values in this project; those that stay bytes are an array of them."""
        return _BYTES if self.is_opaque else self.row.type_info(self)

    def snapshot(self) -> bytes:
        """Return the bytes of its snapshot."""
        body = self.row.body
        return utf(self.row.snapshot) + four_bytes(body.version) + body.write(self)

    def __str__(self) -> str:
        parts = f"<{', '.join(map(str, self.parts))}>" if self.parts else ""
        return f"{short_name(self.row.snapshot)}{self.row.of}{parts}"


def short_name(snapshot: str) -> str:
    """Return the name of a serializer without its package.

    >>> short_name("org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot")
    'LongSerializer'
    """
    return snapshot.split("$")[0].rsplit(".", 1)[-1].removesuffix("Snapshot")


# --- the bodies -----------------------------------------------------------------------------------------


#: The body of most serializers, which has nothing in it.
EMPTY = Body(lambda source, depth: ((), ()), lambda serializer: b"")


def composite(
    outer_version: int,
    number: int | None,
    read_details: Callable[[Reader], Details] = lambda source: (),
    write_details: Callable[[Details], bytes] = lambda details: b"",
) -> Body:
    """Return the body of a serializer with parts.

    Args:
        outer_version: the version of the details.
        number: how many parts there are; None if that varies, but it is at least 1.
        read_details: returns what the snapshot has besides the parts.
        write_details: returns the bytes of that.
    """

    def read(source: Reader, depth: int) -> Content:
        source.expect(_BEGIN_OUTER, "a serializer with parts does not begin")
        source.version("a serializer's snapshot", outer_version, outer_version)
        details, parts = read_details(source), _nested(source, depth)
        if len(parts) != (number or max(1, len(parts))):
            raise source.damaged(f"a serializer has {len(parts)} parts")
        return details, parts

    def write(serializer: Serializer) -> bytes:
        parts = [part.snapshot() for part in serializer.parts]
        numbers = four_bytes(_BEGIN_NESTED, _NESTED_VERSION, len(parts))
        outer = four_bytes(_BEGIN_OUTER, outer_version) + write_details(serializer.details)
        return b"".join([outer, numbers, *parts])

    return Body(read, write)


def _nested(source: Reader, depth: int) -> tuple[Serializer, ...]:
    source.expect(_BEGIN_NESTED, "the parts of a serializer do not begin")
    source.expect(_NESTED_VERSION, "the parts of a serializer have another version")
    return tuple([read_snapshot(source, depth + 1) for _ in range(source.count())])


Entry = tuple[str, bytes, bytes]


def read_optional_map(source: Reader) -> list[Entry]:
    """Return name, key and value of each entry (``LinkedOptionalMap``); what is absent is empty."""
    if source.long() != _OPTIONAL_MAP:
        raise source.damaged("a map of a snapshot does not begin")
    return [(source.utf(), _frame(source), _frame(source)) for _ in range(source.count())]


def _frame(source: Reader) -> bytes:
    return source.take(source.unsigned(4)) if source.byte() else b""


def write_optional_map(entries: list[Entry]) -> bytes:
    """Return the bytes of entries; their keys and values are present, also if they are empty."""
    chunks = [_OPTIONAL_MAP.to_bytes(8, "big"), four_bytes(len(entries))]
    for name, key, value in entries:
        chunks += [utf(name), b"\1", four_bytes(len(key)), key, b"\1", four_bytes(len(value)), value]
    return b"".join(chunks)


# --- serializers without a row ---------------------------------------------------------------------------


_KRYO = "org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializerSnapshot"


def _unknown(name: str, source: Reader, depth: int) -> SerializerRow:
    """Return the row of an unknown serializer, whose version and body are next."""
    version, at, of = source.unsigned(4), source.at, ""
    if name == _KRYO:
        of = f" of {source.utf()}"
        for _ in range(3):
            read_optional_map(source)
    elif source.data[at : at + 4] == four_bytes(_BEGIN_OUTER):
        begin = source.data.find(four_bytes(_BEGIN_NESTED, _NESTED_VERSION), at)
        source.advance(max(0, begin - at))
        _nested(source, depth)
    content = source.data[at : source.at]
    return SerializerRow(
        snapshot=name,
        form=lambda *_: Opaque(),
        type_info=lambda _: _BYTES,
        body=Body(EMPTY.read, lambda _: content, version),
        is_opaque=lambda _: True,
        of=of,
    )


#: The rows by the classes of their snapshots.
ROWS: dict[str, SerializerRow] = {}


def read_snapshot(source: Reader, depth: int = 0) -> Serializer:
    """Return the serializer whose snapshot is next.

    Raises:
        CorruptCheckpointError: it makes no sense.
        IncompatibleCheckpointError: it has a version that is not known.
    """
    if depth > MAX_DEPTH:
        raise source.damaged(f"more than {MAX_DEPTH} serializers are inside of each other")
    name = source.utf()
    row = ROWS.get(name)
    if row is None:
        return Serializer(_unknown(name, source, depth))
    source.version("a serializer's snapshot", row.body.version, row.body.version)
    return Serializer(row, *row.body.read(source, depth))
