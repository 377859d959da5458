"""Types: all that a backend needs to know about a type, besides its check in ``pyflinkstate.api``.

This room converts values to Arrow columns and back, copies and hashes them, names their types in checkpoints,
and decides to which types they may migrate. The metadata of a state that outlives the program is here too.
"""

from pyflinkstate.backends.types.atoms import NARROW_FLOAT, WIDE_FLOAT
from pyflinkstate.backends.types.codec import Convert, JavaHash, WrittenForm, unchanged
from pyflinkstate.backends.types.columns import MISFITS, arrow_type, decode_column, encode_column
from pyflinkstate.backends.types.common_type import common_meta, common_type
from pyflinkstate.backends.types.copies import rebuilds, rechecker, value_copier
from pyflinkstate.backends.types.hashes import java_hashes_of_strings
from pyflinkstate.backends.types.migration import (
    Migration,
    keys_may_become,
    state_migration,
    type_migration,
)
from pyflinkstate.backends.types.names import type_from_json, type_to_json
from pyflinkstate.backends.types.namespaces import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.backends.types.pickles import PICKLE_PROTOCOL, dump_pickle, load_pickle, sealed, unsealed
from pyflinkstate.backends.types.state_meta import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
)
from pyflinkstate.backends.types.table import (
    exact_class,
    hash_version,
    java_hash_of_type,
    may_hold_nan,
    text_of_type,
    value_of_cell,
    written_form,
)
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo, TtlValue

__all__ = [
    "MISFITS",
    "NARROW_FLOAT",
    "PICKLE_PROTOCOL",
    "VOID_NAMESPACE",
    "VOID_NAMESPACE_TYPE",
    "WIDE_FLOAT",
    "Convert",
    "JavaHash",
    "Migration",
    "OperatorStateMode",
    "RegisteredOperatorStateMeta",
    "RegisteredQueueMeta",
    "RegisteredStateMeta",
    "StateMeta",
    "TtlTypeInfo",
    "TtlValue",
    "WrittenForm",
    "arrow_type",
    "common_meta",
    "common_type",
    "decode_column",
    "dump_pickle",
    "encode_column",
    "exact_class",
    "hash_version",
    "java_hash_of_type",
    "java_hashes_of_strings",
    "keys_may_become",
    "load_pickle",
    "may_hold_nan",
    "rebuilds",
    "rechecker",
    "sealed",
    "state_migration",
    "text_of_type",
    "type_from_json",
    "type_migration",
    "type_to_json",
    "unchanged",
    "unsealed",
    "value_copier",
    "value_of_cell",
    "written_form",
]
