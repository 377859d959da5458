"""Regions of a plan: the stages without state that run over the partitions of one stage before them.

A source, a stateful operator or an exchange determines partitions, and is called a *root* here. A stage
without state keeps the partitions of its input. If it reads stages of several roots, each partition of
each root is a partition of it. If it reads several stages of one root, as a union does where streams meet
again that were one before, these have the same partitions, and so does the union.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class Regions(Generic[S]):
    """The roots of each stage, and the stages of each root.

    Args:
        stages: all stages, each after those that it reads.
        read_by: returns the stages that a stage without state reads, once for each of its branches; None for
            a root.
    """

    def __init__(self, stages: Iterable[S], read_by: Callable[[S], list[S] | None]) -> None:
        self._roots: dict[S, tuple[S, ...]] = {}
        self._stages: dict[S, list[S]] = {}
        #: The roots whose stages each have one branch, from the root itself.
        self._flat: set[S] = set()
        for stage in stages:
            read = read_by(stage)
            if read is None:
                self._roots[stage] = (stage,)
                self._stages[stage] = []
                self._flat.add(stage)
            else:
                self._add(stage, read)

    def _add(self, stage: S, read: list[S]) -> None:
        roots = [root for one in read for root in self._roots[one]]
        self._roots[stage] = tuple(dict.fromkeys(roots))
        for root in self._roots[stage]:
            self._stages[root].append(stage)
            if root not in read or roots.count(root) > 1:
                self._flat.discard(root)

    def roots_of(self, stage: S) -> tuple[S, ...]:
        """Return the stages whose partitions are those of ``stage``, one after the other."""
        return self._roots[stage]

    def stages_of(self, root: S) -> list[S]:
        """Return the stages without state over the partitions of a root, each after those that it reads."""
        return self._stages[root]

    def is_flat(self, root: S) -> bool:
        """Return whether all stages of a root read the root itself, each once: they need not run together."""
        return root in self._flat
