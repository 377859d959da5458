"""The five heap states: thin views that bind a state table to the current key and namespace.

They behave as the classes of ``pyflinkstate.api.state`` say, and are registered as their subclasses below.
They do not inherit from them, which would make compiled code slow. Besides the user's methods each has those
of ``HeapState``, for the runtime and for time to live.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyflinkstate.api import (
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    StateValue,
    Stored,
    TypeInformation,
    ValueState,
    integer_bounds,
    safe_repr,
)
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.heap_state import HeapState
from pyflinkstate.backends.heap.map_state import HeapMapState
from pyflinkstate.backends.types import rebuilds, rechecker
from pyflinkstate.backends.values.checked import StateList
from pyflinkstate.backends.values.isolation import (
    is_immutable,
    isolated,
    isolated_elements,
    isolated_from,
    own_copy,
)

if TYPE_CHECKING:
    from pyflinkstate.backends.heap.state_table import StateTable


def _takes_all(type_info: TypeInformation) -> bool:
    """Return whether ``check`` returns each value as it is."""
    return type(type_info).check is TypeInformation.check


class HeapValueState(HeapState):
    """See :class:`~pyflinkstate.api.state.ValueState`."""

    def __init__(self, table: StateTable, context: KeyContext, descriptor: StateDescriptor) -> None:
        super().__init__(table, context)
        self._check: Callable[[StateValue], StateValue] = descriptor.stored_type.check
        self._isolates: bool = not rebuilds(descriptor.stored_type)
        self._recheck: Callable[[StateValue, StateValue], StateValue] | None = rechecker(
            descriptor.stored_type
        )
        self._default: StateValue = getattr(descriptor, "default_value", None)
        # An int within these bounds needs no further check. This is the most frequent case, so it is inlined.
        bounds = integer_bounds(descriptor.stored_type)
        self._low: int = bounds[0]
        self._high: int = bounds[1]

    def value(self) -> StateValue:
        context = self._context
        if context.map_index < 0:
            raise self._no_key()
        namespace = self.namespace
        key = context.key if namespace is None else (context.key, namespace)
        value = self._maps[context.map_index].get(key)
        if value is None and self._default is not None:
            return own_copy(self._default)
        return value

    def update(self, value: StateValue) -> None:
        context = self._context
        if context.map_index < 0:
            raise self._no_key()
        if type(value) is int:
            number: int = value
            if number < self._low or number > self._high:
                value = self._checked(value)
        elif value is None:
            self.clear()
            return
        else:
            value = self._checked(value)
        namespace = self.namespace
        key = context.key if namespace is None else (context.key, namespace)
        state_map = self._maps[context.map_index]
        if self._isolates and not is_immutable(value):
            value = isolated_from(value, state_map.owned(key))
        state_map.put(key, value)

    def _checked(self, value: StateValue) -> StateValue:
        recheck = self._recheck
        try:
            if recheck is None:
                return self._check(value)
            return recheck(value, self._map().owned(self._entry_key()))
        except ValueError as error:
            raise self.refusal(error) from None


class HeapListState(HeapState):
    """See :class:`~pyflinkstate.api.state.ListState`."""

    def __init__(self, table: StateTable, context: KeyContext, descriptor: ListStateDescriptor) -> None:
        super().__init__(table, context)
        self._check: Callable[[StateValue], StateValue] = descriptor.elem_type_info.check
        self._takes_all: bool = _takes_all(descriptor.elem_type_info)
        self._isolates: bool = not rebuilds(descriptor.elem_type_info)

    def get(self) -> Iterable[StateValue]:
        stored = self.get_internal()
        if stored is None:
            return ()
        if type(stored) is not StateList:
            stored = StateList(stored, self.name)
            self._map().put(self._entry_key(), stored)
        return stored

    def __iter__(self) -> Iterator[StateValue]:
        return iter(self.get())

    def add(self, value: StateValue) -> None:
        self._append(self._isolated([self._checked(value)]))

    def add_in(self, namespace: Hashable, value: StateValue) -> bool:
        if not self._takes_all:
            value = self._checked(value)
        if self._isolates:
            value = isolated(value)
        context = self._context
        state_map, key = self._maps[context.map_index], (context.key, namespace)
        stored: list[Stored] | None = state_map.get(key)
        if stored is None:
            state_map.put(key, [value])
            return True
        stored.append(value)
        return False

    def add_all(self, values: StateValue) -> None:
        checked = self._all_checked(values, "added to")
        if checked:
            self._append(self._isolated(checked))

    def update(self, values: StateValue) -> None:
        checked = self._all_checked(values, "put into")
        if not checked:
            self.clear()
            return
        state_map, key = self._map(), self._entry_key()
        if self._isolates:
            checked = isolated_elements(checked, state_map.owned(key) or [])
        state_map.put(key, checked)

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Append the lists of ``sources`` to that of ``target``, in order, and remove them."""
        state_map, target_key = self._map(), self._entry_key_in(target)
        source_keys = [self._entry_key_in(source) for source in sources]
        added: list[StateValue] = []
        for source_key in source_keys:
            added.extend(state_map.remove_and_get_old(source_key) or ())
        if added:
            state_map.put(target_key, [*(state_map.get(target_key) or ()), *added])

    def _isolated(self, checked: list[StateValue]) -> list[StateValue]:
        return [isolated(value) for value in checked] if self._isolates else checked

    def _append(self, checked: list[StateValue]) -> None:
        state_map, key = self._map(), self._entry_key()
        stored: list[Stored] | None = state_map.get(key)
        if stored is None:
            state_map.put(key, checked)
        else:
            stored.extend(checked)

    def _all_checked(self, values: StateValue, verb: str) -> list[StateValue]:
        self._map()  # a missing key is reported before a wrong value
        if values is None or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise self.refusal(f"only a list of values can be {verb} a ListState, not {safe_repr(values)}")
        return [self._checked(value) for value in values]

    def _checked(self, value: StateValue) -> StateValue:
        self._map()
        if value is None:
            raise self.refusal("None cannot be added to a ListState")
        try:
            return self._check(value)
        except ValueError as error:
            raise self.refusal(error) from None


class FoldingState(HeapState):
    """A state that folds each value into what is stored."""

    def __init__(self, table: StateTable, context: KeyContext, stored_type: TypeInformation) -> None:
        super().__init__(table, context)
        self._check: Callable[[StateValue], StateValue] = stored_type.check
        self._isolates: bool = not rebuilds(stored_type)
        self._recheck: Callable[[StateValue, StateValue], StateValue] | None = rechecker(stored_type)
        self._takes_all: bool = _takes_all(stored_type)
        self._fold: Callable[[Stored, StateValue], Stored] = self._folded

    def add(self, value: StateValue) -> None:
        state_map = self._map()
        if value is None:
            self.clear()
        else:
            state_map.transform(self._entry_key(), self._taken(value), self._fold)

    def add_in(self, namespace: Hashable, value: StateValue) -> bool:
        context = self._context
        value = self._taken(value)
        return self._maps[context.map_index].transform((context.key, namespace), value, self._fold)

    def _taken(self, value: StateValue) -> StateValue:
        """Return a value that is added in the form in which it is folded."""
        return value

    def _folded(self, stored: Stored, value: StateValue) -> Stored:
        """Return what is to be stored after ``value`` is added."""
        raise NotImplementedError

    def _kept(self, made: Stored, stored: Stored, what: str) -> Stored:
        """Return what a function has made of ``stored`` in the form that is stored."""
        if not self._takes_all:
            try:
                recheck = self._recheck
                made = self._check(made) if recheck is None else recheck(made, stored)
            except ValueError as error:
                raise self.refusal(f"{what}: {error}") from None
        return isolated_from(made, stored) if self._isolates else made

    def _merged(self, stored: Stored, other: Stored) -> Stored:
        """Return what is to be stored for two stored values, of which the first may be None."""
        raise NotImplementedError

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Merge what is stored in ``sources``, in order, into ``target``, and remove it."""
        state_map, target_key = self._map(), self._entry_key_in(target)
        merged = None
        for source_key in [self._entry_key_in(source) for source in sources]:
            stored = state_map.remove_and_get_old(source_key)
            if stored is not None:
                merged = self._merged(merged, stored)
        if merged is not None:
            state_map.transform(target_key, merged, self._merged)


class HeapReducingState(FoldingState):
    """See :class:`~pyflinkstate.api.state.ReducingState`."""

    def __init__(self, table: StateTable, context: KeyContext, descriptor: ReducingStateDescriptor) -> None:
        super().__init__(table, context, descriptor.type_info)
        self._reduce: Callable[[StateValue, StateValue], StateValue] = descriptor.reduce_function.reduce

    def get(self) -> StateValue:
        return self.get_internal()

    def _taken(self, value: StateValue) -> StateValue:
        if self._takes_all:
            return value
        try:
            return self._check(value)
        except ValueError as error:
            raise self.refusal(error) from None

    def _merged(self, stored: Stored, other: Stored) -> Stored:
        return other if stored is None else self._folded(stored, other)

    def _folded(self, stored: Stored, value: StateValue) -> Stored:
        if stored is None:
            return isolated(value) if self._isolates else value
        reduced = self._reduce(stored, value)
        if reduced is None:
            raise self.refusal("the reduce function returned None, which is not a value")
        return self._kept(reduced, stored, "the reduce function's result")


class HeapAggregatingState(FoldingState):
    """See :class:`~pyflinkstate.api.state.AggregatingState`."""

    def __init__(
        self, table: StateTable, context: KeyContext, descriptor: AggregatingStateDescriptor
    ) -> None:
        super().__init__(table, context, descriptor.state_type_info)
        self._function: AggregateFunction = descriptor.agg_function

    def get(self) -> StateValue:
        accumulator = self.get_internal()
        return None if accumulator is None else self._function.get_result(accumulator)

    def result_in(self, namespace: Hashable) -> StateValue:
        context = self._context
        accumulator = self._maps[context.map_index].get((context.key, namespace))
        return None if accumulator is None else self._function.get_result(accumulator)

    def _folded(self, stored: Stored, value: StateValue) -> Stored:
        current = self._function.create_accumulator() if stored is None else stored
        return self._checked(self._function.add(value, current), stored)

    def _merged(self, stored: Stored, other: Stored) -> Stored:
        return other if stored is None else self._checked(self._function.merge(stored, other), stored)

    def _checked(self, accumulator: Stored, stored: Stored) -> Stored:
        if accumulator is None:
            raise self.refusal(
                "the aggregate function returned None; add() and merge() must return the accumulator"
            )
        return self._kept(accumulator, stored, "the accumulator")


for _interface, _view in (
    (ValueState, HeapValueState),
    (ListState, HeapListState),
    (MapState, HeapMapState),
    (ReducingState, HeapReducingState),
    (AggregatingState, HeapAggregatingState),
):
    _interface.register(_view)

HEAP_STATES: dict[StateKind, Callable[[Any, KeyContext, Any], object]] = {
    StateKind.VALUE: HeapValueState,
    StateKind.LIST: HeapListState,
    StateKind.MAP: HeapMapState,
    StateKind.REDUCING: HeapReducingState,
    StateKind.AGGREGATING: HeapAggregatingState,
}
