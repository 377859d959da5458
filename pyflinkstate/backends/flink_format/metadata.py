"""``_metadata``, the file that makes a folder a savepoint: which operator has which state, and where it is.

Flink 1.20 to 2.3 write versions 3 to 6. This module reads all of them. It writes version 3, which every Flink
reads and which needs no serialized Java object::

    i4 0x4960672d | i4 version | i8 checkpoint | i4 n | n x MASTER | i4 n | n x OPERATOR
    | from version 4: a serialized Java object, which is not read
    MASTER   = i4 0xc96b1696 | i4 n | n bytes
    OPERATOR = [from version 5: UTF name, UTF uid] | 16 bytes id | i4 parallelism | i4 max parallelism
               | STREAM of the coordinator | i4 n (-1: all subtasks have finished) | n x SUBTASK
    SUBTASK  = i4 index (-index - 1: it has finished, and no state follows)
               | i4 0/1 [OPSTATE] managed | i4 0/1 [OPSTATE] raw | KEYED managed | KEYED raw
               | i4 n, inputs | i4 n, outputs
    OPSTATE  = u1 0 | u1 4, i4 n, n x {UTF state, u1 mode, i4 n, n x i8}, STREAM
    KEYED    = u1 0 | u1 3, 7 or 12, i4 first key group, i4 n, n x i8 offset, STREAM, [12: UTF id]
    STREAM   = u1 0 | u1 1, UTF name, i4 n, bytes | u1 2, i8 size, UTF path | u1 6, UTF path, i8 size

Other kinds of state, and the content of the channels of an unaligned checkpoint, are refused by name.
"""

from __future__ import annotations

import struct
from functools import cached_property
from itertools import pairwise

import attrs

from pyflinkstate.backends.flink_format.cursor import Reader, four_bytes, utf
from pyflinkstate.backends.flink_format.errors import located
from pyflinkstate.backends.keys import UPPER_BOUND_MAX_PARALLELISM, KeyGroupRange
from pyflinkstate.backends.types import OperatorStateMode
from pyflinkstate.errors import IncompatibleCheckpointError

MAGIC = 0x4960672D
WRITTEN_VERSION = 3
_MASTER_MAGIC = 0xC96B1696
_FINISHED = 0xFFFFFFFF
_SIGN = 1 << 31

_NULL, _BYTES, _FILE, _RELATIVE = 0, 1, 2, 6
_KEY_GROUPS, _SAVEPOINT, _KEY_GROUPS_V2 = 3, 7, 12
_OPERATOR_STATE = 4
#: The modes of operator state, by their numbers.
_MODES = tuple(OperatorStateMode)

#: Why other kinds of keyed state, operator state and files are refused.
_REFUSED = {
    5: "an incremental checkpoint of RocksDB",
    11: "an incremental checkpoint of RocksDB",
    8: "a checkpoint of the changelog backend",
    14: "a checkpoint of the changelog backend",
    9: "changes of the changelog backend",
    10: "changes of the changelog backend",
    13: "changes of the changelog backend",
    15: "in files that several subtasks share",
    16: "in files that several subtasks share",
    17: "in files that several subtasks share",
}


@attrs.frozen
class Stream:
    """Where bytes are: in a file, or here.

    Attributes:
        path: the path or URI of the file; relative to the savepoint's folder if ``is_relative``; empty if the
            bytes are here.
        size_bytes: how many there are.
        is_relative: whether the file is in the savepoint's folder.
        data: the bytes, if they are here.
    """

    path: str
    size_bytes: int
    is_relative: bool = False
    data: bytes = attrs.field(default=b"", repr=False)


@attrs.frozen(slots=False)
class KeyedStateHandle:
    """The keyed state of a subtask.

    Attributes:
        key_groups: its key groups.
        offsets: where each begins in the file; 0 if it is not there.
        stream: the file.
        is_canonical: whether the file is canonical, or else native to Flink's heap backend.
    """

    key_groups: KeyGroupRange
    offsets: tuple[int, ...]
    stream: Stream
    is_canonical: bool = True

    @cached_property
    def _ends(self) -> dict[int, int]:
        return dict(pairwise(sorted({*self.offsets, self.stream.size_bytes})))

    def section(self, key_group: int) -> tuple[int, int]:
        """Return where a key group begins and where, at the latest, it ends."""
        begin = self.offsets[key_group - self.key_groups.start]
        return begin, self._ends.get(begin, begin)


@attrs.frozen
class OperatorStateHandle:
    """The operator state of a subtask: the mode of each state, and where its elements begin in the file."""

    states: dict[str, tuple[OperatorStateMode, tuple[int, ...]]]
    stream: Stream


@attrs.frozen
class Subtask:
    """The state of one subtask; its functions wrote the raw state themselves."""

    operator_state: OperatorStateHandle | None = None
    raw_operator_state: OperatorStateHandle | None = None
    keyed_state: KeyedStateHandle | None = None
    raw_keyed_state: KeyedStateHandle | None = None


@attrs.frozen
class Operator:
    """An operator of a savepoint.

    Attributes:
        id: the hash of its uid, see :func:`operator_id`.
        parallelism: how many subtasks it had.
        max_parallelism: how many key groups it has.
        subtasks: the state of those that have some and have not finished.
        name: its name, from metadata of version 5 on.
        uid: its uid, from version 5 on, if it has one.
        has_coordinator: whether its coordinator has state, as that of a source does.
    """

    id: bytes
    parallelism: int
    max_parallelism: int
    subtasks: dict[int, Subtask]
    name: str = ""
    uid: str = ""
    has_coordinator: bool = False

    @property
    def size_bytes(self) -> int:
        """The size of its state."""
        handles = [handle for sub in self.subtasks.values() for handle in attrs.astuple(sub, recurse=False)]
        return sum(handle.stream.size_bytes for handle in handles if handle is not None)

    def __str__(self) -> str:
        shown = [self.uid and f"uid {self.uid!r}", self.name and repr(self.name), f"id {self.id.hex()}"]
        return f"operator {', '.join(filter(None, shown))}"


@attrs.frozen
class Savepoint:
    """The content of ``_metadata``."""

    checkpoint_id: int
    operators: tuple[Operator, ...]


# --- in -------------------------------------------------------------------------------------------------


def read_metadata(data: bytes, where: str) -> Savepoint:
    """Return the content of ``_metadata``.

    Raises:
        CorruptCheckpointError: it makes no sense. ``where`` names the file.
        IncompatibleCheckpointError: it has another version, or state that only Flink reads.
    """
    source = Reader(data)
    with located(where, file=where):
        source.expect(MAGIC, "it does not begin like the metadata of a savepoint of Flink")
        version = source.version("it", 3, 6)
        checkpoint_id = source.long()
        for _ in range(source.count()):
            source.expect(_MASTER_MAGIC, "the state of a hook of the master does not begin")
            source.advance(source.unsigned(4))
        return Savepoint(checkpoint_id, tuple([_operator(source, version) for _ in range(source.count())]))


def _operator(source: Reader, version: int) -> Operator:
    name, uid = (source.utf(), source.utf()) if version >= 5 else ("", "")
    operator_id = source.take(16)
    operator = Operator(operator_id, source.unsigned(4), source.unsigned(4), {}, name, uid)
    with located(str(operator), operator=operator_id.hex()):
        if not 0 < operator.max_parallelism <= UPPER_BOUND_MAX_PARALLELISM:
            raise source.damaged(f"{operator.max_parallelism} is not a max parallelism")
        operator = attrs.evolve(operator, has_coordinator=_stream(source).size_bytes > 0)
        number = source.unsigned(4)
        for _ in range(0 if number == _FINISHED else number):
            index = source.unsigned(4)
            if index < _SIGN:
                operator.subtasks[index] = _subtask(source)
    return operator


def _subtask(source: Reader) -> Subtask:
    managed, raw = [_operator_state(source) if source.unsigned(4) else None for _ in range(2)]
    subtask = Subtask(managed, raw, _keyed_state(source), _keyed_state(source))
    if source.unsigned(4) or source.unsigned(4):
        raise _refused("the content of the channels of an unaligned checkpoint")
    return subtask


def _kind(source: Reader, what: str, *known: int) -> int:
    """Return the kind of state or bytes that comes next: one of ``known``, or ``_NULL``.

    Raises:
        CorruptCheckpointError: there is no such kind of ``what``.
        IncompatibleCheckpointError: only Flink reads it.
    """
    kind = source.byte()
    if kind in _REFUSED:
        raise _refused(_REFUSED[kind])
    if kind not in (_NULL, *known):
        raise source.damaged(f"{what} of the unknown kind {kind}")
    return kind


def _operator_state(source: Reader) -> OperatorStateHandle | None:
    if _kind(source, "operator state", _OPERATOR_STATE) == _NULL:
        return None
    states = {}
    for _ in range(source.count()):
        name, mode = source.utf(), _MODES[source.byte()]
        states[name] = mode, _offsets(source, source.unsigned(4))
    return OperatorStateHandle(states, _stream(source))


def _offsets(source: Reader, number: int) -> tuple[int, ...]:
    """Return offsets in a file; what is negative is taken for too large a number."""
    return struct.unpack(f">{number}Q", source.take(number * 8))


def _keyed_state(source: Reader) -> KeyedStateHandle | None:
    kind = _kind(source, "keyed state", _KEY_GROUPS, _SAVEPOINT, _KEY_GROUPS_V2)
    if kind == _NULL:
        return None
    start, number = source.unsigned(4), source.unsigned(4)
    if start + number > UPPER_BOUND_MAX_PARALLELISM:
        raise source.damaged(f"key groups from {start} on, {number} of them")
    offsets, stream = _offsets(source, number), _stream(source)
    if kind == _KEY_GROUPS_V2:
        source.utf()
    return KeyedStateHandle(KeyGroupRange(start, start + number - 1), offsets, stream, kind == _SAVEPOINT)


def _refused(what: str) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"its state is {what}, which only Flink reads: take a canonical savepoint "
        f"(flink savepoint --type canonical, or stop --type canonical)"
    )


def _stream(source: Reader) -> Stream:
    kind = _kind(source, "bytes", _BYTES, _FILE, _RELATIVE)
    if kind == _NULL:
        return Stream("", 0)
    if kind == _BYTES:
        source.utf()
        data = source.take(source.unsigned(4))
        return Stream("", len(data), data=data)
    if kind == _FILE:
        size, path = source.long(), source.utf()
    else:
        path, size = source.utf(), source.long()
    if size < 0 or not path:
        raise source.damaged(f"the file {path!r} has {size} bytes")
    return Stream(path, size, kind == _RELATIVE)


# --- out ------------------------------------------------------------------------------------------------


def write_metadata(savepoint: Savepoint) -> bytes:
    """Return the bytes of ``_metadata`` in version 3, with the managed state of each subtask.

    Keyed state is canonical, and files are in the savepoint's folder. There are no names, uids, coordinators
    and finished subtasks.
    """
    head = four_bytes(MAGIC, WRITTEN_VERSION) + _long(savepoint.checkpoint_id)
    numbers = four_bytes(0, len(savepoint.operators))
    return b"".join([head, numbers, *map(_write_operator, savepoint.operators)])


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _write_operator(operator: Operator) -> bytes:
    head = operator.id + four_bytes(operator.parallelism, operator.max_parallelism) + bytes([_NULL])
    subtasks = [four_bytes(index) + _write_subtask(subtask) for index, subtask in operator.subtasks.items()]
    return b"".join([head, four_bytes(len(subtasks)), *subtasks])


def _write_subtask(subtask: Subtask) -> bytes:
    of_operator, keyed = subtask.operator_state, subtask.keyed_state
    managed = four_bytes(0) if of_operator is None else four_bytes(1) + _write_operator_state(of_operator)
    of_keys = bytes([_NULL]) if keyed is None else _write_keyed_state(keyed)
    return managed + four_bytes(0) + of_keys + bytes([_NULL]) + four_bytes(0, 0)


def _write_operator_state(handle: OperatorStateHandle) -> bytes:
    chunks = [bytes([_OPERATOR_STATE]), four_bytes(len(handle.states))]
    for name, (mode, offsets) in handle.states.items():
        chunks += [utf(name), bytes([_MODES.index(mode)]), four_bytes(len(offsets)), *map(_long, offsets)]
    return b"".join([*chunks, _write_stream(handle.stream)])


def _write_keyed_state(handle: KeyedStateHandle) -> bytes:
    head = bytes([_SAVEPOINT]) + four_bytes(handle.key_groups.start, len(handle.key_groups))
    return b"".join([head, *map(_long, handle.offsets), _write_stream(handle.stream)])


def _write_stream(stream: Stream) -> bytes:
    if stream.path:
        return bytes([_RELATIVE]) + utf(stream.path) + _long(stream.size_bytes)
    return bytes([_BYTES]) + utf("state") + four_bytes(stream.size_bytes) + stream.data
