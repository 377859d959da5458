"""The values of one key over the checkpoints that a job has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api.values import Key
from pyflinkstate.errors import CheckpointNotFoundError, StateTableError, UnknownOperatorError
from pyflinkstate.runtime.storage import open_checkpoint as open_folder
from pyflinkstate.state_access.checkpoint import Checkpoint, CountingReader
from pyflinkstate.state_access.locations import jobs_at, retained
from pyflinkstate.state_access.tables import StateTable


@attrs.frozen
class Moment:
    """A key in one checkpoint.

    Attributes:
        checkpoint_id: the number of the checkpoint.
        epoch: the last epoch whose records are in the state.
        timestamp_ms: when it was triggered, in ms since 1970; what had expired then is left out.
        table: the key's row, as :meth:`Checkpoint.keyed` gives it; no row if the key had no state, and None
            if the operator was not there.
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

    moments: tuple[Moment, ...]

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
    path: str, uid: str, key: Key, states: Iterable[str] | None = None, *, allow_pickle: bool = False
) -> KeyHistory:
    """Return the values of a key in each checkpoint that a job has kept.

    Checkpoints that do not belong to the history of the newest one are left out, as in a restore.

    Args:
        path: the job's folder, or a checkpoint directory with one job in it.
        uid: the operator.
        key: the key, of the operator's key type.
        states: the names of states; see :meth:`Checkpoint.keyed`.
        allow_pickle: load pickled values and keys, which runs code.

    Raises:
        CheckpointNotFoundError: the folder has no completed checkpoint.
        UnknownOperatorError: no checkpoint has the operator.
    """
    storage, job_ids = jobs_at(str(path))
    kept = list(retained(storage, job_ids[0])) if len(job_ids) == 1 else []
    if not kept:
        raise CheckpointNotFoundError(
            f"{path} is not the folder of a job with completed checkpoints: it has {len(job_ids)} jobs",
            path=path,
        )
    names = None if states is None else list(states)
    found = []
    for metadata, uri in reversed(kept):
        reader, at_ms = CountingReader(open_folder(uri)), metadata.timestamp_ms
        checkpoint = Checkpoint(metadata, uri, reader, _standing(at_ms))
        has_it = metadata.operator(uid) is not None
        table = checkpoint.keyed(uid, [key], names, allow_pickle=allow_pickle) if has_it else None
        found.append(Moment(metadata.checkpoint_id, metadata.epoch, at_ms, table))
    if all(moment.table is None for moment in found):
        raise UnknownOperatorError(f"no checkpoint in {path} has an operator {uid!r}", uid=uid)
    return KeyHistory(tuple(found))


def _standing(now_ms: int) -> Callable[[], int]:
    """Return a clock that stands still."""
    return lambda: now_ms
