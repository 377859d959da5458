"""PyFlink's ``pyflink.datastream.functions``."""

from pyflinkstate.api.async_functions import (
    AsyncFunction as AsyncFunction,
    AsyncFunctionDescriptor as AsyncFunctionDescriptor,
    AsyncRetryPredicate as AsyncRetryPredicate,
    AsyncRetryStrategy as AsyncRetryStrategy,
)
from pyflinkstate.api.context import (
    KeyedStateStore as KeyedStateStore,
    RuntimeContext as RuntimeContext,
    TimerService as TimerService,
)
from pyflinkstate.api.functions import (
    AggregateFunction as AggregateFunction,
    AllWindowFunction as AllWindowFunction,
    BaseBroadcastProcessFunction as BaseBroadcastProcessFunction,
    BroadcastProcessFunction as BroadcastProcessFunction,
    CoFlatMapFunction as CoFlatMapFunction,
    CoMapFunction as CoMapFunction,
    CoProcessFunction as CoProcessFunction,
    FilterFunction as FilterFunction,
    FlatMapFunction as FlatMapFunction,
    Function as Function,
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction as KeyedCoProcessFunction,
    KeyedProcessFunction as KeyedProcessFunction,
    KeySelector as KeySelector,
    MapFunction as MapFunction,
    Partitioner as Partitioner,
    ProcessAllWindowFunction as ProcessAllWindowFunction,
    ProcessFunction as ProcessFunction,
    ProcessWindowFunction as ProcessWindowFunction,
    ReduceFunction as ReduceFunction,
    WindowFunction as WindowFunction,
)
