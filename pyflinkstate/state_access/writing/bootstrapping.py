"""Operators whose state is built from rows when their savepoint is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.row import Row
from pyflinkstate.api.values import ArrowObject, Record, SparkObject, UserFunction
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    OperatorState,
    OperatorSubtaskState,
    StreamStateHandle,
)
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.storage import CheckpointFolder
from pyflinkstate.runtime.wire import pickled
from pyflinkstate.state_access.key_space import KeySpace
from pyflinkstate.state_access.writing.bootstrap_functions import StateBootstrapFunction, column_states
from pyflinkstate.state_access.writing.seeding import Field, SeedSettings, seeded
from pyflinkstate.state_access.writing.spark_bootstrapping import arrow_types, check_classic, seed_on_spark
from pyflinkstate.state_access.writing.user_tables import arrow_table

#: The name of a column, or a function of a row.
KeyOf: TypeAlias = "str | Callable[[Any], Any] | None"
TimestampOf: TypeAlias = "str | Callable[[Any], int]"


@attrs.frozen
class Bootstrap:
    """An operator that is seeded when its savepoint is written.

    Attributes:
        settings: the operator and how rows become its records.
        rows: its rows, which each writing reads; a Spark ``DataFrame`` is read in parallel.
    """

    settings: SeedSettings
    rows: Iterable[Record] | SparkObject = attrs.field(repr=False)

    @property
    def keys(self) -> KeySpace:
        """The keys of the operator."""
        return self.settings.keys

    def renamed(self, uid: str) -> Bootstrap:
        """Return the same with another uid."""
        keys = attrs.evolve(self.keys, uid=uid)
        return attrs.evolve(self, settings=attrs.evolve(self.settings, keys=keys))

    def write(self, folder: CheckpointFolder, uri: str) -> OperatorState:
        """Write the operator's state and return its handles."""
        if is_spark_dataframe(self.rows):
            subtasks = seed_on_spark(self.rows, self.settings, uri)
        else:
            subtasks = [self._seed(folder, uri)]
        parallelism, most = self.settings.parallelism, self.keys.max_parallelism
        return OperatorState(self.keys.uid, parallelism, most, tuple(subtasks))

    def _seed(self, folder: CheckpointFolder, uri: str) -> OperatorSubtaskState:
        frames = (frame for _, frame in self.settings.frames(0, self.rows))
        return seeded(self.settings, frames, folder, uri)

    def without_rows(self) -> OperatorState:
        """Return the operator with all of its states and nothing in them."""
        written = seeded(self.settings, (), _Memory(), "")
        return OperatorState(self.keys.uid, 1, self.keys.max_parallelism, (written,))


@attrs.frozen
class _Memory:
    """Keeps what is written in the handles."""

    def create(self) -> _MemoryStream:
        return _MemoryStream()

    def discard(self, handle: StreamStateHandle) -> None:
        """Do nothing: the handle has all of it."""


@attrs.frozen
class _MemoryStream:
    _written: list[bytes] = attrs.field(factory=list, init=False)

    def write(self, data: bytes) -> None:
        self._written.append(bytes(data))

    def close_and_get_handle(self) -> StreamStateHandle:
        return ByteStreamStateHandle(b"".join(self._written))

    def abort(self) -> None:
        self._written.clear()


def is_spark_dataframe(data: Any) -> bool:
    """Return whether this is a Spark ``DataFrame``, without importing PySpark."""
    return type(data).__module__.startswith("pyspark.") and hasattr(type(data), "rdd")


def bootstrap_of(
    data: ArrowObject | SparkObject | Iterable[Any],
    function: UserFunction,
    key: KeyOf,
    timestamp: TimestampOf | None,
    keys: KeySpace,
    parallelism: int | None,
    clock: Callable[[], int],
) -> Bootstrap:
    """Return the operator that a function builds from rows; see ``CheckpointEdit.bootstrap``.

    Raises:
        ConfigurationError: the function, the key or a column does not fit.
    """
    what = f"operator {keys.uid!r}"
    rows, types = _rows(data, what)
    if isinstance(function, Mapping):
        function = column_states(function, types)
    _check_function(function, key, what)
    settings = SeedSettings(
        keys,
        pickled(keys.uid, function),
        _selector(key, types, f"{what}: key"),
        _selector(timestamp, types, f"{what}: timestamp"),
        _parallelism(data, parallelism, keys),
        clock,
    )
    return Bootstrap(settings, rows)


def _rows(data: Any, what: str) -> tuple[Any, dict[str, pa.DataType]]:
    """Return the rows, and the types of their columns as far as they are known."""
    if is_spark_dataframe(data):
        check_classic(data, what)
        return data, arrow_types(data)
    if isinstance(data, (list, tuple)) or (isinstance(data, Iterable) and not _is_table(data)):
        return _Records(data, what), {}
    table = arrow_table(data, what)
    return _NamedRows(table), {field.name: field.type for field in table.schema}


def _is_table(data: Any) -> bool:
    return isinstance(data, Mapping) or any(
        hasattr(data, name) for name in ("to_arrow", "read_all", "to_batches", "schema", "iloc")
    )


@attrs.frozen
class _NamedRows:
    """The rows of a table, which can be read any number of times."""

    table: pa.Table

    def __iter__(self) -> Iterator[Row]:
        make = Row(*self.table.column_names)
        for batch in self.table.to_batches():
            columns = [column.to_pylist() for column in batch.columns]
            yield from (make(*values) for values in zip(*columns, strict=True))


@attrs.define
class _Records:
    """A user's records. An iterator can be read once only, so a second savepoint would lack them."""

    records: Iterable[Any]
    what: str
    _was_read: bool = attrs.field(default=False, init=False)

    def __iter__(self) -> Iterator[Any]:
        records = iter(self.records)
        if records is self.records and self._was_read:
            raise ConfigurationError(
                f"{self.what}: its rows came from an iterator, which has been read: give a list or a table "
                f"to write more than one savepoint, or to try again"
            )
        self._was_read = True
        return map(isolated, records)


def _check_function(function: UserFunction, key: KeyOf, what: str) -> None:
    wanted = StateBootstrapFunction if key is None else KeyedProcessFunction
    if not isinstance(function, wanted):
        kind = "StateBootstrapFunction" if key is None else "KeyedStateBootstrapFunction, or {state: column}"
        raise ConfigurationError(f"{what}: the function must be a {kind}, not {function!r}")


def _selector(
    given: str | Callable[[Any], Any] | None, types: Mapping[str, pa.DataType], what: str
) -> Callable[[Any], Any] | None:
    if given is None or callable(given):
        return given
    if types and given not in types:
        raise ConfigurationError(
            f"{what}: there is no column {given!r}; the columns are {', '.join(map(repr, types))}"
        )
    return Field(given)


def _parallelism(data: Any, given: int | None, keys: KeySpace) -> int:
    if not is_spark_dataframe(data):
        if given not in (None, 1):
            raise ConfigurationError(
                f"operator {keys.uid!r}: rows that are not a Spark DataFrame are read in this process, so "
                f"the parallelism is 1, not {given}"
            )
        return 1
    partitions = max(data.rdd.getNumPartitions(), 1)  # an empty DataFrame may have none
    return min(partitions, keys.max_parallelism) if given is None else given
