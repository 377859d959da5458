"""Operators whose state is built from rows when their savepoint is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias

import attrs
import pyarrow as pa

from pyflinkstate.api import ArrowObject, Key, KeyedProcessFunction, Record, Row, SparkObject, UserFunction
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    CheckpointStreamFactory,
    OperatorState,
    OperatorSubtaskState,
    StreamStateHandle,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError, SparkJobError, StateTableError, UnsupportedSessionError
from pyflinkstate.runtime.operators import (
    KeyedSubtask,
    OneInputOperator,
    OperatorContext,
    Output,
    StreamOperatorState,
    closed_at_end,
)
from pyflinkstate.runtime.plan import Partitioning
from pyflinkstate.runtime.storage import CheckpointFolder, open_folder
from pyflinkstate.runtime.tasks import Router
from pyflinkstate.runtime.wire import (
    CheckpointTrigger,
    InputFrame,
    encoded_frames,
    loads,
    pickled,
    spark_cause,
    told_by_spark,
    user_failure,
)
from pyflinkstate.state_access.keyed_state import KeySpace
from pyflinkstate.state_access.writing.fitted_tables import arrow_table
from pyflinkstate.state_access.writing.user_functions import StateBootstrapFunction, column_states

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
            frames = (frame for _, frame in self.settings.frames(0, self.rows))
            subtasks = [seeded(self.settings, frames, folder, uri)]
        parallelism, most = self.settings.parallelism, self.keys.max_parallelism
        return OperatorState(self.keys.uid, parallelism, most, tuple(subtasks))

    def without_rows(self) -> OperatorState:
        """Return the operator with all of its states and nothing in them."""
        written = seeded(self.settings, (), _Memory(), "")
        return OperatorState(self.keys.uid, 1, self.keys.max_parallelism, (written,))


@attrs.frozen
class _Memory:
    """A stream that keeps what is written in its handle, and the factory of such streams."""

    _written: list[bytes] = attrs.field(factory=list, init=False)

    def create(self) -> _Memory:
        return _Memory()

    def write(self, data: bytes) -> None:
        self._written.append(bytes(data))

    def close_and_get_handle(self) -> StreamStateHandle:
        return ByteStreamStateHandle(b"".join(self._written))

    def abort(self) -> None:
        self._written.clear()

    def discard(self, handle: StreamStateHandle) -> None:
        """Do nothing: the handle has all of it."""


def is_spark_dataframe(data: object) -> bool:
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


def _rows(data: object, what: str) -> tuple[object, dict[str, pa.DataType]]:
    """Return the rows, and the types of their columns as far as they are known."""
    if is_spark_dataframe(data):
        check_classic(data, what)
        return data, arrow_types(data)
    if isinstance(data, (list, tuple)) or (isinstance(data, Iterable) and not _is_table(data)):
        return _Records(data, what), {}
    table = arrow_table(data, what)
    return _NamedRows(table), {field.name: field.type for field in table.schema}


def _is_table(data: object) -> bool:
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
    return itemgetter(given)


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


#: The number of records that are processed at once.
RECORDS_PER_FRAME = 4096


@attrs.frozen
class SeedSettings:
    """How rows become the records of an operator.

    Attributes:
        keys: the operator and its keys.
        function: a pickle of the function.
        select_key: returns the key of a row; None if there are no keys.
        timestamp_of: returns the event time of a row, in ms since 1970; None if rows have none.
        parallelism: the number of subtasks that write the state.
        clock: returns the time in ms since 1970.
    """

    keys: KeySpace
    function: bytes = attrs.field(repr=False)
    select_key: Callable[[Any], Key] | None
    timestamp_of: Callable[[object], int] | None
    parallelism: int
    clock: Callable[[], int]

    def frames(self, partition: int, rows: Iterable[Record]) -> Iterator[tuple[int, InputFrame]]:
        """Yield the rows of a partition as frames, each with the subtask that it is for."""
        split, iterator = self._router().splitter(partition), iter(rows)
        while batch := list(islice(iterator, RECORDS_PER_FRAME)):
            times = None if self.timestamp_of is None else list(map(self._timestamp, batch))
            yield from split(batch, times)

    def _timestamp(self, row: Record) -> int:
        assert self.timestamp_of is not None
        try:
            found = self.timestamp_of(row)
        except Exception as error:
            raise user_failure(error, self.keys.uid, row) from error
        if type(found) is not int:
            raise StateTableError(
                f"operator {self.keys.uid!r}: the timestamp of a row is {found!r}, and must be a whole "
                f"number, ms since 1970: give a function of the row"
            )
        return found

    def _router(self) -> Router:
        keys, by_key = self.keys, self.select_key is not None
        return Router(
            keys.uid,
            self.select_key or (lambda _: None),
            keys.key_type,
            self.parallelism,
            keys.max_parallelism,
            Partitioning.KEY if by_key else Partitioning.FORWARD,
        )


def seeded(
    settings: SeedSettings,
    frames: Iterable[InputFrame],
    streams: CheckpointStreamFactory,
    uri: str,
    subtask: int = 0,
) -> OperatorSubtaskState:
    """Process the rows of a subtask, write its state, and close the function, whatever happens.

    Raises:
        UserFunctionError: the function raised.
        CheckpointStorageError: the state cannot be written.
    """
    keys, parallelism, clock = settings.keys, settings.parallelism, settings.clock
    backend, function = HashMapStateBackend(), loads(settings.function)
    owned = key_group_range(keys.max_parallelism, parallelism, subtask)
    keyed = backend.create_keyed_state_backend(keys.key_type, owned, keys.max_parallelism, clock)
    state = StreamOperatorState(keyed, backend.create_operator_state_backend(), backend.snapshot_compression)
    context = OperatorContext(keys.uid, subtask, parallelism, keys.max_parallelism, 0, keyed)
    operator = function if settings.select_key is not None else OneInputOperator("process", function)
    seeder = KeyedSubtask(operator, context, state)
    with closed_at_end(seeder.close):
        seeder.open()
        for frame in frames:
            seeder.process_frame(frame, Output())
        return seeder.snapshot(CheckpointTrigger(1, clock(), uri), streams).futures.finish()


#: The number of the partition and of the frame in it, and the frame's bytes.
Numbered = tuple[int, int, bytes]

_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}


def arrow_types(frame: SparkObject) -> dict[str, pa.DataType]:
    """Return the Arrow types of columns; null stands for one that no state gets its type from."""
    return {field.name: _TYPES.get(field.dataType.typeName(), pa.null()) for field in frame.schema.fields}


def check_classic(frame: object, what: str) -> None:
    """Refuse a ``DataFrame`` of Spark Connect, which has no RDD, with an ``UnsupportedSessionError``."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedSessionError(
            f"{what}: a DataFrame of a Spark Connect session has no RDD, through which rows are read: "
            f"give one of a classic SparkSession, or frame.toPandas(), which is read in this process"
        )


def seed_on_spark(frame: SparkObject, settings: SeedSettings, uri: str) -> list[OperatorSubtaskState]:
    """Write the state of each subtask on an executor.

    Args:
        frame: a Spark ``DataFrame``; the rows of a key are processed in order of partitions and in each.
        settings: the operator.
        uri: the savepoint's folder, which executors reach as well. Tasks that fail may leave files there.

    Raises:
        SparkJobError: Spark's job failed; the message says what a task raised.
    """
    routed = frame.rdd.mapPartitionsWithIndex(_Route(settings))
    written = routed.partitionBy(settings.parallelism, int).mapPartitionsWithIndex(_Write(settings, uri))
    try:
        return [state for _, state in sorted(written.collect(), key=itemgetter(0))]
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        raise SparkJobError(
            f"operator {settings.keys.uid!r} cannot be seeded: {told_by_spark(error)}",
            operator=settings.keys.uid,
        ) from spark_cause(error)


@attrs.frozen
class _Route:
    """Sends the rows of a partition to the subtasks of their keys."""

    settings: SeedSettings

    def __call__(self, partition: int, rows: Iterable[object]) -> Iterator[tuple[int, Numbered]]:
        number = 0
        for subtask, frame in self.settings.frames(partition, rows):
            for data in encoded_frames(frame, self.settings.keys.uid):
                yield subtask, (partition, number, data)
                number += 1


@attrs.frozen
class _Write:
    """Makes the state of one subtask and writes it."""

    settings: SeedSettings
    uri: str

    def __call__(
        self, subtask: int, frames: Iterable[tuple[int, Numbered]]
    ) -> Iterator[tuple[int, OperatorSubtaskState]]:
        in_order = sorted((numbered for _, numbered in frames), key=lambda numbered: numbered[:2])
        decoded = (InputFrame.decode(data) for _, _, data in in_order)
        yield subtask, seeded(self.settings, decoded, open_folder(self.uri), self.uri, subtask)
