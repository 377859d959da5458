"""The names of Flink's State Processor API, for those who come from there."""

from pyflinkstate.state_access.flink_names.keyed_state_reader_function import (
    Collector,
    KeyedStateReaderFunction,
)
from pyflinkstate.state_access.flink_names.operator_identifier import OperatorIdentifier
from pyflinkstate.state_access.flink_names.operator_transformation import (
    KeyedOperatorTransformation,
    OneInputStateTransformation,
    OperatorTransformation,
    StateBootstrapTransformation,
)
from pyflinkstate.state_access.flink_names.savepoint_reader import SavepointReader
from pyflinkstate.state_access.flink_names.savepoint_writer import SavepointWriter
from pyflinkstate.state_access.writing import KeyedStateBootstrapFunction, StateBootstrapFunction

__all__ = [
    "Collector",
    "KeyedOperatorTransformation",
    "KeyedStateBootstrapFunction",
    "KeyedStateReaderFunction",
    "OneInputStateTransformation",
    "OperatorIdentifier",
    "OperatorTransformation",
    "SavepointReader",
    "SavepointWriter",
    "StateBootstrapFunction",
    "StateBootstrapTransformation",
]
