"""PyFlink's ``pyflink.datastream.state``."""

from pyflinkstate.api.context import OperatorStateStore as OperatorStateStore
from pyflinkstate.api.state import (
    AggregatingState as AggregatingState,
    AggregatingStateDescriptor as AggregatingStateDescriptor,
    AppendingState as AppendingState,
    BroadcastState as BroadcastState,
    ListState as ListState,
    ListStateDescriptor as ListStateDescriptor,
    MapState as MapState,
    MapStateDescriptor as MapStateDescriptor,
    MergingState as MergingState,
    ReadOnlyBroadcastState as ReadOnlyBroadcastState,
    ReducingState as ReducingState,
    ReducingStateDescriptor as ReducingStateDescriptor,
    State as State,
    StateDescriptor as StateDescriptor,
    ValueState as ValueState,
    ValueStateDescriptor as ValueStateDescriptor,
)
from pyflinkstate.api.ttl import StateTtlConfig as StateTtlConfig
