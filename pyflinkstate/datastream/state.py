"""PyFlink's ``pyflink.datastream.state``."""

from pyflinkstate.api import (
    AggregatingState as AggregatingState,
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    AppendingState as AppendingState,
    BroadcastState as BroadcastState,
    ListState as ListState,
    ListStateDescriptor as ListStateDescriptor,
    MapState as MapState,
    MapStateDescriptor as MapStateDescriptor,
    MergingState as MergingState,
    OperatorStateStore as OperatorStateStore,
    ReadOnlyBroadcastState as ReadOnlyBroadcastState,
    ReducingState as ReducingState,
    ReducingStateDescriptor as ReducingStateDescriptor,
    State as State,
    StateDescriptor as StateDescriptor,
    StateTtlConfig as StateTtlConfig,
    ValueState as ValueState,
    ValueStateDescriptor as ValueStateDescriptor,
)
