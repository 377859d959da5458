"""Changes a checkpoint into a new savepoint, writes it, and finds out whether a program would restore it.

The state files are written first, and ``_metadata`` last, which makes the folder a savepoint.
What a restore checks is checked by the same code, without running the program. Its plan is fitted to the
checkpoint, and each operator is opened on a backend that knows the checkpoint's states, without their values.
"""

from __future__ import annotations

import os
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import (
    ArrowObject,
    Key,
    PickledBytesTypeInfo,
    SparkObject,
    StateDescriptor,
    StateValue,
    TypeInformation,
    check_kind,
    check_list,
    check_text,
    check_type,
    short_repr,
)
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    OPERATOR_FILE_MAGIC,
    STATE_FILE_MAGIC,
    ByteStreamStateHandle,
    CheckpointMetadata,
    FileStateHandle,
    KeyGroupsStateHandle,
    MemoryCheckpoint,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    SectionWriter,
    StateCodec,
    StateFileHead,
    StateReader,
    StreamStateHandle,
    check_section,
    decode_metas,
    is_file_name,
    is_job_id,
    read_head,
    read_sections,
    write_file,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import KeyGroupRange, check_parallelism
from pyflinkstate.backends.ttl import rules_of, with_timestamps
from pyflinkstate.backends.types import RegisteredStateMeta, has_pickles, sealed, state_migration, unsealed
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    CheckpointStorageError,
    ConfigurationError,
    ParallelismError,
    PickledStateError,
    PyFlinkStateError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.master import Deployments, RestorePoint, fit
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.slots import SlotHost, SlotService
from pyflinkstate.runtime.storage import (
    AnyPath,
    CheckpointFolder,
    CheckpointFolders,
    absolute,
    below,
    make_folder,
    open_file_system,
)
from pyflinkstate.runtime.wire import SlotId
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint, raw_sections
from pyflinkstate.state_access.keyed_state import KeySpace
from pyflinkstate.state_access.tables import nearest
from pyflinkstate.state_access.writing.bootstrapping import (
    Bootstrap,
    KeyOf,
    TimestampOf,
    UserPredicate,
    bootstrap_of,
    by_function,
    predicate_of,
)
from pyflinkstate.state_access.writing.drafts import (
    DraftState,
    OperatorDraft,
    converted,
    draft_of,
    in_columns_of,
    spread_anew,
    with_rows,
    without_entries,
    without_keys,
)
from pyflinkstate.state_access.writing.fitted_tables import fitted

#: A section of a file, and its name for messages.
Checked = tuple[Section, str]

#: The handle of a file, and the function that yields its sections; its second argument is the file's name.
H = TypeVar("H", KeyGroupsStateHandle, OperatorStateHandle, RawOperatorStateHandle)
SectionsOf = Callable[[H, str], Iterator[Checked]]


@contextmanager
def new_folder(path: AnyPath) -> Iterator[tuple[CheckpointFolder, str]]:
    """Make the folder of a savepoint; if what follows fails, what was written there is deleted.

    Yields:
        the folder, and its URI or absolute path.

    Raises:
        ConfigurationError: there is something at that path already, or it is inside of a job's folder.
        CheckpointStorageError: the folder cannot be created.
    """
    uri = absolute(path).rstrip("/")
    try:
        file_system, folder = open_file_system(uri)
        _check_outside_of_jobs(file_system, folder, uri)
        existed = _check_free(file_system, folder, uri)
        make_folder(file_system, folder)
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError(f"the savepoint {uri} cannot be created: {error}", path=uri) from error
    try:
        yield CheckpointFolder(below(file_system, folder), folder), uri
    except BaseException as error:
        _clear(file_system, folder, existed)
        if isinstance(error, PyFlinkStateError) or not isinstance(error, (OSError, pa.ArrowException)):
            raise
        raise CheckpointStorageError(f"the savepoint {uri} cannot be written: {error}", path=uri) from error


def _check_outside_of_jobs(file_system: fs.FileSystem, folder: str, uri: str) -> None:
    """Refuse the folder of a job and all below it, where only the job itself writes."""
    real = os.path.realpath(folder) if isinstance(file_system, fs.LocalFileSystem) else folder
    job_id = next(filter(is_job_id, real.split("/")), None)
    if job_id is not None:
        raise ConfigurationError(
            f"{uri} is inside of the folder of job {job_id}, where only that job writes: choose another path",
            path=uri,
        )


def _check_free(file_system: fs.FileSystem, folder: str, uri: str) -> bool:
    """Return whether the folder exists and is empty; refuse anything else."""
    info = file_system.get_file_info(folder)
    if info.type == fs.FileType.NotFound:
        return False
    if info.type != fs.FileType.Directory or file_system.get_file_info(fs.FileSelector(folder)):
        raise ConfigurationError(
            f"{uri} exists already, and a savepoint is never written over anything: choose another path, or "
            f"delete that yourself",
            path=uri,
        )
    return True


def _clear(file_system: fs.FileSystem, folder: str, existed: bool) -> None:
    with suppress(OSError, pa.ArrowException):
        if existed:
            file_system.delete_dir_contents(folder)
        else:
            file_system.delete_dir(folder)


def publish(metadata: CheckpointMetadata, folder: CheckpointFolder, uri: str) -> None:
    """Make a folder of state files a savepoint, also after a power cut; delete the files of failed tasks."""
    needed = {file.path for state in metadata.operators for sub in state.subtasks for file in sub.files()}
    for info in folder.file_system.get_file_info(fs.FileSelector(folder.folder)):
        if is_file_name(info.base_name) and info.base_name not in needed:
            folder.file_system.delete_file(info.path)
    CheckpointFolders(uri).complete(metadata, uri)


@attrs.frozen
class DraftWriter:
    """Writes operators that come from a checkpoint.

    Attributes:
        source: reads the files of the checkpoint.
        target: makes those of the savepoint.
    """

    source: StateReader
    target: CheckpointFolder

    def write(self, draft: OperatorDraft) -> OperatorState:
        """Write the state of an operator and return its handles.

        Raises:
            CorruptCheckpointError: a file of the checkpoint is missing, truncated or altered.
        """
        written = draft.origin.subtasks or (OperatorSubtaskState(),)
        subtasks = [self._copied(subtask, draft) for subtask in written]
        if draft.is_rewritten and draft.states:  # one file, from which every subtask restores its part
            keyed = write_file(self.target, threading.Event(), lambda writer: _write_states(writer, draft))
            subtasks[0] = attrs.evolve(subtasks[0], managed_keyed=keyed)
        return OperatorState(draft.uid, draft.origin.parallelism, draft.keys.max_parallelism, tuple(subtasks))

    def _copied(self, subtask: OperatorSubtaskState, draft: OperatorDraft) -> OperatorSubtaskState:
        """Return a subtask's state with its files copied, without keyed state if that is written anew."""
        keyed = None if draft.is_rewritten else subtask.managed_keyed
        return OperatorSubtaskState(
            self._copy(_unnumbered(keyed), self._keyed_sections),
            self._copy(_unnumbered(subtask.raw_keyed), raw_sections),
            self._copy(kept_states(subtask.managed_operator, draft), self._operator_sections),
            self._copy(subtask.raw_operator, raw_sections),
        )

    def _keyed_sections(self, handle: KeyGroupsStateHandle, what: str) -> Iterator[Checked]:
        head = read_head(self.source, handle.stream, STATE_FILE_MAGIC)
        StateFileHead.decode(head, what)
        yield _whole(head, what)
        for name, sections in handle.sections.items():
            for key_group, section in sections.items():
                yield section, f"{what}, state {name!r}, key group {key_group}"

    def _operator_sections(self, handle: OperatorStateHandle, what: str) -> Iterator[Checked]:
        head = read_head(self.source, handle.stream, OPERATOR_FILE_MAGIC)
        decode_metas(head, what)
        yield _whole(head, what)
        for name, entry in handle.states.items():
            yield entry.section, f"{what}, operator state {name!r}"

    def _copy(self, handle: H | None, sections_of: SectionsOf[H]) -> H | None:
        """Return the handle of a copied file, whose sections were checked while they were copied."""
        if handle is None:
            return None
        stream = handle.stream
        if isinstance(stream, FileStateHandle):  # other bytes are in ``_metadata``, which has been checked
            stream = self._copy_of_file(stream, sections_of(handle, self.source.describe(stream)))
        return attrs.evolve(handle, stream=stream)

    def _copy_of_file(self, handle: FileStateHandle, sections: Iterable[Checked]) -> StreamStateHandle:
        """Copy a file, of which each section is checked when it is read."""
        ordered = sorted(sections, key=lambda checked: checked[0].offset)
        numbered = dict(enumerate(section for section, _ in ordered))

        def write(writer: SectionWriter) -> StreamStateHandle:
            position = 0
            for number, data in read_sections(self.source, handle, numbered):
                section, what = ordered[number]
                check_section(data, section.checksum, what)
                if section.offset != position:
                    writer.append(self.source.read(handle, position, section.offset - position))
                writer.append(bytes(data))
                position = section.offset + section.length
            writer.append(self.source.read(handle, position, handle.size_bytes - position))
            return writer.close()

        return write_file(self.target, threading.Event(), write)


def _unnumbered(handle: KeyGroupsStateHandle | None) -> KeyGroupsStateHandle | None:
    """Return the handle of a file that belongs to no incremental checkpoint."""
    return None if handle is None else attrs.evolve(handle, checkpoint_id=None)


def _whole(head: bytes, what: str) -> Checked:
    """Return the head of a file, which has been checked, as a section."""
    return Section(0, len(head), zlib.crc32(head)), what


def kept_states(handle: OperatorStateHandle | None, draft: OperatorDraft) -> OperatorStateHandle | None:
    """Return the handle of a subtask's operator state without the states that are dropped."""
    if handle is None or draft.dropped.isdisjoint(handle.states):
        return handle
    kept = {name: entry for name, entry in handle.states.items() if name not in draft.dropped}
    return attrs.evolve(handle, states=kept) if kept else None


def head_of(draft: OperatorDraft) -> StateFileHead:
    """Return the head of a file with all keyed state of an operator."""
    metas = tuple(state.meta for state in draft.states.values())
    most = draft.keys.max_parallelism
    return StateFileHead(draft.keys.key_type, KeyGroupRange(0, most - 1), most, metas)


def _write_states(writer: SectionWriter, draft: OperatorDraft) -> KeyGroupsStateHandle:
    head = head_of(draft)
    writer.append(head.encode())
    sections = {name: _write_state(writer, state, draft) for name, state in draft.states.items()}
    return KeyGroupsStateHandle(head.key_group_range, writer.close(), sections)


def _write_state(writer: SectionWriter, state: DraftState, draft: OperatorDraft) -> dict[int, Section]:
    codec = StateCodec(draft.keys.key_type, state.meta)
    writer.append(codec.schema_message)
    sections = {}
    for key_group, batch in state.read():
        if batch.num_rows:
            columns = in_columns_of(state.meta, draft.keys, batch).columns
            message = codec.message(pa.record_batch(columns, schema=codec.schema))
            sections[key_group] = writer.append_section(message)
    writer.append(END_OF_STREAM)
    return sections


Operator: TypeAlias = OperatorDraft | Bootstrap
#: There is only one.
ATTEMPT = 0


@attrs.frozen
class Mismatch:
    """Why a program would not restore an operator.

    Attributes:
        uid: the operator; None if it concerns the whole job.
        state: the state, if it is about one.
        message: what is wrong, as the restore would say it.
    """

    uid: str | None
    state: str | None
    message: str = attrs.field(repr=short_repr)


@attrs.frozen
class DryRun:
    """The result of trying a program against a checkpoint.

    Attributes:
        mismatches: why it would not restore it; empty if it would.
        new_operators: the operators of the program that would begin without state.
        restored: the operators that would get state back.
    """

    mismatches: tuple[Mismatch, ...] = attrs.field(repr=short_repr)
    new_operators: tuple[str, ...] = attrs.field(repr=short_repr)
    restored: tuple[str, ...] = attrs.field(repr=short_repr)

    @property
    def is_restorable(self) -> bool:
        """Whether the program would restore the checkpoint."""
        return not self.mismatches

    def __str__(self) -> str:
        if self.is_restorable:
            return f"the program would restore {', '.join(self.restored) or 'no operator'}"
        return "\n".join(f"{found.uid or 'the job'}: {found.message}" for found in self.mismatches)


def planned(program: object, job_name: str | None) -> tuple[JobPlan, str]:
    """Return the plan of a program, and the name of its job.

    Raises:
        ConfigurationError: the program has no sink, or is not an environment.
    """
    if isinstance(program, JobPlan):
        return program, job_name or ""
    jobs = getattr(program, "_jobs", None)
    if jobs is None:
        raise ConfigurationError(
            f"a StreamExecutionEnvironment with the program's streams and sinks is needed, not {program!r}"
        )
    plan, name = jobs.preview(job_name)
    return plan, name


@attrs.frozen
class _Trial:
    """A program that is tried against a savepoint.

    Attributes:
        plan: the plan of the program.
        job_name: the name with which it would be executed.
        metadata: the savepoint, without operators.
        operators: its operators, by uid.
        reader: reads the files of operator state.
    """

    plan: JobPlan
    job_name: str
    metadata: CheckpointMetadata
    operators: Mapping[str, Operator]
    reader: StateReader

    def mismatches(self) -> Iterator[Mismatch]:
        whole = self.metadata
        refused = self._fitted(whole)
        if isinstance(refused, str):
            yield Mismatch(None, None, refused)
            whole = attrs.evolve(whole, job_name=self.job_name)
        for uid, operator in self.operators.items():
            state = _without_values(operator)
            alone = attrs.evolve(whole, operators=(state,))
            fitted = self._fitted(alone)
            if isinstance(fitted, str):
                yield Mismatch(uid, None, fitted)
            elif not state.is_empty:
                yield from self._opened(uid, fitted, alone)

    def _fitted(self, metadata: CheckpointMetadata) -> JobPlan | str:
        """Return the plan as a restore fits it to a checkpoint, or why it refuses to."""
        try:
            return fit(self.plan, self.job_name, metadata, allow_non_restored_state=False)
        except PyFlinkStateError as error:
            return error.message

    def _opened(self, uid: str, fitted: JobPlan, metadata: CheckpointMetadata) -> Iterator[Mismatch]:
        """Restore and open the one operator of the metadata, as a slot does."""
        own = tuple(operator for operator in fitted.operators if operator.operator_id == uid)
        if own:
            error = open_operator(attrs.evolve(fitted, operators=own), uid, metadata, self.reader)
            if error is not None:
                yield Mismatch(uid, error.context.get("state"), error.message)


def open_operator(
    plan: JobPlan,
    uid: str,
    metadata: CheckpointMetadata,
    reader: StateReader,
    backend: HashMapStateBackend | None = None,
) -> PyFlinkStateError | None:
    """Restore and open the first subtask of an operator on a backend, and close it; return what failed."""
    deployments = Deployments(plan, backend or HashMapStateBackend(), None, False, None)
    deployments.begin_attempt(ATTEMPT, metadata.epoch, RestorePoint(metadata, ""))
    slot = SlotId(uid, 0)
    host = SlotHost(_ignore, _ignore, lambda: metadata.timestamp_ms, open_folder=lambda _: reader)
    service = SlotService(slot, ATTEMPT, host)
    return service.deploy(deployments.of(slot)) or service.close().error


def _ignore(_: object) -> None:
    """Ignore messages: nothing runs."""


def _without_values(operator: Operator) -> OperatorState:
    """Return an operator's state with only the names and types of its keyed states."""
    if isinstance(operator, Bootstrap):
        return operator.without_rows()
    head = head_of(operator)
    sections: dict[str, dict[int, Section]] = {meta.name: {} for meta in head.states}
    stream = ByteStreamStateHandle(head.encode())
    keyed = KeyGroupsStateHandle(head.key_group_range, stream, sections) if sections else None
    written = operator.origin.subtasks or (OperatorSubtaskState(),)
    subtasks = [
        attrs.evolve(
            subtask,
            managed_keyed=keyed if number == 0 else None,
            managed_operator=kept_states(subtask.managed_operator, operator),
        )
        for number, subtask in enumerate(written)
    ]
    return attrs.evolve(
        operator.origin,
        operator_id=operator.uid,
        max_parallelism=head.max_parallelism,
        subtasks=tuple(subtasks),
    )


#: The number of key groups of a seeded operator, unless another one is named; a job restores it at any
#: parallelism up to it.
DEFAULT_MAX_PARALLELISM = 128


def edit(
    checkpoint: AnyPath | Checkpoint,
    *,
    allow_pickle: bool = False,
    clock: Callable[[], int] = wall_clock_ms,
) -> CheckpointEdit:
    """Begin to change a checkpoint or savepoint into a new savepoint. Nothing of the old one is changed.

    Args:
        checkpoint: a path or URI, as :func:`open_checkpoint` takes it, or the checkpoint that it returned.
        allow_pickle: load pickled values and keys, which runs code: only for a checkpoint you trust.
        clock: returns the time, in ms since 1970, that new values with time to live get.

    Raises:
        CheckpointNotFoundError, CorruptCheckpointError, IncompatibleCheckpointError: as for
            :func:`open_checkpoint`.
        ConfigurationError: it is neither.
    """
    opened = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint, clock)
    uids = [state.operator_id for state in opened.metadata.operators]
    drafts: dict[str, Operator] = {uid: draft_of(opened.keyed_state(uid, allow_pickle)) for uid in uids}
    return CheckpointEdit(opened.metadata, opened, drafts, clock, allow_pickle)


def new_savepoint(job_name: str, *, clock: Callable[[], int] = wall_clock_ms) -> CheckpointEdit:
    """Begin a savepoint without a checkpoint, to be filled by :meth:`CheckpointEdit.bootstrap`.

    Args:
        job_name: the name of the job that will start from it.
        clock: returns the time, in ms since 1970, that values with time to live get.

    Raises:
        ConfigurationError: the name is not a string, or is empty.
    """
    check_text("the name of a job", job_name)
    metadata = CheckpointMetadata(
        checkpoint_id=1,
        job_id=uuid.uuid4().hex,
        job_name=job_name,
        epoch=0,
        source_position=None,
        counters={},
        timestamp_ms=clock(),
        operators=(),
    )
    return CheckpointEdit(metadata, None, {}, clock)


def dry_run(
    checkpoint: AnyPath | Checkpoint | CheckpointEdit, program: object, job_name: str | None = None
) -> DryRun:
    """Find out whether a program would restore a checkpoint, without running it.

    Each function with state is opened once in this process, and closed: this is how its states become known.
    No record is processed, no value of keyed state is loaded, and nothing is written.

    Args:
        checkpoint: a path or URI, a checkpoint, or a savepoint in the making.
        program: a ``StreamExecutionEnvironment`` in which the program was built and not yet executed.
        job_name: the name with which it would be executed. Default: the environment's default job name.

    Raises:
        ConfigurationError: the program has no sink, or is not an environment.
        CheckpointError: the checkpoint cannot be read.
    """
    changed = checkpoint if isinstance(checkpoint, CheckpointEdit) else edit(checkpoint)
    return changed.dry_run(program, job_name)


@attrs.define
class CheckpointEdit:
    """A savepoint in the making. :func:`edit` and :func:`new_savepoint` make it.

    Every change returns the same object, so that calls can be chained. State is read, and written, only by
    :meth:`write`; errors that can be found without reading state are raised at once.
    """

    metadata: CheckpointMetadata = attrs.field(repr=False)
    source: Checkpoint | None
    _operators: dict[str, Operator] = attrs.field(repr=False)
    _clock: Callable[[], int] = attrs.field(repr=False)
    _allow_pickle: bool = False

    # --- values --------------------------------------------------------------------------------------------

    def put(self, uid: str, state: str, table: object) -> CheckpointEdit:
        """Set values of a keyed state; those of other keys stay.

        Args:
            uid: the operator.
            state: the name of the state.
            table: an Arrow table or batch, a pandas ``DataFrame``, a ``StateTable``, a dict of columns or a
                list of dicts, with the columns of :meth:`Checkpoint.entries`: ``key``, ``window`` (if there
                is one) and ``value``. With ``map_key``, a row is an entry that is put into the key's map.
                With ``position``, a row is an element, and the rows of a key become its list. Without these
                columns ``value`` is the whole map or list. With time to live there may be ``timestamp_ms``;
                the default is the present.

        Raises:
            UnknownOperatorError, UnknownStateError: there is no such operator or keyed state.
            StateTableError: the columns or their values do not fit the state.
            InvalidKeyError: a key does not fit.
        """
        draft = self._draft(uid)
        rows = fitted(table, draft.keys, draft.state_meta(state), self._clock())
        return self._set(draft.with_state(with_rows(draft.state(state), rows, draft.keys)))

    def delete(self, uid: str, keys: Iterable[Key]) -> CheckpointEdit:
        """Delete everything under some keys: values of all states, in all windows, and timers.

        Keys that are not there are ignored. Raw state is left as it is.

        Raises:
            UnknownOperatorError: there is no such operator.
            InvalidKeyError: a key does not fit the type of the operator's keys.
            ConfigurationError: ``keys`` is a single key instead of a list.
        """
        draft = self._draft(uid)
        check_list("keys", keys)
        gone = draft.keys.written(draft.keys.checked(keys))
        return self._set(draft.with_all(lambda state: without_keys(state, gone, draft.keys)))

    def delete_where(self, uid: str, state: str, predicate: UserPredicate) -> CheckpointEdit:
        """Delete the entries of a keyed state that a predicate picks; see :meth:`Checkpoint.entries`.

        Args:
            uid: the operator.
            state: the name of the state.
            predicate: an Arrow expression over the columns, such as ``pc.field("value") < 0``, or a function
                that is called with each row, a dict of Python values. Of a list or a map, single elements are
                deleted, and all of it if none is left. Rows that have expired are asked about as well.

        Raises:
            UnknownOperatorError, UnknownStateError: there is no such operator or keyed state.
            ConfigurationError: the predicate is neither an expression nor a function.
        """
        draft = self._draft(uid)
        return self._set(
            draft.with_state(without_entries(draft.state(state), predicate_of(predicate, draft.keys)))
        )

    def migrate(
        self,
        uid: str,
        state: str,
        to: StateDescriptor,
        function: Callable[[Any], StateValue] | None = None,
    ) -> CheckpointEdit:
        """Change the type, the kind or the name of a keyed state, as a restore could not.

        Args:
            uid: the operator.
            state: the name of the state.
            to: the descriptor that the program will use; it may have another name.
            function: gets the value that one key has (of a list all elements, of a map a dict, of aggregating
                state the accumulator) and returns the new one; None removes it. It never sees what has
                expired, which is left out. Timestamps of time to live are kept: those of the entries of a
                map by their keys, those of the elements of a list by their places if there are as many as
                before; what is new gets the latest one. Without a function, values are converted as a
                restore converts them.

        Raises:
            UnknownOperatorError, UnknownStateError: there is no such operator or keyed state.
            ConfigurationError: ``to`` is not a descriptor, or another state has its name.
            StateMigrationError: without a function the type cannot change in this way.
            PickledStateError: a function is to see pickled values, which were not allowed to be loaded.
        """
        draft = self._draft(uid)
        was, now = draft.state_meta(state), _meta_of(to, draft.state_meta(state).namespace_type, self._clock)
        if now.name != state and now.name in draft.states:
            raise ConfigurationError(
                f"operator {uid!r} has a state {now.name!r} already, so {state!r} cannot get that name"
            )
        before = draft.state(state)
        if function is None:
            loads = to.allows_pickled_restore or self._allow_pickle
            now = attrs.evolve(now, stored_type=sealed(now.stored_type))  # what stays a pickle is not loaded
            convert = state_migration(attrs.evolve(was, name=now.name), now, self._clock, loads).convert
        else:
            was = attrs.evolve(was, stored_type=unsealed(was.stored_type))
            if has_pickles(was.stored_type) and not self._allow_pickle:
                raise PickledStateError(
                    f"operator {uid!r}, state {state!r} has pickled values, and loading them runs code: pass "
                    f"allow_pickle=True to edit() if you trust whoever wrote the checkpoint"
                )
            before = attrs.evolve(before, meta=was)
            convert = by_function(was, now, function, self._clock())
        return self._set(draft.with_state(converted(before, now, draft.keys, convert), instead_of=state))

    # --- operators and states ------------------------------------------------------------------------------

    def rename_uid(self, uid: str, to: str) -> CheckpointEdit:
        """Give an operator another uid.

        Raises:
            UnknownOperatorError: there is no operator ``uid``.
            ConfigurationError: another operator has the uid ``to``, or it is no text.
        """
        found = self._operator(uid)
        if to != uid:
            self._check_free(to)
        renamed = {to if known == uid else known: operator for known, operator in self._operators.items()}
        self._operators = {**renamed, to: found.renamed(to)}
        watermarks = dict(self.metadata.watermarks)
        if uid in watermarks:  # also replaces the watermark of a dropped operator
            watermarks[to] = watermarks.pop(uid)
        self.metadata = attrs.evolve(self.metadata, watermarks=watermarks)
        return self

    def drop(self, uid: str) -> CheckpointEdit:
        """Leave out an operator with all of its state; raise ``UnknownOperatorError`` if there is none."""
        self._operator(uid)
        del self._operators[uid]
        return self

    def drop_state(self, uid: str, state: str) -> CheckpointEdit:
        """Leave out a keyed state, an operator state, or the timers of a service.

        Raises:
            UnknownOperatorError, UnknownStateError: there is no such operator or state.
        """
        return self._set(self._draft(uid).without_state(state))

    def set_max_parallelism(self, uid: str, max_parallelism: int) -> CheckpointEdit:
        """Change the number of key groups of an operator; its keys are redistributed when it is written.

        Meanwhile, one state of the operator at a time is in memory.

        Raises:
            UnknownOperatorError: there is no such operator.
            ParallelismError: the number is out of bounds, or less than the parallelism of operator state.
            IncompatibleCheckpointError: there is raw keyed state, which only its function can redistribute.
        """
        draft = self._draft(uid)
        draft.check_no_raw_keys()
        _check_bounds(uid, draft.origin.parallelism if draft.has_operator_state else 1, max_parallelism)
        draft = draft.with_at_most(max_parallelism)
        keys = attrs.evolve(draft.keys, max_parallelism=max_parallelism)
        spread = attrs.evolve(draft, keys=keys).with_all(lambda state: spread_anew(state, keys))
        return self._set(spread)

    # --- seeding -------------------------------------------------------------------------------------------

    def bootstrap(
        self,
        uid: str,
        data: ArrowObject | SparkObject | Iterable[Any],
        *,
        key: KeyOf,
        function: Any,
        key_type: TypeInformation | None = None,
        timestamp: TimestampOf | None = None,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        parallelism: int | None = None,
    ) -> CheckpointEdit:
        """Add an operator whose state is built from rows.

        Args:
            uid: the uid of the operator in the program.
            data: an Arrow table, batch or reader, a pandas ``DataFrame``, or any records, to be read in this
                process; or a Spark ``DataFrame``, which is read by Spark, in parallel.
            key: the name of a column, or a function of a row. None for operator state, which has no keys; the
                function is a ``StateBootstrapFunction`` then.
            function: a ``KeyedStateBootstrapFunction``, or the ``KeyedProcessFunction`` of the program
                itself, which is called with each row under its key; or ``{state: column}``, where a state is
                a descriptor, or a name for a ``ValueState`` of the column's type. A column is a name, or a
                pair of names for the keys and values of a ``MapState``. A list gets an element from each row.
                What the function emits is dropped, and timers that it registers do not fire.
            key_type: the declared type of keys, as the program gives it to ``key_by``. Default: none.
            timestamp: the name of a column, or a function of a row, with event time in ms since 1970.
            max_parallelism: the number of key groups.
            parallelism: with a Spark ``DataFrame``, the number of files that are written in parallel.

        The rows of an Arrow table are ``Row`` objects, those of a Spark ``DataFrame`` are Spark's, and other
        records are passed as they are. The rows of a key are processed in order.

        Raises:
            ConfigurationError: the uid is in use, or the function or the type of keys is invalid.
            ParallelismError: a number is out of bounds.
        """
        self._check_free(uid)
        _check_bounds(uid, 1 if parallelism is None else parallelism, max_parallelism)
        check_type("key_type", key_type)
        key_type = PickledBytesTypeInfo() if key_type is None else key_type
        keys = KeySpace(uid, key_type, max_parallelism)
        self._operators[uid] = bootstrap_of(data, function, key, timestamp, keys, parallelism, self._clock)
        return self

    # --- the result ----------------------------------------------------------------------------------------

    def write(self, path: AnyPath) -> Checkpoint:
        """Write the savepoint and return it, opened.

        Args:
            path: a folder that does not exist, or is empty: a path or URI that the job can reach.

        Raises:
            ConfigurationError: there is something at that path, it is inside of the checkpoint that is
                changed or of a job's folder, or it is none.
            CheckpointStorageError: the savepoint cannot be written; nothing of it is left.
            StateTableError, UserFunctionError: a value does not fit, or a function raised.
            CorruptCheckpointError: the old checkpoint is damaged.
        """
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise ConfigurationError(f"a savepoint is written to a path or URI, not to {path!r}")
        if self.source is not None and absolute(path).startswith(f"{self.source.uri.rstrip('/')}/"):
            raise ConfigurationError(
                f"{path} is inside of {self.source.uri}, which stays as it is: choose another path"
            )
        with new_folder(path) as (folder, uri):
            writer = DraftWriter(self._reader, folder)
            operators = []
            for operator in self._operators.values():
                if isinstance(operator, Bootstrap):
                    operators.append(operator.write(folder, uri))
                else:
                    operators.append(writer.write(operator))
            publish(attrs.evolve(self.metadata, operators=tuple(operators)), folder, uri)
            return open_checkpoint(uri, self._clock)

    def dry_run(self, program: object, job_name: str | None = None) -> DryRun:
        """Find out whether a program would restore the savepoint; see :func:`dry_run`."""
        plan, name = planned(program, job_name)
        empty = attrs.evolve(self.metadata, operators=())
        found = tuple(_Trial(plan, name, empty, self._operators, self._reader).mismatches())
        known = {operator.operator_id for operator in plan.operators}
        restored = tuple(uid for uid in self._operators if uid in known)
        return DryRun(found, tuple(sorted(known.difference(restored))), restored)

    def key_type(self, uid: str) -> TypeInformation:
        """Return the declared type of an operator's keys; raise ``UnknownOperatorError`` if there is none."""
        return self._operator(uid).keys.key_type

    # --- parts ---------------------------------------------------------------------------------------------

    @property
    def _reader(self) -> StateReader:
        """Reads the files of the old checkpoint; without one, no state has any."""
        return MemoryCheckpoint() if self.source is None else self.source.reader

    def _operator(self, uid: str) -> Operator:
        found = self._operators.get(uid)
        if found is None:
            where = "the savepoint" if self.source is None else self.source.uri
            raise UnknownOperatorError(
                f"{where} has no operator {uid!r}; it has {nearest(uid, list(self._operators))}", uid=uid
            )
        return found

    def _draft(self, uid: str) -> OperatorDraft:
        found = self._operator(uid)
        if isinstance(found, Bootstrap):
            raise UnknownStateError(
                f"operator {uid!r} is being seeded and has no state yet: write the savepoint, and edit() it",
                uid=uid,
            )
        return found

    def _set(self, draft: OperatorDraft) -> CheckpointEdit:
        self._operators[draft.uid] = draft
        return self

    def _check_free(self, uid: str) -> None:
        check_text("a uid", uid)
        if uid in self._operators:
            raise ConfigurationError(
                f"the savepoint has an operator {uid!r} already: drop() it first, or choose another uid"
            )


def _check_bounds(uid: str, parallelism: int, max_parallelism: int) -> None:
    try:
        check_parallelism(parallelism, max_parallelism)
    except ParallelismError as error:
        raise ParallelismError(f"operator {uid!r}: {error.message}", operator=uid) from error


def _meta_of(
    descriptor: StateDescriptor, namespace_type: TypeInformation, clock: Callable[[], int]
) -> RegisteredStateMeta:
    """Return the metadata that a backend gives a state.

    Raises:
        ConfigurationError: it is not a descriptor.
    """
    check_kind("a state descriptor is needed", descriptor, StateDescriptor)
    ttl_ms = None
    if descriptor.is_ttl_enabled:
        assert descriptor.ttl_config is not None
        rules = rules_of(descriptor.ttl_config, clock)
        descriptor, ttl_ms = with_timestamps(descriptor, rules), rules.ttl_ms
    return RegisteredStateMeta(
        descriptor.name, descriptor.kind, descriptor.stored_type, namespace_type, ttl_ms
    )
