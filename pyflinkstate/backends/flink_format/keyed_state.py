"""Keyed state files, of one subtask and operator each.

Both formats begin alike, and the states are numbered in the order of the head::

    i4 6 | bool compressed | i4 2, key SNAPSHOT | u2 n | n x META
    META = UTF name | i4 kind | i4 n {UTF option, UTF} | i4 n {UTF which, i4 2, SNAPSHOT}

Then come the key groups, whose offsets only the handle knows (``metadata.py``). A canonical file has only
those with entries; the others have the offset 0::

    u2 state | entries | u2 state | entries | ... | u2 0xFFFF

A native file has each key group of its range, and in each one every state::

    i4 key group | n x {u2 state | entries}

``entries.py`` describes the entries. In a compressed file, the bytes of a key group, but not its number, are
in frames (``snappy.py``). One key group at a time is in memory.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import attrs

from pyflinkstate.api import MapTypeInfo, StateKind
from pyflinkstate.backends.flink_format.cursor import Reader, four_bytes, utf
from pyflinkstate.backends.flink_format.entries import (
    Columns,
    Layout,
    ListLayout,
    MapLayout,
    TimerLayout,
    skip_canonical,
)
from pyflinkstate.backends.flink_format.errors import fitting, located
from pyflinkstate.backends.flink_format.forms import List, Map
from pyflinkstate.backends.flink_format.metadata import KeyedStateHandle
from pyflinkstate.backends.flink_format.serializers import (
    LIST,
    MAP,
    TIMER,
    serializer_of,
    timer_serializer,
)
from pyflinkstate.backends.flink_format.snappy import decompress
from pyflinkstate.backends.flink_format.snapshots import Serializer, read_snapshot
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    VOID_NAMESPACE_TYPE,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
)
from pyflinkstate.errors import IncompatibleCheckpointError

VERSION = 6
_SERIALIZER_VERSION = 2
_KEY_VALUE, _PRIORITY_QUEUE = 0, 3
_KIND_OPTION = "KEYED_STATE_TYPE"
_VALUE, _NAMESPACE = "VALUE_SERIALIZER", "NAMESPACE_SERIALIZER"
#: The serializers of state that consists of parts.
_ROW_OF_KIND = {None: TIMER, StateKind.LIST: LIST, StateKind.MAP: MAP}
#: In place of the number of a state: the key group has no more entries.
END_OF_KEY_GROUP = 0xFFFF
#: Up to this max parallelism, a key group is one byte of a key in a canonical file, and else it is two.
_ONE_BYTE = 128


@attrs.frozen
class FlinkState:
    """A keyed state of Flink, or a timer queue.

    Attributes:
        name: the name of its descriptor.
        kind: the kind of state; None for timers.
        value: the serializer of what is stored for a key and a namespace, such as a whole list or map.
        namespace: the serializer of its namespaces.
    """

    name: str
    kind: StateKind | None
    value: Serializer
    namespace: Serializer

    @staticmethod
    def of(meta: StateMeta, key: Serializer) -> FlinkState:
        """Return the state that Flink would have for one of this project.

        Raises:
            ConfigurationError: Flink has no serializer for its type.
        """
        namespace = serializer_of(meta.namespace_type)
        if isinstance(meta, RegisteredQueueMeta):
            return FlinkState(meta.name, None, timer_serializer(key, namespace), namespace)
        return FlinkState(meta.name, meta.kind, serializer_of(meta.stored_type), namespace)

    @property
    def meta(self) -> StateMeta:
        """What this project knows of such a state."""
        namespace = self.namespace.type_info()
        if self.kind is None:
            return RegisteredQueueMeta(self.name, namespace)
        stored = self.value.type_info()
        if self.kind is StateKind.MAP:  # a part may be opaque
            stored = MapTypeInfo(*[part.type_info() for part in self.value.parts])
        return RegisteredStateMeta(self.name, self.kind, stored, namespace)

    def layout(self, key: Serializer, max_parallelism: int) -> Layout:
        """Return how its entries are written."""
        forms, size = (key.form(), self.namespace.form()), 1 if max_parallelism <= _ONE_BYTE else 2
        if self.kind is None:
            return TimerLayout(*forms, self.value.form(), size)
        if self.kind is StateKind.MAP:
            return MapLayout(*forms, Map(*[part.form() for part in self.value.parts]), size)
        value = self.value.form()
        if self.kind is StateKind.LIST and isinstance(value, List):
            return ListLayout(*forms, value, size)
        return Layout(*forms, value, size)

    def __str__(self) -> str:
        return f"{'timers' if self.kind is None else self.kind.value} of {self.value}"


@attrs.frozen
class KeyedStateHead:
    """The head of a keyed state file.

    Attributes:
        key: the serializer of the keys.
        states: the states, in the order of their numbers.
        is_compressed: whether the key groups are compressed with Snappy.
    """

    key: Serializer
    states: tuple[FlinkState, ...]
    is_compressed: bool = False

    def encode(self) -> bytes:
        """Return the bytes of the head, of an uncompressed file."""
        head = four_bytes(VERSION) + b"\0" + four_bytes(_SERIALIZER_VERSION) + self.key.snapshot()
        return b"".join([head, len(self.states).to_bytes(2, "big"), *map(_encode_meta, self.states)])

    @staticmethod
    def decode(source: Reader) -> KeyedStateHead:
        """Return the head that is next; see :func:`read_snapshot` for the errors."""
        source.expect(VERSION, "it does not begin as keyed state of Flink does")
        is_compressed = source.byte() != 0
        key = read_serializer(source)
        states = tuple([_decode_meta(source) for _ in range(source.unsigned(2))])
        return KeyedStateHead(key, states, is_compressed)


def read_serializer(source: Reader) -> Serializer:
    """Return the serializer whose version and snapshot are next."""
    source.expect(_SERIALIZER_VERSION, "a serializer does not begin")
    return read_snapshot(source)


def read_meta(source: Reader) -> tuple[str, int, dict[str, str], dict[str, Serializer]]:
    """Return name, kind, options and serializers of a state, of keyed or of operator state."""
    name, kind = source.utf(), source.unsigned(4)
    with located(f"state {name!r}", state=name):
        options = {source.utf(): source.utf() for _ in range(source.count())}
        return name, kind, options, {source.utf(): read_serializer(source) for _ in range(source.count())}


def write_meta(name: str, kind: int, options: dict[str, str], serializers: dict[str, Serializer]) -> bytes:
    """Return the bytes that :func:`read_meta` reads."""
    chunks = [utf(name), four_bytes(kind, len(options))]
    chunks += [utf(key) + utf(option) for key, option in options.items()]
    chunks.append(four_bytes(len(serializers)))
    version = four_bytes(_SERIALIZER_VERSION)
    return b"".join(chunks + [utf(which) + version + one.snapshot() for which, one in serializers.items()])


def _encode_meta(state: FlinkState) -> bytes:
    if state.kind is None:
        return write_meta(state.name, _PRIORITY_QUEUE, {}, {_VALUE: state.value})
    serializers = {_VALUE: state.value, _NAMESPACE: state.namespace}
    return write_meta(state.name, _KEY_VALUE, {_KIND_OPTION: state.kind.value}, serializers)


def _decode_meta(source: Reader) -> FlinkState:
    name, kind, options, serializers = read_meta(source)
    with located(f"state {name!r}", state=name):
        value = serializers[_VALUE]
        if kind == _PRIORITY_QUEUE:
            state = FlinkState(name, None, value, value.parts[1])
        elif kind != _KEY_VALUE or options[_KIND_OPTION] not in {known.value for known in StateKind}:
            told = options.get(_KIND_OPTION, kind)
            raise IncompatibleCheckpointError(f"a kind of state that this release does not read, {told}")
        else:
            state = FlinkState(name, StateKind(options[_KIND_OPTION]), value, serializers[_NAMESPACE])
        if value.row is not _ROW_OF_KIND.get(state.kind, value.row):
            raise source.damaged(f"it is {state}")
        return state


# --- in -------------------------------------------------------------------------------------------------

#: Returns up to so many bytes of a file from an offset.
Read = Callable[[int, int], bytes]


@attrs.frozen
class KeyedStateFile:
    """A keyed state file that is read by key group.

    Attributes:
        head: the head of the file.
        handle: where its key groups are.
        where: how messages call the file.
    """

    head: KeyedStateHead
    handle: KeyedStateHandle
    where: str
    _read: Read
    _layouts: list[Layout]

    @staticmethod
    def open(handle: KeyedStateHandle, read: Read, where: str, max_parallelism: int) -> KeyedStateFile:
        """Read the head of a file.

        Raises:
            CorruptCheckpointError: it makes no sense.
            IncompatibleCheckpointError: it is of another release of Flink, or its keys or, in a native file,
                its values were written by a serializer that is not known.
        """
        with located(where, file=where):
            begins = [offset for offset in handle.offsets if offset]
            head = KeyedStateHead.decode(Reader(read(0, min(begins, default=handle.stream.size_bytes))))
            _check_known(head, handle.is_canonical)
            layouts = [state.layout(head.key, max_parallelism) for state in head.states]
        return KeyedStateFile(head, handle, where, read, layouts)

    def key_groups(
        self, wanted: KeyGroupRange, names: Collection[str] | None = None
    ) -> Iterator[tuple[FlinkState, KeyGroupEntries]]:
        """Iterate over the states of each key group that have entries there.

        Args:
            wanted: the key groups.
            names: the names of the states; None for all of them.

        Raises:
            CorruptCheckpointError: the content makes no sense.
        """
        for key_group in self.handle.key_groups.intersection(wanted):
            begin, end = self.handle.section(key_group)
            if begin:
                with located(f"{self.where}, key group {key_group}", file=self.where, key_group=key_group):
                    source = Reader(self._read(begin, end - begin), begin)
                    for state, found in self._states(source, key_group, names):
                        is_void = state.namespace.type_info() == VOID_NAMESPACE_TYPE
                        namespaces = None if is_void else found.namespaces
                        yield state, KeyGroupEntries(key_group, found.keys, namespaces, found.values)

    def _states(
        self, source: Reader, key_group: int, names: Collection[str] | None
    ) -> Iterator[tuple[FlinkState, Columns]]:
        is_canonical, states = self.handle.is_canonical, self.head.states
        if not is_canonical and source.unsigned(4) != key_group:
            raise source.damaged("another key group begins here")
        if self.head.is_compressed:
            source = Reader(decompress(source), source.origin)
        next_number = partial(source.unsigned, 2)
        for number in (
            iter(next_number, END_OF_KEY_GROUP) if is_canonical else (next_number() for _ in states)
        ):
            state, layout = states[number], self._layouts[number]
            is_wanted = names is None or state.name in names
            with located(f"state {state.name!r}", state=state.name):
                if not is_canonical:
                    found = layout.read_native(source)
                elif is_wanted:
                    found = layout.read_canonical(source, key_group)
                else:
                    skip_canonical(source)
            if is_wanted and found.keys:
                yield state, found


def _check_known(head: KeyedStateHead, is_canonical: bool) -> None:
    """Raise an error if nothing tells where a key or a value ends."""
    values = [] if is_canonical else [state.value for state in head.states]
    needed = [head.key, *[state.namespace for state in head.states], *values]
    if unknown := [serializer for serializer in needed if serializer.has_opaque_part]:
        raise IncompatibleCheckpointError(
            f"Flink's {unknown[0]} is not known here, so that nothing tells where its bytes end: take a "
            f"canonical savepoint (flink savepoint --type canonical); for keys, use a type made by Types",
            serializer=str(unknown[0]),
        )


# --- out ------------------------------------------------------------------------------------------------


def write_canonical(
    head: KeyedStateHead,
    entries: Sequence[Iterator[KeyGroupEntries]],
    key_groups: KeyGroupRange,
    max_parallelism: int,
    write: Callable[[bytes], object],
) -> tuple[int, ...]:
    """Write a canonical file, and return the offset of each key group.

    Args:
        head: the head of the file.
        entries: the entries of each state, in the order of the head and of their key groups.
        key_groups: the key groups of the subtask.
        max_parallelism: that of the operator.
        write: appends bytes to the file.

    Raises:
        StateValueError: a value does not fit the serializer of its state.
    """
    layouts = [state.layout(head.key, max_parallelism) for state in head.states]
    offsets = dict.fromkeys(key_groups, 0)
    start = head.encode()
    write(start)
    position = len(start)
    streams = [zip(itertools.repeat(number), found) for number, found in enumerate(entries)]
    merged = heapq.merge(*streams, key=lambda entry: (entry[1].key_group, entry[0]))
    for key_group, states in itertools.groupby(merged, lambda entry: entry[1].key_group):
        section = b"".join(
            [_section(number, head.states[number], layouts[number], found) for number, found in states]
        )
        if section:
            offsets[key_group] = position
            section += END_OF_KEY_GROUP.to_bytes(2, "big")
            write(section)
            position += len(section)
    return tuple(offsets.values())


def _section(number: int, state: FlinkState, layout: Layout, found: KeyGroupEntries) -> bytes:
    """Return the number of a state and its entries; empty if nothing is written of them."""
    with fitting(state.name, state.value):
        entries = layout.write_canonical(found.key_group, found.keys, found.namespaces, found.values)
    return number.to_bytes(2, "big") + entries if entries else b""
