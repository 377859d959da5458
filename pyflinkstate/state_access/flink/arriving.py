"""Makes a savepoint of this project out of one of Flink."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import attrs
import pyarrow as pa

from pyflinkstate.api import Types
from pyflinkstate.backends.flink_format import (
    Coder,
    FlinkOperatorState,
    FlinkState,
    KeyedStateFile,
    Operator,
    serializer_of,
)
from pyflinkstate.backends.format import MemoryCheckpoint, OperatorState, OperatorSubtaskState, StateCodec
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import (
    DefaultOperatorStateBackend,
    OperatorStateResources,
    OperatorStateSnapshotStrategy,
)
from pyflinkstate.backends.types import (
    MISFITS,
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    RegisteredStateMeta,
    SealedPickles,
    StateMeta,
    dump_pickle,
    sealed,
)
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    IncompatibleCheckpointError,
    StateTableError,
)
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.state_access.flink.opened import FlinkSavepoint
from pyflinkstate.state_access.flink.programs import ProgramOperator, operators_of
from pyflinkstate.state_access.flink.shapes import (
    PREFIX,
    PROCESS,
    Shape,
    each_value,
    key_type_here,
    name_here,
    pickles_instead,
    shape_of,
)
from pyflinkstate.state_access.keyed_state import Group, KeySpace
from pyflinkstate.state_access.writing import (
    CheckpointEdit,
    DraftState,
    OperatorDraft,
    new_savepoint,
    planned,
)

#: Rows that are distributed over key groups at once.
_ROWS = 1 << 16


def edit_flink_savepoint(
    path: AnyPath,
    *,
    program: object = None,
    uids: Mapping[str, str] | None = None,
    job_name: str | None = None,
    drop_unknown: bool = False,
    allow_pickle: bool = False,
    clock: Callable[[], int] = wall_clock_ms,
) -> CheckpointEdit:
    """Begin a savepoint of this project with the state of one of Flink, which stays as it is.

    ``write(path)`` of the result writes it; before that, it can be changed, and tried with ``dry_run``.

    Operators are found by their uids. Keyed state, timers and operator state are taken over. A Kafka source
    of the program continues at the offsets that one with the same uid has in the savepoint, for which its
    cluster is asked; any other source begins where the program says.

    Args:
        path: the folder of the savepoint: canonical, or native of the heap backend.
        program: the ``StreamExecutionEnvironment`` in which the program was built here and not yet executed.
            Each of its functions is opened once. The uids of its operators need not be given, and its
            descriptors say which types PyFlink's state has, for which a program is needed.
        uids: the uids here, by the uids or the ids (32 hexadecimal digits) that operators have in Flink.
            Flink 2.0 and later write uids into a savepoint, so that they need not be given.
        job_name: the name of the job that will start from it. Default: that of the program.
        drop_unknown: whether state of operators whose uid is not known is left out, and of the others what
            the program does not ask for when it is opened.
        allow_pickle: load pickled keys, which runs code, if they are not plain values: their key groups
            depend on it. Plain values, such as numbers, strings and tuples of them, are always loaded.
        clock: returns the time, in ms since 1970.

    Raises:
        CheckpointNotFoundError: there is no savepoint.
        CorruptCheckpointError: it makes no sense.
        IncompatibleCheckpointError: its state has another form than the program's, or only Flink reads it.
        ConfigurationError: the uid of an operator with state is not known, or state needs the program.
    """
    opened = FlinkSavepoint.open(path)
    plan, name = (None, job_name or "flink") if program is None else planned(program, job_name)
    begun = new_savepoint(name, clock=clock)
    expected = {} if plan is None else operators_of(plan, begun.metadata)
    sources = () if plan is None else plan.sources
    ours = [*expected, *[node.uid for node in sources if node.uid]]
    known = opened.uids({**{uid: uid for uid in ours}, **(uids or {})})
    arrivals = [Arrival(opened, one, known.get(one.id, "")) for one in opened.content.operators]
    arrivals = [one for one in arrivals if one.has_state]
    unknown = [one for one in arrivals if not one.uid or (program is not None and one.uid not in expected)]
    if unknown and not drop_unknown:
        raise ConfigurationError(
            f"{opened.uri}: the uid of {'; '.join(map(str, unknown))} is not known here: give it, as in "
            f"uids={{{unknown[0].operator.id.hex()!r}: 'my-uid'}}, or drop the state with drop_unknown=True"
        )
    drafts = {
        one.uid: one.draft(expected.get(one.uid), drop_unknown, allow_pickle)
        for one in arrivals
        if one not in unknown
    }
    position = None if plan is None else _position(opened, known, plan)
    metadata = attrs.evolve(begun.metadata, source_position=position)
    return CheckpointEdit(metadata, None, dict(drafts), clock, allow_pickle)


def _position(opened: FlinkSavepoint, known: Mapping[bytes, str], plan: JobPlan) -> object:
    """Return where the sources of a job continue; None if each begins where the program says."""
    operators = {known.get(one.id): one for one in opened.content.operators if one.has_coordinator}
    found: dict[str, object] = {}
    for node in plan.sources:
        if node.uid in operators:
            operator = operators[node.uid]
            try:
                position = node.source.after_flink(opened.splits(operator))
            except CheckpointError as error:
                raise type(error)(f"{opened.uri}: {operator}: {error.message}", **error.context) from error
            if position is not None:
                found[plan.source_key(node)] = position
    return found if found and len(plan.sources) > 1 else next(iter(found.values()), None)


@attrs.frozen(slots=False)
class Arrival:
    """An operator of a savepoint.

    Attributes:
        savepoint: the savepoint.
        operator: what its metadata says.
        uid: its uid here; empty if it is not known.
    """

    savepoint: FlinkSavepoint = attrs.field(repr=False)
    operator: Operator
    uid: str

    @cached_property
    def files(self) -> list[KeyedStateFile]:
        """The files of its keyed state; the errors are those of :meth:`FlinkSavepoint.keyed_files`."""
        return self.savepoint.keyed_files(self.operator)

    @property
    def has_state(self) -> bool:
        """Whether it has state that is taken over; the positions of a source are not."""
        has_operator_state = any(subtask.operator_state for subtask in self.operator.subtasks.values())
        return bool(self.files) or (has_operator_state and not self.operator.has_coordinator)

    @property
    def states(self) -> dict[str, FlinkState]:
        """Its keyed states and timer queues by name."""
        return {state.name: state for file in self.files for state in file.head.states}

    def __str__(self) -> str:
        return f"{self.operator} ({', '.join(f'{name!r}, {state}' for name, state in self.states.items())})"

    def draft(self, expected: ProgramOperator | None, drops: bool, allow_pickle: bool) -> OperatorDraft:
        """Return the operator for the savepoint here."""
        most = self.operator.max_parallelism
        subtasks = [
            _operator_subtask(states, {} if expected is None else expected.operator_states)
            for states in self.savepoint.operator_states(self.operator)
        ]
        origin = OperatorState(self.uid, max(1, self.operator.parallelism), most, tuple(subtasks))
        if not self.files:
            return OperatorDraft(self.uid, KeySpace(self.uid, Types.PICKLED_BYTE_ARRAY(), most), {}, origin)
        key = self.files[0].head.key
        shape = shape_of(key, [*self.states], None if expected is None else expected.key_type)
        key_type = key_type_here(shape, key) if expected is None else expected.key_type
        if expected is not None and serializer_of(shape.key_type(key_type)).snapshot() != key.snapshot():
            raise IncompatibleCheckpointError(
                f"{self.savepoint.uri}: {self.operator} has keys of {key}, and the program has keys of "
                f"{key_type}: give key_by() the type that the job had in Flink",
                operator=self.uid,
            )
        keys = KeySpace(self.uid, key_type, most, allow_pickle)
        states = {}
        for state in self.states.values():
            if drops and expected is not None and state.kind and name_here(state) not in expected.states:
                continue
            flinks, meta = self._metas(state, shape, expected)
            states[meta.name] = DraftState(meta, _reader(self.files, state, (flinks, meta), shape, keys))
        return OperatorDraft(self.uid, keys, states, origin, is_rewritten=True)

    def _metas(
        self, state: FlinkState, shape: Shape, expected: ProgramOperator | None
    ) -> tuple[StateMeta, StateMeta]:
        """Return the state in Flink and here: in Java it tells of itself, in PyFlink the program knows."""
        name = name_here(state)
        own = attrs.evolve(state.meta, name=name)
        meta = None if expected is None else expected.states.get(name)
        if state.kind is None or (expected is None and shape is not PROCESS):
            return own, own
        if not shape.is_pyflink:
            return own, meta if meta is not None and pickles_instead(own, meta) else own
        where = f"{self.savepoint.uri}: {self.operator}, state {name!r}"
        if expected is None or not isinstance(meta, RegisteredStateMeta):
            raise ConfigurationError(
                f"{where} is of PyFlink, where only the program knows its type, and the program does not ask "
                f"for it when it is opened: pass program=, and ask for each state in open(), or leave it out "
                f"with drop_unknown=True",
                state=name,
            )
        flinks = expected.in_flink(meta)
        try:
            wanted = shape.state(flinks, self.files[0].head.key)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error.message}", state=name) from error
        if _written(wanted) != _written(state):
            raise IncompatibleCheckpointError(
                f"{where} is {state} in namespaces of {state.namespace}; for {flinks} in the program it "
                f"would be {wanted} in namespaces of {wanted.namespace}: declare it as the job in Flink did",
                state=name,
            )
        return flinks, meta


def _written(state: FlinkState) -> tuple[object, ...]:
    """Return what a savepoint says of a state: pickles are bytes there."""
    return state.name, state.kind, state.value.snapshot(), state.namespace.snapshot()


def _reader(
    files: list[KeyedStateFile],
    state: FlinkState,
    metas: tuple[StateMeta, StateMeta],
    shape: Shape,
    keys: KeySpace,
) -> Callable[[], Iterator[Group]]:
    flinks, meta = metas
    codec = StateCodec(sealed(keys.key_type), meta)
    every = KeyGroupRange(0, keys.max_parallelism - 1)

    def read() -> Iterator[Group]:
        for file in files:
            for _, entries in file.key_groups(every, {state.name}):
                try:
                    arrived = shape.arriving(flinks, entries)
                    if pickles_instead(flinks, meta):
                        arrived = each_value(meta, arrived, dump_pickle, SealedPickles)
                    yield entries.key_group, codec.to_batch(arrived)
                except MISFITS as error:
                    raise StateTableError(
                        f"operator {keys.uid!r}, state {meta.name!r}, key group {entries.key_group}: a value "
                        f"does not fit {meta}: {error}"
                    ) from error

    return lambda: spread(read(), keys.split)


def spread(groups: Iterable[Group], split: Callable[[pa.RecordBatch], Iterator[Group]]) -> Iterator[Group]:
    """Yield rows in other key groups, in order: meanwhile, they are in a temporary file.

    Args:
        groups: the rows by their former key groups.
        split: yields rows by their new key groups.
    """
    with tempfile.TemporaryFile() as file:
        places: dict[int, list[tuple[int, int]]] = {}
        schema = None
        for rows in _chunks(batch for _, batch in groups):
            schema = rows.schema
            for key_group, batch in split(rows):
                places.setdefault(key_group, []).append((file.tell(), file.write(batch.serialize())))
        for key_group in sorted(places):
            pieces = []
            for place, length in places[key_group]:
                file.seek(place)
                pieces.append(pa.ipc.read_record_batch(pa.py_buffer(file.read(length)), schema))
            yield key_group, pa.concat_batches(pieces)


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together."""
    counted, given = itertools.tee(batches)
    totals = itertools.accumulate(batch.num_rows for batch in counted)
    for _, some in itertools.groupby(zip(totals, given, strict=True), lambda each: each[0] // _ROWS):
        yield pa.concat_batches([batch for _, batch in some])


def _operator_subtask(
    states: list[FlinkOperatorState], expected: Mapping[str, RegisteredOperatorStateMeta]
) -> OperatorSubtaskState:
    """Return the operator state of a subtask, which is small enough to be in ``_metadata``."""
    taken = OperatorStateResources(tuple([_operator_state(state, expected) for state in states]))
    written = OperatorStateSnapshotStrategy(DefaultOperatorStateBackend()).async_snapshot(
        taken, MemoryCheckpoint(), threading.Event()
    )
    return OperatorSubtaskState(managed_operator=written)


def _operator_state(
    state: FlinkOperatorState, expected: Mapping[str, RegisteredOperatorStateMeta]
) -> tuple[RegisteredOperatorStateMeta, tuple[list[object], ...]]:
    name = state.name.removeprefix(PREFIX)
    if name == state.name:
        return state.meta, state.columns
    meta = expected.get(name)
    if meta is None or state.mode is not OperatorStateMode.BROADCAST:
        raise ConfigurationError(
            f"operator state {name!r} is of PyFlink, where only the program knows its type: pass program=, "
            f"and ask for the state when the function is opened",
            state=name,
        )
    coders = [Coder(part) for part in meta.stored_type.parts()]
    columns = [
        [coder.decode(item)[0] for item in column]
        for coder, column in zip(coders, state.columns, strict=True)
    ]
    return meta, tuple(columns)
