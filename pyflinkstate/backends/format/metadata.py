"""``_metadata``: what makes a folder of state files a completed checkpoint.

One head (see :mod:`pyflinkstate.backends.format.framing`) with everything in it as JSON; state small
enough to be inlined is in there as base64. The file is never unpickled.
"""

from __future__ import annotations

import base64
from typing import Any

import attrs

from pyflinkstate.backends.format.framing import decode_head, encode_head
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.state_handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    Section,
    StreamStateHandle,
)
from pyflinkstate.errors import CorruptCheckpointError

MAGIC = b"PFSCHKPT"
VERSION = 1


@attrs.frozen
class OperatorState:
    """The state of one operator, one handle for each subtask that had one (Flink: ``OperatorState``)."""

    operator_id: str
    parallelism: int
    max_parallelism: int
    handles: tuple[KeyGroupsStateHandle, ...]


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
    """

    checkpoint_id: int
    job_id: str
    job_name: str
    epoch: int
    source_position: Any
    counters: dict[str, int]
    timestamp_ms: int
    operators: tuple[OperatorState, ...]

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
            "operators": [
                {
                    "operator_id": state.operator_id,
                    "parallelism": state.parallelism,
                    "max_parallelism": state.max_parallelism,
                    "handles": [_handle_to_json(handle) for handle in state.handles],
                }
                for state in self.operators
            ],
        }
        return encode_head(MAGIC, VERSION, content)

    @classmethod
    def decode(cls, data: bytes, what: str) -> CheckpointMetadata:
        """Return the metadata that ``encode`` was called on; ``what`` names the file in errors."""
        content = decode_head(data, MAGIC, VERSION, what)
        try:
            operators = tuple(
                OperatorState(
                    state["operator_id"],
                    state["parallelism"],
                    state["max_parallelism"],
                    tuple(_handle_from_json(handle) for handle in state["handles"]),
                )
                for state in content.pop("operators")
            )
            return cls(operators=operators, **content)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptCheckpointError(
                f"{what} is damaged: its content does not make sense ({error!r})", file=what
            ) from error


def _handle_to_json(handle: KeyGroupsStateHandle) -> dict[str, Any]:
    return {
        "key_groups": [handle.key_group_range.start, handle.key_group_range.end],
        "stream": _stream_to_json(handle.stream),
        "sections": {
            state: {str(group): list(attrs.astuple(section)) for group, section in sections.items()}
            for state, sections in handle.sections.items()
        },
    }


def _handle_from_json(content: dict[str, Any]) -> KeyGroupsStateHandle:
    return KeyGroupsStateHandle(
        KeyGroupRange(*content["key_groups"]),
        _stream_from_json(content["stream"]),
        {
            state: {int(group): Section(*section) for group, section in sections.items()}
            for state, sections in content["sections"].items()
        },
    )


def _stream_to_json(stream: StreamStateHandle) -> dict[str, Any]:
    if isinstance(stream, ByteStreamStateHandle):
        return {"inline": base64.b64encode(stream.data).decode()}
    return {"path": stream.path, "size_bytes": stream.size_bytes}


def _stream_from_json(content: dict[str, Any]) -> StreamStateHandle:
    if "inline" in content:
        return ByteStreamStateHandle(base64.b64decode(content["inline"]))
    return FileStateHandle(content["path"], content["size_bytes"])
