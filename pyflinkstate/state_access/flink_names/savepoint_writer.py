"""Flink's name for what writes a savepoint."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.state_access.checkpoint import Checkpoint
from pyflinkstate.state_access.flink_names.operator_identifier import (
    OperatorIdentifier,
    check_path_first,
    uid_of,
)
from pyflinkstate.state_access.flink_names.operator_transformation import StateBootstrapTransformation
from pyflinkstate.state_access.writing import CheckpointEdit, edit, new_savepoint

#: The number of key groups of operators that do not set it, as in Flink up to a parallelism of 85.
DEFAULT_MAX_PARALLELISM = 128


@attrs.frozen
class SavepointWriter:
    """Writes a savepoint (``org.apache.flink.state.api.SavepointWriter``).

    It needs no execution environment and no state backend. :func:`edit` and :func:`new_savepoint` can do
    more: change values, types and key groups.

    Attributes:
        changed: the savepoint in the making.
        max_parallelism: the number of key groups of new operators that do not set it.
    """

    changed: CheckpointEdit
    max_parallelism: int = DEFAULT_MAX_PARALLELISM

    @staticmethod
    def new_savepoint(
        job_name: str,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> SavepointWriter:
        """Begin an empty savepoint.

        Args:
            job_name: the name of the job that will start from it, which a restore compares; Flink has none.
            max_parallelism: the number of key groups of operators that do not set it.
            clock: returns the time in ms since 1970.
        """
        return SavepointWriter(new_savepoint(job_name, clock=clock), max_parallelism)

    @staticmethod
    def from_existing_savepoint(path: AnyPath, clock: Callable[[], int] = wall_clock_ms) -> SavepointWriter:
        """Begin a savepoint with the operators of another one, which stays as it is.

        Errors are those of :func:`open_checkpoint`.

        Raises:
            ConfigurationError: ``path`` is no path, such as the environment that Flink takes first.
        """
        check_path_first("SavepointWriter.from_existing_savepoint()", path)
        return SavepointWriter(edit(path, clock=clock))

    def with_operator(
        self, identifier: str | OperatorIdentifier, transformation: StateBootstrapTransformation
    ) -> SavepointWriter:
        """Add an operator; raise ``ConfigurationError`` if there is one of that uid."""
        most = transformation.max_parallelism
        self.changed.bootstrap(
            uid_of(identifier),
            transformation.data,
            key=transformation.key,
            function=transformation.function,
            key_type=transformation.key_type,
            timestamp=transformation.timestamp,
            max_parallelism=self.max_parallelism if most is None else most,
        )
        return self

    def remove_operator(self, identifier: str | OperatorIdentifier) -> SavepointWriter:
        """Leave out an operator; raise ``UnknownOperatorError`` if there is none of that uid."""
        self.changed.drop(uid_of(identifier))
        return self

    def change_operator_identifier(
        self, from_identifier: str | OperatorIdentifier, to_identifier: str | OperatorIdentifier
    ) -> SavepointWriter:
        """Give an operator another uid; errors are those of :meth:`CheckpointEdit.rename_uid`."""
        self.changed.rename_uid(uid_of(from_identifier), uid_of(to_identifier))
        return self

    def write(self, path: AnyPath) -> Checkpoint:
        """Write the savepoint; see :meth:`CheckpointEdit.write`."""
        return self.changed.write(path)
