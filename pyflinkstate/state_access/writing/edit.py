"""Changes a checkpoint into a new savepoint: the class that :func:`edit` and :func:`new_savepoint` return."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import attrs

from pyflinkstate.api import (
    ArrowObject,
    Key,
    PickledBytesTypeInfo,
    SparkObject,
    StateDescriptor,
    StateValue,
    TypeInformation,
    check_list,
    check_text,
    check_type,
)
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.backends.keys import check_parallelism
from pyflinkstate.backends.ttl import rules_of, with_timestamps
from pyflinkstate.backends.types import RegisteredStateMeta, sealed, state_migration, unsealed
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    ConfigurationError,
    ParallelismError,
    PickledStateError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.storage import AnyPath, absolute
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.keyed_state import KeySpace
from pyflinkstate.state_access.tables import has_pickles, nearest
from pyflinkstate.state_access.writing.bootstrapping import Bootstrap, KeyOf, TimestampOf, bootstrap_of
from pyflinkstate.state_access.writing.drafts import (
    OperatorDraft,
    converted,
    draft_of,
    spread_anew,
    with_rows,
    without_entries,
    without_keys,
)
from pyflinkstate.state_access.writing.fitted_tables import fitted
from pyflinkstate.state_access.writing.saving import DraftWriter, DryRun, Operator, new_folder, publish, tried
from pyflinkstate.state_access.writing.user_functions import UserPredicate, by_function, predicate_of

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
            writer = None if self.source is None else DraftWriter(self.source.reader, folder)
            operators = []
            for operator in self._operators.values():
                if isinstance(operator, Bootstrap):
                    operators.append(operator.write(folder, uri))
                else:
                    assert writer is not None
                    operators.append(writer.write(operator))
            publish(attrs.evolve(self.metadata, operators=tuple(operators)), folder, uri)
            return open_checkpoint(uri, self._clock)

    def dry_run(self, program: object, job_name: str | None = None) -> DryRun:
        """Find out whether a program would restore the savepoint; see :func:`dry_run`."""
        reader = None if self.source is None else self.source.reader
        return tried(self.metadata, self._operators, reader, program, job_name)

    def key_type(self, uid: str) -> TypeInformation:
        """Return the declared type of an operator's keys; raise ``UnknownOperatorError`` if there is none."""
        return self._operator(uid).keys.key_type

    # --- parts ---------------------------------------------------------------------------------------------

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
    if not isinstance(descriptor, StateDescriptor):
        raise ConfigurationError(f"a state descriptor is needed, not {descriptor!r}")
    ttl_ms = None
    if descriptor.is_ttl_enabled:
        assert descriptor.ttl_config is not None
        rules = rules_of(descriptor.ttl_config, clock)
        descriptor, ttl_ms = with_timestamps(descriptor, rules), rules.ttl_ms
    return RegisteredStateMeta(
        descriptor.name, descriptor.kind, descriptor.stored_type, namespace_type, ttl_ms
    )
