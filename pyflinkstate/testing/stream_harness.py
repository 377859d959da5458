"""A harness for operators that calls on streams make, such as windows or ``reduce``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pyflinkstate.api.types import PickledBytesTypeInfo
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.plan import (
    ChainedOperator,
    ChainNode,
    Node,
    Partitioning,
    PartitionNode,
    SourceNode,
    StatefulNode,
)
from pyflinkstate.runtime.program import DataStream, EnvironmentSettings, ExecutionConfig
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.testing.chain_harness import OneInputOperatorHarness
from pyflinkstate.testing.harnesses import (
    BroadcastOperatorHarness,
    CheckpointedOperatorHarness,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    Selector,
    TwoInputOperatorHarness,
)


class _NoEnvironment:
    """The environment of the streams that ``build`` makes; it runs nothing."""

    def __init__(self) -> None:
        self._config = ExecutionConfig(EnvironmentSettings(self.get_parallelism))
        self._assigners = 0
        self.jobs = self

    def get_config(self) -> ExecutionConfig:
        return self._config

    def next_assigner_number(self) -> int:
        self._assigners += 1
        return self._assigners

    def get_parallelism(self) -> int:
        return 1

    def runs_in_batch(self, node: Node) -> bool:
        return False


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
    sources = [SourceNode(CollectionSource([]), f"test input {n}") for n in _numbers(build)]
    built = build(*(DataStream(env, source) for source in sources))
    node = built.node if isinstance(built, DataStream) else None
    if isinstance(node, StatefulNode):
        return _stateful(node, options)
    if isinstance(node, ChainNode):
        return OneInputOperatorHarness(*_chain(node), **options)
    raise ConfigurationError(
        f"harness_of() needs a function that adds an operator to a stream and returns the resulting stream; "
        f"it returned {built!r}"
    )


def _numbers(build: Callable[..., DataStream]) -> range:
    return range(1, len(inspect.signature(build).parameters) + 1)


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


def _stateful(node: StatefulNode, options: dict[str, Any]) -> Any:
    inputs = node.inputs()
    for one in inputs:
        _check_first(one.parent)
    options = {"name": node.name, "output_type": node.output_type, **options}
    kinds = [one.partitioning for one in inputs]
    select_keys: list[Selector] = [one.select_key for one in inputs if one.partitioning is Partitioning.KEY]
    key_type = inputs[0].key_type if select_keys else PickledBytesTypeInfo()
    if kinds[-1] is Partitioning.BROADCAST:
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
