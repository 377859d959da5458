"""The data source ``pyflinkstate``: state of a checkpoint for ``spark.read``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from pyflinkstate.api.values import ArrowObject
from pyflinkstate.state_access.spark.push_down import keys_are_as_written, narrowed
from pyflinkstate.state_access.spark.query import Query, query_of
from pyflinkstate.state_access.spark.schemas import arrow_schema, fitting, spark_schema

_PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: ArrowObject) -> None:
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


class PartNumber(InputPartition):
    """The number of a part of the table."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


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
        return [PartNumber(number) for number in range(len(self.query.parts()))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part."""
        part = self.query.parts()[partition.value]
        return (made for batch in part.to_batches() for made in fitting(batch, self.columns))
