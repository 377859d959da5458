"""The four parts of an operator's snapshot, and how they become one acknowledgement."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs

from pyflinkstate.backends.format import (
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
)
from pyflinkstate.backends.snapshots.snapshot_strategy import SnapshotTask
from pyflinkstate.errors import CheckpointError


@attrs.frozen
class OperatorSnapshotFutures:
    """The parts of one snapshot that are still to be written (Flink: ``OperatorSnapshotFutures``)."""

    streams: CheckpointStreamFactory
    managed_keyed: SnapshotTask[KeyGroupsStateHandle]
    raw_keyed: SnapshotTask[KeyGroupsStateHandle]
    managed_operator: SnapshotTask[OperatorStateHandle]
    raw_operator: SnapshotTask[RawOperatorStateHandle]
    #: The streams for managed keyed state, if they differ from ``streams``.
    keyed_streams: CheckpointStreamFactory | None = None

    def cancel(self) -> None:
        """Stop all four. Idempotent, on any thread."""
        for task in self._tasks():
            task.cancel()

    def finish(self) -> OperatorSubtaskState:
        """Write all four and return them as one (Flink: ``OperatorSnapshotFinalizer``).

        If one fails, the others are cancelled, the files are deleted, and the error is raised.
        """
        try:
            return OperatorSubtaskState(
                self.managed_keyed.finish(),
                self.raw_keyed.finish(),
                self.managed_operator.finish(),
                self.raw_operator.finish(),
            )
        except BaseException:
            self.cancel()
            self._discard()
            raise

    def _discard(self) -> None:
        for task in self._tasks():
            if task.handle is not None:
                own = self.keyed_streams if task is self.managed_keyed else None
                streams = own or self.streams
                with contextlib.suppress(CheckpointError):
                    streams.discard(task.handle.stream)

    def _tasks(self) -> tuple[SnapshotTask[Any], ...]:
        return self.managed_keyed, self.raw_keyed, self.managed_operator, self.raw_operator
