"""Savepoints of Flink in tests: the golden ones, what is in them, and new ones in memory."""

from __future__ import annotations

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
#: The folders of golden savepoints, by their names.
FOLDERS = {path.parent.name: path.parent for path in sorted(GOLDEN.rglob("_metadata"))}

#: Everything in a savepoint, with the values as text, as NaN is not equal to itself.
Content = dict[str, Any]


def reader_of(stream: Stream, files: dict[str, bytes]) -> Callable[[int, int], bytes]:
    """Return what reads a stream, whose file has this name."""
    data = stream.data if not stream.path else files.get(stream.path.rsplit("/", 1)[-1], b"")
    return lambda offset, length: data[stream.begin + offset :][:length]


def load(folder: Path) -> dict[str, bytes]:
    """Return the files of a savepoint by their names."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def keyed_files(
    files: dict[str, bytes], savepoint: Savepoint, closed: Collection[bytes] = ()
) -> Iterable[tuple[Operator, KeyedStateFile]]:
    """Open each keyed state of a savepoint, but not those of the operators with the ids in ``closed``."""
    for operator in savepoint.operators:
        for subtask in operator.subtasks.values():
            if subtask.keyed_state is not None:
                read = reader_of(subtask.keyed_state.stream, files)
                handle, where = subtask.keyed_state, f"keyed state of {operator}"
                if operator.id in closed:
                    continue
                yield operator, KeyedStateFile.open(handle, read, where, operator.max_parallelism)


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
    head: KeyedStateHead, entries: list[list[KeyGroupEntries]], max_parallelism: int, name: str = "keyed"
) -> Written:
    """Return a canonical file of all key groups."""
    chunks: list[bytes] = []
    every = KeyGroupRange(0, max_parallelism - 1)
    offsets = write_canonical(head, [*map(iter, entries)], every, max_parallelism, chunks.append)
    data = b"".join(chunks)
    return Written(data, KeyedStateHandle(every, offsets, Stream(name, len(data), is_relative=True)))


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
    operators = {operator.id: attrs.evolve(operator, subtasks={}) for operator in savepoint.operators}
    for number, (operator, file) in enumerate(keyed_files(files, savepoint, closed)):
        entries: dict[str, list[KeyGroupEntries]] = {state.name: [] for state in file.head.states}
        every = KeyGroupRange(0, operator.max_parallelism - 1)
        for state, found in file.key_groups(every, {*entries} - {*unreadable}):
            entries[state.name].append(found)
        written = write_keyed(file.head, [*entries.values()], operator.max_parallelism, f"keyed-{number}")
        new[f"keyed-{number}"] = written.data
        operators[operator.id].subtasks[number] = Subtask(keyed_state=written.handle)
    for operator in savepoint.operators:
        for index, subtask in operator.subtasks.items():
            handle = subtask.operator_state
            if handle is not None:
                states = read_operator_state(handle, reader_of(handle.stream, files), f"{operator}")
                chunks: list[bytes] = []
                places = write_operator_state(states, chunks.append)
                data = b"".join(chunks)
                there = OperatorStateHandle(places, Stream("", len(data), data=data))
                operators[operator.id].subtasks[100 + index] = Subtask(operator_state=there)
    new["_metadata"] = write_metadata(Savepoint(savepoint.checkpoint_id, tuple(operators.values())))
    return new
