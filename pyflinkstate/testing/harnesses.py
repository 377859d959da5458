"""Harnesses by the kind of operator; names after Flink's test harnesses."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from pyflinkstate.api import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapStateDescriptor,
    OutputType,
    PickledBytesTypeInfo,
    Record,
    SelectKey,
    Setting,
    TypeInformation,
    Types,
    UserFunction,
    WatermarkStrategy,
    check_type,
)
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import (
    KINDS,
    BroadcastOperator,
    OneInputOperator,
    Output,
    StatefulOperator,
    TwoInputOperator,
    close_after_error,
    lives_in_slot,
)
from pyflinkstate.runtime.plan import (
    WATERMARKS,
    ChainedOperator,
    ChainNode,
    Input,
    Node,
    Partitioning,
    PartitionNode,
    SourceNode,
    StatefulNode,
)
from pyflinkstate.runtime.program import DataStream, EnvironmentSettings, ExecutionConfig, node_of
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.tasks import Chain, TaskInfo
from pyflinkstate.runtime.wire import NO_WATERMARK, OperatorMetrics
from pyflinkstate.testing.harness import Harness, JumpingEventLoop, ManualClock, OperatorHarness, Watermark


class OneInputOperatorHarness(Harness):
    """A chain of operators without keys (Flink: ``OneInputStreamOperatorTestHarness``).

    Args:
        *functions: each is a ``ProcessFunction``, ``MapFunction``, ``FlatMapFunction``, ``FilterFunction`` or
            ``WatermarkStrategy``; plain callables go through :func:`harness_of`.
        output_type: the type against which results are checked. Default: no check.
        clock: the processing time. Default: its own clock, at 0 ms.
        job_parameters: what ``get_job_parameter`` returns, by name: the global parameters of the job.

    >>> from pyflinkstate import FlatMapFunction
    >>> class Words(FlatMapFunction):
    ...     def flat_map(self, value):
    ...         return value.split()
    >>> with OneInputOperatorHarness(Words()) as harness:
    ...     harness.process_element("to be or")
    ['to', 'be', 'or']
    """

    def __init__(
        self,
        *functions: UserFunction,
        output_type: OutputType | None = None,
        clock: ManualClock | None = None,
        job_parameters: Mapping[str, Setting] | None = None,
    ) -> None:
        operators = [_operator(function, number) for number, function in enumerate(functions)]
        super().__init__(operators[-1].name if operators else "none", output_type, clock, job_parameters)
        info = TaskInfo(
            0,
            1,
            0,
            OperatorMetrics(self.clock),
            new_event_loop=JumpingEventLoop,
            job_parameters=self._job_parameters,
        )
        self._chain = Chain(operators, info, Counter())
        self._watermark = NO_WATERMARK
        try:
            self._chain.open()
        except BaseException:
            close_after_error(self._chain.close)
            raise

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Any]:
        """Process one record; return the values of its results in the main output.

        After a ``WatermarkStrategy`` the watermark advances with each record; in a job it advances less
        often.

        Args:
            value: the record.
            timestamp: its event time in ms since 1970.

        Raises:
            PyFlinkStateError: an error that would fail the job, such as ``UserFunctionError``.
        """
        self._chain.source_time.timestamp = timestamp
        return self._run([isolated(value)])

    def process_watermark(self, timestamp: int) -> list[Any]:
        """Advance the watermark before the operators; it never goes back. These operators have no timers."""
        time = self._chain.source_time
        time.watermark = max(time.watermark, timestamp)
        return self._run([])

    def set_processing_time(self, now_ms: int) -> None:
        """Set the clock, in ms since 1970."""
        self.clock.now_ms = now_ms

    def get_watermark(self) -> int:
        """Return the watermark after the operators."""
        return self._watermark

    def _run(self, values: Sequence[Record]) -> list[Record]:
        chain = self._chain
        timed = [(value, chain.time.timestamp) for value in chain.through(values)]
        given = self._collect((value for value, _ in timed), (time for _, time in timed), chain.side)
        chain.side.clear()
        if chain.time.watermark > self._watermark:
            self._watermark = chain.time.watermark
            self._main.append(Watermark(self._watermark))
        return given

    def close(self) -> None:
        """Close the functions."""
        self._chain.close()


def _operator(function: UserFunction, number: int) -> ChainedOperator:
    if isinstance(function, ChainedOperator):
        return function
    if lives_in_slot(function):
        raise ConfigurationError(
            f"{type(function).__name__} has to do with checkpoints, and so lives in a state slot: "
            f"CheckpointedOperatorHarness runs it"
        )
    for kind, expected in {**KINDS, WATERMARKS: WatermarkStrategy}.items():
        if isinstance(function, expected):
            return ChainedOperator(kind, type(function).__name__, function, True, f"assigner-{number}")
    raise ConfigurationError(
        f"this harness runs operators without keys, such as a ProcessFunction, not {function!r}; "
        f"use harness_of() for an operator that a call on a stream makes"
    )


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

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Any]:
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

    def process_element1(self, value: Record, timestamp: int | None = None) -> list[Any]:
        """Process one record of the first input; return the values of its results in the main output."""
        return self._process(0, value, timestamp)

    def process_element2(self, value: Record, timestamp: int | None = None) -> list[Any]:
        """Process one record of the second input; return the values of its results in the main output."""
        return self._process(1, value, timestamp)

    def process_watermark1(self, timestamp: int) -> list[Any]:
        """Advance the watermark of the first input; the operator's watermark is the lesser of the two."""
        return self._advance(0, timestamp)

    def process_watermark2(self, timestamp: int) -> list[Any]:
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
        operator = (
            function if isinstance(function, StatefulOperator) else TwoInputOperator(function, is_keyed=False)
        )
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

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Any]:
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
        operator = (
            function
            if isinstance(function, StatefulOperator)
            else BroadcastOperator(function, tuple(broadcast_state_descriptors), is_keyed)
        )
        super().__init__(operator, (first, Input(_NOWHERE, Partitioning.BROADCAST)), **options)

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Any]:
        """Process one record of the stream that is not broadcast; return the values of its results."""
        return self._process(0, value, timestamp)

    def process_broadcast_element(self, value: Record, timestamp: int | None = None) -> list[Any]:
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


class _NoEnvironment:
    """The environment of the streams that ``build`` makes; it runs nothing."""

    def __init__(self) -> None:
        self._settings = EnvironmentSettings(self.get_parallelism)
        self._assigners = 0
        self._jobs = self

    def get_config(self) -> ExecutionConfig:
        return ExecutionConfig(self._settings)

    def next_assigner_number(self) -> int:
        self._assigners += 1
        return self._assigners

    def get_parallelism(self) -> int:
        return 1


def harness_of(build: Callable[..., DataStream], **options: Any) -> Any:
    """Return a harness for the operator that ``build`` adds to a stream.

    Args:
        build: called with one stream without keys for each of its parameters; returns the stream after one
            stateful operator, or after any number of stateless ones.
        **options: options of the harness; see :class:`OperatorHarness` and :class:`OneInputOperatorHarness`.

    Returns:
        a harness for that kind of operator, with the ``output_type`` and the name of the stream.

    Raises:
        ConfigurationError: there is no operator, or a stateful operator is not the only one.

    >>> harness = harness_of(lambda words: words.map(lambda word: (word, 1)).filter(lambda pair: pair[0]))
    >>> harness.process_element("a"), harness.process_element("")
    ([('a', 1)], [])
    >>> harness = harness_of(lambda pairs: pairs.key_by(lambda pair: pair[0]).sum(1))
    >>> harness.process_element(("a", 1)), harness.process_element(("a", 2))
    ([('a', 1)], [('a', 3)])
    """
    env: Any = _NoEnvironment()
    sources = [
        SourceNode(CollectionSource([]), f"test input {name}") for name in inspect.signature(build).parameters
    ]
    built = build(*(DataStream(env, source) for source in sources))
    node = node_of(built) if isinstance(built, DataStream) else None
    if isinstance(node, StatefulNode):
        return _stateful(node, options)
    if isinstance(node, ChainNode):
        return OneInputOperatorHarness(*_chain(node), **options)
    raise ConfigurationError(
        f"harness_of() needs a function that adds an operator to a stream and returns the resulting stream; "
        f"it returned {built!r}"
    )


def _chain(node: Node) -> list[ChainedOperator]:
    operators: list[ChainedOperator] = []
    while isinstance(node, (ChainNode, PartitionNode)):
        if isinstance(node, ChainNode):
            operators[:0] = node.operators(has_side_outputs=True)
        node = node.parent
    _check_first(node)
    return operators


def _check_first(node: Node) -> None:
    while isinstance(node, PartitionNode):  # a harness has one subtask
        node = node.parent
    if not isinstance(node, SourceNode):
        raise ConfigurationError(
            f"a harness runs one stateful operator, but {node.name!r} is before it: make a harness for each"
        )


def _stateful(node: StatefulNode, options: dict[str, object]) -> object:
    inputs = node.inputs()
    for one in inputs:
        _check_first(one.parent)
    options = {"name": node.name, "output_type": node.output_type, **options}
    select_keys: list[Selector] = [one.select_key for one in inputs if one.partitioning is Partitioning.KEY]
    key_type = inputs[0].key_type if select_keys else PickledBytesTypeInfo()
    if inputs[-1].partitioning is Partitioning.BROADCAST:
        select_key = select_keys[0] if select_keys else None
        return BroadcastOperatorHarness(node.function, (), select_key, key_type, **options)
    if len(inputs) == 1 and not select_keys:
        return CheckpointedOperatorHarness(node.function, **options)
    if len(inputs) == 1:
        return KeyedOneInputOperatorHarness(node.function, select_keys[0], key_type, **options)
    if select_keys:
        first, second = select_keys
        return KeyedTwoInputOperatorHarness(node.function, first, second, key_type, **options)
    return TwoInputOperatorHarness(node.function, **options)
