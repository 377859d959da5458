"""Types: all that a backend needs to know about a type, besides its check in ``pyflinkstate.api``.

This room converts values to Arrow columns and back, copies and hashes them, names their types in checkpoints,
and decides to which types they may migrate. The metadata of a state that outlives the program is here too.
"""

from pyflinkstate.backends.types.atoms import NARROW_FLOAT as NARROW_FLOAT, WIDE_FLOAT as WIDE_FLOAT
from pyflinkstate.backends.types.codec import (
    Convert as Convert,
    JavaHash as JavaHash,
    WrittenForm as WrittenForm,
    unchanged as unchanged,
    walk as walk,
)
from pyflinkstate.backends.types.hashes import (
    java_hash_of_row as java_hash_of_row,
)
from pyflinkstate.backends.types.internal_types import (
    PICKLE_PROTOCOL as PICKLE_PROTOCOL,
    VOID_NAMESPACE as VOID_NAMESPACE,
    VOID_NAMESPACE_TYPE as VOID_NAMESPACE_TYPE,
    Enclosed as Enclosed,
    SealedPickles as SealedPickles,
    TtlTypeInfo as TtlTypeInfo,
    TtlValue as TtlValue,
    dump_pickle as dump_pickle,
    has_pickles as has_pickles,
    load_pickle as load_pickle,
    sealed as sealed,
    unsealed as unsealed,
)
from pyflinkstate.backends.types.migration import (
    Migration as Migration,
    OperatorStateMode as OperatorStateMode,
    RegisteredOperatorStateMeta as RegisteredOperatorStateMeta,
    RegisteredQueueMeta as RegisteredQueueMeta,
    RegisteredStateMeta as RegisteredStateMeta,
    StateMeta as StateMeta,
    common_meta as common_meta,
    common_type as common_type,
    for_each_pickle as for_each_pickle,
    keys_may_become as keys_may_become,
    state_migration as state_migration,
    type_migration as type_migration,
)
from pyflinkstate.backends.types.table import (
    MISFITS as MISFITS,
    USER_DEFINED as USER_DEFINED,
    arrow_type as arrow_type,
    decode_column as decode_column,
    encode_column as encode_column,
    exact_class as exact_class,
    find_codec as find_codec,
    hash_version as hash_version,
    java_hash_of_type as java_hash_of_type,
    may_hold_nan as may_hold_nan,
    rebuilds as rebuilds,
    recheck_of_part as recheck_of_part,
    rechecker as rechecker,
    text_of_type as text_of_type,
    type_from_json as type_from_json,
    type_to_json as type_to_json,
    value_copier as value_copier,
)
