"""Flink's savepoints as bytes: the serializers of values, keyed and operator state files, and ``_metadata``.

These are pure codecs: they open no files, and unpickle nothing. To read a savepoint, pass the bytes of
``_metadata`` to :func:`read_metadata`, open each keyed state with :meth:`KeyedStateFile.open`, and iterate
over its key groups. To write one, pass the entries of each state to :func:`write_canonical`, and last the
handles to :func:`write_metadata`.
"""

from pyflinkstate.backends.flink_format.errors import fitting as fitting, located as located
from pyflinkstate.backends.flink_format.keyed_state import (
    FlinkState as FlinkState,
    KeyedStateFile as KeyedStateFile,
    KeyedStateHead as KeyedStateHead,
    write_canonical as write_canonical,
)
from pyflinkstate.backends.flink_format.metadata import (
    KeyedStateHandle as KeyedStateHandle,
    Operator as Operator,
    OperatorStateHandle as OperatorStateHandle,
    Savepoint as Savepoint,
    Stream as Stream,
    Subtask as Subtask,
    read_metadata as read_metadata,
    write_metadata as write_metadata,
)
from pyflinkstate.backends.flink_format.operator_state import (
    READER_STATE as READER_STATE,
    FlinkOperatorState as FlinkOperatorState,
    kafka_offsets as kafka_offsets,
    read_operator_state as read_operator_state,
    write_operator_state as write_operator_state,
)
from pyflinkstate.backends.flink_format.pyflink import (
    Coder as Coder,
)
from pyflinkstate.backends.flink_format.serializers import (
    TABLE_TIME_WINDOW as TABLE_TIME_WINDOW,
    WRAPPED_BYTES as WRAPPED_BYTES,
    serializer_of as serializer_of,
    timer_serializer as timer_serializer,
)
from pyflinkstate.backends.flink_format.snapshots import (
    Serializer as Serializer,
)
from pyflinkstate.backends.flink_format.uids import operator_id as operator_id
