"""Migration of a restored operator state, column by column."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.operator_state.states import HeapOperatorState, create_operator_state
from pyflinkstate.backends.types import (
    Migration,
    RegisteredOperatorStateMeta,
    common_type,
    type_migration,
    unchanged,
)
from pyflinkstate.errors import StateMigrationError

Columns = tuple[list[StateValue], ...]


def no_clock() -> int:
    """Return 0: operator state has no time to live, so no value is stamped."""
    return 0


@attrs.frozen
class OperatorStateMigration:
    """How the columns of a state become those of another type. Their number stays the same."""

    was: RegisteredOperatorStateMeta
    now: RegisteredOperatorStateMeta
    columns: tuple[Migration, ...]

    @classmethod
    def of(
        cls, was: RegisteredOperatorStateMeta, now: RegisteredOperatorStateMeta, loads_pickles: bool = False
    ) -> OperatorStateMigration:
        """Return the migration; raise ``ValueError``, with the reason, if the state cannot change so."""
        if was.mode is not now.mode:
            raise ValueError("the way of redistribution cannot change")
        pairs = zip(was.columns, now.columns, strict=True)
        columns = [
            type_migration(before, after, no_clock, loads_pickles, is_key=name == "key")
            for (name, before), (_, after) in pairs
        ]
        return cls(was, now, tuple(columns))

    @property
    def dropped(self) -> list[str]:
        """Descriptions of the row fields that are dropped."""
        return [field for column in self.columns for field in column.dropped]

    def converted(self, columns: Columns) -> Columns:
        """Return the converted columns; raise ``StateMigrationError`` if a value does not fit."""
        converted = tuple(
            list(column) if migration.convert is unchanged else list(self._values(migration, column, columns))
            for migration, column in zip(self.columns, columns, strict=True)
        )
        is_map = len(columns) > 1
        if is_map and len(set(converted[0])) != len(columns[0]):
            raise self._misfit("two of its keys would be one")
        return converted

    def moved(self, state: HeapOperatorState) -> HeapOperatorState:
        """Return a new state with the converted content of ``state``, which stays as it is."""
        made = create_operator_state(self.now)
        made.load(self.converted(state.columns()))
        return made

    def _values(
        self, migration: Migration, column: list[StateValue], columns: Columns
    ) -> Iterator[StateValue]:
        for index, value in enumerate(column):
            try:
                yield migration.convert(value)
            except ValueError as error:
                where = f"key {safe_repr(columns[0][index])}" if len(columns) > 1 else f"element {index}"
                raise self._misfit(f"{where}: {error}") from error

    def _misfit(self, reason: str) -> StateMigrationError:
        name = self.was.name
        return StateMigrationError(f"operator state {name!r}: {reason}; nothing has been changed", state=name)


def common_operator_meta(
    one: RegisteredOperatorStateMeta, other: RegisteredOperatorStateMeta
) -> RegisteredOperatorStateMeta:
    """Return the metadata with the common type of both; raise ``ValueError`` if they have none."""
    stored_type = common_type(one.stored_type, other.stored_type)
    if stored_type is None or one.mode is not other.mode:
        raise ValueError(f"{one} and {other} have nothing in common")
    return attrs.evolve(one, stored_type=stored_type)
