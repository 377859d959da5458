"""Lists and dicts in state that know which of their elements have been checked.

Theory of operation
===================

A state checks every value that it is given, so that a value that does not fit is an error there and not in a
checkpoint, minutes later. An accumulator is given back at every ``add``: the state's own list, one element
longer. Checking all of it each time would make ``n`` additions cost ``n * n``.

So a long list or dict of a declared type is stored as one of these classes once all of it has been checked.
It records what is put into it, and the next check looks at nothing else. This is done only if elements cannot
change in place, like numbers, texts and tuples of them, so that a checked element stays valid.

C functions such as those of ``heapq`` change a list without calling its methods. So the whole list is checked
if its length differs from the recorded one, and if nothing was recorded at all. A bad element that is put in
without the methods, while methods are used too and the length stays the same, is found by the next snapshot.
A short list is always checked as a whole, which costs less than recording.

A copy or a pickle of a :class:`CheckedList` is a plain list, and that of a :class:`CheckedDict` a plain dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

#: Shorter lists and dicts are checked as a whole.
NOTED_FROM = 64


class CheckedList(list[Any]):
    """A list whose elements have been checked, except those that were recorded since."""

    __slots__ = ("_begin", "_is_used", "_replaced", "_size")

    def __init__(self, elements: list[Any]) -> None:
        super().__init__(elements)
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

    def replace_checked(self, position: int, element: Any) -> None:
        """Replace an element by the result of its check."""
        super().__setitem__(position, element)

    def _note_growth(self, count: int) -> None:
        self._size += count
        self._is_used = True

    def append(self, element: Any) -> None:
        super().append(element)
        self._note_growth(1)

    def extend(self, elements: Iterable[Any]) -> None:
        before = len(self)
        super().extend(elements)
        self._note_growth(len(self) - before)

    def __iadd__(self, elements: Iterable[Any]) -> CheckedList:  # type: ignore[misc]
        self.extend(elements)
        return self

    def insert(self, index: SupportsIndex, element: Any) -> None:
        position = range(len(self))[slice(index, None)].start
        super().insert(index, element)
        self._note_growth(1)
        self._begin = min(self._begin, position)

    def __setitem__(self, index: Any, element: Any) -> None:
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
        if self._replaced:
            self._begin = 0
        else:
            self._begin -= sum(position < self._begin for position in positions)

    def pop(self, index: SupportsIndex = -1) -> Any:
        positions = range(len(self))
        element = super().pop(index)
        self._note_gone([positions[index]])
        return element

    def remove(self, element: Any) -> None:
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

    def __imul__(self, count: SupportsIndex) -> CheckedList:
        before = len(self)
        super().__imul__(count)
        self._note_growth(len(self) - before)
        self._begin = 0
        return self

    def _note_moved(self) -> None:
        """Record that elements have moved: unless all were checked, none counts as checked any more."""
        self._is_used = True
        if self._replaced or self._begin != len(self):
            self._begin = 0

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list.copy(self),)


class CheckedDict(dict[Any, Any]):
    """A dict whose entries have been checked, except those whose keys were recorded since."""

    __slots__ = ("_noted",)

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries)
        self.note_checked()

    def note_checked(self) -> None:
        """Mark all entries as checked."""
        self._noted: set[Any] = set()

    def unchecked(self) -> dict[Any, Any]:
        """Return the entries to be checked."""
        return {key: self[key] for key in self._noted if key in self}

    def replace_checked(self, key: Any, item: Any) -> None:
        """Replace an item by the result of its check."""
        super().__setitem__(key, item)

    def __setitem__(self, key: Any, item: Any) -> None:
        super().__setitem__(key, item)
        self._noted.add(key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **items: Any) -> None:
        added = dict(*others, **items)
        super().update(added)
        self._noted.update(added)

    def __ior__(self, other: Any) -> CheckedDict:  # type: ignore[misc]
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return dict, (dict(self),)
