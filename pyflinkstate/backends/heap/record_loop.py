"""The loop over the records of a frame. Every record of a job goes through it, so it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyflinkstate.backends.heap.key_context import KeyContext
from pyflinkstate.backends.values.isolation import take_isolated


class RecordLoop:
    """Processes records one by one, each under its key."""

    __slots__ = ("_key_context", "_position")

    def __init__(self, key_context: KeyContext) -> None:
        self._key_context = key_context
        self._position = -1

    def run(
        self,
        records: tuple[list[int], Sequence[Any], Sequence[Any]],
        process: Callable[[Any, Any], Iterable[Any] | None],
        context: Any,
        results: list[Any],
    ) -> None:
        """Process records.

        Args:
            records: columns of the same length: the indexes of the keys' maps, keys, and values.
            process: called with each value and ``context``.
            context: passed to the function with each value.
            results: receives the results of ``process``, isolated from the function's own objects.
        """
        key_context = self._key_context
        indexes, keys, values = records
        self._position = -1
        if not len(indexes) == len(keys) == len(values):
            raise ValueError("the columns of a frame differ in length")
        for index, key, value in zip(indexes, keys, values):  # noqa: B905 - mypyc knows no strict
            self._position += 1
            key_context.select(key, index)
            produced = process(value, context)
            if produced is not None:
                take_isolated(results, produced, process)

    def under_way(self, *columns: Sequence[Any]) -> list[Any]:
        """Return each column's entry for the record that ``run`` was processing; None before the first."""
        at = self._position
        return [column[at] if at >= 0 else None for column in columns]
