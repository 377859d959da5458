"""Streams, from which a user builds a job. Names are PyFlink's (``pyflink.datastream.data_stream``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar, overload

import attrs

from pyflinkstate.api import (
    AsyncFunctionDescriptor,
    FilterFunction,
    FlatMapFunction,
    K,
    KeySelector,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    OutputType,
    Partitioner,
    ProcessFunction,
    Record,
    SparkObject,
    SparkSchema,
    T,
    T_co,
    TypeInformation,
    Types,
    UserFunction,
    W,
    WatermarkStrategy,
    WindowAssigner,
    check_kind,
    check_text,
    check_type,
    declared_type,
    positive,
)
from pyflinkstate.backends.keys import check_max_parallelism, check_parallelism
from pyflinkstate.errors import ConfigurationError, ParallelismError
from pyflinkstate.runtime.operators import OneInputOperator, Projection, lives_in_slot
from pyflinkstate.runtime.plan import (
    ASYNC,
    WATERMARKS,
    ChainNode,
    Input,
    KeptTimestamp,
    Node,
    Partitioning,
    PartitionNode,
    SideOutputNode,
    SinkNode,
    SourceNode,
    StatefulNode,
    UnionNode,
    check_key_types,
    new_assigner,
    upstream_of,
)
from pyflinkstate.runtime.program.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from pyflinkstate.runtime.program.environment_settings import ExecutionConfig
from pyflinkstate.runtime.program.job_client import CloseableIterator
from pyflinkstate.runtime.program.user_functions import (
    check_callable,
    check_function,
    check_same_type,
    name_of,
    refuse_checkpointed_in_tasks,
    type_of,
)
from pyflinkstate.runtime.sinks import ForeachEpoch, PrintSink, RecordText, RowFormatFileSink, Sink

if TYPE_CHECKING:
    from typing import TypeGuard

    from typing_extensions import TypeIs

    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
    from pyflinkstate.runtime.program.keyed_stream import AllWindowedStream, KeyedStream

S = TypeVar("S", bound="DataStream")
#: The functions that say where records go, as messages name them.
_ROUTING = "key selectors and partitioners"


def node_of(stream: DataStream) -> Node:
    """Return the place of a stream in the plan."""
    return stream._node


class DataStream(Generic[T_co]):
    """A stream of records. An environment or another stream makes it; nothing runs until ``execute``."""

    def __init__(self, env: StreamExecutionEnvironment, node: Node) -> None:
        self._env = env
        self._node = node

    @property
    def is_keyed(self) -> bool:
        """Whether records have keys."""
        return False

    def _as_input(self) -> Input:
        """Return the stream as an input of a stateful operator."""
        return Input(self._node, Partitioning.FORWARD)

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """Return the execution settings of the environment."""
        return self._env.get_config()

    def get_type(self) -> TypeInformation[T_co]:
        """Return the declared type of the records, or ``Types.PICKLED_BYTE_ARRAY()`` if there is none."""
        return type_of(self._node)

    # --- operators -----------------------------------------------------------------------------

    def map(
        self,
        func: Callable[[T_co], T] | MapFunction[T_co, T],
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Apply ``func`` to each record. With ``output_type``, results are checked against it.

        As in PyFlink, a list of types stands for a row of them, here and wherever there is an output type.
        """
        return self._operator("map", func, output_type)

    def flat_map(
        self,
        func: Callable[[T_co], Iterable[T] | None] | FlatMapFunction[T_co, T],
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Replace each record by the records that ``func`` returns or yields."""
        return self._operator("flat_map", func, output_type)

    @overload
    def filter(self, func: Callable[[T_co], TypeIs[T]]) -> DataStream[T]: ...

    @overload
    def filter(self, func: Callable[[T_co], TypeGuard[T]]) -> DataStream[T]: ...

    @overload
    def filter(self, func: Callable[[T_co], object] | FilterFunction[T_co]) -> DataStream[T_co]: ...

    def filter(self, func: Callable[[T_co], object] | FilterFunction[T_co]) -> DataStream:
        """Keep the records for which ``func`` is true; the others are counted as dropped.

        For type checkers, a function that returns ``TypeIs`` or ``TypeGuard`` narrows the stream's type.
        """
        return self._operator("filter", func, None)

    def process(
        self, func: ProcessFunction[T_co, T], output_type: OutputType[T] | None = None
    ) -> DataStream[T]:
        """Run a process function without keyed state.

        Raises:
            ConfigurationError: ``func`` is a KeyedProcessFunction, which needs ``key_by`` first.
        """
        remedy = "a KeyedProcessFunction needs key_by() first"
        check_function("process() on a stream without keys", func, (ProcessFunction,), remedy=remedy)
        return self._one_input("process", func, output_type)

    def project(self, *field_indexes: int) -> DataStream:
        """Keep some fields of tuples or rows, in the given order."""
        if not field_indexes or not all(type(index) is int and index >= 0 for index in field_indexes):
            raise ConfigurationError(f"project() takes indexes of fields, from 0, not {field_indexes!r}")
        return DataStream(self._env, ChainNode(self._node, "map", Projection(field_indexes), "project"))

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream[T_co]:
        """Assign timestamps and watermarks, which operators that follow use as event time."""
        check_kind("a WatermarkStrategy is needed", watermark_strategy, WatermarkStrategy)
        node = ChainNode(self._node, WATERMARKS, watermark_strategy, "timestamps and watermarks")
        node.assigner = new_assigner(self._env._jobs.next_assigner_number(), self._node)
        return DataStream(self._env, node)

    def union(self, *streams: DataStream[T_co]) -> DataStream[T_co]:
        """Return a stream of the records of this stream and ``streams``, in no particular order.

        Raises:
            ConfigurationError: the streams have different types.
        """
        for stream in streams:
            check_kind("union() takes DataStreams", stream, DataStream)
        nodes = (self._node, *(stream._node for stream in streams))
        check_same_type(nodes)
        return DataStream(self._env, UnionNode(nodes))

    @overload
    def connect(self, ds: DataStream[T]) -> ConnectedStreams[T_co, T]: ...

    @overload
    def connect(self, ds: BroadcastStream[T]) -> BroadcastConnectedStream[T_co, T]: ...

    def connect(
        self, ds: DataStream[T] | BroadcastStream[T]
    ) -> ConnectedStreams[T_co, T] | BroadcastConnectedStream[T_co, T]:
        """Connect this stream with another or a broadcast stream, so that one operator reads both."""
        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds.broadcast_state_descriptors)
        check_kind("connect() takes a DataStream or a BroadcastStream", ds, DataStream)
        return ConnectedStreams(self, ds)

    @overload
    def broadcast(self) -> DataStream[T_co]: ...

    @overload
    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream[T_co]: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[T_co] | BroadcastStream[T_co]:
        """Send each record to every subtask of the next operator.

        With descriptors it returns a broadcast stream, to which another stream connects.

        Args:
            broadcast_state_descriptor: describes a state that the connected operator fills from this stream.
            *other_broadcast_state_descriptors: describe further states.
        """
        if broadcast_state_descriptor is None:
            return self._partitioned(Partitioning.BROADCAST)
        descriptors = (broadcast_state_descriptor, *other_broadcast_state_descriptors)
        for descriptor in descriptors:
            check_kind("broadcast() takes MapStateDescriptors", descriptor, MapStateDescriptor)
        return BroadcastStream(self, descriptors)

    def get_side_output(self, output_tag: OutputTag[T]) -> DataStream[T]:
        """Return the stream of what the operator yields as ``(output_tag, value)`` or drops as late."""
        check_kind("get_side_output() takes an OutputTag", output_tag, OutputTag)
        node, tag_id = self._node, output_tag.tag_id
        if not isinstance(node, StatefulNode) and not (
            isinstance(node, ChainNode) and node.kind == "process"
        ):
            raise ConfigurationError(
                f"get_side_output(): {node.name!r} has no side outputs; only process(), windows and "
                f"connected streams have them"
            )
        side = SideOutputNode(node, tag_id, f"{node.name} {tag_id}", output_tag.type_info)
        return DataStream(self._env, side)

    def window_all(self, window_assigner: WindowAssigner[T_co, W]) -> AllWindowedStream[T_co, W]:
        """Put all records into windows, in one subtask."""
        from pyflinkstate.runtime.program.keyed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def _stateful(
        self,
        inputs: tuple[Input, ...],
        function: UserFunction,
        name: str,
        output_type: OutputType | None,
        uses_event_time: bool = False,
        keeps_type: bool = False,
    ) -> DataStream:
        """Append a stateful operator. Connected and windowed streams call this."""
        output_type = declared_type("output_type", output_type)
        check_key_types(name, inputs)
        first, *others = inputs
        node = StatefulNode(
            first.parent,
            first.select_key,
            first.key_type,
            function,
            name,
            output_type,
            partitioning=first.partitioning,
            others=tuple(others),
            uses_event_time=uses_event_time,
            keeps_type=keeps_type,
        )
        return DataStream(self._env, node)

    def async_wait(self, descriptor: AsyncFunctionDescriptor, output_type: OutputType | None) -> DataStream:
        """Append an async function. ``AsyncDataStream`` calls it."""
        function = descriptor.async_function
        refuse_checkpointed_in_tasks(function, "async functions")
        output_type = declared_type("output_type", output_type)
        return DataStream(
            self._env, ChainNode(self._node, ASYNC, descriptor, type(function).__name__, output_type)
        )

    def key_by(
        self,
        key_selector: Callable[[T_co], K] | KeySelector[T_co, K],
        key_type: TypeInformation[K] | None = None,
    ) -> KeyedStream[K, T_co]:
        """Partition the stream by key: equal keys meet in one subtask.

        Args:
            key_selector: returns each record's key; None, NaN and unhashable keys fail the job.
            key_type: the type by which keys are checked and hashed as in Flink. Without it, keys that are
                equal in Python meet, so ``1``, ``1.0`` and ``True`` are one key.
        """
        # Imported here because keyed_stream imports this module.
        from pyflinkstate.runtime.program.keyed_stream import KeyedStream

        check_function("key_by()", key_selector, (KeySelector,), arguments=1)
        check_type("key_type", key_type)
        refuse_checkpointed_in_tasks(key_selector, _ROUTING)
        return KeyedStream(self._env, self._node, key_selector, key_type or Types.PICKLED_BYTE_ARRAY())

    def _operator(self, kind: str, func: UserFunction, output_type: OutputType | None) -> DataStream:
        check_callable(kind, func)
        return self._one_input(kind, func, output_type)

    def _one_input(self, kind: str, func: UserFunction, output_type: OutputType | None) -> DataStream:
        """Append an operator of a chain, or one in slots if the function takes part in checkpoints."""
        output_type = declared_type("output_type", output_type)
        name = name_of(func, kind)
        if self.is_keyed or lives_in_slot(func):
            operator, keeps_type = OneInputOperator(kind, func, self.is_keyed), kind == "filter"
            return self._stateful((self._as_input(),), operator, name, output_type, keeps_type=keeps_type)
        return DataStream(self._env, ChainNode(self._node, kind, func, name, output_type))

    # --- names and numbers ---------------------------------------------------------------------

    def name(self: S, name: str) -> S:
        """Set the name of the operator in messages, Spark's UI and counts."""
        node = self._operator_node("name")
        check_text("the name of an operator", name, may_be_empty=True)
        node.name = name
        return self

    def uid(self: S, uid: str) -> S:
        """Set the id under which checkpoints keep the state of the operator, or the position of the source.

        Operators without state ignore it. A source that is the only one of its job goes on where it was,
        with its watermarks, under any uid or none. One of several sources does so when it gets a uid; under
        another uid than it had, it is a new source.
        """
        node = self._operator_node("uid")
        check_text("a uid", uid)
        if isinstance(node, (StatefulNode, SourceNode)):
            node.uid = uid
        return self

    def set_uid_hash(self: S, uid_hash: str) -> S:
        """Set the id as :meth:`uid` does: ids are not hashed here."""
        return self.uid(uid_hash)

    def set_parallelism(self: S, parallelism: int) -> S:
        """Set the number of subtasks of the operator.

        By default a stateless operator runs in as many subtasks as its input. If its parallelism is set to
        another number, records are rebalanced. A source always has as many subtasks as an epoch has splits; a
        source that reads a collection has one.

        Raises:
            ParallelismError: it is out of bounds, or the operator never has more than one subtask.
        """
        node = self._operator_node("set_parallelism")
        check_parallelism(parallelism)
        if parallelism > 1 and _is_non_parallel(node):
            raise ParallelismError(
                f"{node.name!r} is not parallel: its parallelism must be 1, not {parallelism}"
            )
        if isinstance(node, SideOutputNode):
            raise ConfigurationError(
                f"set_parallelism(): a side output belongs to {node.parent.name!r}; call it on the "
                f"operator that reads the side output"
            )
        if isinstance(node, (StatefulNode, ChainNode)):
            node.parallelism = parallelism
        return self

    def set_max_parallelism(self: S, max_parallelism: int) -> S:
        """Set the upper bound of the parallelism, 1 to 32768.

        For a stateful operator it is the number of key groups, which the first checkpoint fixes.
        """
        node = self._operator_node("set_max_parallelism")
        check_max_parallelism(max_parallelism)
        if isinstance(node, (StatefulNode, ChainNode)):
            node.max_parallelism = max_parallelism
        return self

    def force_non_parallel(self: S) -> S:
        """Run the operator in one subtask; later settings cannot change that."""
        node = self._operator_node("force_non_parallel")
        self.set_parallelism(1).set_max_parallelism(1)
        if isinstance(node, (StatefulNode, ChainNode)):
            node.is_non_parallel = True
        return self

    def get_name(self) -> str:
        """Return the operator's name."""
        return self._operator_node("get_name").name

    def set_description(self: S, description: str) -> S:
        """Set a description for readers of the program; Spark's UI shows the name."""
        self._operator_node("set_description")
        return self

    def set_buffer_timeout(self: S, timeout_millis: int) -> S:
        """Accept it without effect: records travel in frames and never wait in a buffer."""
        self._operator_node("set_buffer_timeout")
        return self

    def slot_sharing_group(self: S, slot_sharing_group: object) -> S:
        """Accept it without effect: Spark places its tasks."""
        self._operator_node("slot_sharing_group")
        return self

    # --- which subtasks records go to ------------------------------------------------------------------

    def forward(self) -> DataStream[T_co]:
        """Keep records in their subtask; the next operator must have the same number of subtasks.

        Building the job raises ``ParallelismError`` if it does not.
        """
        return self._partitioned(Partitioning.FORWARD)

    def rebalance(self) -> DataStream[T_co]:
        """Send records to the subtasks of the next operator in turn, so that all get equally many.

        As after every call of this kind, a stateless operator or a sink that follows has the environment's
        parallelism unless it has its own. An epoch that is run again sends each record where it went before.
        If several such calls follow each other, the last one counts.
        """
        return self._partitioned(Partitioning.REBALANCE)

    def rescale(self) -> DataStream[T_co]:
        """Send the records of each subtask in turn to its own part of the next operator's subtasks.

        With 2 subtasks before 4, the first sends to the first two and the second to the others; with 4 before
        2, the first two send to the first one.
        """
        return self._partitioned(Partitioning.RESCALE)

    def shuffle(self) -> DataStream[T_co]:
        """Send each record to a random subtask of the next operator, the same if its epoch is run again."""
        return self._partitioned(Partitioning.SHUFFLE)

    def global_(self) -> DataStream[T_co]:
        """Send all records to the first subtask of the next operator (Java's ``global()``)."""
        return self._partitioned(Partitioning.GLOBAL)

    def partition_custom(
        self,
        partitioner: Partitioner[K] | Callable[[K, int], int],
        key_selector: KeySelector[T_co, K] | Callable[[T_co], K],
    ) -> DataStream[T_co]:
        """Send each record to the subtask of the next operator that ``partitioner`` chooses.

        Args:
            partitioner: called with the key and the number of subtasks, returns the number of one, from 0.
            key_selector: returns each record's key.

        Raises:
            ConfigurationError: one of the two is not a function. If the partitioner returns a number out of
                range, the job fails with ``BadRecordError``.
        """
        check_function("partition_custom()", partitioner, (Partitioner,), arguments=2)
        check_function("partition_custom()", key_selector, (KeySelector,), arguments=1)
        for function in (partitioner, key_selector):
            refuse_checkpointed_in_tasks(function, _ROUTING)
        return self._partitioned(Partitioning.CUSTOM, partitioner, key_selector)

    def _partitioned(self, partitioning: Partitioning, *functions: UserFunction) -> DataStream:
        return DataStream(self._env, PartitionNode(self._node, partitioning, partitioning.value, *functions))

    # --- chaining ----------------------------------------------------------------------------------------

    def start_new_chain(self: S) -> S:
        """Accept it without effect: stateless operators run with their input; the results are the same."""
        self._operator_node("start_new_chain")
        return self

    def disable_chaining(self: S) -> S:
        """Accept it without effect; see :meth:`start_new_chain`."""
        self._operator_node("disable_chaining")
        return self

    def _operator_node(self, method: str) -> Node:
        """Return the operator whose results this stream has.

        Raises:
            ConfigurationError: this call added no operator, so ``method`` would change that of another call.
        """
        made_by = self._made_by()
        if made_by is not None:
            raise ConfigurationError(
                f"{method}() needs an operator, and {made_by} adds none: call {method}() on the operator "
                f"before {made_by}, or on the one after it, such as a map() or process() that follows"
            )
        node = self._node
        return node.parent if isinstance(node, ChainNode) and node.is_of_source else node

    def _made_by(self) -> str | None:
        """Return the call that made the stream, if it added no operator."""
        return f"{self._node.name}()" if isinstance(self._node, (UnionNode, PartitionNode)) else None

    # --- sinks -----------------------------------------------------------------------------------

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Send the stream to a sink, such as :class:`~pyflinkstate.runtime.sinks.file_sink.FileSink`."""
        check_kind("sink_to() takes a sink, such as FileSink(directory)", sink, Sink)
        parent = self._as_text() if isinstance(sink, (PrintSink, RowFormatFileSink)) else self._node
        node = SinkNode(parent, sink, type(sink).__name__)
        self._env._jobs.add_sink_node(node)
        return DataStreamSink(node)

    def foreach_epoch(self, function: ForeachEpoch, schema: SparkSchema) -> DataStreamSink:
        """Call ``function(df, epoch)`` in the driver with each epoch's records as a DataFrame.

        The records are computed once, no matter how many actions the function runs. The function is called
        before the epoch's checkpoint, so after a failure an epoch may come again: replace what was written
        for its number.

        Args:
            function: a function as for Spark's ``foreachBatch``. If it has a third parameter, it also gets
                the id of the job, which stays the same when the job is restored: job and epoch together say
                what to replace, whoever else writes there.
            schema: what ``SparkSession.createDataFrame`` takes, such as ``"user string, n long"``. A record
                that does not fit it fails the job with ``RowError``.
        """
        rows = DataStream(self._env, self._env._jobs.checked_rows(self._node, schema))
        return rows.sink_to(self._env._jobs.foreach_epoch_sink(function, schema)).name("foreach_epoch")

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Print committed records in the driver, as Flink does: ``identifier:subtask> record``.

        The subtask, counted from 1, is left out if the environment or the sink has parallelism 1. Records
        without a declared type are printed as in Python, ``('a', True)``, rows as ``+I[a,True]``, and records
        of other types as in Java, ``(a,true)``.
        """
        return self.sink_to(PrintSink(sink_identifier, self._env.get_parallelism())).name("print")

    def _as_text(self) -> ChainNode:
        return ChainNode(self._node, "map", RecordText(self._node.name, self.get_type()), "text")

    # --- running -----------------------------------------------------------------------------------

    def cache(self) -> CachedDataStream[T_co]:
        """Return a stream of the same records that later jobs need not compute again.

        The first job that reads it is preceded by one that computes the records, with their timestamps, and
        keeps them on the cluster until :meth:`CachedDataStream.invalidate`, or the environment's ``close()``.
        A Spark executor that is lost takes its part with it: then a job that reads it fails.

        Raises:
            ConfigurationError: a source of the stream has no end.
        """
        for node in upstream_of(self._node):
            if isinstance(node, SourceNode) and not node.source.is_bounded:
                raise ConfigurationError(
                    f"cache(): source {node.name!r} has no end, so there is no result to keep"
                )
        return CachedDataStream(self._env, self._node)

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[T_co]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, limit: int = ...) -> list[T_co]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[T_co] | list[T_co]:
        """Run the job and iterate over the records of this stream, epoch by epoch.

        The sinks that were added since the last job run in the same job, and are used up as by ``execute()``.
        Records appear when their epoch is committed. The job goes on while the iterator is read, and holds
        its slots until that is exhausted or closed, so close it or use it in a ``with`` statement. If it is
        closed early, the job is cancelled: the sinks keep what they have committed, and get no more.

        Args:
            job_execution_name: the name of the job.
            limit: the number of records, at least 1, after which the job is cancelled. With a limit, the
                records are returned as a list.

        Raises:
            ConfigurationError: the limit is not a whole number of at least 1.
        """
        if limit is None:
            return self._env._jobs.collect(self._node, job_execution_name)
        limit = positive("the limit of execute_and_collect()", limit)
        with self._env._jobs.collect(self._node, job_execution_name) as records:
            return list(islice(records, limit))

    def to_rdd(self, job_name: str | None = None) -> SparkObject:
        """Run a job up to this stream and return its records as an RDD, kept on the cluster.

        Sinks that were added are not part of that job: they wait for ``execute()``.
        """
        return self._env._jobs.run_to_rdd(self._node, job_name)

    def to_dataframe(self, schema: SparkSchema, job_name: str | None = None) -> SparkObject:
        """Run a job up to this stream and return its records as a DataFrame.

        Sinks that were added are not part of that job: they wait for ``execute()``.

        Args:
            schema: what ``SparkSession.createDataFrame`` takes, such as ``"user string, n long"``.

        Raises:
            RowError: a record does not fit the schema; it names column, value and operator.
        """
        (frame,) = self._env._jobs.run_to_dataframes([(self._node, schema)], job_name)
        return frame


class CachedDataStream(DataStream[T_co]):
    """The records of another stream, computed once (``pyflink.datastream.data_stream.CachedDataStream``).

    It adds no operator: names, ids and parallelism are set on the stream before it, or on what follows.
    """

    def __init__(self, env: StreamExecutionEnvironment, origin: Node) -> None:
        name, type_info = f"{origin.name} cached", type_of(origin)
        has_time = any(
            isinstance(node, ChainNode) and node.kind == WATERMARKS for node in upstream_of(origin)
        )
        self._source = env._jobs.cached_source(
            ChainNode(origin, "process", _WithTimestamp(), name) if has_time else origin
        )
        node: Node = SourceNode(self._source, name, None if has_time else type_info)
        if has_time:
            strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(KeptTimestamp())
            timed = ChainNode(node, WATERMARKS, strategy, name)
            timed.assigner = new_assigner(env._jobs.next_assigner_number(), node)
            node = ChainNode(timed, "map", _without_timestamp, name, type_info)
        super().__init__(env, node)

    def _made_by(self) -> str | None:
        return "cache()"

    def invalidate(self) -> None:
        """Let go of the records; a job that reads the stream after that computes them again."""
        self._source.invalidate()


class _WithTimestamp(ProcessFunction):
    def process_element(self, value: Record, ctx: ProcessFunction.Context) -> Iterable[Record]:
        yield value, ctx.timestamp()


def _without_timestamp(pair: tuple[Record, int | None]) -> Record:
    return pair[0]


@attrs.frozen
class DataStreamSink:
    """A sink that was added to the job (``pyflink.datastream.DataStreamSink``)."""

    _node: SinkNode

    def name(self, name: str) -> DataStreamSink:
        """Name the sink."""
        check_text("the name of a sink", name, may_be_empty=True)
        self._node.name = name
        return self

    def set_parallelism(self, parallelism: int) -> DataStreamSink:
        """Set how many subtasks write. Default: the number of partitions of the sink's input."""
        check_parallelism(parallelism)
        node = self._node
        if isinstance(node.sink, PrintSink):
            node.sink.parallelism = parallelism
        is_text = isinstance(node.parent, ChainNode) and isinstance(node.parent.function, RecordText)
        # The operator that turns records into text is part of the sink, so records go to its subtasks.
        (node.parent if is_text else node).parallelism = parallelism  # type: ignore[union-attr]
        return self

    def uid(self, uid: str) -> DataStreamSink:
        """Accept it without effect: a sink has no state in checkpoints."""
        return self

    def set_uid_hash(self, uid_hash: str) -> DataStreamSink:
        """Accept it without effect; see :meth:`uid`."""
        return self

    def set_description(self, description: str) -> DataStreamSink:
        """Set a description for readers of the program."""
        return self

    def slot_sharing_group(self, slot_sharing_group: object) -> DataStreamSink:
        """Accept it without effect: Spark places its tasks."""
        return self

    def disable_chaining(self) -> DataStreamSink:
        """Accept it without effect: the results are the same."""
        return self


def _is_non_parallel(node: Node) -> bool:
    if isinstance(node, SourceNode):
        return not node.source.is_parallel
    return isinstance(node, (StatefulNode, ChainNode)) and node.is_non_parallel
