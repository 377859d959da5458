"""Asks a running job for its state, and makes tables of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa

from pyflinkstate.api import Key, Namespace, check_list
from pyflinkstate.backends.types import sealed
from pyflinkstate.errors import ConfigurationError, StateQueryError
from pyflinkstate.runtime.queries import LiveEntries, StateAnswer, StateQueries, StateQuestion
from pyflinkstate.state_access.keyed_state import KeySpace
from pyflinkstate.state_access.tables import StateTable
from pyflinkstate.state_access.views import View

#: The answer to named keys is in memory, so they are bounded.
MOST_KEYS = 100_000


def query(
    queries: StateQueries,
    uid: str,
    state: str,
    keys: Iterable[Key] | None,
    namespace: Namespace | None,
    timeout_s: float,
) -> LiveTable:
    """Return the entries of a state after an epoch; see ``JobClient.query``."""
    question = _question(queries, uid, state, keys, namespace)
    entries = queries.ask(question, timeout_s)
    batches = _Stream(entries) if question.keys is None else list(entries.batches())
    return LiveTable(entries.epoch, view_of(entries, batches).entries(state), entries.close)


def query_value(
    queries: StateQueries, uid: str, state: str, key: Key, namespace: Namespace | None, timeout_s: float
) -> Any:
    """Return the value that a key has after an epoch, or None; see ``JobClient.query_value``."""
    entries = queries.ask(_question(queries, uid, state, [key], namespace), timeout_s)
    batches = list(entries.batches())
    if entries.meta.is_namespaced and namespace is None:
        raise StateQueryError(
            f"state {state!r} of operator {uid!r} has a value for each key and namespace of "
            f"{entries.meta.namespace_type}: name the namespace, or use query()",
            operator=uid,
            state=state,
        )
    table = attrs.evolve(view_of(entries, batches).keyed([state]), allow_pickle=True)
    row = next(table.rows(), None)
    return None if row is None else row[table.columns[-1].name]


@attrs.define
class _Stream:
    """The batches that slots send."""

    entries: LiveEntries = attrs.field(repr=False)
    is_read: bool = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self.is_read:
            raise StateQueryError(
                "this answer was streamed and has been read already: ask again, or keep what to_arrow() gave"
            )
        self.is_read = True
        return self.entries.batches()


def _question(
    queries: StateQueries, uid: str, state: str, keys: Iterable[Key] | None, namespace: Namespace | None
) -> StateQuestion:
    if keys is not None:
        check_list("keys", keys)
    groups = None if keys is None else _by_key_group(queries, uid, list(keys))
    return StateQuestion(uid, state, groups, () if namespace is None else (namespace,))


def _by_key_group(queries: StateQueries, uid: str, keys: list[Key]) -> dict[int, tuple[Key, ...]]:
    if len(keys) > MOST_KEYS:
        raise ConfigurationError(
            f"at most {MOST_KEYS:,} keys can be named, not {len(keys):,}: ask for all keys, or in parts"
        )
    operator = queries.operator(uid)
    space = KeySpace(uid, operator.node.key_type, operator.max_parallelism)
    checked = list(dict.fromkeys(space.checked(keys)))
    groups: dict[int, list[Key]] = {}
    for key, key_group in zip(checked, space.groups_of_keys(checked).tolist(), strict=True):
        groups.setdefault(key_group, []).append(key)
    return {key_group: tuple(found) for key_group, found in groups.items()}


def view_of(entries: LiveEntries, batches: Iterable[pa.RecordBatch]) -> View:
    """Return the view of the state that slots have sent in batches, for the wanted keys and in no order."""
    operator, meta = entries.operator, entries.meta
    keys = KeySpace(operator.operator_id, operator.node.key_type, operator.max_parallelism)
    return View(
        keys=keys,
        metas={meta.name: attrs.evolve(meta, stored_type=sealed(meta.stored_type))},
        groups=lambda name, wanted: enumerate(batches),
        ranges=None,
        key_filter=None,
        now_ms=entries.now_ms,
        ttl_ms={} if meta.ttl_ms is None else {meta.name: meta.ttl_ms},
    )


@attrs.frozen(eq=False)
class LiveTable(StateAnswer):
    """The entries of a state of a running job, all as they are after the same epoch.

    Without keys it is streamed from the slots, in no particular order, and can be read once. The slots keep a
    copy of what changes until it is read, so read it at once or close it. They cut off a reader that does not
    take anything for 10 seconds, or takes longer than 10 minutes. The answer to named keys is in memory, and
    can be read again.

    Columns are those of ``Checkpoint.entries``. Values with time to live that have expired are left out.
    Batches have pickles as bytes; rows have the values, as they are the job's own.

    Attributes:
        epoch: the epoch after which the state was frozen. It may not be committed yet.
        table: the answer as a table whose rows keep pickles as bytes.
    """

    epoch: int
    table: StateTable = attrs.field(repr=False)
    _close: Callable[[], None] = attrs.field(repr=False)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        return self.table.schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield record batches as they come.

        Raises:
            StateQueryError: a slot died or cut the answer off, or it has been read already.
        """
        return self.table.to_batches()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of Python values, as the program knows them."""
        return attrs.evolve(self.table, allow_pickle=True).rows()

    def close(self) -> None:
        """Release the state that slots still keep for this answer. Idempotent."""
        self._close()
