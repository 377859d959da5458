"""The names of Flink's State Processor API, for those who come from there."""

from pyflinkstate.state_access.flink_names.keyed_state_reader_function import (
    Collector,
    KeyedStateReaderFunction,
)
from pyflinkstate.state_access.flink_names.operator_identifier import OperatorIdentifier
from pyflinkstate.state_access.flink_names.savepoint_reader import SavepointReader

__all__ = ["Collector", "KeyedStateReaderFunction", "OperatorIdentifier", "SavepointReader"]
