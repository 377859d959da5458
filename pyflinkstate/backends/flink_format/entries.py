"""The entries of one state and key group as columns, in the two formats of Flink's keyed state files.

*Canonical* (``FullSnapshotAsyncWriter``): each entry is two byte strings, as RocksDB keeps them. The key
holds the key group, the key and the namespace. The elements of a list are joined by commas. A map is an entry
for each of the user's keys, which follows the namespace. A timer is a key without a value. The first bit of
the last key of a state says that the number of the next state follows.

*Native* (``HeapSnapshotStrategy``): the number of entries, then namespace, key and value of each. A timer has
only the value, which contains the other two.

mypyc compiles this file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, cast

from pyflinkstate.backends.flink_format.cursor import Reader
from pyflinkstate.backends.flink_format.forms import Form, List, Map

if TYPE_CHECKING:
    from mypy_extensions import i64

_SIZE: Final = struct.Struct(">I")

#: Set in the first byte of the last key of a state.
_IS_LAST: Final = 0x80
_DELIMITER: Final = ord(",")


class Columns:
    """Keys, namespaces and values of as many entries. The value of a timer is its timestamp in ms."""

    __slots__ = ("keys", "namespaces", "values")

    def __init__(self) -> None:
        self.keys: list[object] = []
        self.namespaces: list[object] = []
        self.values: list[object] = []


class Layout:
    """How the entries of one state are written: here, a value for each key and namespace.

    Args:
        key: the form of the keys.
        namespace: the form of the namespaces.
        value: the form of what is stored for a key and a namespace.
        prefix_size: how many bytes a canonical file has for the key group.
    """

    def __init__(self, key: Form, namespace: Form, value: Form, prefix_size: int) -> None:
        self._key = key
        self._namespace = namespace
        self._value = value
        self._prefix_size: i64 = prefix_size
        #: Whether Flink writes lengths too, because it could not tell where the key ends.
        self._has_lengths: bool = key.length < 0 and namespace.length < 0

    def read_native(self, source: Reader) -> Columns:
        """Return the entries that are next in a native file."""
        found = Columns()
        for _ in range(source.count()):
            self.read_native_entry(source, found)
        return found

    def read_native_entry(self, source: Reader, found: Columns) -> None:
        """Add the entry that is next in a native file."""
        found.namespaces.append(self._namespace.decode(source))
        found.keys.append(self._key.decode(source))
        found.values.append(self._value.decode(source))

    def read_canonical(self, source: Reader, key_group: int) -> Columns:
        """Return the entries that are next in a canonical file, up to the number of the next state."""
        found = Columns()
        is_last = False
        last_bit: i64 = _IS_LAST << 8 * (self._prefix_size - 1)
        while not is_last:
            whole = source.enter()
            prefix = source.unsigned(self._prefix_size)
            is_last = prefix & last_bit != 0
            if prefix & ~last_bit != key_group:
                raise source.damaged(f"a key of another key group than {key_group}")
            self.read_entry(source, whole, found)
        return found

    def read_entry(self, source: Reader, whole: i64, found: Columns) -> None:
        """Add an entry, whose key was entered up to its key group; ``whole`` ends the file."""
        self.read_key(source, found)
        source.leave(whole)
        source.enter()
        found.values.append(self.read_value(source))
        source.leave(whole)

    def read_key(self, source: Reader, found: Columns) -> None:
        """Add the key and the namespace that are next."""
        at = source.at
        found.keys.append(self._key.decode(source))
        self._check_length(source, at)
        at = source.at
        found.namespaces.append(self._namespace.decode(source))
        self._check_length(source, at)

    def _check_length(self, source: Reader, start: i64) -> None:
        if self._has_lengths:
            expected = _length_bytes(source.at - start)
            if source.take(len(expected)) != expected:
                raise source.damaged("a key has another length than it says")

    def read_value(self, source: Reader) -> object:
        """Return the value that was entered."""
        return self._value.decode(source)

    def write_canonical(
        self, key_group: int, keys: list[object], namespaces: list[object] | None, values: list[object]
    ) -> bytes:
        """Return the bytes of entries; empty if all of them are empty lists or maps."""
        prefix = key_group.to_bytes(self._prefix_size, "big")
        chunks: list[bytes] = []
        for place in range(len(keys)):
            namespace = None if namespaces is None else namespaces[place]
            self.write_entry(prefix, keys[place], namespace, values[place], chunks)
        if not chunks:
            return b""
        last = chunks[-3]
        chunks[-3] = bytes([last[0] | _IS_LAST]) + last[1:]
        return b"".join(chunks)

    def write_entry(
        self, prefix: bytes, key: object, namespace: object, value: object, chunks: list[bytes]
    ) -> None:
        """Append the four chunks of an entry, of several or of none."""
        add_entry(chunks, prefix + self.encode_key(key, namespace), self._value.encode(value))

    def encode_key(self, key: object, namespace: object) -> bytes:
        """Return the bytes of a key and its namespace."""
        encoded, spaced = self._key.encode(key), self._namespace.encode(namespace)
        if self._has_lengths:
            return encoded + _length_bytes(len(encoded)) + spaced + _length_bytes(len(spaced))
        return encoded + spaced


def skip_canonical(source: Reader) -> None:
    """Go past the entries of a state in a canonical file."""
    is_last = False
    while not is_last:
        is_last = Reader(source.take(source.unsigned(4)), source.origin + source.at).byte() & _IS_LAST != 0
        source.advance(source.unsigned(4))


def add_entry(chunks: list[bytes], key: bytes, value: bytes) -> None:
    """Append the chunks of one entry; the last key is the third one from the end."""
    chunks.extend((_SIZE.pack(len(key)), key, _SIZE.pack(len(value)), value))


def _length_bytes(size: int) -> bytes:
    """Return a length in as few bytes as it needs, the lowest first."""
    return size.to_bytes(max(1, (size.bit_length() + 7) // 8), "little")


class ListLayout(Layout):
    """A list for each key and namespace; empty ones are not written."""

    def read_value(self, source: Reader) -> object:
        element = cast(List, self._value).element
        found = [element.decode(source)]
        while source.at < source.end:
            if source.byte() != _DELIMITER:
                raise source.damaged("the elements of a list are not separated")
            found.append(element.decode(source))
        return found

    def write_entry(
        self, prefix: bytes, key: object, namespace: object, value: object, chunks: list[bytes]
    ) -> None:
        element = cast(List, self._value).element
        elements = [element.encode(item) for item in cast(list[object], value)]
        if elements:
            add_entry(chunks, prefix + self.encode_key(key, namespace), b",".join(elements))


class MapLayout(Layout):
    """A map for each key and namespace; empty ones are not written."""

    def __init__(self, key: Form, namespace: Form, value: Map, prefix_size: int) -> None:
        super().__init__(key, namespace, value, prefix_size)
        self._map = value
        self._start = b""
        self._entries: dict[object, object] = {}

    def read_canonical(self, source: Reader, key_group: int) -> Columns:
        self._start = b""
        return super().read_canonical(source, key_group)

    def read_entry(self, source: Reader, whole: i64, found: Columns) -> None:
        at = source.at
        if self._start and source.data.startswith(self._start, at):
            source.advance(len(self._start))
        else:
            self.read_key(source, found)
            self._start = source.data[at : source.at]
            self._entries = {}
            found.values.append(self._entries)
        user_key = self._map.key.decode(source)
        source.leave(whole)
        source.enter()
        item = self._map.item.decode(source)
        if item is None:
            source.rest()  # Flink's heap backend also writes None as its serializer does
        self._entries[user_key] = item
        source.leave(whole)

    def write_entry(
        self, prefix: bytes, key: object, namespace: object, value: object, chunks: list[bytes]
    ) -> None:
        start = prefix + self.encode_key(key, namespace)
        for user_key, item in cast(dict[object, object], value).items():
            add_entry(chunks, start + self._map.key.encode(user_key), self._map.item.encode(item))


class TimerLayout(Layout):
    """Timers, whose value is their timestamp."""

    def read_native_entry(self, source: Reader, found: Columns) -> None:
        timestamp, key, namespace = cast(tuple[object, object, object], self._value.decode(source))
        found.keys.append(key)
        found.namespaces.append(namespace)
        found.values.append(timestamp)

    def read_entry(self, source: Reader, whole: i64, found: Columns) -> None:
        self.read_native_entry(source, found)
        source.leave(whole)
        source.enter()
        source.leave(whole)

    def write_entry(
        self, prefix: bytes, key: object, namespace: object, value: object, chunks: list[bytes]
    ) -> None:
        add_entry(chunks, prefix + self._value.encode((value, key, namespace)), b"")
