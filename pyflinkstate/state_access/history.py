"""The values of one key over the checkpoints that a job has kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api import Key, check_list, short_repr
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    InvalidKeyError,
    StateTableError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.storage import AnyPath, open_folder, path_text
from pyflinkstate.state_access.checkpoint import Checkpoint, CountingReader, jobs_at, retained
from pyflinkstate.state_access.tables import StateTable, nearest


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
    metas = checkpoint.keyed_state(uid).metas.values()
    return [meta.name for meta in metas if isinstance(meta, RegisteredStateMeta)]


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
