"""Asks a running job for its state, and makes tables of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api.checks import check_list
from pyflinkstate.api.values import Key, Namespace, TypedValue
from pyflinkstate.errors import ConfigurationError, StateQueryError
from pyflinkstate.runtime.queries import LiveEntries, StateQueries, StateQuestion
from pyflinkstate.state_access.key_space import KeySpace
from pyflinkstate.state_access.live.live_state import view_of
from pyflinkstate.state_access.live.live_table import LiveTable
from pyflinkstate.state_access.tables import StateTable

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
    if question.keys is None:
        return LiveTable(entries.epoch, _streamed(entries), entries.close)
    batches = list(entries.batches())
    return LiveTable(entries.epoch, view_of(entries, batches).entries(state), entries.close)


def query_value(
    queries: StateQueries, uid: str, state: str, key: Key, namespace: Namespace | None, timeout_s: float
) -> TypedValue:
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


def _streamed(entries: LiveEntries) -> StateTable:
    """Return a table of the slots' batches, which can be read once."""
    table = view_of(entries, _Stream(entries)).entries(entries.meta.name)
    return attrs.evolve(table, split=None)


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
