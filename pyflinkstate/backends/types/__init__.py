"""Types: all that a backend needs to know about a type, besides its check in ``pyflinkstate.api``.

This room converts values to Arrow columns and back, copies and hashes them, names their types in checkpoints,
and decides to which types they may migrate. The metadata of a state that outlives the program is here too.
"""

from pyflinkstate.backends.types.atoms import NARROW_FLOAT, WIDE_FLOAT
from pyflinkstate.backends.types.codec import Convert, JavaHash
from pyflinkstate.backends.types.columns import arrow_type, decode_column, encode_column
from pyflinkstate.backends.types.copies import rebuilds, rechecker, value_copier
from pyflinkstate.backends.types.hashes import java_hashes_of_strings
from pyflinkstate.backends.types.migration import is_newer, state_migration, unsealing
from pyflinkstate.backends.types.names import type_from_json, type_to_json
from pyflinkstate.backends.types.namespaces import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.backends.types.pickles import PICKLE_PROTOCOL, sealed
from pyflinkstate.backends.types.state_meta import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
)
from pyflinkstate.backends.types.table import hash_version, java_hash_of_type, text_of_type
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo, TtlValue

__all__ = [
    "NARROW_FLOAT",
    "PICKLE_PROTOCOL",
    "VOID_NAMESPACE",
    "VOID_NAMESPACE_TYPE",
    "WIDE_FLOAT",
    "Convert",
    "JavaHash",
    "OperatorStateMode",
    "RegisteredOperatorStateMeta",
    "RegisteredQueueMeta",
    "RegisteredStateMeta",
    "StateMeta",
    "TtlTypeInfo",
    "TtlValue",
    "arrow_type",
    "decode_column",
    "encode_column",
    "hash_version",
    "is_newer",
    "java_hash_of_type",
    "java_hashes_of_strings",
    "rebuilds",
    "rechecker",
    "sealed",
    "state_migration",
    "text_of_type",
    "type_from_json",
    "type_to_json",
    "unsealing",
    "value_copier",
]
