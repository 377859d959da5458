"""Types: all that a backend needs to know about a type, besides its check in ``pyflinkstate.api``.

This room converts values to Arrow columns and back, copies and hashes them, names their types in checkpoints,
and decides to which types they may migrate. The metadata of a state that outlives the program is here too.
"""

from pyflinkstate.backends.types.atoms import NARROW_FLOAT, WIDE_FLOAT
from pyflinkstate.backends.types.codec import Convert, JavaHash, WrittenForm, unchanged
from pyflinkstate.backends.types.hashes import java_hashes_of_strings
from pyflinkstate.backends.types.internal_types import (
    PICKLE_PROTOCOL,
    VOID_NAMESPACE,
    VOID_NAMESPACE_TYPE,
    TtlTypeInfo,
    TtlValue,
    dump_pickle,
    load_pickle,
    sealed,
    unsealed,
)
from pyflinkstate.backends.types.migration import (
    Migration,
    common_meta,
    common_type,
    keys_may_become,
    state_migration,
    type_migration,
)
from pyflinkstate.backends.types.state_meta import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
)
from pyflinkstate.backends.types.table import (
    MISFITS,
    arrow_type,
    decode_column,
    encode_column,
    exact_class,
    hash_version,
    java_hash_of_type,
    may_hold_nan,
    rebuilds,
    rechecker,
    text_of_type,
    type_from_json,
    type_to_json,
    value_copier,
    value_of_cell,
    written_form,
)

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
