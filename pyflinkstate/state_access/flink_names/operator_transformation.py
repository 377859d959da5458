"""Flink's names for making the state of an operator from rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import ArrowObject, SparkObject
from pyflinkstate.state_access.writing import StateBootstrapFunction

#: The name of a column, or a function of a row.
Selector = str | Callable[[Any], Any]


class OperatorTransformation:
    """Begins the transformation of rows to state (``org.apache.flink.state.api.OperatorTransformation``)."""

    @staticmethod
    def bootstrap_with(data: ArrowObject | SparkObject) -> OneInputStateTransformation:
        """Return the transformation of rows: a table, records, or a Spark ``DataFrame``.

        :meth:`CheckpointEdit.bootstrap` says what is taken, and what the function gets.
        """
        return OneInputStateTransformation(data)


@attrs.frozen
class StateBootstrapTransformation:
    """The state of an operator in a savepoint that is to be written.

    Attributes:
        data: the rows.
        function: makes state of them.
        key: the key of a row; None for operator state.
        key_type: the declared type of keys.
        timestamp: the event time of a row, in ms since 1970.
        max_parallelism: the number of key groups; None for that of the savepoint.
    """

    data: ArrowObject | SparkObject = attrs.field(repr=False)
    function: Any
    key: Selector | None = None
    key_type: TypeInformation | None = None
    timestamp: Selector | None = None
    max_parallelism: int | None = None

    def set_max_parallelism(self, max_parallelism: int) -> StateBootstrapTransformation:
        """Return the same with another number of key groups."""
        return attrs.evolve(self, max_parallelism=max_parallelism)


@attrs.frozen
class OneInputStateTransformation:
    """Rows without keys."""

    data: ArrowObject | SparkObject = attrs.field(repr=False)
    timestamp: Selector | None = None

    def assign_timestamps(self, timestamp: Selector) -> OneInputStateTransformation:
        """Give rows their event time, in ms since 1970: the name of a column, or a function of a row."""
        return attrs.evolve(self, timestamp=timestamp)

    def key_by(
        self, key_selector: Selector, key_type: TypeInformation | None = None
    ) -> KeyedOperatorTransformation:
        """Give rows their keys, as ``DataStream.key_by`` does; a name stands for a column."""
        return KeyedOperatorTransformation(self.data, key_selector, key_type, self.timestamp)

    def transform(self, function: StateBootstrapFunction) -> StateBootstrapTransformation:
        """Make operator state of the rows."""
        return StateBootstrapTransformation(self.data, function, timestamp=self.timestamp)


@attrs.frozen
class KeyedOperatorTransformation:
    """Rows with keys."""

    data: ArrowObject | SparkObject = attrs.field(repr=False)
    key: Selector
    key_type: TypeInformation | None = None
    timestamp: Selector | None = None

    def transform(self, function: KeyedProcessFunction[Any, Any, Any]) -> StateBootstrapTransformation:
        """Make keyed state of the rows, with a ``KeyedStateBootstrapFunction``."""
        return StateBootstrapTransformation(self.data, function, self.key, self.key_type, self.timestamp)
