"""Harnesses by the kind of operator; names after Flink's test harnesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from pyflinkstate.api.broadcast import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from pyflinkstate.api.composite_types import check_type
from pyflinkstate.api.connected import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from pyflinkstate.api.descriptors import MapStateDescriptor
from pyflinkstate.api.functions import KeyedProcessFunction, KeySelector
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import Record, SelectKey, UserFunction
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import (
    KINDS,
    BroadcastOperator,
    OneInputOperator,
    Output,
    StatefulOperator,
    TwoInputOperator,
)
from pyflinkstate.runtime.plan import Input, Partitioning, SourceNode
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.testing.operator_harness import OperatorHarness

Selector = SelectKey | KeySelector

_TWO_INPUTS = (CoMapFunction, CoFlatMapFunction)
#: Inputs need a parent node; any node will do here.
_NOWHERE = SourceNode(CollectionSource([]), "test")


class KeyedOneInputOperatorHarness(OperatorHarness):
    """An operator on a keyed stream (Flink: ``KeyedOneInputStreamOperatorTestHarness``).

    Args:
        function: a ``KeyedProcessFunction``, or an operator such as a window operator.
        key_selector: returns each record's key.
        key_type: the type of keys. Default: any key.
        **options: see :class:`OperatorHarness`.

    >>> from pyflinkstate import KeyedProcessFunction, ValueStateDescriptor
    >>> class Count(KeyedProcessFunction):
    ...     def open(self, runtime_context):
    ...         self.count = runtime_context.get_state(ValueStateDescriptor("count"))
    ...     def process_element(self, value, ctx):
    ...         self.count.update((self.count.value() or 0) + 1)
    ...         yield value, self.count.value()
    >>> harness = KeyedOneInputOperatorHarness(Count(), key_selector=lambda word: word)
    >>> harness.process_element("a"), harness.process_element("a")
    ([('a', 1)], [('a', 2)])
    >>> again = KeyedOneInputOperatorHarness(Count(), lambda word: word, restore=[harness.snapshot()])
    >>> again.process_element("a")
    [('a', 3)]
    """

    def __init__(
        self,
        function: UserFunction,
        key_selector: Selector,
        key_type: TypeInformation | None = None,
        **options: Any,
    ) -> None:
        _check(function, KeyedProcessFunction)
        super().__init__(function, (keyed_input(key_selector, key_type),), **options)

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one record; return the values of its results in the main output.

        Args:
            value: the record.
            timestamp: its event time in ms since 1970.

        Raises:
            KeyGroupRangeError: the key belongs to another subtask.
            PyFlinkStateError: an error that would fail the job, such as ``UserFunctionError``.
        """
        return self._process(0, value, timestamp)

    def process_initial_state(self, value: Record) -> None:
        """Process one row of initial state, with ``handle_initial_state``; its key is selected as that of a
        record.

        Raises:
            KeyGroupRangeError, PyFlinkStateError: as for :meth:`process_element`.
        """
        frame = attrs.evolve(self._frame(0, value, None), input=1)
        self.subtask.process_frame(frame, Output())


class _TwoInputs(OperatorHarness):
    """An operator with two inputs, each with a watermark of its own."""

    def process_element1(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one record of the first input; return the values of its results in the main output."""
        return self._process(0, value, timestamp)

    def process_element2(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one record of the second input; return the values of its results in the main output."""
        return self._process(1, value, timestamp)

    def process_watermark1(self, timestamp: int) -> list[Record]:
        """Advance the watermark of the first input; the operator's watermark is the lesser of the two."""
        return self._advance(0, timestamp)

    def process_watermark2(self, timestamp: int) -> list[Record]:
        """Advance the watermark of the second input; the operator's watermark is the lesser of the two."""
        return self._advance(1, timestamp)


class KeyedTwoInputOperatorHarness(_TwoInputs):
    """An operator on two keyed streams (Flink: ``KeyedTwoInputStreamOperatorTestHarness``).

    Args:
        function: a ``KeyedCoProcessFunction``, ``CoProcessFunction``, ``CoMapFunction`` or
            ``CoFlatMapFunction``.
        key_selector1: returns the key of each record of the first input.
        key_selector2: returns the key of each record of the second input; equal keys meet.
        key_type: the type of keys. Default: any key.
        **options: see :class:`OperatorHarness`.
    """

    def __init__(
        self,
        function: UserFunction,
        key_selector1: Selector,
        key_selector2: Selector,
        key_type: TypeInformation | None = None,
        **options: Any,
    ) -> None:
        _check(function, KeyedCoProcessFunction, CoProcessFunction, *_TWO_INPUTS)
        inputs = keyed_input(key_selector1, key_type), keyed_input(key_selector2, key_type)
        super().__init__(function, inputs, **options)


class TwoInputOperatorHarness(_TwoInputs):
    """An operator on two streams without keys (Flink: ``TwoInputStreamOperatorTestHarness``).

    Args:
        function: a ``CoProcessFunction``, ``CoMapFunction`` or ``CoFlatMapFunction``.
        **options: see :class:`OperatorHarness`.
    """

    def __init__(self, function: UserFunction, **options: Any) -> None:
        _check(function, CoProcessFunction, *_TWO_INPUTS)
        operator = function
        if not isinstance(function, StatefulOperator):
            operator = TwoInputOperator(function, is_keyed=False)
        inputs = Input(_NOWHERE, Partitioning.FORWARD), Input(_NOWHERE, Partitioning.FORWARD)
        super().__init__(operator, inputs, **options)


class CheckpointedOperatorHarness(OperatorHarness):
    """An operator of one input without keys, whose function takes part in checkpoints.

    Args:
        function: a ``MapFunction``, ``FlatMapFunction``, ``FilterFunction`` or ``ProcessFunction`` that is a
            ``CheckpointedFunction`` or ``CheckpointListener`` too.
        **options: see :class:`OperatorHarness`.
    """

    def __init__(self, function: UserFunction, **options: Any) -> None:
        _check(function, *KINDS.values())
        kinds = [kind for kind, expected in KINDS.items() if isinstance(function, expected)]
        operator = OneInputOperator(kinds[0], function) if kinds else function
        super().__init__(operator, (Input(_NOWHERE, Partitioning.FORWARD),), **options)

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one record; return the values of its results in the main output."""
        return self._process(0, value, timestamp)


class BroadcastOperatorHarness(OperatorHarness):
    """An operator whose second input is broadcast (Flink: ``KeyedBroadcastOperatorTestHarness``).

    Args:
        function: a ``KeyedBroadcastProcessFunction``, or a ``BroadcastProcessFunction`` without keys.
        broadcast_state_descriptors: describe the states with which the stream is broadcast.
        key_selector: returns the key of each record of the first input; None for a stream without keys.
        key_type: the type of keys. Default: any key.
        **options: see :class:`OperatorHarness`.
    """

    def __init__(
        self,
        function: UserFunction,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
        key_selector: Selector | None = None,
        key_type: TypeInformation | None = None,
        **options: Any,
    ) -> None:
        is_keyed = key_selector is not None
        _check(function, KeyedBroadcastProcessFunction if is_keyed else BroadcastProcessFunction)
        first = keyed_input(key_selector, key_type) if is_keyed else Input(_NOWHERE, Partitioning.FORWARD)
        operator = function
        if not isinstance(function, StatefulOperator):
            operator = BroadcastOperator(function, tuple(broadcast_state_descriptors), is_keyed)
        super().__init__(operator, (first, Input(_NOWHERE, Partitioning.BROADCAST)), **options)

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one record of the stream that is not broadcast; return the values of its results."""
        return self._process(0, value, timestamp)

    def process_broadcast_element(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one broadcast record; return the values of its results."""
        return self._process(1, value, timestamp)


def keyed_input(key_selector: UserFunction, key_type: TypeInformation | None) -> Input:
    """Return an input whose records have keys."""
    if not (callable(key_selector) or isinstance(key_selector, KeySelector)):
        raise ConfigurationError(f"key_selector must be a callable or a KeySelector, not {key_selector!r}")
    check_type("key_type", key_type)
    return Input(_NOWHERE, Partitioning.KEY, key_selector, key_type or Types.PICKLED_BYTE_ARRAY())


def _check(function: UserFunction, *expected: type) -> None:
    if not isinstance(function, (*expected, StatefulOperator)):
        names = ", ".join(kind.__name__ for kind in expected)
        raise ConfigurationError(
            f"this harness runs a {names} or an operator, not {function!r}; use harness_of() for an "
            f"operator that a call on a stream makes"
        )
