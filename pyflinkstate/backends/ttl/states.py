"""The five states with time to live; each wraps a backend's state, whose values have timestamps.

Writing refreshes the timestamp of a value and, if so configured, so does reading. Each element of a list and
each value of a map has its own. None is handled as in Flink: ``ReducingState.add(None)`` keeps the value and
refreshes it, ``MapState.put_all(None)`` does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator

from pyflinkstate.api.functions import AggregateFunction
from pyflinkstate.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from pyflinkstate.api.types import safe_repr
from pyflinkstate.api.values import AnyState, StateValue, Stored
from pyflinkstate.backends.ttl.access import TtlRules
from pyflinkstate.backends.types import TtlValue
from pyflinkstate.backends.values import ListIterator
from pyflinkstate.errors import NoCurrentKeyError


class TtlState:
    """What the five have in common: the inner state, the rules, and the clean-up at each access."""

    def __init__(self, inner: AnyState, rules: TtlRules, on_access: Callable[[], None]) -> None:
        self._inner = inner
        self._rules = rules
        self._on_access = on_access

    def set_current_namespace(self, namespace: Hashable) -> None:
        """Bind the state to ``namespace``."""
        self._inner.set_current_namespace(namespace)

    def clear(self) -> None:
        self._on_access()
        self._inner.clear()

    def get_internal(self) -> Stored:
        """Return the stored value with its timestamps."""
        return self._inner.get_internal()

    def update_internal(self, stored: Stored) -> None:
        """Store a value with its timestamps."""
        self._inner.update_internal(stored)

    def _read_single(self) -> StateValue:
        """Return the user's value if there is one that the rules allow to be seen."""
        self._on_access()
        stored = self._inner.get_internal()
        if stored is None:
            return None
        if self._rules.is_expired(stored):
            self._inner.clear()
            return stored[1] if self._rules.returns_expired else None
        if self._rules.refreshes_on_read:
            self._inner.update_internal(self._rules.stamped(stored[1]))
        return stored[1]


class TtlMergingState(TtlState):
    """A state whose namespaces can be merged."""

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Merge as the backend's state does.

        A value that has expired is left out. Elements of lists that have expired are moved too, and readers
        skip them, as in Flink.
        """
        self._inner.merge_namespaces(target, sources)


class TtlValueState(TtlState, ValueState):
    """A value state that expires. A default value is ignored, as in Flink."""

    def value(self) -> StateValue:
        return self._read_single()

    def update(self, value: StateValue) -> None:
        self._on_access()
        if value is None:
            self._inner.clear()
        else:
            self._inner.update(self._rules.stamped(value))


class TtlReducingState(TtlMergingState, ReducingState):
    """A reducing state that expires as a whole; each ``add`` refreshes it."""

    def get(self) -> StateValue:
        return self._read_single()

    def add(self, value: StateValue) -> None:
        self._on_access()
        if value is not None or self._inner.get_internal() is not None:
            self._inner.add(self._rules.stamped(value))


class TtlAggregatingState(TtlMergingState, AggregatingState):
    """An aggregating state that expires as a whole; each ``add`` refreshes it."""

    def __init__(
        self, inner: AnyState, rules: TtlRules, on_access: Callable[[], None], function: AggregateFunction
    ) -> None:
        super().__init__(inner, rules, on_access)
        self._function = function

    def get(self) -> StateValue:
        accumulator = self._read_single()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: StateValue) -> None:
        self._on_access()
        self._inner.add(value)


class TtlListState(TtlMergingState, ListState):
    """A list state whose elements expire one by one."""

    def get(self) -> Iterable[StateValue]:
        self._on_access()
        elements = self._inner.get_internal()
        if elements is None:
            return ()
        if self._rules.refreshes_on_read:
            elements = self._refreshed(elements)
        return TtlListView(self._inner, elements, self._rules)

    def add(self, value: StateValue) -> None:
        self._on_access()
        self._inner.add(self._stamped(value))

    def add_all(self, values: list[StateValue]) -> None:
        self._on_access()
        self._inner.add_all(self._all_stamped(values, "added to"))

    def update(self, values: list[StateValue]) -> None:
        self._on_access()
        self._inner.update(self._all_stamped(values, "put into"))

    def _refreshed(self, elements: list[TtlValue]) -> list[TtlValue]:
        """Store the unexpired elements with a new timestamp; return them and, unchanged, the expired ones."""
        rules = self._rules
        refreshed = [item if rules.is_expired(item) else rules.stamped(item[1]) for item in elements]
        kept = [item for item, before in zip(refreshed, elements, strict=True) if item is not before]
        if not kept:
            return elements
        self._inner.update_internal(kept)
        return refreshed

    def _stamped(self, value: StateValue) -> TtlValue:
        if value is None:
            raise self._inner.refusal("None cannot be added to a ListState")
        return self._rules.stamped(value)

    def _all_stamped(self, values: StateValue, verb: str) -> list[TtlValue]:
        if values is None or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise self._inner.refusal(
                f"only a list of values can be {verb} a ListState, not {safe_repr(values)}"
            )
        return [self._stamped(value) for value in values]


class TtlListView:
    """The elements of a list, without those that have expired when iteration reaches them. Fail-fast.

    Expired elements stay stored until the list is written or cleaned up. The list is removed only when an
    iteration has reached its end and all elements had expired.
    """

    def __init__(self, inner: AnyState, elements: list[TtlValue], rules: TtlRules) -> None:
        self._inner = inner
        self._elements = elements
        self._rules = rules

    def __iter__(self) -> Iterator[StateValue]:
        all_expired = True
        for element in ListIterator(self._elements, self._inner.name):
            expired = self._rules.is_expired(element)
            all_expired = all_expired and expired
            if not expired or self._rules.returns_expired:
                yield element[1]
        # Only the list that was iterated over: by now the state may be bound to another key, or to none.
        if all_expired:
            with contextlib.suppress(NoCurrentKeyError):
                if self._inner.get_internal() is self._elements:
                    self._inner.clear()


class TtlMapState(TtlState, MapState):
    """A map state whose entries expire one by one. ``is_empty`` counts stored entries, expired or not."""

    def get(self, key: StateValue) -> StateValue:
        found = self._found(key)
        return None if found is None else found[1]

    def put(self, key: StateValue, value: StateValue) -> None:
        self._on_access()
        self._inner.put(key, self._rules.stamped(value))

    def put_all(self, dict_value: dict[StateValue, StateValue]) -> None:
        self._on_access()
        if dict_value is None:
            return
        if isinstance(dict_value, dict):
            dict_value = {key: self._rules.stamped(value) for key, value in dict_value.items()}
        self._inner.put_all(dict_value)

    def remove(self, key: StateValue) -> None:
        self._on_access()
        self._inner.remove(key)

    def contains(self, key: StateValue) -> bool:
        return self._found(key) is not None

    def items(self) -> Iterable[tuple[StateValue, StateValue]]:
        return self._view(lambda key, value: (key, value))

    def keys(self) -> Iterable[StateValue]:
        return self._view(lambda key, _: key)

    def values(self) -> Iterable[StateValue]:
        return self._view(lambda _, value: value)

    def is_empty(self) -> bool:
        self._on_access()
        return bool(self._inner.is_empty())

    def _view(self, part: Callable[[StateValue, StateValue], StateValue]) -> TtlMapView:
        self._on_access()
        return TtlMapView(self._inner.items(), self._rules, part)

    def _found(self, key: StateValue) -> TtlValue | None:
        self._on_access()
        stored: TtlValue | None = self._inner.get(key)
        if stored is None:
            return None
        if self._rules.is_expired(stored):
            self._inner.remove(key)
            return stored if self._rules.returns_expired else None
        if self._rules.refreshes_on_read:
            self._inner.put_internal(key, self._rules.stamped(stored[1]))
        return stored


class TtlMapView:
    """The entries, keys or values of a map state with time to live."""

    def __init__(
        self, pairs: StateValue, rules: TtlRules, part: Callable[[StateValue, StateValue], StateValue]
    ) -> None:
        self._pairs = pairs
        self._rules = rules
        self._part = part

    def __iter__(self) -> TtlMapIterator:
        return TtlMapIterator(iter(self._pairs), self._rules, self._part)


class TtlMapIterator:
    """Skips and removes entries that have expired; refreshes the others if reading prolongs life."""

    def __init__(
        self, pairs: StateValue, rules: TtlRules, part: Callable[[StateValue, StateValue], StateValue]
    ) -> None:
        self._pairs = pairs
        self._rules = rules
        self._part = part

    def __iter__(self) -> TtlMapIterator:
        return self

    def __next__(self) -> StateValue:
        while True:
            key, stored = next(self._pairs)
            if not self._rules.is_expired(stored):
                if self._rules.refreshes_on_read:
                    self._pairs.set_value(self._rules.stamped(stored[1]))
                return self._part(key, stored[1])
            self._pairs.remove()
            if self._rules.returns_expired:
                return self._part(key, stored[1])

    def remove(self) -> None:
        """Remove the entry that was returned last."""
        self._pairs.remove()
