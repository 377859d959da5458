"""Streams: what a user builds a job from. Names are PyFlink's (``pyflink.datastream.data_stream``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from pyflinkstate.api.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.backends.key_groups import check_max_parallelism
from pyflinkstate.errors import (
    ConfigurationError,
    ParallelismError,
    UnsupportedFeatureError,
)
from pyflinkstate.runtime.context import close_function, open_function
from pyflinkstate.runtime.plan import ChainNode, KeyedNode, Node, SinkNode
from pyflinkstate.runtime.sinks import DriverSink, Sink

if TYPE_CHECKING:
    from pyflinkstate.runtime.environment import ResultIterator, StreamExecutionEnvironment

S = TypeVar("S", bound="DataStream")

_RICH: dict[str, type] = {
    "map": MapFunction,
    "flat_map": FlatMapFunction,
    "filter": FilterFunction,
}


class DataStream:
    """A stream of records. Made by an environment or by another stream; nothing runs until ``execute``."""

    def __init__(self, env: StreamExecutionEnvironment, node: Node) -> None:
        self._env = env
        self._node = node

    # --- operators -----------------------------------------------------------------------------

    def map(
        self, func: Callable[[Any], Any] | MapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Apply ``func`` to each record. With ``output_type``, results are checked against it."""
        return self._operator("map", func, output_type)

    def flat_map(
        self,
        func: Callable[[Any], Iterable[Any] | None] | FlatMapFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Replace each record by those that ``func`` returns or yields."""
        return self._operator("flat_map", func, output_type)

    def filter(self, func: Callable[[Any], bool] | FilterFunction) -> DataStream:
        """Keep the records for which ``func`` is true; the others are counted."""
        return self._operator("filter", func, None)

    def process(self, func: ProcessFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Run a process function without keyed state.

        Raises:
            ConfigurationError: ``func`` is a KeyedProcessFunction: call ``key_by`` first.
        """
        if not isinstance(func, ProcessFunction):
            raise ConfigurationError(
                f"process() on a stream without keys takes a ProcessFunction, not {func!r}; a "
                f"KeyedProcessFunction goes after key_by()"
            )
        _refuse_checkpointed(func)
        return self._append(ChainNode(self._node, "process", func, _name_of(func, "process"), output_type))

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector,
        key_type: TypeInformation | None = None,
    ) -> KeyedStream:
        """Partition the stream by key: equal keys meet in one subtask.

        Args:
            key_selector: gives each record's key; None, NaN and unhashable keys fail the job.
            key_type: checks keys and hashes them as Flink does. Without it equal Python keys meet,
                so ``1``, ``1.0`` and ``True`` are one key.
        """
        _refuse_checkpointed(key_selector)
        select = key_selector.get_key if isinstance(key_selector, KeySelector) else key_selector
        if not callable(select):
            raise ConfigurationError(f"key_by() takes a callable or a KeySelector, not {key_selector!r}")
        return KeyedStream(self._env, self._node, select, key_type or Types.PICKLED_BYTE_ARRAY())

    def _operator(self, kind: str, func: Any, output_type: TypeInformation | None) -> DataStream:
        _check_callable(kind, func)
        _refuse_checkpointed(func)
        return self._append(ChainNode(self._node, kind, func, _name_of(func, kind), output_type))

    def _append(self, node: Node) -> DataStream:
        return DataStream(self._env, node)

    # --- names and numbers ---------------------------------------------------------------------

    def name(self: S, name: str) -> S:
        """Name the operator: in messages, Spark's UI and counts."""
        self._node.name = name
        return self

    def uid(self: S, uid: str) -> S:
        """Give a keyed operator the id under which checkpoints keep its state."""
        self._keyed_node("uid()").uid = uid
        return self

    def set_parallelism(self: S, parallelism: int) -> S:
        """Set the number of subtasks of a keyed operator."""
        if parallelism < 1:
            raise ParallelismError(f"parallelism must be at least 1, not {parallelism}")
        self._keyed_node("set_parallelism()").parallelism = parallelism
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Set the number of key groups of a keyed operator, 1 to 32768; fixed by the first checkpoint."""
        check_max_parallelism(max_parallelism)
        self._keyed_node("set_max_parallelism()").max_parallelism = max_parallelism
        return self

    def _keyed_node(self, what: str) -> KeyedNode:
        if not isinstance(self._node, KeyedNode):
            raise ConfigurationError(
                f"{what} is for keyed operators; {self._node.name!r} runs in the tasks of what precedes it"
            )
        return self._node

    # --- sinks -----------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Send the stream to a sink, such as :class:`~pyflinkstate.runtime.sinks.FileSink`."""
        node = SinkNode(self._node, sink, f"{type(sink).__name__}")
        self._env.add_sink_node(node)
        return DataStreamSink(node)

    def foreach_epoch(self, function: Callable[[Any, int], None], schema: Any) -> DataStreamSink:
        """Call ``function(df, epoch)`` in the driver with each epoch's records as a DataFrame.

        They are computed once, however many actions the function runs. It is called before the epoch's
        checkpoint, so after a failure an epoch may come again: replace what was written under its number.

        Args:
            function: like the one of Spark's ``foreachBatch``.
            schema: what ``SparkSession.createDataFrame`` takes, such as ``"user string, n long"``.
        """
        return self.sink_to(self._env.foreach_epoch_sink(function, schema)).name("foreach_epoch")

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print committed records in the driver, as Flink does: ``identifier:subtask> record``.

        The subtask, counted from 1, is left out at parallelism 1.
        """
        return self.sink_to(DriverSink(_Printer(sink_identifier, self._parallelism())))

    def _parallelism(self) -> int:
        node = self._node
        while isinstance(node, ChainNode):
            node = node.parent
        own = node.parallelism if isinstance(node, KeyedNode) else 1
        return own or self._env.get_parallelism()

    # --- running -----------------------------------------------------------------------------------

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> ResultIterator:
        """Run the job up to this stream and iterate over its records, epoch by epoch.

        Records appear when their epoch is committed. Close the iterator, use it in ``with``, or
        exhaust it: until then the job holds its slots.
        """
        return self._env.collect(self._node, job_execution_name, limit)

    def to_rdd(self, job_name: str | None = None) -> Any:
        """Run the job up to this stream and return its records as an RDD, kept on the cluster."""
        return self._env.run_to_rdd(self._node, job_name)

    def to_dataframe(self, schema: Any, job_name: str | None = None) -> Any:
        """Run the job up to this stream and return its records as a DataFrame.

        Args:
            schema: what ``SparkSession.createDataFrame`` takes, such as ``"user string, n long"``.
        """
        return self._env.run_to_dataframe(self._node, schema, job_name)


class KeyedStream(DataStream):
    """A stream whose records have keys: what follows may use keyed state."""

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        node: Node,
        select_key: Callable[[Any], Any],
        key_type: TypeInformation,
    ) -> None:
        super().__init__(env, node)
        self._select_key = select_key
        self._key_type = key_type

    def process(  # type: ignore[override]  # as in PyFlink, keyed streams take another function
        self, func: KeyedProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Run ``func`` with keyed state, each key's records in order.

        Raises:
            ConfigurationError: ``func`` is no KeyedProcessFunction.
        """
        if not isinstance(func, KeyedProcessFunction):
            raise ConfigurationError(
                f"process() on a keyed stream takes a KeyedProcessFunction, not {func!r}"
            )
        return self._keyed_operator(func, _name_of(func, "process"), output_type)

    def _operator(self, kind: str, func: Any, output_type: TypeInformation | None) -> DataStream:
        _check_callable(kind, func)
        return self._keyed_operator(_KeyedAdapter(kind, func), _name_of(func, kind), output_type)

    def _keyed_operator(
        self, func: KeyedProcessFunction, name: str, output_type: TypeInformation | None
    ) -> DataStream:
        return self._append(KeyedNode(self._node, self._select_key, self._key_type, func, name, output_type))


@attrs.frozen
class DataStreamSink:
    """A sink that was added to the job (``pyflink.datastream.DataStreamSink``)."""

    _node: SinkNode

    def name(self, name: str) -> DataStreamSink:
        """Name the sink."""
        self._node.name = name
        return self


def _name_of(func: Any, kind: str) -> str:
    if isinstance(func, (MapFunction, FlatMapFunction, FilterFunction, ProcessFunction)):
        return type(func).__name__
    if isinstance(func, KeyedProcessFunction):
        return type(func).__name__
    name = getattr(func, "__name__", kind)
    return kind if name == "<lambda>" else name


def _check_callable(kind: str, func: Any) -> None:
    if not isinstance(func, _RICH[kind]) and not callable(func):
        raise ConfigurationError(f"{kind}() takes a callable or a {_RICH[kind].__name__}, not {func!r}")


def _refuse_checkpointed(func: Any) -> None:
    if isinstance(func, CheckpointedFunction):
        raise UnsupportedFeatureError(
            f"{type(func).__name__} is a CheckpointedFunction, and runs on a stream without keys: there a "
            f"function lives in Spark tasks, no longer than an epoch; use it after key_by()"
        )


class _KeyedAdapter(KeyedProcessFunction, CheckpointedFunction):
    """``map``, ``flat_map`` or ``filter`` on a keyed stream, with the state of the record's key."""

    def __init__(self, kind: str, func: Any) -> None:
        self._kind = kind
        self._func = func

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        if isinstance(self._func, CheckpointedFunction):
            self._func.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if isinstance(self._func, CheckpointedFunction):
            self._func.snapshot_state(context)

    def open(self, runtime_context: RuntimeContext) -> None:
        open_function(self._func, runtime_context)
        rich = isinstance(self._func, _RICH[self._kind])
        self._call = getattr(self._func, self._kind) if rich else self._func

    def close(self) -> None:
        close_function(self._func)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        result = self._call(value)
        if self._kind == "map":
            return (result,)
        if self._kind == "filter":
            return (value,) if result else None
        flat: Iterable[Any] | None = result
        return flat


@attrs.frozen
class _Printer:
    """Prints as Flink's print sink does."""

    identifier: str | None
    parallelism: int

    def __call__(self, partition: int, values: Iterable[Any]) -> None:
        subtask = str(partition + 1) if self.parallelism > 1 else ""
        prefix = ":".join(part for part in (self.identifier, subtask) if part)
        for value in values:
            print(f"{prefix}> {value}" if prefix else value)
