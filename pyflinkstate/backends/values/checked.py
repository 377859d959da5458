"""Lists and dicts of state that know which of their elements have been checked.

Theory of operation
===================

A state checks what it is given when it is given, so that a misfit is an error there and not in a checkpoint,
minutes later. An accumulator is given again at every ``add``: the state's own list, one element longer. To
check all of it each time would make ``n`` additions cost ``n * n``.

So a long list or dict of a declared type, once all of it has been checked, is stored as one of these classes.
It notes what is put into it, and the next check looks at nothing else. That is done only where elements
cannot change in place, as numbers, texts and tuples of such, so that what was checked fits for ever.

Functions in C may reach into a list past its methods, as those of ``heapq`` do. So all of a list is checked
where its length is another than was noted, and where nothing was noted at all. A misfit that is put in past
the methods, while others are used and the length stays, is found by the next snapshot. A short list is always
checked as a whole, which costs less than noting.

Copied or pickled, a :class:`CheckedList` is a plain list and a :class:`CheckedDict` a plain dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

#: Shorter lists and dicts are checked as a whole.
NOTED_FROM = 64


class CheckedList(list[Any]):
    """A list whose elements have been checked, but for those that it has noted since."""

    __slots__ = ("_begin", "_is_used", "_replaced", "_size")

    def __init__(self, elements: list[Any]) -> None:
        super().__init__(elements)
        self.note_checked()

    def note_checked(self) -> None:
        """Count all elements as checked."""
        #: Before this position only those at the noted ones are unchecked; from there on all are.
        self._begin = self._size = len(self)
        self._replaced: set[int] = set()
        #: Whether a method has changed anything since.
        self._is_used = False

    def unchecked(self) -> list[int]:
        """Return the positions of the elements that are to be checked, each once."""
        if self._size != len(self) or not self._is_used:  # somebody may have gone past the methods
            return list(range(len(self)))
        return [*(at for at in self._replaced if at < self._begin), *range(self._begin, len(self))]

    def replace_checked(self, position: int, element: Any) -> None:
        """Put an element that was checked in the place of what it was made of."""
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
        """Elements have other places, so none is known to be checked any more, unless all were."""
        self._is_used = True
        if self._replaced or self._begin != len(self):
            self._begin = 0

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list.copy(self),)


class CheckedDict(dict[Any, Any]):
    """A dict whose entries have been checked, but for those whose keys it has noted since."""

    __slots__ = ("_noted",)

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries)
        self.note_checked()

    def note_checked(self) -> None:
        """Count all entries as checked."""
        self._noted: set[Any] = set()

    def unchecked(self) -> dict[Any, Any]:
        """Return the entries that are to be checked."""
        return {key: self[key] for key in self._noted if key in self}

    def replace_checked(self, key: Any, item: Any) -> None:
        """Put an item that was checked in the place of what it was made of."""
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
