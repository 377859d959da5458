"""Savepoints of Flink in tests: the golden ones, what is in them, and new ones in memory."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import attrs

from pyflinkstate.backends.flink_format import (
    FlinkState,
    KeyedStateFile,
    KeyedStateHandle,
    KeyedStateHead,
    Operator,
    Savepoint,
    Stream,
    Subtask,
    read_metadata,
    read_operator_state,
    write_canonical,
    write_metadata,
    write_operator_state,
)
from pyflinkstate.backends.flink_format.metadata import OperatorStateHandle
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.backends.keys import KeyGroupRange

GOLDEN = Path(__file__).parent.parent / "flink_format" / "golden"
#: The ends of the names of folders whose state only Flink reads, and what it is.
REFUSED = {
    "-changelog": "a checkpoint of the changelog backend",
    "-rocksdb-native": "an incremental checkpoint of RocksDB",
    "-unaligned": "the content of the channels of an unaligned checkpoint",
}
EVERY = {path.parent.name: path.parent for path in sorted(GOLDEN.rglob("_metadata"))}
#: The folders of golden savepoints that can be read, by their names.
FOLDERS = {name: path for name, path in EVERY.items() if not name.endswith((*REFUSED,))}

#: What lengths and counts become when they lie.
EXTREMES = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x00\x00\x00",
    b"\x00\x0d\xe7\x04",
]

#: A damaged savepoint of less than 1 MiB must not need more memory than this.
MOST_KIB = 512 * 1024
#: Seconds of the processor.
MOST_S = 10

#: Everything in a savepoint, with the values as text, as NaN is not equal to itself.
Content = dict[str, Any]


def reader_of(stream: Stream, files: dict[str, bytes]) -> Callable[[int, int], bytes]:
    """Return what reads a stream, whose file has this name."""
    data = stream.data if not stream.path else files.get(stream.path.rsplit("/", 1)[-1], b"")
    return lambda offset, length: data[offset:][:length]


def load(folder: Path) -> dict[str, bytes]:
    """Return the files of a savepoint by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def open_keyed(files: dict[str, bytes], operator: Operator, handle: KeyedStateHandle) -> KeyedStateFile:
    """Open the keyed state of one subtask."""
    where = f"keyed state of {operator}"
    return KeyedStateFile.open(handle, reader_of(handle.stream, files), where, operator.max_parallelism)


def keyed_files(
    files: dict[str, bytes], savepoint: Savepoint, closed: Collection[bytes] = ()
) -> Iterable[tuple[Operator, KeyedStateFile]]:
    """Open each keyed state of a savepoint, but not those of the operators with the ids in ``closed``."""
    for operator in savepoint.operators:
        for subtask in operator.subtasks.values():
            if subtask.keyed_state is not None and operator.id not in closed:
                yield operator, open_keyed(files, operator, subtask.keyed_state)


def content_of(
    files: dict[str, bytes], unreadable: Collection[str] = (), closed: Collection[bytes] = ()
) -> Content:
    """Return what is in a savepoint, by operator and state, whatever the order in its files.

    Args:
        files: the files of the savepoint.
        unreadable: the names of states to pass over.
        closed: the ids of operators whose keyed state to pass over.
    """
    savepoint = read_metadata(files["_metadata"], "_metadata")
    found: Content = {}
    for operator, file in keyed_files(files, savepoint, closed):
        every = KeyGroupRange(0, operator.max_parallelism - 1)
        for name in [state.name for state in file.head.states if state.name not in unreadable]:
            for state, entries in file.key_groups(every, {name}):
                place = operator.id.hex(), state.name, str(state.meta)
                namespaces = entries.namespaces or [None] * len(entries)
                some = [*map(shown, zip(entries.keys, namespaces, entries.values, strict=True))]
                found.setdefault(place, []).extend(some)
    for operator in savepoint.operators:
        for subtask in operator.subtasks.values():
            if subtask.operator_state is not None:
                handle = subtask.operator_state
                for state in read_operator_state(handle, reader_of(handle.stream, files), f"{operator}"):
                    found[operator.id.hex(), state.name, str(state.meta)] = [*map(str, state.columns)]
    return {place: sorted(rows) for place, rows in found.items()}


def shown(value: Any) -> str:
    """Return a value as text; a dict in the order of its keys."""
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{shown(key)}: {shown(item)}' for key, item in value.items()))}}}"
    return repr(value)


@attrs.frozen
class Written:
    """A keyed state file in memory, and its handle."""

    data: bytes
    handle: KeyedStateHandle


def write_keyed(
    head: KeyedStateHead,
    entries: list[list[KeyGroupEntries]],
    max_parallelism: int,
    name: str = "keyed",
    key_groups: KeyGroupRange | None = None,
) -> Written:
    """Return a canonical file, of all key groups unless some are given."""
    chunks: list[bytes] = []
    own = key_groups or KeyGroupRange(0, max_parallelism - 1)
    offsets = write_canonical(head, [*map(iter, entries)], own, max_parallelism, chunks.append)
    data = b"".join(chunks)
    return Written(data, KeyedStateHandle(own, offsets, Stream(name, len(data), is_relative=True)))


def read_keyed(
    written: Written, max_parallelism: int, wanted: KeyGroupRange | None = None
) -> list[tuple[FlinkState, KeyGroupEntries]]:
    """Return the states of each key group of a file."""
    read = reader_of(written.handle.stream, {written.handle.stream.path: written.data})
    file = KeyedStateFile.open(written.handle, read, "a file", max_parallelism)
    return [*file.key_groups(wanted or written.handle.key_groups)]


def rewritten(
    files: dict[str, bytes], unreadable: Collection[str] = (), closed: Collection[bytes] = ()
) -> dict[str, bytes]:
    """Return the savepoint that this project writes for one of Flink, see :func:`content_of`."""
    savepoint = read_metadata(files["_metadata"], "_metadata")
    new: dict[str, bytes] = {}
    operators = []
    for operator in savepoint.operators:
        subtasks = {}
        for index, subtask in operator.subtasks.items():
            keyed, name = None, f"keyed-{operator.id.hex()}-{index}"
            if subtask.keyed_state is not None and operator.id not in closed:
                file = open_keyed(files, operator, subtask.keyed_state)
                written = _keyed_again(file, operator, subtask.keyed_state.key_groups, unreadable, name)
                keyed, new[name] = written.handle, written.data
            subtasks[index] = Subtask(
                operator_state=_operator_state_again(files, subtask.operator_state), keyed_state=keyed
            )
        operators.append(attrs.evolve(operator, subtasks=subtasks))
    new["_metadata"] = write_metadata(attrs.evolve(savepoint, operators=tuple(operators)))
    return new


def _keyed_again(
    file: KeyedStateFile,
    operator: Operator,
    key_groups: KeyGroupRange,
    unreadable: Collection[str],
    name: str,
) -> Written:
    entries: dict[str, list[KeyGroupEntries]] = {state.name: [] for state in file.head.states}
    for state, found in file.key_groups(key_groups, {*entries} - {*unreadable}):
        entries[state.name].append(found)
    return write_keyed(file.head, [*entries.values()], operator.max_parallelism, name, key_groups)


def _operator_state_again(
    files: dict[str, bytes], handle: OperatorStateHandle | None
) -> OperatorStateHandle | None:
    if handle is None:
        return None
    chunks: list[bytes] = []
    states = read_operator_state(handle, reader_of(handle.stream, files), "operator state")
    places = write_operator_state(states, chunks.append)
    data = b"".join(chunks)
    return OperatorStateHandle(places, Stream("", len(data), data=data))


def damaged(data: bytes, seed: random.Random) -> bytes:
    """Return bytes with one fault."""
    at = seed.randrange(len(data))
    size = seed.choice([1, 2, 4, 8, 40])
    return seed.choice(
        [
            data[:at] + bytes([data[at] ^ 1 << seed.randrange(8)]) + data[at + 1 :],
            data[:at] + seed.randbytes(size) + data[at + size :],
            data[:at] + seed.choice(EXTREMES) + data[at + 4 :],
            data[:at],
            data[:at] + data[at + size :],
            data[:at] + seed.randbytes(size) + data[at:],
            data[:at] + data[at : at + size] + data[at:],
        ]
    )


def damaging_rounds(
    files: dict[str, bytes],
    seeds: range,
    use: Callable[[dict[str, bytes]], object],
    is_clear: Callable[[Exception], bool],
) -> int:
    """Damage a file in each round, and use the savepoint: in little time, and all rounds in little memory.

    Args:
        files: the files of the savepoint.
        seeds: one for each round.
        use: takes the files; may raise.
        is_clear: returns whether an error of ``use`` is one that a user should see.

    Returns:
        How many rounds raised an error.
    """
    found = 0
    names = [name for name, data in sorted(files.items()) for _ in range(1 + len(data) // 1000)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in seeds:
        seed = random.Random(number)
        changed, begun = seed.choice(names), time.process_time()
        try:
            use({**files, changed: damaged(files[changed], seed)})
        except Exception as error:
            if not is_clear(error):
                raise AssertionError(f"seed {number}") from error
            found += 1
        assert time.process_time() - begun < MOST_S, f"seed {number}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB
    return found
