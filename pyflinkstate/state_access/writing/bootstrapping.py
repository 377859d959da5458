"""The functions that users give, and operators whose state they build from rows when a savepoint is written.

The functions build state from rows, migrate values, and pick entries. Those that build state are Flink's
(``org.apache.flink.state.api.functions``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import (
    ArrowObject,
    CheckpointedFunction,
    FunctionSnapshotContext,
    Key,
    KeyedProcessFunction,
    ListTypeInfo,
    MapStateDescriptor,
    MapTypeInfo,
    ProcessFunction,
    Record,
    Row,
    RuntimeContext,
    SparkObject,
    StateDescriptor,
    StateKind,
    StateValue,
    Stored,
    TypeInformation,
    Types,
    UserFunction,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import (
    CheckpointStreamFactory,
    MemoryCheckpoint,
    OperatorState,
    OperatorSubtaskState,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.types import RegisteredStateMeta, TtlTypeInfo, decode_column, sealed, unsealed
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import (
    ConfigurationError,
    SparkJobError,
    StateTableError,
    UnsupportedSessionError,
    UserFunctionError,
)
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
from pyflinkstate.state_access.tables import Mask, expires, user_type
from pyflinkstate.state_access.views import element_type
from pyflinkstate.state_access.writing.drafts import Predicate
from pyflinkstate.state_access.writing.fitted_tables import arrow_table, key_check, stamped, stored_check

#: The column for a state; for a ``MapState`` the columns of keys and of values.
StateColumn: TypeAlias = str | tuple[str, str]

#: The types of states that are named without a descriptor.
_TYPES: dict[pa.DataType, Callable[[], TypeInformation]] = {
    pa.bool_(): Types.BOOLEAN,
    pa.int8(): Types.BYTE,
    pa.int16(): Types.SHORT,
    pa.int32(): Types.INT,
    pa.int64(): Types.LONG,
    pa.float32(): Types.DOUBLE,
    pa.float64(): Types.DOUBLE,
    pa.string(): Types.STRING,
    pa.large_string(): Types.STRING,
}


class KeyedStateBootstrapFunction(KeyedProcessFunction[Key, Any, None]):
    """Builds keyed state from rows (Flink: ``KeyedStateBootstrapFunction``).

    ``process_element(value, ctx)`` is called with each row under its key, and may register timers through
    ``ctx.timer_service()``. Its results are dropped.
    """


class StateBootstrapFunction(ProcessFunction[Any, None], CheckpointedFunction):
    """Builds operator state from rows without keys (Flink: ``StateBootstrapFunction``).

    ``initialize_state(context)`` asks for the state, and ``process_element(value, ctx)`` is called with each
    row.
    """

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
        """Change the state."""

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Do nothing: override it to write the state only at the end."""


class ColumnStates(KeyedStateBootstrapFunction):
    """Puts columns of rows into states; cells without a value are skipped.

    Args:
        columns: the descriptors and their columns.
    """

    def __init__(self, columns: Sequence[tuple[StateDescriptor, StateColumn]]) -> None:
        self._columns = columns
        self._put: list[Callable[[object], None]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self._put = [_put(runtime_context, descriptor, column) for descriptor, column in self._columns]

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context[Key]) -> None:
        for put in self._put:
            put(value)


def _put(context: RuntimeContext, descriptor: Any, column: Any) -> Callable[[Any], None]:
    """Return the function that puts the cell of a row into a state."""
    if descriptor.kind is StateKind.MAP:
        of_key, of_value = column
        map_state = context.get_map_state(descriptor)
        return lambda row: None if row[of_key] is None else map_state.put(row[of_key], row[of_value])
    adding: dict[StateKind, Callable[[Any], Any]] = {
        StateKind.LIST: context.get_list_state,
        StateKind.REDUCING: context.get_reducing_state,
        StateKind.AGGREGATING: context.get_aggregating_state,
    }
    is_value = descriptor.kind is StateKind.VALUE
    add = context.get_state(descriptor).update if is_value else adding[descriptor.kind](descriptor).add
    return lambda row: None if row[column] is None else add(row[column])


def column_states(given: Mapping[Any, Any], types: Mapping[str, pa.DataType]) -> ColumnStates:
    """Return the function for ``{state: column}``.

    Args:
        given: columns by descriptors, or by the names of value states.
        types: the Arrow types of the columns, as far as they are known.

    Raises:
        ConfigurationError: there is no such column, or the type of a state is not known.
    """
    if not given:
        raise ConfigurationError("no state is named: give {state: column}")
    columns = [(_descriptor(state, column, types), column) for state, column in given.items()]
    for descriptor, column in columns:
        _check_columns(descriptor, column, types)
    return ColumnStates(columns)


def _descriptor(state: Any, column: Any, types: Mapping[str, pa.DataType]) -> StateDescriptor:
    if isinstance(state, StateDescriptor):
        return state
    make = _TYPES.get(types.get(column)) if isinstance(column, str) else None
    if not isinstance(state, str) or make is None:
        raise ConfigurationError(
            f"state {state!r} of column {column!r}: its type is not known from the column, so give a state "
            f"descriptor instead of its name"
        )
    return ValueStateDescriptor(state, make())


def _check_columns(descriptor: StateDescriptor, column: object, types: Mapping[str, pa.DataType]) -> None:
    is_map = isinstance(descriptor, MapStateDescriptor)
    names = column if isinstance(column, tuple) else (column,)
    if len(names) != (2 if is_map else 1) or not all(isinstance(name, str) for name in names):
        wanted = "a pair of columns, for its keys and its values" if is_map else "the name of a column"
        raise ConfigurationError(f"state {descriptor.name!r} needs {wanted}, not {column!r}")
    missing = [name for name in names if types and name not in types]
    if missing:
        raise ConfigurationError(
            f"state {descriptor.name!r}: there is no column {missing[0]!r}; the columns are "
            f"{', '.join(map(repr, types))}"
        )


#: The value of an entry, as a program knows it, before and after a migration.
Convert = Callable[[Any], StateValue]


def by_function(
    was: RegisteredStateMeta, now: RegisteredStateMeta, function: Convert, now_ms: int
) -> Convert:
    """Return a converter of stored values, made of a function of values without timestamps.

    What has expired is left out. A value with time to live keeps its timestamp. So do the entries of a map
    whose keys stay, and the elements of a list, place by place, if there are as many as before; what is new
    gets the latest timestamp of the old value. The converter raises ``UserFunctionError`` if the function
    raises, and ``ValueError`` or ``TypeError`` if its result does not fit.
    """
    check = stored_check(now)

    def convert(stored: Stored) -> Stored:
        seen = _seen(was, stored, now_ms)
        if seen is None:
            return None
        try:
            made = function(seen.value)
        except Exception as error:
            told = f"the migration function raised {type(error).__name__}: {error}"
            raise UserFunctionError(told) from error
        return None if made is None else check(_stamped(now, made, seen))

    return convert


@attrs.frozen
class _Seen:
    """A stored value as its program sees it.

    Attributes:
        value: the value without timestamps.
        latest_ms: its timestamp, or the latest of its elements.
        of_elements: the timestamps of the elements of a list, in order.
        of_keys: the timestamps of the entries of a map.
    """

    value: StateValue
    latest_ms: int
    of_elements: Sequence[int] = ()
    of_keys: Mapping[StateValue, int] = attrs.field(factory=dict)


def _seen(was: RegisteredStateMeta, stored: Any, now_ms: int) -> _Seen | None:
    """Return the value that the program sees, or None if all of it has expired."""
    if stored is None or not expires(was.stored_type):
        return _Seen(stored, now_ms)

    def is_alive(at_ms: int) -> bool:
        return was.ttl_ms is None or at_ms > now_ms - was.ttl_ms

    if isinstance(was.stored_type, TtlTypeInfo):
        at_ms, value = stored
        return _Seen(value, at_ms) if is_alive(at_ms) else None
    pairs = stored.values() if isinstance(stored, dict) else stored
    alive = [at_ms for at_ms, _ in pairs if is_alive(at_ms)]
    if stored and not alive:
        return None
    latest_ms = max(alive, default=now_ms)
    if isinstance(stored, dict):
        left = {key: pair for key, pair in stored.items() if is_alive(pair[0])}
        values = {key: value for key, (_, value) in left.items()}
        return _Seen(values, latest_ms, of_keys={key: at_ms for key, (at_ms, _) in left.items()})
    return _Seen([value for at_ms, value in stored if is_alive(at_ms)], latest_ms, alive)


def _stamped(now: RegisteredStateMeta, made: StateValue, seen: _Seen) -> StateValue:
    """Return a function's result in the form that the state stores."""
    stored_type = now.stored_type
    if expires(stored_type):
        if isinstance(stored_type, ListTypeInfo) and isinstance(made, (list, tuple)):
            are_as_many = len(made) == len(seen.of_elements)
            stamps = seen.of_elements if are_as_many else [seen.latest_ms] * len(made)
            return list(zip(stamps, made, strict=True))
        if isinstance(stored_type, MapTypeInfo) and isinstance(made, Mapping):
            check_key = key_check(stored_type.key_type_info) or stored_type.key_type_info.check
            checked = {check_key(key): item for key, item in made.items()}
            return {key: (seen.of_keys.get(key, seen.latest_ms), item) for key, item in checked.items()}
    return stamped(stored_type, made, seen.latest_ms)


#: What a user gives: ``pc.field("value") < 0``, or a function of a row, a dict of Python values by column.
UserPredicate: TypeAlias = "pc.Expression | Callable[[dict[str, Any]], bool]"


def predicate_of(given: UserPredicate, keys: KeySpace) -> Predicate:
    """Return the function that makes a mask of the rows that match a user's predicate.

    Raises:
        ConfigurationError: it is neither an expression nor a function.
    """
    if isinstance(given, pc.Expression):
        return lambda meta, batch: _picked(given, keys, meta, batch)
    if callable(given):
        return lambda meta, batch: _asked_of_each_row(given, keys, meta, batch)
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


def _asked_of_each_row(
    function: Callable[[dict[str, Any]], bool],
    keys: KeySpace,
    meta: RegisteredStateMeta,
    batch: pa.RecordBatch,
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
    if name == "key":
        return keys.decoded(column)
    types = {
        "window": meta.namespace_type,
        "namespace": meta.namespace_type,
        "value": user_type(element_type(meta)),
    }
    if meta.kind is StateKind.MAP:
        types["map_key"] = meta.stored_type.parts()[0]
    if name not in types:
        plain: list[object] = column.to_pylist()
        return plain
    type_info = types[name]
    # The type of namespaces is as the file has it, so it may be a pickled one that nobody has sealed.
    return decode_column(unsealed(type_info) if keys.allow_pickle else sealed(type_info), column)


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
        written = seeded(self.settings, (), MemoryCheckpoint(), "")
        return OperatorState(self.keys.uid, 1, self.keys.max_parallelism, (written,))


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

_ARROW_TYPES = {
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
    return {
        field.name: _ARROW_TYPES.get(field.dataType.typeName(), pa.null()) for field in frame.schema.fields
    }


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
    routed = frame.rdd.mapPartitionsWithIndex(partial(_routed, settings))
    written = routed.partitionBy(settings.parallelism, int).mapPartitionsWithIndex(
        partial(_written, settings, uri)
    )
    try:
        return [state for _, state in sorted(written.collect(), key=itemgetter(0))]
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        raise SparkJobError(
            f"operator {settings.keys.uid!r} cannot be seeded: {told_by_spark(error)}",
            operator=settings.keys.uid,
        ) from spark_cause(error)


def _routed(settings: SeedSettings, partition: int, rows: Iterable[object]) -> Iterator[tuple[int, Numbered]]:
    """Send the rows of a partition to the subtasks of their keys."""
    number = 0
    for subtask, frame in settings.frames(partition, rows):
        for data in encoded_frames(frame, settings.keys.uid):
            yield subtask, (partition, number, data)
            number += 1


def _written(
    settings: SeedSettings, uri: str, subtask: int, frames: Iterable[tuple[int, Numbered]]
) -> Iterator[tuple[int, OperatorSubtaskState]]:
    """Make the state of one subtask and write it."""
    in_order = sorted((numbered for _, numbered in frames), key=lambda numbered: numbered[:2])
    decoded = (InputFrame.decode(data) for _, _, data in in_order)
    yield subtask, seeded(settings, decoded, open_folder(uri), uri, subtask)
