"""Filters on keys, which Spark hands to the data source: only the key groups of these keys are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import attrs
import pyarrow as pa
from pyspark.sql.datasource import EqualNullSafe, EqualTo, Filter, In

from pyflinkstate.api.types import PickledBytesTypeInfo
from pyflinkstate.api.values import Key, TypedValue
from pyflinkstate.backends.types import arrow_type, decode_column
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.state_access.key_filter import key_filter
from pyflinkstate.state_access.keyed_state import KeyedState
from pyflinkstate.state_access.pickles import has_pickles
from pyflinkstate.state_access.spark.query import Query
from pyflinkstate.state_access.spark.schemas import arrow_schema, spark_schema

#: A column, or a field of a struct in it.
Path: TypeAlias = tuple[str, ...]
_KEY: Path = ("key",)


def keys_are_as_written(query: Query, columns: pa.Schema) -> bool:
    """Return whether the column of keys has the type in which the table gives them.

    If the user named another type, a filter on the column is not a filter on keys.
    """
    key_type = query.checkpoint.keyed_state(query.uid, query.allow_pickle).key_type
    if "key" not in columns.names or has_pickles(key_type):
        return False
    written = arrow_schema(spark_schema(pa.schema([("key", arrow_type(key_type))])))
    return bool(columns.field("key").type == written.field("key").type)


def narrowed(query: Query, filters: Iterable[Filter]) -> Query:
    """Return a query that reads only the keys that match the filters.

    It may read more keys, never fewer: Spark applies the filters again. Filters that cannot be converted to
    keys have no effect.
    """
    if query.what == "operator_state":  # the keys of a broadcast state are in no key group
        return query
    state = query.checkpoint.keyed_state(query.uid, query.allow_pickle)
    try:
        keys = _wanted_keys(_values_of(filters), state)
        key_filter(state, keys)
    except (PyFlinkStateError, pa.ArrowException, TypeError, ValueError, OverflowError):  # they fit no key
        return query
    return query if keys is None else attrs.evolve(query, keys=tuple(keys))


def _values_of(filters: Iterable[Filter]) -> dict[Path, list[TypedValue]]:
    """Return the values that match the filters, by column or field; null equals nothing."""
    found: dict[Path, list[TypedValue]] = {}
    for one in filters:
        if isinstance(one, (EqualTo, EqualNullSafe, In)):
            values = list(one.value) if isinstance(one, In) else [one.value]
            known = found.get(one.attribute, values)
            found[one.attribute] = [value for value in known if value in values and value is not None]
    return found


def _wanted_keys(values: dict[Path, list[TypedValue]], state: KeyedState) -> list[Key] | None:
    """Return the keys that the filters name; None if they do not name whole keys."""
    if isinstance(state.key_type, PickledBytesTypeInfo) and state.allow_pickle:
        return values.get(_KEY)
    arrow = arrow_type(state.key_type)
    written = values.get(_KEY)
    if written is None and all(len(values.get(path, ())) == 1 for path in _leaves(_KEY, arrow)):
        written = [_put_together(_KEY, arrow, values)]
    if written is None or has_pickles(state.key_type):
        return None
    keys: list[Key] = decode_column(state.key_type, pa.array(written, arrow))
    return keys


def _leaves(path: Path, arrow: pa.DataType) -> Iterator[Path]:
    """Yield the simple fields of a column."""
    if not pa.types.is_struct(arrow):
        yield path
    else:
        for field in arrow:
            yield from _leaves((*path, field.name), field.type)


def _put_together(path: Path, arrow: pa.DataType, values: dict[Path, list[TypedValue]]) -> TypedValue:
    """Return the value of a column whose simple fields have these values."""
    if not pa.types.is_struct(arrow):
        return values[path][0]
    return {field.name: _put_together((*path, field.name), field.type, values) for field in arrow}
