"""The states that the operator state backend provides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pyflinkstate.api import BroadcastState, ListState, ListTypeInfo, MapTypeInfo, StateValue, safe_repr
from pyflinkstate.backends.types import (
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    may_hold_nan,
    rebuilds,
    rechecker,
    unchanged,
    value_copier,
)
from pyflinkstate.backends.values import (
    StateList,
    changed_meanwhile,
    isolated,
    isolated_elements,
    isolated_from,
    refuse_nan,
)
from pyflinkstate.errors import StateValueError


class _Elements(StateList):
    """The live list of an operator state, whose iterators also fail once its elements have been replaced."""

    replacements = 0

    def __iter__(self) -> Iterator[StateValue]:  # type: ignore[override]
        size, replacements, given = len(self), self.replacements, 0
        while given != len(self):
            if (size, replacements) != (len(self), self.replacements):
                raise changed_meanwhile(self.name)
            given += 1
            yield self[given - 1]

    def replace(self, elements: list[StateValue]) -> None:
        """Replace the elements, which makes open iterators fail, as ``clear`` and ``addAll`` do in Java."""
        self[:] = elements
        self.replacements += 1


class _Refusing:
    """A state that names itself in errors."""

    meta: RegisteredOperatorStateMeta

    def _refusal(self, reason: object) -> StateValueError:
        return StateValueError(f"operator state {self.meta.name!r}: {reason}", state=self.meta.name)


class PartitionableListState(_Refusing, ListState):
    """A list of one subtask (Flink: ``PartitionableListState``)."""

    def __init__(self, meta: RegisteredOperatorStateMeta) -> None:
        assert isinstance(meta.stored_type, ListTypeInfo)
        self.meta = meta
        self._check = meta.stored_type.element_type.check
        self._isolates = not rebuilds(meta.stored_type.element_type)
        self._copy: Callable[[StateValue], StateValue] = (
            value_copier(meta.stored_type.element_type) or unchanged
        )
        self._elements = _Elements([], meta.name)

    def get(self) -> Iterable[StateValue]:
        return self._elements

    def add(self, value: StateValue) -> None:
        self._elements.append(self._isolated(self._checked(value)))

    def add_all(self, values: list[StateValue]) -> None:
        self._elements.extend([self._isolated(value) for value in self._all_checked(values)])

    def update(self, values: list[StateValue]) -> None:
        checked = self._all_checked(values)
        self._elements.replace(isolated_elements(checked, self._elements) if self._isolates else checked)

    def clear(self) -> None:
        self._elements.replace([])

    def columns(self) -> tuple[list[StateValue], ...]:
        """Return copies of the columns that a snapshot writes."""
        return ([self._copy(element) for element in self._elements],)

    def load(self, columns: tuple[list[StateValue], ...]) -> None:
        """Add restored elements."""
        self._elements.extend(columns[0])

    def _isolated(self, value: StateValue) -> StateValue:
        return isolated(value) if self._isolates else value

    def _all_checked(self, values: StateValue) -> list[StateValue]:
        if values is None or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise self._refusal(f"a ListState takes a list of values, not {safe_repr(values)}")
        return [self._checked(value) for value in values]

    def _checked(self, value: StateValue) -> StateValue:
        if value is None:
            raise self._refusal("None cannot be added to a ListState")
        try:
            return self._check(value)
        except ValueError as error:
            raise self._refusal(error) from None


class HeapBroadcastState(_Refusing, BroadcastState):
    """A map of one subtask (Flink: ``HeapBroadcastState``)."""

    def __init__(self, meta: RegisteredOperatorStateMeta) -> None:
        assert isinstance(meta.stored_type, MapTypeInfo)
        self.meta = meta
        self._check_key = meta.stored_type.key_type_info.check_key
        self._may_hold_nan = may_hold_nan(meta.stored_type.key_type_info)
        self._check_value = meta.stored_type.value_type_info.check
        self._isolates = not rebuilds(meta.stored_type.value_type_info)
        self._recheck = rechecker(meta.stored_type.value_type_info)
        self._copy: Callable[[StateValue], StateValue] = (
            value_copier(meta.stored_type.value_type_info) or unchanged
        )
        self._entries: dict[StateValue, StateValue] = {}

    def get(self, key: StateValue) -> StateValue:
        return self._entries.get(self._checked_key(key))

    def contains(self, key: StateValue) -> bool:
        return self._checked_key(key) in self._entries

    def put(self, key: StateValue, value: StateValue) -> None:
        self.put_all({self._checked_key(key): value})

    def put_all(self, dict_value: dict[StateValue, StateValue]) -> None:
        if not isinstance(dict_value, dict):
            raise self._refusal(f"put_all takes a dict, not {safe_repr(dict_value)}")
        checked = {self._checked_key(key): self._checked(key, value) for key, value in dict_value.items()}
        if self._isolates:
            known = self._entries.get
            checked = {key: isolated_from(value, known(key)) for key, value in checked.items()}
        self._entries.update(checked)

    def remove(self, key: StateValue) -> None:
        self._entries.pop(self._checked_key(key), None)

    def items(self) -> Iterable[tuple[StateValue, StateValue]]:
        return self._entries.items()

    def keys(self) -> Iterable[StateValue]:
        return self._entries.keys()

    def values(self) -> Iterable[StateValue]:
        return self._entries.values()

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    def columns(self) -> tuple[list[StateValue], ...]:
        """Return copies of the columns that a snapshot writes."""
        values = [None if value is None else self._copy(value) for value in self._entries.values()]
        return list(self._entries), values

    def load(self, columns: tuple[list[StateValue], ...]) -> None:
        """Add restored elements."""
        self._entries.update(zip(*columns, strict=True))

    def _checked_key(self, key: StateValue) -> StateValue:
        try:
            checked = self._check_key(key)
            hash(checked)
            if self._may_hold_nan:
                refuse_nan(checked)
            return checked
        except (ValueError, TypeError) as error:
            raise self._refusal(f"key: {error}") from None

    def _checked(self, key: StateValue, value: StateValue) -> StateValue:
        try:
            return None if value is None else self._checked_value(key, value)
        except ValueError as error:
            raise self._refusal(f"entry {safe_repr(key)}: {error}") from None

    def _checked_value(self, key: StateValue, value: StateValue) -> StateValue:
        recheck = self._recheck
        return self._check_value(value) if recheck is None else recheck(value, self._entries.get(key))


HeapOperatorState = PartitionableListState | HeapBroadcastState


def create_operator_state(meta: RegisteredOperatorStateMeta) -> HeapOperatorState:
    """Return a new, empty state."""
    if meta.mode is OperatorStateMode.BROADCAST:
        return HeapBroadcastState(meta)
    return PartitionableListState(meta)
