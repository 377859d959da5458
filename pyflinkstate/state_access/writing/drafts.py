"""The operators of a savepoint that is being made.

A draft is immutable, and each change returns another one. The state itself is not read until the savepoint is
written: a draft holds functions that yield the key groups, and a change wraps these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs
import pyarrow as pa

from pyflinkstate.backends.format import OperatorState
from pyflinkstate.backends.types import RegisteredQueueMeta, RegisteredStateMeta, StateMeta
from pyflinkstate.errors import IncompatibleCheckpointError, UnknownStateError
from pyflinkstate.state_access.facts import nearest
from pyflinkstate.state_access.key_space import Group, KeySpace
from pyflinkstate.state_access.keyed_state import KeyedState
from pyflinkstate.state_access.views import timer_service

#: Yields the key groups of a state, in order.
ReadGroups = Callable[[], Iterator[Group]]


@attrs.frozen
class DraftState:
    """A keyed state or a timer queue.

    Attributes:
        meta: its name, kind and types, with pickles sealed.
        read: yields its key groups, with the columns ``key``, ``namespace`` if there is one, and ``value``.
    """

    meta: StateMeta
    read: ReadGroups

    def changed(self, change: Callable[[int, pa.RecordBatch], pa.RecordBatch]) -> DraftState:
        """Return the state with each key group replaced by ``change(key_group, rows)``."""
        read = self.read

        def changed() -> Iterator[Group]:
            for key_group, batch in read():
                yield key_group, change(key_group, batch)

        return attrs.evolve(self, read=changed)


@attrs.frozen
class OperatorDraft:
    """An operator that comes from a checkpoint.

    Attributes:
        uid: its uid in the savepoint.
        keys: its keys.
        states: its keyed states and timer queues, by name.
        origin: its state in the checkpoint.
        is_rewritten: whether keyed state must be written anew; otherwise its files are copied.
        dropped: the names of operator states that are left out.
    """

    uid: str
    keys: KeySpace
    states: Mapping[str, DraftState]
    origin: OperatorState
    is_rewritten: bool = False
    dropped: frozenset[str] = frozenset()

    def state(self, name: str) -> DraftState:
        """Return a keyed state; raise ``UnknownStateError`` if there is none of that name."""
        found = self.states.get(name)
        if found is None or isinstance(found.meta, RegisteredQueueMeta):
            raise self._unknown("keyed state", name, self._names())
        return found

    def state_meta(self, name: str) -> RegisteredStateMeta:
        """Return the metadata of a keyed state; errors are those of :meth:`state`."""
        meta = self.state(name).meta
        assert isinstance(meta, RegisteredStateMeta)
        return meta

    def renamed(self, uid: str) -> OperatorDraft:
        """Return the same with another uid."""
        return attrs.evolve(self, uid=uid, keys=attrs.evolve(self.keys, uid=uid))

    def with_state(self, state: DraftState, instead_of: str | None = None) -> OperatorDraft:
        """Return the draft with a changed state, which may have another name than before."""
        kept = {name: known for name, known in self.states.items() if name != instead_of}
        return attrs.evolve(self, states={**kept, state.meta.name: state}, is_rewritten=True)

    def with_all(self, change: Callable[[DraftState], DraftState]) -> OperatorDraft:
        """Return the draft with a change of each state and timer queue."""
        states = {name: change(state) for name, state in self.states.items()}
        return attrs.evolve(self, states=states, is_rewritten=True)

    def without_state(self, name: str) -> OperatorDraft:
        """Return the draft without all that has a name: a keyed state, a timer service, an operator state.

        Raises:
            UnknownStateError: there is none of that name.
        """
        dropped = {known for known, state in self.states.items() if name in (known, _service(state.meta))}
        is_operator_state = name in self.operator_states
        if not dropped and not is_operator_state:
            services = {service for state in self.states.values() if (service := _service(state.meta))}
            raise self._unknown("state", name, [*self._names(), *services, *self.operator_states])
        draft = attrs.evolve(self, dropped=self.dropped | {name}) if is_operator_state else self
        kept = {known: state for known, state in self.states.items() if known not in dropped}
        return attrs.evolve(draft, states=kept, is_rewritten=True) if dropped else draft

    @property
    def operator_states(self) -> list[str]:
        """The names of operator states that are not left out."""
        handles = [subtask.managed_operator for subtask in self.origin.subtasks]
        names = dict.fromkeys(name for handle in handles if handle is not None for name in handle.states)
        return [name for name in names if name not in self.dropped]

    @property
    def has_operator_state(self) -> bool:
        """Whether a subtask has operator state, managed or raw, that is not left out."""
        return bool(self.operator_states) or any(sub.raw_operator for sub in self.origin.subtasks)

    def with_at_most(self, parallelism: int) -> OperatorDraft:
        """Return the draft with at most this many subtasks. The others have only keyed state."""
        subtasks = self.origin.subtasks[:parallelism]
        number = min(self.origin.parallelism, parallelism)
        return attrs.evolve(self, origin=attrs.evolve(self.origin, parallelism=number, subtasks=subtasks))

    def check_no_raw_keys(self) -> None:
        """Refuse raw keyed state, which only its function reads, with an ``IncompatibleCheckpointError``."""
        if any(subtask.raw_keyed is not None for subtask in self.origin.subtasks):
            raise IncompatibleCheckpointError(
                f"operator {self.uid!r} has raw keyed state, and only its function knows the keys in it, so "
                f"they cannot be assigned to other key groups",
                operator=self.uid,
            )

    def _names(self) -> list[str]:
        return [name for name, state in self.states.items() if isinstance(state.meta, RegisteredStateMeta)]

    def _unknown(self, kind: str, name: str, known: list[str]) -> UnknownStateError:
        return UnknownStateError(
            f"operator {self.uid!r} has no {kind} {name!r}; it has {nearest(name, known)}",
            uid=self.uid,
            state=name,
        )


def draft_of(state: KeyedState) -> OperatorDraft:
    """Return the draft of an operator as it is in its checkpoint."""
    operator = state.operator
    states = {
        name: DraftState(_lasting(state, meta), _reader(state, name)) for name, meta in state.metas.items()
    }
    has_increments = any(len(chain) > 1 for chain in state.chains)
    return OperatorDraft(operator.operator_id, state.keys, states, operator, has_increments)


def _lasting(state: KeyedState, meta: StateMeta) -> StateMeta:
    """Return the metadata with the newest time to live that a file knows."""
    if isinstance(meta, RegisteredQueueMeta):
        return meta
    return attrs.evolve(meta, ttl_ms=state.ttl_ms.get(meta.name))


def _reader(state: KeyedState, name: str) -> ReadGroups:
    return lambda: state.groups(name)


def _service(meta: StateMeta) -> str | None:
    return timer_service(meta)[1] if isinstance(meta, RegisteredQueueMeta) else None
