"""The list that a list state hands out: the stored list itself, with fail-fast iterators."""

from __future__ import annotations

from typing import SupportsIndex

from pyflinkstate.api.values import Reduced, StateValue
from pyflinkstate.backends.values.list_iterator import ListIterator


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
