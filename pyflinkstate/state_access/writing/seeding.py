"""Runs a function over rows on a real state backend, and writes its snapshot.

So a seeded operator has exactly the state that the same rows would have given it in a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import attrs

from pyflinkstate.api.values import Key, Record
from pyflinkstate.backends.format import CheckpointStreamFactory, OperatorSubtaskState
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.errors import StateTableError
from pyflinkstate.runtime.operators import (
    KeyedSubtask,
    OneInputOperator,
    OperatorContext,
    Output,
    StreamOperatorState,
    close_after_error,
    closed_at_end,
)
from pyflinkstate.runtime.plan import Partitioning
from pyflinkstate.runtime.tasks import Router
from pyflinkstate.runtime.wire import CheckpointTrigger, InputFrame, loads, user_failure
from pyflinkstate.state_access.key_space import KeySpace

#: The number of records that are processed at once.
RECORDS_PER_FRAME = 4096


@attrs.frozen
class Field:
    """Selects a column of a row."""

    name: str

    def __call__(self, row: Any) -> Any:
        """Return the cell."""
        return row[self.name]


@attrs.frozen
class SeedSettings:
    """How rows become the records of an operator.

    Attributes:
        keys: the operator and its keys.
        function: a pickle of the function.
        select_key: returns the key of a row; None if there are no keys.
        timestamp_of: returns the event time of a row, in ms since 1970; None if rows have none.
        parallelism: the number of subtasks that write the state.
        clock: returns the time in ms since 1970.
    """

    keys: KeySpace
    function: bytes = attrs.field(repr=False)
    select_key: Callable[[Any], Key] | None
    timestamp_of: Callable[[Any], int] | None
    parallelism: int
    clock: Callable[[], int]

    def frames(self, partition: int, rows: Iterable[Record]) -> Iterator[tuple[int, InputFrame]]:
        """Yield the rows of a partition as frames, each with the subtask that it is for."""
        split, iterator = self._router().splitter(partition), iter(rows)
        while batch := list(islice(iterator, RECORDS_PER_FRAME)):
            times = None if self.timestamp_of is None else list(map(self._timestamp, batch))
            yield from split(batch, times)

    def _timestamp(self, row: Record) -> int:
        assert self.timestamp_of is not None
        try:
            found = self.timestamp_of(row)
        except Exception as error:
            raise user_failure(error, self.keys.uid, row) from error
        if type(found) is not int:
            raise StateTableError(
                f"operator {self.keys.uid!r}: the timestamp of a row is {found!r}, and must be a whole "
                f"number, ms since 1970: give a function of the row"
            )
        return found

    def _router(self) -> Router:
        keys, by_key = self.keys, self.select_key is not None
        return Router(
            keys.uid,
            self.select_key or _no_key,
            keys.key_type,
            self.parallelism,
            keys.max_parallelism,
            Partitioning.KEY if by_key else Partitioning.FORWARD,
        )


def _no_key(_: Record) -> None:
    return None


def seeded(
    settings: SeedSettings,
    frames: Iterable[InputFrame],
    streams: CheckpointStreamFactory,
    uri: str,
    subtask: int = 0,
) -> OperatorSubtaskState:
    """Process the rows of a subtask, write its state, and close the function, whatever happens.

    Raises:
        UserFunctionError: the function raised.
        CheckpointStorageError: the state cannot be written.
    """
    seeder = Seeder(settings, subtask)
    with closed_at_end(seeder.close):
        for frame in frames:
            seeder.feed(frame)
        return seeder.write(streams, uri)


class Seeder:
    """One subtask of a seeded operator.

    Args:
        settings: the operator.
        subtask: the number of the subtask, from 0.

    Raises:
        UserFunctionError: the function raised while it was opened.
    """

    def __init__(self, settings: SeedSettings, subtask: int = 0) -> None:
        keys, parallelism, self._settings = settings.keys, settings.parallelism, settings
        backend, function = HashMapStateBackend(), loads(settings.function)
        owned = key_group_range(keys.max_parallelism, parallelism, subtask)
        keyed = backend.create_keyed_state_backend(keys.key_type, owned, keys.max_parallelism, settings.clock)
        state = StreamOperatorState(
            keyed, backend.create_operator_state_backend(), backend.snapshot_compression
        )
        context = OperatorContext(keys.uid, subtask, parallelism, keys.max_parallelism, 0, keyed)
        operator = function if settings.select_key is not None else OneInputOperator("process", function)
        self._subtask = KeyedSubtask(operator, context, state)
        try:
            self._subtask.open()
        except BaseException:
            close_after_error(self.close)
            raise

    def feed(self, frame: InputFrame) -> None:
        """Process rows; raise ``UserFunctionError`` if the function raises."""
        self._subtask.process_frame(frame, Output())

    def write(self, streams: CheckpointStreamFactory, uri: str) -> OperatorSubtaskState:
        """Write the state; raise ``CheckpointStorageError`` if that fails."""
        trigger = CheckpointTrigger(1, self._settings.clock(), uri)
        return self._subtask.snapshot(trigger, streams).futures.finish()

    def close(self) -> None:
        """Close the function."""
        self._subtask.close()


def subtasks_of(states: Iterable[tuple[int, OperatorSubtaskState]]) -> list[OperatorSubtaskState]:
    """Return the states of subtasks in the order of their numbers."""
    return [state for _, state in sorted(states, key=lambda pair: pair[0])]
