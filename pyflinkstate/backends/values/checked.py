"""The lists and dicts in state: some know which of their elements have been checked.

Theory of operation
===================

A state checks every value that it is given, so that a value that does not fit is an error there and not in a
checkpoint, minutes later. An accumulator is given back at every ``add``: the state's own list, one element
longer. Checking all of it each time would make ``n`` additions cost ``n * n``.

So a long list or dict of a declared type is stored as one of these classes once all of it has been checked.
It records what is put into it, and the next check looks at nothing else. A checked element stays valid if it
cannot change in place, like numbers, texts and tuples of them. Other elements may be changed by whoever gets
them. So a :class:`WatchedList` or :class:`WatchedDict` also records which elements it has handed out, and
these are checked once more, each by its own record if it has one. Iteration hands out all of them.

A list or dict knows the check that made it, which belongs to one place in the type of one state. If it is put
anywhere else, that place checks all of it, and gets an object of its own.

C functions such as those of ``heapq`` change a list without calling its methods, and ``*=`` records nothing
either. So the whole list is checked if its length differs from the recorded one, and if nothing was recorded
at all. A bad element that is put in without the methods, while methods are used too and the length stays the
same, is found by the next snapshot.
A short list is always checked as a whole, which costs less than recording, unless its elements may be long
lists or dicts themselves.

A copy or a pickle of such a list is a plain list, and that of such a dict a plain dict.
So is that of a :class:`StateList`, the live list that a list state hands out.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Sequence, ValuesView
from typing import Any, SupportsIndex

from pyflinkstate.api import Reduced, StateValue
from pyflinkstate.backends.values.list_iterator import ListIterator

#: Shorter lists and dicts are checked as a whole.
NOTED_FROM = 64


class CheckedList(list[StateValue]):
    """A list whose elements have been checked, except those that were recorded since."""

    __slots__ = ("_begin", "_is_used", "_replaced", "_size", "checked_by", "stands_for")

    def __init__(
        self,
        elements: Iterable[StateValue] = (),
        checked_by: object = None,
        stands_for: list[StateValue] | None = None,
    ) -> None:
        super().__init__(elements)
        #: The check that made this list.
        self.checked_by = checked_by
        #: The state's list of which this one was made, until the state has this one.
        self.stands_for = stands_for
        self.note_checked()

    def note_checked(self) -> None:
        """Mark all elements as checked."""
        #: Before this position only the recorded positions are unchecked; from here on all are.
        self._begin = self._size = len(self)
        self._replaced: set[int] = set()
        #: Whether a method has changed anything since the last check.
        self._is_used = False

    def unchecked(self) -> list[int]:
        """Return the positions of the elements to be checked, each once."""
        if self._size != len(self) or not self._is_used:  # the list may have been changed without its methods
            return list(range(len(self)))
        return [*(at for at in self._replaced if at < self._begin), *range(self._begin, len(self))]

    def replace_checked(self, position: int, element: StateValue) -> None:
        """Replace an element by the result of its check."""
        list.__setitem__(self, position, element)

    def take_given(self) -> dict[int, StateValue]:
        """Return, by their ids, the checked elements that were handed out, and forget them."""
        return {}

    def _note_growth(self, count: int) -> None:
        self._size += count
        self._is_used = True

    def append(self, element: StateValue) -> None:
        super().append(element)
        self._note_growth(1)

    def extend(self, elements: Iterable[StateValue]) -> None:
        before = len(self)
        super().extend(elements)
        self._note_growth(len(self) - before)

    def __iadd__(self, elements: Iterable[StateValue]) -> CheckedList:  # type: ignore[misc]
        self.extend(elements)
        return self

    def insert(self, index: SupportsIndex, element: StateValue) -> None:
        position = range(len(self))[slice(index, None)].start
        super().insert(index, element)
        self._note_growth(1)
        self._begin = min(self._begin, position)

    def __setitem__(self, index: Any, element: StateValue) -> None:
        before = len(self)
        super().__setitem__(index, element)
        self._note_growth(len(self) - before)
        if isinstance(index, slice):
            self._begin = 0
        else:
            self._replaced.add(range(before)[index])

    def __delitem__(self, index: Any) -> None:
        positions = range(len(self))
        super().__delitem__(index)
        gone = positions[index]
        self._note_gone([gone] if isinstance(gone, int) else gone)

    def _note_gone(self, positions: Sequence[int]) -> None:
        self._note_growth(-len(positions))
        if len(positions) == 1 and positions[0] == len(self):  # the last element: no position has changed
            self._replaced.discard(positions[0])
            self._begin = min(self._begin, len(self))
        elif self._replaced and (len(positions) > 1 or len(self._replaced) > NOTED_FROM):
            self._begin = 0
            self._replaced.clear()
        else:
            for gone in positions if self._replaced else ():
                self._replaced = {at - (at > gone) for at in self._replaced if at != gone}
            self._begin -= sum(position < self._begin for position in positions)

    def pop(self, index: SupportsIndex = -1) -> StateValue:
        positions = range(len(self))
        element = super().pop(index)
        self._note_gone([positions[index]])
        return element

    def remove(self, element: StateValue) -> None:
        del self[self.index(element)]

    def clear(self) -> None:
        del self[:]

    def sort(self, **options: Any) -> None:
        try:
            super().sort(**options)
        finally:
            self._note_moved()

    def reverse(self) -> None:
        super().reverse()
        self._note_moved()

    def _note_moved(self) -> None:
        """Record that elements have moved: unless all were checked, none counts as checked any more."""
        self._is_used = True
        if self._replaced or self._begin != len(self):
            self._begin = 0

    def __reduce_ex__(self, protocol: SupportsIndex) -> Reduced:
        return list, (list.copy(self),)


class WatchedList(CheckedList):
    """A checked list of elements that can change in place: those that it hands out are unchecked again.

    Whoever gets all elements at once is as slow as their check, so then none counts as checked any more.
    """

    __slots__ = ("_given",)

    def note_checked(self) -> None:
        super().note_checked()
        #: The checked elements that were handed out, by their ids.
        self._given: dict[int, StateValue] = {}

    def take_given(self) -> dict[int, StateValue]:
        given, self._given = self._given, {}
        return given

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, slice):
            self._give_all()
        else:
            self._give(range(len(self))[index], found)
        return found

    def _give(self, position: int, element: StateValue) -> None:
        self._is_used = True
        if position < self._begin and position not in self._replaced:
            self._given[id(element)] = element
            self._replaced.add(position)

    def _give_all(self) -> None:
        for position, element in zip(range(self._begin), list.__iter__(self), strict=False):
            self._give(position, element)
        self._begin = 0
        self._replaced.clear()

    def __iter__(self) -> Iterator[StateValue]:
        self._give_all()
        return super().__iter__()

    def __reversed__(self) -> Iterator[StateValue]:
        self._give_all()
        return super().__reversed__()

    def copy(self) -> list[StateValue]:
        self._give_all()
        return list.copy(self)

    def sort(self, **options: object) -> None:
        self._give_all()
        super().sort(**options)

    def __add__(self, other: list[Any]) -> list[object]:
        return self.copy() + other

    def __radd__(self, other: list[StateValue]) -> list[StateValue]:
        return other + self.copy()

    def __mul__(self, count: SupportsIndex) -> list[StateValue]:
        return self.copy() * count

    __rmul__ = __mul__

    def __reduce_ex__(self, protocol: SupportsIndex) -> Reduced:
        return list, (self.copy(),)


class CheckedDict(dict[StateValue, StateValue]):
    """A dict whose entries have been checked, except those whose keys were recorded since."""

    __slots__ = ("_noted", "checked_by", "stands_for")

    def __init__(
        self,
        entries: dict[StateValue, StateValue] | Iterable[tuple[StateValue, StateValue]] = (),
        checked_by: object = None,
        stands_for: dict[StateValue, StateValue] | None = None,
    ) -> None:
        super().__init__(entries)
        #: The check that made this dict.
        self.checked_by = checked_by
        #: The state's dict of which this one was made, until the state has this one.
        self.stands_for = stands_for
        self.note_checked()

    def note_checked(self) -> None:
        """Mark all entries as checked."""
        self._noted: set[StateValue] = set()

    def unchecked(self) -> dict[StateValue, StateValue]:
        """Return the entries to be checked."""
        return {key: dict.__getitem__(self, key) for key in self._noted if key in self}

    def given(self) -> dict[StateValue, StateValue]:
        """Return the checked entries whose values were handed out."""
        return {}

    def replace_checked(self, key: StateValue, item: StateValue) -> None:
        """Replace an item by the result of its check."""
        dict.__setitem__(self, key, item)

    def __setitem__(self, key: StateValue, item: StateValue) -> None:
        super().__setitem__(key, item)
        self._noted.add(key)

    def setdefault(self, key: StateValue, default: StateValue = None) -> StateValue:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: StateValue, **items: StateValue) -> None:
        added = dict(*others, **items)
        super().update(added)
        self._noted.update(added)

    def __ior__(self, other: StateValue) -> CheckedDict:  # type: ignore[misc]
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Reduced:
        return dict, (dict(self),)


_MISSING = object()


class WatchedDict(CheckedDict):
    """A checked dict of values that can change in place: those that it hands out are unchecked again."""

    __slots__ = ("_given",)

    def note_checked(self) -> None:
        super().note_checked()
        #: The checked entries whose values were handed out.
        self._given: dict[StateValue, StateValue] = {}

    def given(self) -> dict[StateValue, StateValue]:
        return {
            key: item
            for key, item in self._given.items()
            if key not in self._noted and dict.get(self, key, _MISSING) is item
        }

    def _give(self, key: StateValue, item: StateValue) -> None:
        if key not in self._noted:
            self._given[key] = item

    def _give_all(self) -> None:
        for key, item in dict.items(self):
            self._give(key, item)

    def __getitem__(self, key: StateValue) -> StateValue:
        item = super().__getitem__(key)
        self._give(key, item)
        return item

    def get(self, key: StateValue, default: StateValue = None) -> StateValue:
        if key not in self:
            return default
        return self[key]

    def __setitem__(self, key: StateValue, item: StateValue) -> None:
        if self._given.get(key, _MISSING) is item and dict.get(self, key, _MISSING) is item:
            return  # it was read, changed and is put back, and it will be checked
        super().__setitem__(key, item)

    def __iter__(self) -> Iterator[StateValue]:
        # Without this method of its own, dict(mine) and others would read the values past all methods.
        return super().__iter__()

    def values(self) -> ValuesView[StateValue]:  # type: ignore[override]
        self._give_all()
        return super().values()

    def items(self) -> ItemsView[StateValue, StateValue]:  # type: ignore[override]
        self._give_all()
        return super().items()

    def copy(self) -> dict[StateValue, StateValue]:
        return dict(self.items())

    def __reduce_ex__(self, protocol: SupportsIndex) -> Reduced:
        return dict, (self.copy(),)


class StateList(list[StateValue]):
    """The live list of the state called ``name``. A copy or a pickle of it is a plain list."""

    __slots__ = ("name",)

    def __init__(self, elements: list[StateValue], name: str) -> None:
        super().__init__(elements)
        self.name = name

    def __iter__(self) -> ListIterator:
        return ListIterator(self, self.name)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Reduced:
        return list, (list.copy(self),)
