"""The five kinds of keyed state, as a user sees them.

Names and members are PyFlink's (``pyflink.datastream.state``), semantics are those of Flink's Java
states. A state is bound to the current key: the same object returns another value once the runtime
moves on to the next record. Every method raises ``NoCurrentKeyError`` while no key is set, and every
method that takes a value raises ``StateValueError`` when it does not fit the declared type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Generic

from pyflinkstate.api.type_variables import IN, OUT, K, T, V


class State(ABC):
    """The base of all kinds of state."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the value under the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value under the current key, or the descriptor's default (or None) if there is none.

        The live object is returned: after changing a mutable one in place, call :meth:`update`.
        """

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value under the current key. ``update(None)`` is ``clear()``, as in Flink."""


class AppendingState(State, Generic[IN, OUT]):
    """State to which values are added, and which returns them combined."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the combined values that were added under the current key."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add ``value`` under the current key."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state whose contents under several namespaces can be merged."""


class ListState(MergingState[T, Iterable[T]]):
    """A list per key, in the order of adding."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Return the elements under the current key, or an empty iterable if there are none.

        Its iterators are fail-fast: after an ``add`` the next step raises a
        :class:`~pyflinkstate.errors.ConcurrentModificationError`.
        """

    @abstractmethod
    def add(self, value: T) -> None:
        """Append ``value``.

        Raises:
            StateValueError: ``value`` is None (Flink: "You cannot add null to a ListState.").
        """

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append all ``values``, or none of them if one is refused.

        Flink's heap state keeps the elements before the refused one; here the call is atomic.
        An empty list is a no-op.
        """

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list. ``update([])`` removes the entry."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class ReducingState(MergingState[T, T]):
    """One value per key: all that was added, combined by a reduce function.

    ``get()`` is None if nothing was added. ``add(None)`` is ``clear()``, as in Flink.
    """


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator per key, fed by an aggregate function.

    ``get()`` is ``get_result(accumulator)``, or None if nothing was added. The accumulator is made
    by the first ``add``. ``add(None)`` is ``clear()``, as in Flink.
    """


class _ReadableEntries(State, Generic[K, V]):
    """The reading half of a map of entries. The order of iteration is unspecified."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of ``key``, or None."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether ``key`` is present, even if its value is None (PyFlink returns False then)."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V | None]]:
        """Return the entries, or an empty iterable if there are none."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys."""

    @abstractmethod
    def values(self) -> Iterable[V | None]:
        """Return the values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether there is no entry."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableEntries(_ReadableEntries[K, V]):
    """A map of entries. None is a legal value."""

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V | None]) -> None:
        """Set all entries of ``dict_value``, or none of them if one is refused."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove ``key`` if it is present."""

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableEntries[K, V]):
    """A dict per key.

    ``items``, ``keys`` and ``values`` look the entries up when iteration begins. Their iterators raise
    ``ConcurrentModificationError``, a ``RuntimeError``, if a key is added or removed meanwhile. As in
    PyFlink, they have a ``remove()`` for the entry that they returned last.
    """


class ReadOnlyBroadcastState(_ReadableEntries[K, V]):
    """A map that is the same on all subtasks, for functions that must not change it."""


class BroadcastState(ReadOnlyBroadcastState[K, V], _WritableEntries[K, V]):
    """A map that every subtask must change in the same way, as it is restored from any one of them."""
