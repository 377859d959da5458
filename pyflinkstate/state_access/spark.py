"""Checkpoints in Spark: the data source ``pyflinkstate`` for ``spark.read``, and tables as ``DataFrame``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import TypeAlias

import attrs
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from pyflinkstate.api import Key, PickledBytesTypeInfo, TypedValue
from pyflinkstate.backends.types import arrow_type, decode_column, has_pickles
from pyflinkstate.errors import PyFlinkStateError, StateTableError
from pyflinkstate.state_access.keyed_state import KeyedState, key_filter
from pyflinkstate.state_access.spark_query import Query, query_of
from pyflinkstate.state_access.tables import StateTable, common_schema, nearest

__all__ = ["CheckpointDataSource", "register"]

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("pyflinkstate")`` known to a session.

    It also enables the push-down of filters to Python data sources, which is off by default.
    """
    spark.dataSource.register(CheckpointDataSource)
    spark.conf.set(_PUSH_DOWN, "true")


class CheckpointDataSource(DataSource):
    """Reads a table of a checkpoint, a range of key groups in each partition.

    ``load(path)`` takes the paths of :func:`open_checkpoint`. The newest checkpoint of a job is looked up
    once, when the ``DataFrame`` is made. Options, which may be written in camel case too:

    * ``uid``: the operator. It can be left out if there is only one.
    * ``what``: ``keyed``, ``entries``, ``windows``, ``timers`` or ``operator_state``, the methods of
      :class:`Checkpoint`. Default: ``entries`` if a ``state`` is named, otherwise ``keyed``.
    * ``state``: the state of ``entries`` or ``operator_state``.
    * ``states``: names of states for ``keyed``, between commas or as a list in JSON.
    * ``with_expired``: ``true`` for values that have expired as well.
    * ``time_to_live``: JSON of states and milliseconds, in place of what the checkpoint says.
    * ``now_ms``: the time by which values have expired, in ms since 1970. Default: the present.
    * ``partitions``: the most partitions; see :meth:`StateTable.parts`.
    * ``allow_pickle``: ``true`` loads pickled values and keys, which runs code. All of them are read to find
      the schema, unless ``.schema(...)`` names it.

    Filters ``key = ...`` and ``key in (...)``, and those on all fields of a key, are pushed down: only the
    key groups of these keys are read. Use :func:`register` to switch that on.

    Raises:
        ConfigurationError: an option is unknown, missing or malformed, or does not go with the others.
        CheckpointError: the checkpoint cannot be read, or has no such operator or state.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.query = query_of(options)
        self._has_own_schema = False

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pyflinkstate"

    def schema(self) -> StructType:
        """Return the columns of the table. Spark does not ask for them if the user names them."""
        self._has_own_schema = True
        return spark_schema(self.query.table().schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns of ``schema``."""
        columns = arrow_schema(schema)
        takes_filters = self._has_own_schema or keys_are_as_written(self.query, columns)
        return CheckpointReader(self.query, columns, takes_filters)


class CheckpointReader(DataSourceReader):
    """Reads a table in parts.

    Args:
        query: the table.
        columns: the wanted columns.
        takes_filters: whether filters on the column of keys are filters on keys.
    """

    def __init__(self, query: Query, columns: pa.Schema, takes_filters: bool = True) -> None:
        self.query = query
        self.columns = columns
        self.takes_filters = takes_filters

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read only the keys that the filters name. Spark applies all filters again."""
        if self.takes_filters:
            self.query = narrowed(self.query, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each part."""
        return [InputPartition(number) for number in range(len(self.query.parts()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        part = self.query.parts()[partition.value]
        return (made for batch in part.to_batches() for made in fitting(batch, self.columns))


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
        key_filter(state.keys, keys)
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


def dataframe(spark: SparkSession, parts: Sequence[StateTable]) -> DataFrame:
    """Return the rows of all parts, a partition for each.

    Raises:
        StateTableError: Spark has no type for a column.
    """
    numbers: DataFrame = spark.range(0, len(parts), 1, len(parts))
    schema = spark_schema(_schema_of(numbers, parts))
    arrow = arrow_schema(schema)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return (
            made
            for part in _named(batches, parts)
            for rows in part.to_batches()
            for made in fitting(rows, arrow)
        )

    return numbers.mapInArrow(read, schema)


def _named(batches: Iterable[pa.RecordBatch], parts: Sequence[StateTable]) -> Iterator[StateTable]:
    """Yield the parts whose numbers a partition has."""
    return (parts[number] for batch in batches for number in batch.column(0).to_pylist())


def _schema_of(numbers: DataFrame, parts: Sequence[StateTable]) -> pa.Schema:
    """Return the schema of all parts; executors determine it if it depends on pickled values."""
    if not parts[0].loads_pickles:
        return parts[0].schema

    def schemas(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = [part.schema.serialize().to_pybytes() for part in _named(batches, parts)]
        yield pa.record_batch([pa.array(found, pa.binary())], ["schema"])

    rows = numbers.mapInArrow(schemas, "schema binary").collect()
    return common_schema(pa.ipc.read_schema(pa.py_buffer(row.schema)) for row in rows)


#: Maximum number of rows in a batch for Spark; a batch of a key group may have many more.
_MOST_ROWS = 1 << 16


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of a ``DataFrame`` for one of Arrow.

    Raises:
        StateTableError: Spark has no type for a column.
    """
    fields: list[StructField] = []
    for field in schema:
        try:  # timestamps without a zone stay so in Spark
            fields += from_arrow_schema(pa.schema([field]), prefer_timestamp_ntz=True).fields
        except PySparkException as error:
            raise StateTableError(
                f"Spark has no type for column {field.name!r}, which is {field.type} in Arrow: read the "
                f"table with to_arrow(), or name other states",
                column=field.name,
            ) from error
    return StructType(fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark takes the rows of a ``DataFrame``."""
    return to_arrow_schema(schema, timezone="UTC")


def fitting(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in Spark's types, in batches that Spark can take.

    Args:
        batch: rows of a table of state.
        schema: the wanted columns, as :func:`arrow_schema` gives them.

    Raises:
        StateTableError: there is no such column, or its values do not fit the wanted type.
    """
    picked = [_column(batch, name) for name in schema.names]
    for begin in range(0, batch.num_rows, _MOST_ROWS):
        yield from _cast([array.slice(begin, _MOST_ROWS) for array in picked], schema)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    names = batch.schema.names
    if name not in names:
        raise StateTableError(f"the table has no column {name!r}; it has {nearest(name, names)}", column=name)
    return batch.column(name)


def _cast(arrays: list[pa.Array], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows in the types of a schema, in halves if a batch would have over 2 GiB of strings or lists."""
    columns = []
    for array, field in zip(arrays, schema, strict=True):
        try:
            columns.append(array.cast(field.type))
        except pa.ArrowException as error:
            rows = len(array)
            if rows < 2:
                raise StateTableError(
                    f"a value does not fit column {field.name!r}, which is {field.type}: {error}",
                    column=field.name,
                ) from error
            for half in (range(rows // 2), range(rows // 2, rows)):
                taken = pa.array(half)
                yield from _cast([array.take(taken) for array in arrays], schema)
            return
    yield pa.record_batch(columns, schema=schema)
