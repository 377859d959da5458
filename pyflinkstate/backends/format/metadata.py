"""``_metadata``: what makes a folder of state files a completed checkpoint.

One head (see :mod:`pyflinkstate.backends.format.framing`) with everything in it as JSON; state small
enough to be inlined is in there as base64. The file is never unpickled.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.backends.format.framing import decode_head, encode_head
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.state_handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStateEntry,
    OperatorStateHandle,
    OperatorStateMode,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    StreamStateHandle,
)
from pyflinkstate.errors import CorruptCheckpointError

MAGIC = b"PFSCHKPT"
VERSION = 4
READABLE_VERSIONS = frozenset({1, 2, 3, VERSION})

#: The version of the hash of keys, where a handle has none.
FIRST_KEY_HASH = 1


@attrs.frozen
class OperatorState:
    """The state of one operator, by subtask (Flink: ``OperatorState``)."""

    operator_id: str
    parallelism: int
    max_parallelism: int
    subtasks: tuple[OperatorSubtaskState, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no subtask had any state."""
        return all(subtask == OperatorSubtaskState() for subtask in self.subtasks)


@attrs.frozen
class CheckpointMetadata:
    """A completed checkpoint.

    Attributes:
        checkpoint_id: counts from 1 within a job, over restarts and restores.
        job_id: 32 hexadecimal digits, the folder's name.
        job_name: what the program calls the job.
        epoch: the last epoch that is in the state.
        source_position: where the source goes on, as the source wrote it (JSON).
        counters: record counts up to this epoch.
        timestamp_ms: when the checkpoint was triggered, since 1970.
        operators: their state.
        watermarks: where event time stood, by the ids of assigners and operators, in ms since 1970.
        runs: the runs of the job that led here, oldest first: the id of each, and the epoch that it began
            after. Empty where the writer did not know of runs.
    """

    checkpoint_id: int
    job_id: str
    job_name: str
    epoch: int
    source_position: Any
    counters: dict[str, int]
    timestamp_ms: int
    operators: tuple[OperatorState, ...]
    watermarks: dict[str, int] = attrs.Factory(dict)
    runs: tuple[tuple[str, int], ...] = ()

    def operator(self, operator_id: str) -> OperatorState | None:
        """Return the state of an operator, or None where the checkpoint has none of it."""
        return next((state for state in self.operators if state.operator_id == operator_id), None)

    def encode(self) -> bytes:
        """Return the bytes of ``_metadata``."""
        content = {
            "checkpoint_id": self.checkpoint_id,
            "job_id": self.job_id,
            "job_name": self.job_name,
            "epoch": self.epoch,
            "source_position": self.source_position,
            "counters": self.counters,
            "timestamp_ms": self.timestamp_ms,
            "watermarks": self.watermarks,
            "operators": [
                {
                    "operator_id": state.operator_id,
                    "parallelism": state.parallelism,
                    "max_parallelism": state.max_parallelism,
                    "subtasks": [_subtask_to_json(subtask) for subtask in state.subtasks],
                }
                for state in self.operators
            ],
        }
        if self.runs:
            content["runs"] = [list(run) for run in self.runs]
        return encode_head(MAGIC, VERSION, content)

    @classmethod
    def decode(cls, data: bytes, what: str) -> CheckpointMetadata:
        """Return the metadata that ``encode`` was called on; ``what`` names the file in errors."""
        content = decode_head(data, MAGIC, READABLE_VERSIONS, what)
        try:
            operators = tuple(
                OperatorState(
                    state["operator_id"],
                    state["parallelism"],
                    state["max_parallelism"],
                    _subtasks_from_json(state),
                )
                for state in content.pop("operators")
            )
            runs = tuple((str(run), int(epoch)) for run, epoch in content.pop("runs", ()))
            return cls(operators=operators, runs=runs, **content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                f"{what} is damaged: its content does not make sense ({error!r})", file=what
            ) from error


def _subtask_to_json(state: OperatorSubtaskState) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if state.managed_keyed is not None:
        content["managed_keyed"] = _keyed_to_json(state.managed_keyed)
    if state.raw_keyed is not None:
        content["raw_keyed"] = _keyed_to_json(state.raw_keyed)
    if state.managed_operator is not None:
        content["managed_operator"] = _operator_to_json(state.managed_operator)
    if state.raw_operator is not None:
        content["raw_operator"] = _raw_operator_to_json(state.raw_operator)
    return content


def _subtasks_from_json(content: dict[str, Any]) -> tuple[OperatorSubtaskState, ...]:
    if "handles" in content:  # version 1 knew managed keyed state alone
        return tuple(OperatorSubtaskState(_keyed_from_json(handle)) for handle in content["handles"])
    return tuple(map(_subtask_from_json, content["subtasks"]))


def _subtask_from_json(content: dict[str, Any]) -> OperatorSubtaskState:
    readers: dict[str, Callable[[Any], Any]] = {
        "managed_keyed": _keyed_from_json,
        "raw_keyed": _keyed_from_json,
        "managed_operator": _operator_from_json,
        "raw_operator": _raw_operator_from_json,
    }
    return OperatorSubtaskState(**{kind: readers[kind](handle) for kind, handle in content.items()})


def _keyed_to_json(handle: KeyGroupsStateHandle) -> dict[str, Any]:
    content: dict[str, Any] = {
        "key_groups": [handle.key_group_range.start, handle.key_group_range.end],
        "stream": _stream_to_json(handle.stream),
        "sections": {
            state: {str(group): list(attrs.astuple(section)) for group, section in sections.items()}
            for state, sections in handle.sections.items()
        },
    }
    if handle.key_hash_version != FIRST_KEY_HASH:
        content["key_hash"] = handle.key_hash_version
    if handle.checkpoint_id is not None:
        content["checkpoint_id"] = handle.checkpoint_id
    if handle.increments:
        content["increments"] = list(map(_keyed_to_json, handle.increments))
    return content


def _keyed_from_json(content: dict[str, Any]) -> KeyGroupsStateHandle:
    return KeyGroupsStateHandle(
        KeyGroupRange(*content["key_groups"]),
        _stream_from_json(content["stream"]),
        {
            state: {int(group): Section(*section) for group, section in sections.items()}
            for state, sections in content["sections"].items()
        },
        tuple(map(_keyed_from_json, content.get("increments", ()))),
        content.get("checkpoint_id"),
        content.get("key_hash", FIRST_KEY_HASH),
    )


def _operator_to_json(handle: OperatorStateHandle) -> dict[str, Any]:
    return {
        "stream": _stream_to_json(handle.stream),
        "states": {
            name: {
                "mode": entry.mode.value,
                "section": list(attrs.astuple(entry.section)),
                "count": entry.count,
            }
            for name, entry in handle.states.items()
        },
    }


def _operator_from_json(content: dict[str, Any]) -> OperatorStateHandle:
    states = {
        name: OperatorStateEntry(OperatorStateMode(entry["mode"]), Section(*entry["section"]), entry["count"])
        for name, entry in content["states"].items()
    }
    return OperatorStateHandle(_stream_from_json(content["stream"]), states)


def _raw_operator_to_json(handle: RawOperatorStateHandle) -> dict[str, Any]:
    partitions = [list(attrs.astuple(section)) for section in handle.partitions]
    return {"stream": _stream_to_json(handle.stream), "partitions": partitions}


def _raw_operator_from_json(content: dict[str, Any]) -> RawOperatorStateHandle:
    partitions = tuple(Section(*section) for section in content["partitions"])
    return RawOperatorStateHandle(_stream_from_json(content["stream"]), partitions)


def _stream_to_json(stream: StreamStateHandle) -> dict[str, Any]:
    if isinstance(stream, ByteStreamStateHandle):
        return {"inline": base64.b64encode(stream.data).decode()}
    return {"path": stream.path, "size_bytes": stream.size_bytes}


def _stream_from_json(content: dict[str, Any]) -> StreamStateHandle:
    if "inline" in content:
        return ByteStreamStateHandle(base64.b64decode(content["inline"]))
    return FileStateHandle(content["path"], content["size_bytes"])
