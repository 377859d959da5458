"""The heap map state, its views and their iterators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Final

from pyflinkstate.api import MapStateDescriptor, Reduced, StateValue, safe_repr
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap
from pyflinkstate.backends.heap.heap_state import HeapState
from pyflinkstate.backends.types import may_hold_nan, rebuilds, rechecker, value_copier
from pyflinkstate.backends.values.isolation import is_immutable, isolated_from
from pyflinkstate.backends.values.nan import refuse_nan
from pyflinkstate.errors import ConcurrentModificationError

if TYPE_CHECKING:
    from pyflinkstate.backends.heap.state_table import StateTable

_PAIRS: Final = 0
_KEYS: Final = 1
_VALUES: Final = 2


class HeapMapState(HeapState):
    """See :class:`~pyflinkstate.api.state.MapState`."""

    def __init__(self, table: StateTable, context: KeyContext, descriptor: MapStateDescriptor) -> None:
        super().__init__(table, context)
        #: For fail-fast iterators: the number of keys added or removed, and the entry key of the last change.
        self._changes = 0
        self._changed: Hashable = None
        self._check_key: Callable[[StateValue], StateValue] = descriptor.key_type_info.check_key
        self._may_hold_nan: bool = may_hold_nan(descriptor.key_type_info)
        self._check_value: Callable[[StateValue], StateValue] = descriptor.value_type_info.check
        self._isolates: bool = not rebuilds(descriptor.value_type_info)
        #: Whether no value can change in place, so that a snapshot may share what reading hands out.
        self.is_plain: bool = value_copier(descriptor.value_type_info) is None
        self._recheck: Callable[[StateValue, StateValue], StateValue] | None = rechecker(
            descriptor.value_type_info
        )

    def clear(self) -> None:
        state_map, entry_key = self._map(), self._entry_key()
        if state_map.contains_key(entry_key):
            self.note_change(entry_key)
            state_map.remove(entry_key)

    def get(self, key: StateValue) -> StateValue:
        entries = self._peeked() if self.is_plain else self._entries()
        return entries.get(self._checked_key(key))

    def put(self, key: StateValue, value: StateValue) -> None:
        self._put_checked([self._checked(key, value)])

    def put_internal(self, key: StateValue, stored: StateValue) -> None:
        """Set the value of an existing key to ``stored``, without a check."""
        self._entries()[self._checked_key(key)] = stored

    def put_all(self, dict_value: StateValue) -> None:
        if not isinstance(dict_value, dict):
            raise self.refusal(f"put_all takes a dict, not {safe_repr(dict_value)}")
        self._map()  # a missing key is reported before a wrong value
        checked = [self._checked(key, value) for key, value in dict_value.items()]
        if checked:
            self._put_checked(checked)

    def remove(self, key: StateValue) -> None:
        peeked, key = self._peeked(), self._checked_key(key)
        if key in peeked:
            entries = self._entries()
            del entries[key]
            self.note_change(self._entry_key())
            if not entries:
                self._map().remove(self._entry_key())

    def contains(self, key: StateValue) -> bool:
        return self._checked_key(key) in self._peeked()

    def items(self) -> MapView:
        return MapView(self, self._map(), self._entry_key(), _PAIRS)

    def keys(self) -> MapView:
        return MapView(self, self._map(), self._entry_key(), _KEYS)

    def values(self) -> MapView:
        return MapView(self, self._map(), self._entry_key(), _VALUES)

    def is_empty(self) -> bool:
        return not self._peeked()

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

    def _entries(self) -> dict[StateValue, StateValue]:
        stored: dict[StateValue, StateValue] | None = self.get_internal()
        return {} if stored is None else stored

    def _peeked(self) -> dict[StateValue, StateValue]:
        """Return the entries to look at alone: a snapshot may share them."""
        stored: dict[StateValue, StateValue] | None = self._map().peek(self._entry_key())
        return {} if stored is None else stored

    def _checked_key(self, key: StateValue) -> StateValue:
        """Return the key in the form that ``put`` stores; a ``FLOAT`` is rounded, for example."""
        try:
            checked = self._check_key(key)
            hash(checked)
            if self._may_hold_nan:
                refuse_nan(checked)
            return checked
        except (ValueError, TypeError) as error:
            raise self.refusal(f"user key: {error}") from None

    def _checked(self, key: StateValue, value: StateValue) -> tuple[StateValue, StateValue]:
        key = self._checked_key(key)
        try:
            return key, None if value is None else self._checked_value(key, value)
        except ValueError as error:
            raise self.refusal(f"entry {safe_repr(key)}: {error}") from None

    def _checked_value(self, key: StateValue, value: StateValue) -> StateValue:
        recheck = self._recheck
        return self._check_value(value) if recheck is None else recheck(value, self._entries().get(key))

    def _put_checked(self, checked: list[tuple[StateValue, StateValue]]) -> None:
        state_map, entry_key = self._map(), self._entry_key()
        stored: dict[StateValue, StateValue] | None = state_map.get(entry_key)
        if self._isolates:
            self._isolate(checked, {} if stored is None else stored)
        if stored is None:
            state_map.put(entry_key, dict(checked))
            self.note_change(entry_key)
            return
        before = len(stored)
        stored.update(checked)
        if len(stored) != before:
            self.note_change(entry_key)

    def _isolate(
        self, checked: list[tuple[StateValue, StateValue]], stored: dict[StateValue, StateValue]
    ) -> None:
        for index, (key, value) in enumerate(checked):
            if not is_immutable(value):
                checked[index] = key, isolated_from(value, stored.get(key))

    def note_change(self, entry_key: Hashable) -> int:
        """Record that a key was added or removed under ``entry_key``."""
        self._changes += 1
        self._changed = entry_key
        return self._changes

    def changes_of(self, entry_key: Hashable, known: int) -> int:
        """Return the count of changes; raise if keys under ``entry_key`` changed since it was ``known``."""
        if self._changes != known and self._changed == entry_key:
            raise _changed_meanwhile()
        return self._changes


class MapView:
    """The entries, keys or values of a map state under the key that was current when the view was made.

    The entries are looked up when iteration begins, so a view never shows an old snapshot.
    """

    def __init__(
        self, state: HeapMapState, state_map: CopyOnWriteStateMap, entry_key: Hashable, part: int
    ) -> None:
        self._state = state
        self._map = state_map
        self._entry_key = entry_key
        self._part = part

    def __iter__(self) -> MapIterator:
        return MapIterator(self._state, self._map, self._entry_key, self._part)

    def __reduce__(self) -> Reduced:
        """A copy or a pickle is a plain list."""
        return list, (list(self),)


class MapIterator:
    """Iterates over a map state; can remove entries, and fails if the keys are changed in another way.

    It walks the live dict until :meth:`remove` is called, and from then on a list of the remaining entries.
    """

    def __init__(
        self, state: HeapMapState, state_map: CopyOnWriteStateMap, entry_key: Hashable, part: int
    ) -> None:
        self._state = state
        self._changes = state._changes
        self._map = state_map
        self._entry_key = entry_key
        self._part = part
        self._is_plain = state.is_plain
        stored = self._stored(self._is_plain)
        self._entries: dict[StateValue, StateValue] = {} if stored is None else stored
        self._rest: Iterator[StateValue] = iter(self._entries)
        #: After a removal: the remaining entries, last first, and how many entries there should be.
        self._left: list[StateValue] | None = None
        self._size = len(self._entries)
        self._key: StateValue = None
        self._removable = False

    def __iter__(self) -> MapIterator:
        return self

    def __next__(self) -> StateValue:
        self._removable = False
        self._follow(self._is_plain)
        key = self._next_key()
        if key not in self._entries:
            raise _changed_meanwhile()
        self._key = key
        self._removable = True
        if self._part == _KEYS:
            return key
        value = self._entries[key]
        return value if self._part == _VALUES else (key, value)

    def remove(self) -> None:
        """Remove the entry that was returned last.

        Raises:
            ConcurrentModificationError: no entry was returned yet, or it was already removed.
        """
        self._check_current()
        self._drain()
        self._removable = False
        if self._entries.pop(self._key, self) is not self:
            self._size -= 1
            self._changes = self._state.note_change(self._entry_key)
            if not self._entries:
                self._map.remove(self._entry_key)

    def set_value(self, value: StateValue) -> None:
        """Set the value of the entry that was returned last, without a check (Java: ``Map.Entry.setValue``).

        Raises:
            ConcurrentModificationError: no entry was returned yet, or it was already removed.
        """
        self._check_current()
        if self._key in self._entries:
            self._entries[self._key] = value

    def _stored(self, peeks: bool) -> dict[StateValue, StateValue] | None:
        stored: dict[StateValue, StateValue] | None
        stored = self._map.peek(self._entry_key) if peeks else self._map.get(self._entry_key)
        return stored

    def _follow(self, peeks: bool) -> None:
        """Switch to the dict that is stored now: a snapshot or a clean-up may have replaced it.

        Args:
            peeks: whether the dict is only read, and may be shared with a snapshot.
        """
        self._changes = self._state.changes_of(self._entry_key, self._changes)
        if len(self._entries) != self._size:
            raise _changed_meanwhile()
        stored = self._stored(peeks)
        if stored is self._entries or (stored is None and not self._entries):
            return
        self._drain()
        self._entries = {} if stored is None else stored
        self._size = len(self._entries)
        left = self._left
        assert left is not None
        self._left = [key for key in left if key in self._entries]

    def _drain(self) -> None:
        if self._left is None:
            self._left = list(self._rest)
            self._left.reverse()

    def _next_key(self) -> StateValue:
        if self._left is None:
            try:
                return next(self._rest)
            except RuntimeError:
                raise _changed_meanwhile() from None
        if not self._left:
            raise StopIteration
        return self._left.pop()

    def _check_current(self) -> None:
        if not self._removable:
            raise ConcurrentModificationError("there is no current entry: call next() first")
        self._follow(peeks=False)


def _changed_meanwhile() -> ConcurrentModificationError:
    return ConcurrentModificationError(
        "a key of the map state was added or removed during iteration; collect the keys first, "
        "or use the iterator's remove()"
    )
