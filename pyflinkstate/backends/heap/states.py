"""The five heap states: thin views that bind a state table to the current key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from pyflinkstate.api.descriptors import (
    AggregatingStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
)
from pyflinkstate.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from pyflinkstate.backends.heap.state_map import CopyOnWriteStateMap
from pyflinkstate.backends.heap.state_table import CopyOnWriteStateTable
from pyflinkstate.errors import NoCurrentKeyError, StateValueError


class KeyContext:
    """The key that states are bound to at the moment.

    ``map_index`` is the key's key group less the start of the backend's range, -1 while no key is set.
    """

    __slots__ = ("key", "map_index")

    def __init__(self) -> None:
        self.key: Hashable = None
        self.map_index = -1


class HeapState:
    """What the five views share: the map of the current key, and errors that name state and key."""

    __slots__ = ("_context", "_maps", "_name", "_table")

    def __init__(self, table: CopyOnWriteStateTable, context: KeyContext) -> None:
        self._table = table
        self._maps = table.maps
        self._context = context
        self._name = table.meta.name

    def clear(self) -> None:
        self._map().remove(self._context.key)

    def _map(self) -> CopyOnWriteStateMap:
        index = self._context.map_index
        if index < 0:
            raise self._no_key()
        return self._maps[index]

    def _no_key(self) -> NoCurrentKeyError:
        return NoCurrentKeyError(
            f"state {self._name!r} was used with no key set: use keyed state while a record is "
            f"processed, not in open() or close()",
            state=self._name,
        )

    def _refusal(self, reason: object) -> StateValueError:
        key = self._context.key
        return StateValueError(
            f"state {self._name!r}, key {key!r}: {reason}", state=self._name, key=repr(key)
        )


class HeapValueState(HeapState, ValueState[Any]):
    """See :class:`~pyflinkstate.api.state.ValueState`."""

    __slots__ = ("_check",)

    def __init__(
        self, table: CopyOnWriteStateTable, context: KeyContext, descriptor: StateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._check = descriptor.stored_type.check

    def value(self) -> Any:
        context = self._context
        if context.map_index < 0:
            raise self._no_key()
        return self._maps[context.map_index].get(context.key)

    def update(self, value: Any) -> None:
        context = self._context
        if context.map_index < 0:
            raise self._no_key()
        if value is None:
            self.clear()
            return
        try:
            value = self._check(value)
        except ValueError as error:
            raise self._refusal(error) from None
        self._maps[context.map_index].put(context.key, value)


class HeapListState(HeapState, ListState[Any]):
    """See :class:`~pyflinkstate.api.state.ListState`."""

    __slots__ = ("_check",)

    def __init__(
        self, table: CopyOnWriteStateTable, context: KeyContext, descriptor: StateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._check = descriptor.elem_type_info.check  # type: ignore[attr-defined]

    def get(self) -> Iterable[Any]:
        stored = self._map().get(self._context.key)
        return () if stored is None else stored

    def add(self, value: Any) -> None:
        self._append(self._checked((value,)))

    def add_all(self, values: list[Any]) -> None:
        checked = self._checked(self._as_iterable(values, "added to"))
        if checked:
            self._append(checked)

    def update(self, values: list[Any]) -> None:
        checked = self._checked(self._as_iterable(values, "put into"))
        if checked:
            self._map().put(self._context.key, checked)
        else:
            self.clear()

    def _append(self, checked: list[Any]) -> None:
        state_map = self._map()
        stored = state_map.get(self._context.key)
        if stored is None:
            state_map.put(self._context.key, checked)
        else:
            stored.extend(checked)

    def _as_iterable(self, values: Any, verb: str) -> Iterable[Any]:
        if values is None or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise self._refusal(f"a list of values is {verb} a ListState, not {values!r}")
        return values

    def _checked(self, values: Iterable[Any]) -> list[Any]:
        checked = []
        for value in values:
            if value is None:
                raise self._refusal("None cannot be added to a ListState")
            try:
                checked.append(self._check(value))
            except ValueError as error:
                raise self._refusal(error) from None
        return checked


class HeapMapState(HeapState, MapState[Any, Any]):
    """See :class:`~pyflinkstate.api.state.MapState`."""

    __slots__ = ("_check_key", "_check_value")

    def __init__(
        self, table: CopyOnWriteStateTable, context: KeyContext, descriptor: MapStateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._check_key = descriptor.key_type_info.check
        self._check_value = descriptor.value_type_info.check

    def get(self, key: Any) -> Any:
        return self._entries().get(self._checked_key(key))

    def put(self, key: Any, value: Any) -> None:
        self._put_checked([self._checked(key, value)])

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        if not isinstance(dict_value, dict):
            raise self._refusal(f"put_all takes a dict, not {dict_value!r}")
        checked = [self._checked(key, value) for key, value in dict_value.items()]
        if checked:
            self._put_checked(checked)

    def remove(self, key: Any) -> None:
        entries, key = self._entries(), self._checked_key(key)
        if key in entries:
            del entries[key]
            if not entries:
                self.clear()

    def contains(self, key: Any) -> bool:
        return self._checked_key(key) in self._entries()

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._entries().items()

    def keys(self) -> Iterable[Any]:
        return self._entries().keys()

    def values(self) -> Iterable[Any]:
        return self._entries().values()

    def is_empty(self) -> bool:
        return not self._entries()

    def _entries(self) -> dict[Any, Any]:
        stored: dict[Any, Any] | None = self._map().get(self._context.key)
        return {} if stored is None else stored

    def _checked_key(self, key: Any) -> Any:
        """Return the key as ``put`` stores it: ``FLOAT`` rounds, for example."""
        try:
            hash(key)
            return self._check_key(key)
        except (ValueError, TypeError) as error:
            raise self._refusal(f"user key: {error}") from None

    def _checked(self, key: Any, value: Any) -> tuple[Any, Any]:
        key = self._checked_key(key)
        try:
            return key, None if value is None else self._check_value(value)
        except ValueError as error:
            raise self._refusal(f"entry {key!r}: {error}") from None

    def _put_checked(self, checked: list[tuple[Any, Any]]) -> None:
        state_map = self._map()
        stored = state_map.get(self._context.key)
        if stored is None:
            state_map.put(self._context.key, dict(checked))
        else:
            stored.update(checked)


class HeapReducingState(HeapState, ReducingState[Any]):
    """See :class:`~pyflinkstate.api.state.ReducingState`."""

    __slots__ = ("_check", "_reduce")

    def __init__(
        self, table: CopyOnWriteStateTable, context: KeyContext, descriptor: ReducingStateDescriptor
    ) -> None:
        super().__init__(table, context)
        self._check = descriptor.type_info.check
        self._reduce = descriptor.reduce_function.reduce

    def get(self) -> Any:
        return self._map().get(self._context.key)

    def add(self, value: Any) -> None:
        state_map, key = self._map(), self._context.key
        if value is None:
            self.clear()
            return
        try:
            value = self._check(value)
        except ValueError as error:
            raise self._refusal(error) from None
        stored = state_map.get(key)
        if stored is not None:
            value = self._reduced(stored, value)
        state_map.put(key, value)

    def _reduced(self, stored: Any, value: Any) -> Any:
        reduced = self._reduce(stored, value)
        try:
            return self._check(reduced)
        except ValueError as error:
            raise self._refusal(f"the reduce function's result: {error}") from None


class HeapAggregatingState(HeapState, AggregatingState[Any, Any]):
    """See :class:`~pyflinkstate.api.state.AggregatingState`."""

    __slots__ = ("_check", "_function")

    def __init__(
        self,
        table: CopyOnWriteStateTable,
        context: KeyContext,
        descriptor: AggregatingStateDescriptor,
    ) -> None:
        super().__init__(table, context)
        self._check = descriptor.state_type_info.check
        self._function = descriptor.agg_function

    def get(self) -> Any:
        accumulator = self._map().get(self._context.key)
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        state_map, key = self._map(), self._context.key
        if value is None:
            self.clear()
            return
        accumulator = state_map.get(key)
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        accumulator = self._function.add(value, accumulator)
        try:
            accumulator = self._check(accumulator)
        except ValueError as error:
            raise self._refusal(f"the accumulator: {error}") from None
        state_map.put(key, accumulator)


HEAP_STATES: dict[StateKind, Callable[[CopyOnWriteStateTable, KeyContext, Any], HeapState]] = {
    StateKind.VALUE: HeapValueState,
    StateKind.LIST: HeapListState,
    StateKind.MAP: HeapMapState,
    StateKind.REDUCING: HeapReducingState,
    StateKind.AGGREGATING: HeapAggregatingState,
}
