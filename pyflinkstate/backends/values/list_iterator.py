"""The iterator over a list in state: fail-fast, like that of Java's ``ArrayList``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyflinkstate.api import StateValue
from pyflinkstate.errors import ConcurrentModificationError

if TYPE_CHECKING:
    from mypy_extensions import i64


class ListIterator:
    """Iterates over the live list of the state called ``name``; fails once its length has changed.

    At the end nothing is checked: an iterator that has returned as many elements as there are now ends
    quietly, no matter how the list got that length (Java's ``hasNext``).
    """

    __slots__ = ("_elements", "_name", "_next", "_size")

    def __init__(self, elements: list[StateValue], name: str) -> None:
        self._elements = elements
        self._name = name
        self._size: i64 = len(elements)
        self._next: i64 = 0

    def __iter__(self) -> ListIterator:
        return self

    def __next__(self) -> Any:
        elements, position = self._elements, self._next
        size: i64 = len(elements)
        if position == size:
            raise StopIteration
        if size != self._size:
            raise changed_meanwhile(self._name)
        self._next = position + 1
        return elements[position]

    def __length_hint__(self) -> int:
        return max(0, self._size - self._next)


def changed_meanwhile(name: str) -> ConcurrentModificationError:
    """Return the error of an iterator over the list state ``name`` that was changed meanwhile."""
    return ConcurrentModificationError(
        f"state {name!r}: the list was changed during iteration; iterate over a copy, "
        f"list(state.get()), or collect what to add and add it after the loop",
        state=name,
    )
