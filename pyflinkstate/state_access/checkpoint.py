"""A checkpoint as tables, the values of one key over the checkpoints of a job, and a check of every file.

The check reads every file, compares every checksum, and finds files that nobody needs.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate import notebook
from pyflinkstate.api import Key, LengthOfTime, check_list, milliseconds_of, short_repr
from pyflinkstate.backends.format import (
    SHARED_PREFIX,
    CheckpointMetadata,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    StateReader,
    StreamStateHandle,
    is_job_id,
    read_section,
)
from pyflinkstate.backends.rocksdb import native_chunks
from pyflinkstate.backends.types import RegisteredQueueMeta, RegisteredStateMeta, StateMeta, unsealed
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidKeyError,
    StateTableError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.storage import (
    METADATA,
    AnyPath,
    CheckpointFolder,
    CheckpointFolders,
    absolute,
    child_uri,
    is_flink_savepoint,
    load_checkpoint,
    open_folder,
    parent_uri,
    path_text,
)
from pyflinkstate.state_access.keyed_state import KeyedState, key_filter, opened_file
from pyflinkstate.state_access.tables import (
    CheckpointOffsets,
    OperatorInfo,
    OperatorStates,
    StateInfo,
    StateTable,
    expires,
    nearest,
)
from pyflinkstate.state_access.views import View, timer_service

#: Called with the number of bytes of each read.
OnRead: TypeAlias = Callable[[int], None]

#: It is above this room, and is loaded by its name when it is needed.
_FLINK = "pyflinkstate.state_access.flink"


def open_checkpoint(path: AnyPath, clock: Callable[[], int] = wall_clock_ms) -> Checkpoint:
    """Open a checkpoint or savepoint, without its job, Spark or Java. Nothing of it is ever changed.

    Args:
        path: the folder of a checkpoint or savepoint; or the folder of a job, for the newest completed
            checkpoint, the one from which the job would be restored. A local path or any URI of
            ``pyarrow.fs``. A savepoint of Flink is converted into a temporary folder first; one of PyFlink
            in process mode cannot be read without its program, see :func:`convert_savepoint`.
        clock: returns the time, in ms since 1970, by which values with time to live have expired.

    Raises:
        CheckpointNotFoundError: there is no completed checkpoint.
        ConfigurationError: ``path`` is not a path.
        CorruptCheckpointError: its metadata is damaged.
        IncompatibleCheckpointError: it has a format version that this release does not know.
        CheckpointStorageError: the storage cannot be read.
    """
    if is_flink_savepoint(text := path_text(path)):
        opened: Checkpoint = importlib.import_module(_FLINK).open_flink_savepoint(text, clock)
        return opened
    metadata, uri = locate(text)
    return Checkpoint(metadata, uri, CountingReader(open_folder(uri)), clock)


@attrs.define
class CountingReader:
    """Reads state, and counts the bytes."""

    inner: StateReader
    bytes_read: int = 0
    #: Called with the number of bytes of each read.
    on_read: OnRead | None = None

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``."""
        data = self.inner.read(handle, offset, length)
        self.bytes_read += len(data)
        if self.on_read is not None:
            self.on_read(len(data))
        return data

    def describe(self, handle: StreamStateHandle) -> str:
        """Return the name of the file for messages."""
        return self.inner.describe(handle)

    def local_path(self, handle: StreamStateHandle) -> str | None:
        """Return the path of the file if there is one; what is read of it there is not counted."""
        return self.inner.local_path(handle)


def _summary(metadata: CheckpointMetadata) -> str:
    uids = [state.operator_id for state in metadata.operators]
    return (
        f"<checkpoint {metadata.checkpoint_id} of job {metadata.job_name!r}, epoch {metadata.epoch}, "
        f"operators {short_repr(uids)}>"
    )


@attrs.define
class Checkpoint:
    """A completed checkpoint. :func:`open_checkpoint` makes it.

    Attributes:
        metadata: the content of ``_metadata``.
        uri: the URI or path of its folder.
        reader: reads its files.
        clock: returns the time in ms since 1970.
    """

    metadata: CheckpointMetadata = attrs.field(repr=_summary)
    uri: str
    reader: CountingReader = attrs.field(repr=False)
    clock: Callable[[], int] = attrs.field(repr=False)
    _keyed: dict[tuple[str, bool], KeyedState] = attrs.field(factory=dict, init=False, repr=False)

    # --- contents -----------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        operators = self.operators()
        about = notebook.facts(
            f"checkpoint {self.metadata.checkpoint_id} of {self.metadata.job_name}",
            [
                ("folder", self.uri),
                ("epoch", self.metadata.epoch),
                ("size", notebook.size(sum(operator.size_bytes for operator in operators))),
            ],
        )
        rows = [
            (one.uid, one.parallelism, one.max_parallelism, notebook.size(one.size_bytes))
            for one in operators
        ]
        return about + notebook.table("operators", ["uid", "parallelism", "key groups", "size"], rows)

    def operators(self) -> list[OperatorInfo]:
        """Return the operators that have state, in the order of the program."""
        return [
            OperatorInfo(
                uid=operator.operator_id,
                parallelism=operator.parallelism,
                max_parallelism=operator.max_parallelism,
                size_bytes=sum(subtask.size_bytes for subtask in operator.subtasks),
            )
            for operator in self.metadata.operators
        ]

    def states(self, uid: str) -> list[StateInfo]:
        """Return the states of an operator: keyed state, timers, operator state, raw state.

        Raises:
            UnknownOperatorError: the checkpoint has no operator ``uid``.
        """
        operator, keyed = self.operator(uid), self.keyed_state(uid)
        found = [_keyed_info(keyed, meta) for meta in keyed.metas.values()]
        for name, parts in OperatorStates(operator, self.reader).written.items():
            size = sum(part.handle.states[name].section.length for part in parts)
            meta = parts[0].codec.meta
            found.append(StateInfo(name, meta.mode.value, str(meta.stored_type), size_bytes=size))
        return found + _raw_infos(operator)

    def schema(self, uid: str, state: str | None = None) -> pa.Schema:
        """Return the Arrow schema of :meth:`keyed`, or of :meth:`entries` of a state."""
        return (self.keyed(uid) if state is None else self.entries(uid, state)).schema

    def offsets(self) -> CheckpointOffsets:
        """Return source positions, watermarks, epoch, time, parallelism and sizes."""
        of = self.metadata
        return CheckpointOffsets(
            checkpoint_id=of.checkpoint_id,
            job_id=of.job_id,
            job_name=of.job_name,
            epoch=of.epoch,
            timestamp_ms=of.timestamp_ms,
            source_position=of.source_position,
            watermarks=dict(of.watermarks),
            counters=dict(of.counters),
            operators=tuple(self.operators()),
        )

    @property
    def bytes_read(self) -> int:
        """The number of bytes of state files that have been read so far."""
        return self.reader.bytes_read

    # --- tables ------------------------------------------------------------------------------------

    def keyed(
        self,
        uid: str,
        keys: Iterable[Key] | None = None,
        states: Iterable[str] | None = None,
        *,
        with_expired: bool = False,
        time_to_live: Mapping[str, LengthOfTime] | None = None,
        allow_pickle: bool = False,
    ) -> StateTable:
        """Return one row for each key, with a column for each state; null where a key has no such state.

        Args:
            uid: the operator.
            keys: the keys to read; only their key groups are read. Default: all.
            states: the names of states. Default: all that are not split by namespace; if all are (a window
                operator), all states, in one row for each key and window.
            with_expired: whether to include expired values that are still in the checkpoint.
            time_to_live: by state, how long its values live, in place of what the checkpoint says. Files of
                earlier releases do not say it; nothing of them is left out then.
            allow_pickle: load pickled values and keys, which runs code: only for a checkpoint you trust.

        Raises:
            UnknownOperatorError, UnknownStateError: the checkpoint has no such operator or state.
            InvalidKeyError: a key does not fit the type of the operator's keys.
            StateTableError: the states have different namespaces.
            ConfigurationError: a single key or state is given instead of a list.
            PickledStateError: keys are pickled objects, which must be loaded to tell them apart.
        """
        if states is not None:
            check_list("states", states)
        names = self._plain_or_all(uid) if states is None else [self._known(uid, name) for name in states]
        return self._view(uid, keys, with_expired, time_to_live, allow_pickle).keyed(names)

    def entries(
        self,
        uid: str,
        state: str,
        keys: Iterable[Key] | None = None,
        *,
        with_expired: bool = False,
        time_to_live: Mapping[str, LengthOfTime] | None = None,
        allow_pickle: bool = False,
    ) -> StateTable:
        """Return one row for each entry of a state: an element of a list, an entry of a map, or a value.

        The columns are ``key``, ``window`` or ``namespace`` (if there is one), ``position`` (lists) or
        ``map_key`` (maps), ``value``, and with time to live ``timestamp_ms`` (of the last access that
        counts) and ``expires_at_ms``. Arguments and errors are those of :meth:`keyed`.
        """
        name = self._known(uid, state)
        return self._view(uid, keys, with_expired, time_to_live, allow_pickle).entries(name)

    def windows(
        self,
        uid: str,
        keys: Iterable[Key] | None = None,
        *,
        with_expired: bool = False,
        time_to_live: Mapping[str, LengthOfTime] | None = None,
        allow_pickle: bool = False,
    ) -> StateTable:
        """Return one row for each key and window (or other namespace), with a column for each state.

        Arguments and errors are those of :meth:`keyed`.

        Raises:
            UnknownStateError: the operator has no state that is split by windows.
        """
        names = [meta.name for meta in self._state_metas(uid) if meta.is_namespaced]
        if not names:
            raise UnknownStateError(f"operator {uid!r} has no state by window: read it with keyed()", uid=uid)
        return self._view(uid, keys, with_expired, time_to_live, allow_pickle).keyed(names)

    def timers(
        self, uid: str, keys: Iterable[Key] | None = None, *, allow_pickle: bool = False
    ) -> StateTable:
        """Return one row for each timer that has not fired.

        The columns are ``key``, ``window`` or ``namespace`` (if there is one), ``timestamp_ms``,
        ``time_domain`` (``event_time`` or ``processing_time``) and ``timer_service``.
        """
        return self._view(uid, keys, False, None, allow_pickle).timers()

    def operator_state(self, uid: str, state: str | None = None, *, allow_pickle: bool = False) -> StateTable:
        """Return one row for each element of a list state, or each entry of a broadcast state.

        The columns are ``subtask`` (the one that wrote it), ``position``, ``key`` (broadcast state) and
        ``value``.

        Args:
            uid: the operator.
            state: the name of the state. It can be left out if there is only one.
            allow_pickle: load pickled values.

        Raises:
            UnknownStateError: there is no such operator state, or none is named and there are several.
        """
        states = OperatorStates(self.operator(uid), self.reader, allow_pickle)
        names = list(states.written)
        if state is None and len(names) == 1:
            (state,) = names
        if state is None or state not in names:
            raise _unknown_state(uid, "operator state", state, names)
        return states.table(state)

    # --- parts -------------------------------------------------------------------------------------

    def operator(self, uid: str) -> OperatorState:
        """Return the handles of an operator's state; raise ``UnknownOperatorError`` if there is none."""
        found = self.metadata.operator(uid)
        if found is None:
            known = [state.operator_id for state in self.metadata.operators]
            raise UnknownOperatorError(
                f"{self.uri} has no operator {uid!r}; it has {nearest(uid, known)}", uid=uid
            )
        return found

    def keyed_state(self, uid: str, allow_pickle: bool = False) -> KeyedState:
        """Return the keyed state of an operator, which may be empty."""
        if (uid, allow_pickle) not in self._keyed:
            self._keyed[uid, allow_pickle] = KeyedState(
                self.operator(uid), self.reader, self.clock, allow_pickle
            )
        return self._keyed[uid, allow_pickle]

    def _state_metas(self, uid: str) -> list[RegisteredStateMeta]:
        metas = self.keyed_state(uid).metas.values()
        return [meta for meta in metas if isinstance(meta, RegisteredStateMeta)]

    def _plain_or_all(self, uid: str) -> list[str]:
        metas = self._state_metas(uid)
        names = [meta.name for meta in metas if not meta.is_namespaced] or [meta.name for meta in metas]
        if not names:
            raise UnknownStateError(f"operator {uid!r} has no keyed state", uid=uid)
        return names

    def _known(self, uid: str, name: str) -> str:
        names = [meta.name for meta in self._state_metas(uid)]
        if name not in names:
            raise _unknown_state(uid, "keyed state", name, names)
        return name

    def _view(
        self,
        uid: str,
        keys: Iterable[Key] | None,
        with_expired: bool,
        time_to_live: Mapping[str, LengthOfTime] | None,
        allow_pickle: bool,
    ) -> View:
        state = self.keyed_state(uid, allow_pickle)
        given = {self._known(uid, name): milliseconds_of(ttl) for name, ttl in (time_to_live or {}).items()}
        lengths = {**state.ttl_ms, **given}
        return View(
            keys=state.keys,
            metas=state.metas,
            groups=state.groups,
            ranges=None if state.is_spread_anew else state.ranges,
            key_filter=key_filter(state.keys, keys),
            now_ms=self.clock(),
            ttl_ms=lengths,
            with_expired=with_expired,
        )


def _unknown_state(uid: str, kind: str, name: str | None, known: list[str]) -> UnknownStateError:
    wanted = "several, so one must be named" if name is None and known else f"no {kind} {name!r}"
    return UnknownStateError(
        f"operator {uid!r} has {wanted}; it has {nearest(name, known)}", uid=uid, state=name
    )


def _keyed_info(state: KeyedState, meta: StateMeta) -> StateInfo:
    sections = [file.handle.sections.get(meta.name, {}) for file in state.files]
    size = sum(section.length for groups in sections for section in groups.values())
    natives = [native for file in state.files if (native := file.handle.native) is not None]
    size += sum(part for native in natives for name, _, part in native.sizes() if name == meta.name)
    space = str(meta.namespace_type) if meta.is_namespaced else None
    key_type = str(state.key_type)
    if isinstance(meta, RegisteredQueueMeta):
        name = ", ".join(reversed(timer_service(meta)))
        return StateInfo(name, "TIMERS", str(meta.stored_type), key_type, space, size_bytes=size)
    return StateInfo(
        name=meta.name,
        kind=meta.kind.value,
        value_type=str(unsealed(meta.stored_type)),
        key_type=key_type,
        namespace_type=space,
        expires=expires(meta.stored_type),
        ttl_ms=state.ttl_ms.get(meta.name),
        size_bytes=size,
    )


def _raw_infos(operator: OperatorState) -> list[StateInfo]:
    keyed = [state.raw_keyed.size_bytes for state in operator.subtasks if state.raw_keyed]
    plain = [state.raw_operator.size_bytes for state in operator.subtasks if state.raw_operator]
    sizes = {"RAW_KEYED": keyed, "RAW_OPERATOR": plain}
    return [StateInfo("", kind, "bytes", size_bytes=sum(found)) for kind, found in sizes.items() if found]


#: The metadata of a checkpoint, and the URI or path of its folder.
Located = tuple[CheckpointMetadata, str]


def locate(path: str) -> Located:
    """Return the checkpoint that a path or URI means.

    Args:
        path: the folder of a checkpoint or savepoint (or its ``_metadata``); or the folder of a job, for its
            newest completed checkpoint; or a checkpoint directory with one job in it, for that of the job.

    Raises:
        CheckpointNotFoundError: there is no completed checkpoint.
        CorruptCheckpointError, IncompatibleCheckpointError: the checkpoint cannot be read.
    """
    try:
        return load_checkpoint(path)
    except CheckpointNotFoundError as error:
        found = _newest(path)
        if found is None:
            raise CheckpointNotFoundError(
                f"{path} is no completed checkpoint or savepoint, nor the folder of a job that has one: "
                f"{error.message}",
                path=path,
            ) from None
        return found


def _newest(path: str) -> Located | None:
    """Return the newest checkpoint below a path, the one from which a job would be restored."""
    storage, job_ids = jobs_at(path)
    if len(job_ids) > 1:
        raise CheckpointNotFoundError(
            f"{path} has the checkpoints of {len(job_ids)} jobs: name the folder of one, which are "
            f"{', '.join(job_ids)}",
            path=path,
        )
    newest = storage.load_newest(job_ids[0]) if job_ids else None
    return None if newest is None else (newest, storage.uri_of(newest.job_id, newest.checkpoint_id))


def jobs_at(path: str) -> tuple[CheckpointFolders, list[str]]:
    """Return the storage that a path belongs to, and the ids of the jobs that it means.

    These are one job for its folder, and all jobs for a checkpoint directory.
    """
    parent, name = parent_uri(absolute(path))
    if is_job_id(name):
        storage = CheckpointFolders(parent)
        return storage, [name] if storage.checkpoint_ids(name) else []
    storage = CheckpointFolders(path)
    return storage, storage.job_ids()


def retained(storage: CheckpointFolders, job_id: str) -> Iterator[Located]:
    """Yield the completed checkpoints that led to a job's newest one, and that one, the newest first."""
    newest = storage.load_newest(job_id)
    if newest is not None:
        for metadata in (newest, *storage.load_older(newest)):
            yield metadata, storage.uri_of(job_id, metadata.checkpoint_id)


@attrs.frozen
class Moment:
    """A key in one checkpoint.

    Attributes:
        checkpoint_id: the number of the checkpoint.
        epoch: the last epoch whose records are in the state.
        timestamp_ms: when it was triggered, in ms since 1970; values that had expired by then are left out.
        table: the key's row, as :meth:`Checkpoint.keyed` gives it; no row if the key had no state, and None
            if the operator, or all of the states, were not there.
    """

    checkpoint_id: int
    epoch: int
    timestamp_ms: int
    table: StateTable | None

    def to_arrow(self) -> pa.Table | None:
        """Return the rows with ``checkpoint_id``, ``epoch`` and ``timestamp_ms`` before them."""
        if self.table is None:
            return None
        rows = self.table.to_arrow()
        for name in ("timestamp_ms", "epoch", "checkpoint_id"):
            column = pa.repeat(pa.scalar(getattr(self, name), pa.int64()), rows.num_rows)
            rows = rows.add_column(0, name, column)
        return rows


@attrs.frozen
class KeyHistory:
    """The values of a key, the oldest first. :func:`history` makes it."""

    moments: tuple[Moment, ...] = attrs.field(repr=short_repr)

    def __iter__(self) -> Iterator[Moment]:
        """Iterate over the checkpoints."""
        return iter(self.moments)

    def __len__(self) -> int:
        """Return the number of checkpoints."""
        return len(self.moments)

    def to_arrow(self) -> pa.Table:
        """Return the rows of all checkpoints as one table.

        Raises:
            StateTableError: a state has changed to a type that has nothing in common with the old one.
        """
        tables = [moment.to_arrow() for moment in self.moments]
        found = [table for table in tables if table is not None]
        try:
            return pa.concat_tables(found, promote_options="permissive")
        except pa.ArrowException as error:
            raise StateTableError(
                f"a state has other types in other checkpoints ({error}): read the moments one by one"
            ) from error


def history(
    path: AnyPath,
    uid: str,
    key: Key,
    states: Iterable[str] | None = None,
    *,
    allow_pickle: bool = False,
) -> KeyHistory:
    """Return the values of a key in each checkpoint that a job has kept.

    Checkpoints that do not belong to the history of the newest one are left out, as in a restore. A
    checkpoint that does not have a state yet, or no longer, is shown without it.

    Args:
        path: the job's folder, or a checkpoint directory with one job in it.
        uid: the operator.
        key: the key, of the operator's key type.
        states: the names of states; see :meth:`Checkpoint.keyed`.
        allow_pickle: load pickled values and keys, which runs code.

    Raises:
        CheckpointNotFoundError: the folder has no completed checkpoint.
        UnknownOperatorError: no checkpoint has the operator.
        UnknownStateError: no checkpoint has a state of that name, or the operator never had keyed state.
        InvalidKeyError: the key does not fit the newest checkpoint that has the operator. One that does not
            fit an older one, whose keys were narrower, has no row there.
        ConfigurationError: a single state is given instead of a list, or ``path`` is not a path.
    """
    path = path_text(path)
    if states is not None:
        check_list("states", states)
    storage, job_ids = jobs_at(path)
    kept = list(retained(storage, job_ids[0])) if len(job_ids) == 1 else []
    if not kept:
        raise CheckpointNotFoundError(
            f"{path} is not the folder of a job with completed checkpoints: it has {len(job_ids)} jobs",
            path=path,
        )
    opened = [_opened(metadata, uri) for metadata, uri in reversed(kept)]
    if all(checkpoint.metadata.operator(uid) is None for checkpoint in opened):
        raise UnknownOperatorError(f"no checkpoint in {path} has an operator {uid!r}", uid=uid)
    wanted = None if states is None else list(states)
    with_states = [checkpoint for checkpoint in opened if _state_names(checkpoint, uid)]
    known = list(dict.fromkeys(name for checkpoint in with_states for name in _state_names(checkpoint, uid)))
    if wanted is None and not known:
        raise UnknownStateError(f"operator {uid!r} has no keyed state in any checkpoint in {path}", uid=uid)
    unknown = next((name for name in wanted or () if name not in known), None)
    if unknown is not None:
        raise UnknownStateError(
            f"operator {uid!r} has no keyed state {unknown!r} in any checkpoint in {path}; it has "
            f"{nearest(unknown, known)}",
            uid=uid,
            state=unknown,
        )
    if with_states:
        with_states[-1].keyed_state(uid).keys.checked([key])
    return KeyHistory(tuple(_moment(checkpoint, uid, key, wanted, allow_pickle) for checkpoint in opened))


def _opened(metadata: CheckpointMetadata, uri: str) -> Checkpoint:
    """Return a checkpoint with a clock that stands still at the moment when it was triggered."""
    return Checkpoint(metadata, uri, CountingReader(open_folder(uri)), lambda: metadata.timestamp_ms)


def _state_names(checkpoint: Checkpoint, uid: str) -> list[str]:
    """Return the names of an operator's keyed states in a checkpoint."""
    if checkpoint.metadata.operator(uid) is None:
        return []
    return [meta.name for meta in checkpoint._state_metas(uid)]


def _moment(
    checkpoint: Checkpoint, uid: str, key: Key, wanted: list[str] | None, allow_pickle: bool
) -> Moment:
    known = _state_names(checkpoint, uid)
    names = None if wanted is None else [name for name in wanted if name in known]
    is_there = bool(known) and bool(names or not wanted)
    keys = [key] if is_there and _fits(checkpoint, uid, key) else []
    table = checkpoint.keyed(uid, keys, names, allow_pickle=allow_pickle) if is_there else None
    of = checkpoint.metadata
    return Moment(of.checkpoint_id, of.epoch, of.timestamp_ms, table)


def _fits(checkpoint: Checkpoint, uid: str, key: Key) -> bool:
    """Return whether a key fits a checkpoint; the operator's keys may have become wider since."""
    try:
        checkpoint.keyed_state(uid).keys.checked([key])
    except InvalidKeyError:
        return False
    return True


@attrs.define
class Verification:
    """The result of :func:`verify`.

    Attributes:
        checkpoints: the folders that were checked.
        files: the number of files, without ``_metadata``.
        bytes_read: the number of bytes of state that were read.
        problems: what is damaged, missing or of another version, in words; the state cannot be restored from
            there.
        unneeded: files and folders that no completed checkpoint needs, such as those of one that is being
            written.
    """

    checkpoints: list[str] = attrs.field(factory=list, repr=short_repr)
    files: int = 0
    bytes_read: int = 0
    problems: list[str] = attrs.field(factory=list, repr=short_repr)
    unneeded: list[str] = attrs.field(factory=list, repr=short_repr)

    @property
    def is_sound(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def verify(path: AnyPath, on_read: OnRead | None = None) -> Verification:
    """Read every byte of a checkpoint, or of all checkpoints in a job's folder, and check it.

    Args:
        path: the folder of a checkpoint, a savepoint or a job, or a checkpoint directory.
        on_read: called with the number of bytes of each read.

    Raises:
        CheckpointNotFoundError: there is no completed checkpoint.
        ConfigurationError: ``path`` is not a path.
    """
    path, result = path_text(path), Verification()
    try:
        storage, job_ids = jobs_at(path)
    except CheckpointError:
        job_ids = []
    if not job_ids:
        with _noted(result.problems):
            _check(locate(path), result, on_read)
        return result
    for job_id in job_ids:
        _verify_job(storage, job_id, result, on_read)
    if not result.checkpoints and not result.problems:
        raise CheckpointNotFoundError(f"{path} has no completed checkpoint", path=path)
    return result


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Add the error of a block to the problems, unless it means that there is no checkpoint."""
    try:
        yield
    except CheckpointNotFoundError:
        raise
    except CheckpointError as error:
        if error.message not in problems:
            problems.append(error.message)


def _verify_job(
    storage: CheckpointFolders, job_id: str, result: Verification, on_read: OnRead | None
) -> None:
    needed: set[str] = set()
    completed, before = storage.completed(job_id), len(result.problems)
    uris = [storage.uri_of(job_id, checkpoint_id) for checkpoint_id in completed]
    for uri in (*uris, *storage.superseded(job_id)):
        needed |= _checked(storage, uri, result, on_read)
    if len(result.problems) == before:  # a damaged checkpoint does not say what it needs
        shared = [name.removeprefix(SHARED_PREFIX) for name in sorted(storage.shared_paths(job_id) - needed)]
        result.unneeded += [child_uri(storage.uri, job_id, "shared", name) for name in shared]
    for checkpoint_id in storage.checkpoint_ids(job_id):
        if checkpoint_id not in completed:
            result.unneeded.append(storage.uri_of(job_id, checkpoint_id))


def _checked(storage: CheckpointFolders, uri: str, result: Verification, on_read: OnRead | None) -> set[str]:
    """Check a checkpoint of a job; return the paths of its files."""
    try:
        with _noted(result.problems):
            return _check((storage.load(uri), uri), result, on_read)
    except CheckpointNotFoundError:
        result.unneeded.append(uri)  # one that was set aside before it was complete
    return set()


def _check(located: Located, result: Verification, on_read: OnRead | None) -> set[str]:
    metadata, uri = located
    folder = open_folder(uri)
    reader = CountingReader(folder, on_read=on_read)
    result.checkpoints.append(uri)
    files: dict[str, FileStateHandle] = {}
    for operator in metadata.operators:
        for subtask in operator.subtasks:
            _check_subtask(operator, subtask, reader, result.problems)
        files |= {file.path: file for subtask in operator.subtasks for file in subtask.files()}
    result.files += len(files)
    result.problems += filter(None, (_wrong_size(folder, handle) for handle in files.values()))
    result.bytes_read += reader.bytes_read
    result.unneeded += _strangers(folder, files)
    return set(files)


def _check_subtask(
    operator: OperatorState, subtask: OperatorSubtaskState, reader: StateReader, problems: list[str]
) -> None:
    """Read all files of a subtask, and note what is wrong with them."""
    keyed, lists = subtask.managed_keyed, subtask.managed_operator
    for handle in () if keyed is None else (keyed, *keyed.increments):
        with _noted(problems):
            _check_keyed(operator, handle, reader, problems)
    if lists is not None:
        with _noted(problems):
            alone = OperatorSubtaskState(managed_operator=lists)
            states = OperatorStates(attrs.evolve(operator, subtasks=(alone,)), reader)
            for name in states.written:
                deque(states.table(name).to_batches(), maxlen=0)
    for raw in (subtask.raw_keyed, subtask.raw_operator):
        if raw is not None:
            for section, what in raw_sections(raw, reader.describe(raw.stream)):
                with _noted(problems):
                    read_section(reader, raw.stream, section, what)


def _check_keyed(
    operator: OperatorState, handle: KeyGroupsStateHandle, reader: StateReader, problems: list[str]
) -> None:
    file = opened_file(operator, handle, reader)
    for native in () if handle.native is None else handle.native.files:
        with _noted(problems):
            deque(native_chunks(native, reader), maxlen=0)
    for name, sections in handle.sections.items():
        with _noted(problems):
            meta = file.meta_of(name)
            if meta is None:
                raise CorruptCheckpointError(f"{file.what} is damaged: it lacks state {name!r}")
            codec = file.head.codec(meta)
            for key_group, section in sections.items():
                with _noted(problems):
                    data = reader.read(handle.stream, section.offset, section.length)
                    codec.read(data, section.checksum, f"{file.what}, state {name!r}, key group {key_group}")


#: The handle of state that a function wrote itself.
RawState: TypeAlias = KeyGroupsStateHandle | RawOperatorStateHandle


def raw_sections(handle: RawState, what: str) -> Iterator[tuple[Section, str]]:
    """Yield the sections of raw state, each with its name for messages; ``what`` is the name of the file."""
    if isinstance(handle, RawOperatorStateHandle):
        groups: Iterable[Iterable[Section]] = [handle.partitions]
    else:
        groups = [sections.values() for sections in handle.sections.values()]
    return ((section, f"{what}, raw state,") for sections in groups for section in sections)


def _wrong_size(folder: CheckpointFolder, handle: FileStateHandle) -> str | None:
    """Return the problem with the size of a file. Missing files were found before."""
    what = folder.describe(handle)
    info = folder.file_system.get_file_info(what)
    if info.type == fs.FileType.NotFound or info.size == handle.size_bytes:
        return None
    return f"{what} has {info.size} bytes, and the checkpoint says {handle.size_bytes}"


def _strangers(folder: CheckpointFolder, files: Container[str]) -> list[str]:
    """Return the files in a checkpoint's folder that are not its own."""
    infos = folder.file_system.get_file_info(fs.FileSelector(folder.folder))
    return sorted(info.path for info in infos if info.base_name not in files and info.base_name != METADATA)
