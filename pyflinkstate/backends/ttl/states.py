"""The five states with time to live; each wraps a backend's state, whose values have timestamps.

Writing refreshes the timestamp of a value and, if so configured, so does reading. Each element of a list and
each value of a map has its own. None is handled as in Flink: ``ReducingState.add(None)`` keeps the value and
refreshes it, ``MapState.put_all(None)`` does nothing.

They are registered as subclasses of the API's classes below. They do not inherit from them, which would make
compiled code slow. An access and its clean-up use the same time. The functions of reducing and aggregating
states, and iterators, for each element, read the clock once more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

from pyflinkstate.api import (
    AggregateFunction,
    AggregatingState,
    AnyState,
    ListState,
    MapState,
    Reduced,
    ReducingState,
    StateValue,
    Stored,
    TypeInformation,
    ValueState,
    integer_bounds,
)
from pyflinkstate.backends.bound_state import BoundState
from pyflinkstate.backends.ttl.rules import UNKNOWN, TtlIncrementalCleanup, TtlRules
from pyflinkstate.backends.types import value_copier
from pyflinkstate.backends.values.list_iterator import ListIterator
from pyflinkstate.errors import NoCurrentKeyError

#: A timestamp and the user's value. The length is left open: mypyc would take pairs apart and rebuild them.
_Stamped = tuple[Any, ...]

_PAIRS: Final = 0
_KEYS: Final = 1
_VALUES: Final = 2


class TtlState:
    """What the five have in common: the inner state, the rules, and the clean-up at each access."""

    def __init__(self, inner: AnyState, rules: TtlRules, cleanup: TtlIncrementalCleanup | None) -> None:
        self._inner = inner
        #: The same, for native calls.
        self._bound: BoundState = inner
        self._rules = rules
        self._cleanup = cleanup

    def set_current_namespace(self, namespace: Hashable) -> None:
        """Bind the state to ``namespace``."""
        self._inner.set_current_namespace(namespace)

    def clear(self) -> None:
        self._begin_access()
        self._inner.clear()

    def get_internal(self) -> Stored:
        """Return the stored value with its timestamps."""
        return self._bound.get_internal()

    def update_internal(self, stored: Stored) -> None:
        """Store a value with its timestamps."""
        self._rules.earliest = UNKNOWN
        self._bound.update_internal(stored)

    def _begin_access(self) -> int:
        """Read the clock, clean up, and return the time."""
        now = self._rules.now()
        if self._cleanup is not None:
            self._cleanup.run(now)
        return now

    def _read_single(self) -> StateValue:
        """Return the user's value if there is one that the rules allow to be seen."""
        rules = self._rules
        now = self._begin_access()
        found: _Stamped | None = self._bound.get_internal()
        if found is None:
            return None
        if found[0] <= now - rules.ttl_ms:
            self._inner.clear()
            return found[1] if rules.returns_expired else None
        if rules.refreshes_on_read:
            self._bound.update_internal((now, found[1]))
        return found[1]


class TtlMergingState(TtlState):
    """A state whose namespaces can be merged."""

    def merge_namespaces(self, target: Hashable, sources: Iterable[Hashable]) -> None:
        """Merge as the backend's state does, without values and accumulators that have expired.

        Elements of lists that have expired are moved too, and readers skip them, as in Flink.
        """
        self._rules.earliest = UNKNOWN  # the clean-up may have passed the target, and not yet the sources
        self._inner.merge_namespaces(target, sources)


class TtlValueState(TtlState):
    """A value state that expires. A default value is ignored, as in Flink."""

    def __init__(
        self,
        inner: object,
        rules: TtlRules,
        cleanup: TtlIncrementalCleanup | None,
        value_type: TypeInformation,
    ) -> None:
        super().__init__(inner, rules, cleanup)
        # An int within these bounds needs no further check. This is the most frequent case, so it is inlined.
        bounds = integer_bounds(value_type)
        self._low: int = bounds[0]
        self._high: int = bounds[1]
        #: Checks values that cannot change in place; the backend's state checks the others, and copies them.
        self._check: Callable[[StateValue], StateValue] | None = None
        if value_copier(value_type) is None:
            self._check = value_type.check

    def value(self) -> StateValue:
        return self._read_single()

    def update(self, value: StateValue) -> None:
        now = self._begin_access()
        if type(value) is int:
            number: int = value
            if number < self._low or number > self._high:
                self._inner.update((now, value))
            else:
                self._bound.update_internal((now, value))
        elif value is None:
            self._inner.clear()
        else:
            self._update_checked(now, value)

    def _update_checked(self, now: int, value: StateValue) -> None:
        if self._check is None:
            self._inner.update((now, value))
            return
        try:
            checked = self._check(value)
        except ValueError as error:
            self._inner.get_internal()  # a missing key is reported before a wrong value
            raise self._inner.refusal(error) from None
        self._bound.update_internal((now, checked))


class TtlReducingState(TtlMergingState):
    """A reducing state that expires as a whole; each ``add`` refreshes it."""

    def get(self) -> StateValue:
        return self._read_single()

    def add(self, value: StateValue) -> None:
        now = self._begin_access()
        if value is not None or self._inner.get_internal() is not None:
            self._inner.add((now, value))


class TtlAggregatingState(TtlMergingState):
    """An aggregating state that expires as a whole; each ``add`` refreshes it."""

    def __init__(
        self,
        inner: object,
        rules: TtlRules,
        cleanup: TtlIncrementalCleanup | None,
        function: AggregateFunction,
    ) -> None:
        super().__init__(inner, rules, cleanup)
        self._function = function

    def get(self) -> StateValue:
        accumulator = self._read_single()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: StateValue) -> None:
        self._begin_access()
        self._inner.add(value)


class TtlListState(TtlMergingState):
    """A list state whose elements expire one by one."""

    def get(self) -> Iterable[StateValue]:
        now = self._begin_access()
        elements: list[object] | None = self._inner.get_internal()
        if elements is None:
            return ()
        if self._rules.refreshes_on_read:
            elements = self._refreshed(elements, now)
        return TtlListView(self._inner, elements, self._rules)

    def __iter__(self) -> Iterator[StateValue]:
        return iter(self.get())

    def add(self, value: StateValue) -> None:
        now = self._begin_access()
        self._inner.add(_stamped(value, now))

    def add_all(self, values: StateValue) -> None:
        now = self._begin_access()
        self._inner.add_all(_all_stamped(values, now))

    def update(self, values: StateValue) -> None:
        now = self._begin_access()
        self._inner.update(_all_stamped(values, now))

    def _refreshed(self, elements: list[Any], now: int) -> list[Any]:
        """Store the unexpired elements with a new timestamp, and return what a reader may see."""
        expired_until = now - self._rules.ttl_ms
        kept = [(now, element[1]) for element in elements if element[0] > expired_until]
        if not kept:
            return elements
        self._inner.update_internal(kept)
        if len(kept) == len(elements) or not self._rules.returns_expired:
            return kept
        rest = iter(kept)
        return [element if element[0] <= expired_until else next(rest) for element in elements]


def _stamped(value: StateValue, now: int) -> _Stamped | None:
    """Return a value with its timestamp; None stays None, which the backend's state refuses."""
    return None if value is None else (now, value)


def _all_stamped(values: StateValue, now: int) -> StateValue:
    """Return values with timestamps; the backend's state refuses what is not a list of values."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        return values
    return [_stamped(value, now) for value in values]


class TtlListView:
    """The elements of a list, without those that have expired when iteration reaches them. Fail-fast.

    Expired elements stay stored until the list is written or cleaned up. The list is removed only when an
    iteration has reached its end and all elements had expired.
    """

    def __init__(self, inner: AnyState, elements: list[Any], rules: TtlRules) -> None:
        self._inner = inner
        self._elements = elements
        self._rules = rules

    def __iter__(self) -> Iterator[StateValue]:
        rules = self._rules
        all_expired = True
        for element in ListIterator(self._elements, self._inner.name):
            is_expired = element[0] <= rules.now() - rules.ttl_ms
            all_expired = all_expired and is_expired
            if not is_expired or rules.returns_expired:
                yield element[1]
        if all_expired:
            self._clear()

    def __reduce__(self) -> Reduced:
        """A copy or a pickle is a plain list."""
        return list, (list(self),)

    def _clear(self) -> None:
        """Remove only the list that was iterated over: the state may be bound to another key, or to none."""
        try:
            if self._inner.get_internal() is self._elements:
                self._inner.clear()
        except NoCurrentKeyError:
            return


class TtlMapState(TtlState):
    """A map state whose entries expire one by one. ``is_empty`` counts stored entries, expired or not."""

    def get(self, key: StateValue) -> StateValue:
        found = self._found(key)
        return None if found is None else found[1]

    def put(self, key: StateValue, value: StateValue) -> None:
        now = self._begin_access()
        self._inner.put(key, (now, value))

    def put_all(self, dict_value: StateValue) -> None:
        now = self._begin_access()
        if dict_value is None:
            return
        if isinstance(dict_value, dict):
            dict_value = {key: (now, value) for key, value in dict_value.items()}
        self._inner.put_all(dict_value)

    def remove(self, key: StateValue) -> None:
        self._begin_access()
        self._inner.remove(key)

    def contains(self, key: StateValue) -> bool:
        return self._found(key) is not None

    def items(self) -> TtlMapView:
        return self._view(_PAIRS)

    def keys(self) -> TtlMapView:
        return self._view(_KEYS)

    def values(self) -> TtlMapView:
        return self._view(_VALUES)

    def is_empty(self) -> bool:
        self._begin_access()
        return bool(self._inner.is_empty())

    # The same as in HeapMapState: mypyc gives a class no special methods of a trait.

    def __getitem__(self, key: StateValue) -> StateValue:
        return self.get(key)

    def __setitem__(self, key: StateValue, value: StateValue) -> None:
        self.put(key, value)

    def __delitem__(self, key: StateValue) -> None:
        self.remove(key)

    def __contains__(self, key: StateValue) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[StateValue]:
        return iter(self.keys())

    def _view(self, part: int) -> TtlMapView:
        self._begin_access()
        return TtlMapView(self._inner.items(), self._rules, part)

    def _found(self, key: StateValue) -> _Stamped | None:
        rules = self._rules
        now = self._begin_access()
        stored: _Stamped | None = self._inner.get(key)
        if stored is None:
            return None
        if stored[0] <= now - rules.ttl_ms:
            self._inner.remove(key)
            return stored if rules.returns_expired else None
        if rules.refreshes_on_read:
            self._inner.put_internal(key, (now, stored[1]))
        return stored


class TtlMapView:
    """The entries, keys or values of a map state with time to live."""

    def __init__(self, pairs: Any, rules: TtlRules, part: int) -> None:
        self._pairs = pairs
        self._rules = rules
        self._part = part

    def __iter__(self) -> TtlMapIterator:
        return TtlMapIterator(iter(self._pairs), self._rules, self._part)

    def __reduce__(self) -> Reduced:
        """A copy or a pickle is a plain list."""
        return list, (list(self),)


class TtlMapIterator:
    """Skips and removes entries that have expired; refreshes the others if reading prolongs life."""

    def __init__(self, pairs: Any, rules: TtlRules, part: int) -> None:
        self._pairs = pairs
        self._rules = rules
        self._part = part

    def __iter__(self) -> TtlMapIterator:
        return self

    def __next__(self) -> StateValue:
        rules = self._rules
        while True:
            key, stored = next(self._pairs)
            now = rules.now()
            if stored[0] > now - rules.ttl_ms:
                if rules.refreshes_on_read:
                    self._pairs.set_value((now, stored[1]))
                return self._part_of(key, stored)
            self._pairs.remove()
            if rules.returns_expired:
                return self._part_of(key, stored)

    def remove(self) -> None:
        """Remove the entry that was returned last."""
        self._pairs.remove()

    def _part_of(self, key: StateValue, stored: _Stamped) -> StateValue:
        if self._part == _KEYS:
            return key
        return stored[1] if self._part == _VALUES else (key, stored[1])


for _interface, _view in (
    (ValueState, TtlValueState),
    (ListState, TtlListState),
    (MapState, TtlMapState),
    (ReducingState, TtlReducingState),
    (AggregatingState, TtlAggregatingState),
):
    _interface.register(_view)
