"""Keyed state that can be read and not changed, bound to one restored backend after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NoReturn, TypeVar

from pyflinkstate.api.descriptors import StateDescriptor, StateKind
from pyflinkstate.api.state import (
    AggregatingState,
    AppendingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)
from pyflinkstate.api.type_variables import IN, OUT, K, T, V
from pyflinkstate.errors import NoCurrentKeyError, StateAccessError

S = TypeVar("S", bound=State)


class ReadOnly(Generic[S]):
    """Has the state that is read.

    Args:
        descriptor: of the state.
    """

    def __init__(self, descriptor: StateDescriptor) -> None:
        self._name = descriptor.name
        self._bound: S | None = None

    def bind(self, state: S) -> None:
        """From now on, read this state."""
        self._bound = state

    @property
    def _state(self) -> S:
        if self._bound is None:
            raise NoCurrentKeyError(
                f"state {self._name!r} has no key yet: read it in read_key()", state=self._name
            )
        return self._bound

    def clear(self) -> None:
        """Refuse to change it."""
        self._refuse("clear")

    def _refuse(self, method: str) -> NoReturn:
        raise StateAccessError(
            f"state {self._name!r} is read from a checkpoint, so {method}() cannot change it",
            state=self._name,
        )


class ReadOnlyValueState(ReadOnly[ValueState[T]], ValueState[T]):
    """A value."""

    def value(self) -> T | None:
        return self._state.value()

    def update(self, value: T | None) -> None:
        self._refuse("update")


class _ReadOnlyAppendingState(ReadOnly[AppendingState[IN, OUT]], AppendingState[IN, OUT]):
    """What has been added up."""

    def get(self) -> OUT | None:
        return self._state.get()

    def add(self, value: IN) -> None:
        self._refuse("add")


class ReadOnlyReducingState(_ReadOnlyAppendingState[T, T], ReducingState[T]):
    """A reduced value."""


class ReadOnlyAggregatingState(_ReadOnlyAppendingState[IN, OUT], AggregatingState[IN, OUT]):
    """The result of an accumulator."""


class ReadOnlyListState(ReadOnly[ListState[T]], ListState[T]):
    """A list."""

    def get(self) -> Iterable[T]:
        return self._state.get()

    def add(self, value: T) -> None:
        self._refuse("add")

    def add_all(self, values: list[T]) -> None:
        self._refuse("add_all")

    def update(self, values: list[T]) -> None:
        self._refuse("update")


class ReadOnlyMapState(ReadOnly[MapState[K, V]], MapState[K, V]):
    """A map."""

    def get(self, key: K) -> V | None:
        return self._state.get(key)

    def contains(self, key: K) -> bool:
        return self._state.contains(key)

    def items(self) -> Iterable[tuple[K, V | None]]:
        return self._state.items()

    def keys(self) -> Iterable[K]:
        return self._state.keys()

    def values(self) -> Iterable[V | None]:
        return self._state.values()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def put(self, key: K, value: V | None) -> None:
        self._refuse("put")

    def put_all(self, dict_value: dict[K, V | None]) -> None:
        self._refuse("put_all")

    def remove(self, key: K) -> None:
        self._refuse("remove")


_OF_KIND: dict[StateKind, type[ReadOnly[Any]]] = {
    StateKind.VALUE: ReadOnlyValueState,
    StateKind.LIST: ReadOnlyListState,
    StateKind.MAP: ReadOnlyMapState,
    StateKind.REDUCING: ReadOnlyReducingState,
    StateKind.AGGREGATING: ReadOnlyAggregatingState,
}


def read_only(descriptor: StateDescriptor) -> ReadOnly[Any]:
    """Return the state of a descriptor, bound to nothing yet."""
    return _OF_KIND[descriptor.kind](descriptor)
