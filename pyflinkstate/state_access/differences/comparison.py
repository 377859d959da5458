"""The differences between two checkpoints: keys added, removed and changed, a key group at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import attrs

from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.differences.keyed_states import KeyedPair
from pyflinkstate.state_access.differences.operator_states import OperatorStatePair
from pyflinkstate.state_access.differences.sides import Sides
from pyflinkstate.state_access.differences.timers import TimerPair
from pyflinkstate.state_access.keyed_state import KeyedState
from pyflinkstate.state_access.operator_states import OperatorStates
from pyflinkstate.state_access.tables import StateTable


@attrs.frozen
class StateDiff:
    """The difference of one state between two checkpoints.

    Attributes:
        uid: the operator.
        state: the name of the state; of timers the name of their service and its kind of time.
        table: a row for each key that differs: ``key_group``, ``key``, ``window`` or ``namespace`` if there
            is one, ``change`` (``added``, ``removed`` or ``changed``), ``old`` and ``new``. Timers have
            ``timestamp_ms`` instead of old and new, elements of lists ``change`` and ``value`` only, and
            entries of broadcast state ``key``, ``change``, ``old`` and ``new``.
        kind: ``keyed``, ``timers`` or ``operator_state``.
    """

    uid: str
    state: str
    table: StateTable
    kind: str = "keyed"

    def counts(self) -> dict[str, int]:
        """Return the number of added, removed and changed rows."""
        found: Counter[str] = Counter({"added": 0, "removed": 0, "changed": 0})
        for batch in self.table.to_batches():
            found.update(batch.column("change").to_pylist())
        return dict(found)


def diff(
    a: AnyPath | Checkpoint, b: AnyPath | Checkpoint, uid: str | None = None, *, allow_pickle: bool = False
) -> list[StateDiff]:
    """Compare the state of two checkpoints: keyed state, timers, operator state.

    Values are compared as the program sees them, without the times of accesses. Expired values that are
    still there count. No state is read before a table is asked for its rows. Memory then
    holds one key group of each checkpoint, unless the two differ in max parallelism: then it holds both
    states. Operator state is compared over all subtasks, lists without regard to order, in memory.

    Args:
        a: the old checkpoint, or its path as in :func:`open_checkpoint`.
        b: the new one.
        uid: compare only this operator. Default: all.
        allow_pickle: load pickled keys and values, which runs code.

    Returns:
        an item for each state that either checkpoint has, operator by operator; most may have no rows.

    Raises:
        ConfigurationError: one of the two is neither a checkpoint nor a path.
        UnknownOperatorError: neither checkpoint has an operator ``uid``.
        StateTableError: a state has keys, namespaces, or elements of incompatible types in the two.
    """
    sides = [side if isinstance(side, Checkpoint) else open_checkpoint(side) for side in (a, b)]
    uids = [operator.uid for side in sides for operator in side.operators()]
    if uid is not None and uid not in uids:
        sides[1].operator(uid)
    wanted = [uid] if uid is not None else list(dict.fromkeys(uids))
    return list(chain.from_iterable(_of_operator(name, sides, allow_pickle) for name in wanted))


def _of_operator(uid: str, sides: list[Checkpoint], allow_pickle: bool) -> Iterator[StateDiff]:
    old, new = (_keyed_state(side, uid, allow_pickle) for side in sides)
    names = [name for state in (old, new) if state is not None for name in state.metas]
    timers = []
    for name in dict.fromkeys(names):
        pair = Sides(name, (old, new))
        if pair.is_queue:
            timers.append(TimerPair(pair, allow_pickle))
        else:
            yield StateDiff(uid, name, KeyedPair(pair, allow_pickle).table())
    yield from (StateDiff(uid, timer.service, timer.table(), "timers") for timer in timers)
    yield from _of_lists(uid, sides, allow_pickle)


def _of_lists(uid: str, sides: list[Checkpoint], allow_pickle: bool) -> Iterator[StateDiff]:
    old, new = (_operator_states(side, uid) for side in sides)
    names = [name for states in (old, new) if states is not None for name in states.written]
    for name in dict.fromkeys(names):
        yield StateDiff(
            uid, name, OperatorStatePair(name, (old, new), allow_pickle).table(), "operator_state"
        )


def _keyed_state(checkpoint: Checkpoint, uid: str, allow_pickle: bool) -> KeyedState | None:
    has_it = checkpoint.metadata.operator(uid) is not None
    return checkpoint.keyed_state(uid, allow_pickle) if has_it else None


def _operator_states(checkpoint: Checkpoint, uid: str) -> OperatorStates | None:
    operator = checkpoint.metadata.operator(uid)
    return None if operator is None else OperatorStates(operator, checkpoint.reader)
