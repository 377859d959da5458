"""Flink's name for what reads a savepoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    IncompatibleCheckpointError,
    StateRegistrationError,
    UnknownStateError,
)
from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.flink_names.keyed_state_input import KeyedStateInput
from pyflinkstate.state_access.flink_names.keyed_state_reader_function import KeyedStateReaderFunction
from pyflinkstate.state_access.flink_names.operator_identifier import (
    OperatorIdentifier,
    check_path_first,
    uid_of,
)
from pyflinkstate.state_access.tables import StateTable


@attrs.frozen
class SavepointReader:
    """Reads a savepoint or checkpoint (``org.apache.flink.state.api.SavepointReader``).

    It needs no execution environment and no state backend: the reading is done in this process, and results
    are iterators instead of streams. :func:`open_checkpoint` reads the same as tables.

    Attributes:
        checkpoint: the same, as tables.
    """

    checkpoint: Checkpoint

    @staticmethod
    def read(path: AnyPath, clock: Callable[[], int] = wall_clock_ms) -> SavepointReader:
        """Open a savepoint; arguments and errors are those of :func:`open_checkpoint`.

        Raises:
            ConfigurationError: ``path`` is no path, such as the environment that Flink takes first.
        """
        check_path_first("SavepointReader.read()", path)
        return SavepointReader(open_checkpoint(path, clock))

    def read_keyed_state(
        self,
        uid: str | OperatorIdentifier,
        function: KeyedStateReaderFunction[Any, Any],
        *,
        allow_pickle: bool = False,
    ) -> Iterator[Any]:
        """Return an iterator of what ``function`` gives out for each key.

        Keys come a range of key groups after another, in no other order. Types of keys and results need not
        be declared.

        Args:
            uid: the operator.
            function: reads the state of a key.
            allow_pickle: load pickled keys and values, which runs code.

        Raises:
            UnknownOperatorError: the savepoint has no such operator.
            PickledStateError: keys are pickled, and must not be loaded.
            StateRegistrationError: ``function`` is no reader function. What a descriptor in it asks for is
                checked when the first result is asked for: ``UnknownStateError``, ``StateMigrationError``.
                What it raises then is a ``UserFunctionError`` that names the key.
        """
        if not isinstance(function, KeyedStateReaderFunction):
            raise StateRegistrationError(f"a KeyedStateReaderFunction is needed here, not {function!r}")
        return KeyedStateInput(self.checkpoint, uid_of(uid), function, allow_pickle).read()

    def read_list_state(
        self,
        uid: str | OperatorIdentifier,
        name: str,
        type_info: TypeInformation | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Iterator[Any]:
        """Return an iterator of the elements of a list state of an operator, of all subtasks.

        Args:
            uid: the operator.
            name: the name of the state.
            type_info: the type of elements, to be checked. The checkpoint knows it.
            allow_pickle: load pickled elements, which runs code; they are bytes otherwise.

        Raises:
            UnknownOperatorError, UnknownStateError: the savepoint has no such operator or list state.
            IncompatibleCheckpointError: its elements are of another type.
        """
        table = self._operator_state(uid, name, "SPLIT_DISTRIBUTE", {"value": type_info}, allow_pickle)
        return (row["value"] for row in table.rows())

    def read_union_state(
        self,
        uid: str | OperatorIdentifier,
        name: str,
        type_info: TypeInformation | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Iterator[Any]:
        """Return an iterator of the elements of a union list state; see :meth:`read_list_state`."""
        table = self._operator_state(uid, name, "UNION", {"value": type_info}, allow_pickle)
        return (row["value"] for row in table.rows())

    def read_broadcast_state(
        self,
        uid: str | OperatorIdentifier,
        name: str,
        key_type_info: TypeInformation | None = None,
        value_type_info: TypeInformation | None = None,
        *,
        allow_pickle: bool = False,
    ) -> Iterator[tuple[Any, Any]]:
        """Return an iterator of the entries of a broadcast state, as pairs; see :meth:`read_list_state`."""
        types = {"key": key_type_info, "value": value_type_info}
        table = self._operator_state(uid, name, "BROADCAST", types, allow_pickle)
        return ((row["key"], row["value"]) for row in table.rows())

    def _operator_state(
        self,
        operator: str | OperatorIdentifier,
        name: str,
        mode: str,
        types: dict[str, TypeInformation | None],
        allow_pickle: bool,
    ) -> StateTable:
        uid = uid_of(operator)
        table = self.checkpoint.operator_state(uid, name, allow_pickle=allow_pickle)
        (found,) = {
            state.kind for state in self.checkpoint.states(uid) if state.name == name and state.kind in _MODES
        }
        if found != mode:
            raise UnknownStateError(
                f"operator state {name!r} of {uid!r} is {_MODES[found]}, not {_MODES[mode]}: read it with "
                f"{_METHODS[found]}()",
                uid=uid,
                state=name,
            )
        for column in table.columns:
            _check(name, column.type_info, types.get(column.name))
        return table


_MODES = {"SPLIT_DISTRIBUTE": "a list", "UNION": "a union list", "BROADCAST": "a broadcast state"}
_METHODS = {
    "SPLIT_DISTRIBUTE": "read_list_state",
    "UNION": "read_union_state",
    "BROADCAST": "read_broadcast_state",
}


def _check(name: str, stored: TypeInformation | None, asked: TypeInformation | None) -> None:
    if asked is not None and asked != stored:
        raise IncompatibleCheckpointError(
            f"operator state {name!r} is of {stored} in the checkpoint, and is asked for as {asked}",
            state=name,
        )
