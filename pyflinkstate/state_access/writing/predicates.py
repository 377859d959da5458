"""Which entries of a state a user's predicate picks: an Arrow expression, or a function of a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api.types import MapTypeInfo, TypeInformation
from pyflinkstate.api.values import JsonObject
from pyflinkstate.backends.types import RegisteredStateMeta, decode_column, sealed, unsealed
from pyflinkstate.errors import ConfigurationError, StateTableError, UserFunctionError
from pyflinkstate.state_access.expiry import Mask, user_type
from pyflinkstate.state_access.key_space import KeySpace
from pyflinkstate.state_access.views import element_type
from pyflinkstate.state_access.writing.changes import Predicate

#: What a user gives: ``pc.field("value") < 0``, or a function of a row, a dict of Python values by column.
UserPredicate: TypeAlias = "pc.Expression | Callable[[JsonObject], bool]"


def predicate_of(given: UserPredicate, keys: KeySpace) -> Predicate:
    """Return the function that makes a mask of the rows that match a user's predicate.

    Raises:
        ConfigurationError: it is neither an expression nor a function.
    """
    if isinstance(given, pc.Expression):
        return lambda meta, batch: _picked(given, keys, meta, batch)
    if callable(given):
        return lambda meta, batch: _called(given, keys, meta, batch)
    raise ConfigurationError(
        f"a predicate is an expression such as pyarrow.compute.field('value') < 0, or a function of a row, "
        f"not {given!r}"
    )


def _picked(
    expression: pc.Expression, keys: KeySpace, meta: RegisteredStateMeta, batch: pa.RecordBatch
) -> Mask:
    mask = np.zeros(batch.num_rows, np.bool_)
    numbered = pa.Table.from_batches([batch]).append_column("", pa.array(range(batch.num_rows), pa.int64()))
    try:
        picked = numbered.filter(expression).column("").to_numpy()
    except (pa.ArrowException, TypeError) as error:
        raise StateTableError(
            f"operator {keys.uid!r}, state {meta.name!r}: the predicate {expression} does not fit its "
            f"entries, whose columns are {', '.join(map(repr, batch.schema.names))}: {error}"
        ) from error
    mask[picked] = True
    return mask


def _called(
    function: Callable[[JsonObject], bool], keys: KeySpace, meta: RegisteredStateMeta, batch: pa.RecordBatch
) -> Mask:
    columns = [
        _decoded(name, keys, meta, column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    try:
        picked = [
            bool(function(dict(zip(batch.schema.names, row, strict=True))))
            for row in zip(*columns, strict=True)
        ]
    except Exception as error:
        raise UserFunctionError(
            f"operator {keys.uid!r}, state {meta.name!r}: the predicate raised {type(error).__name__}: "
            f"{error}",
            state=meta.name,
        ) from error
    return np.array(picked, np.bool_)


def _decoded(name: str, keys: KeySpace, meta: RegisteredStateMeta, column: pa.Array) -> list[object]:
    """Return the values of a column as the program knows them; pickles that must not be loaded are bytes."""
    type_info = _type_of(name, meta)
    if name == "key":
        return keys.decoded(column)
    if type_info is None:
        plain: list[object] = column.to_pylist()
        return plain
    # The type of namespaces is as the file has it, so it may be a pickled one that nobody has sealed.
    return decode_column(unsealed(type_info) if keys.allow_pickle else sealed(type_info), column)


def _type_of(name: str, meta: RegisteredStateMeta) -> TypeInformation | None:
    if name in ("window", "namespace"):
        return meta.namespace_type
    if name == "map_key":
        assert isinstance(meta.stored_type, MapTypeInfo)
        return meta.stored_type.key_type_info
    return user_type(element_type(meta)) if name == "value" else None
