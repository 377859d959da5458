"""What a user writes to read keyed state with Flink's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

import attrs

from pyflinkstate.api.functions import Function
from pyflinkstate.api.type_variables import KEY, OUT, T


@attrs.frozen
class Collector(Generic[T]):
    """Takes the results of a function (``org.apache.flink.util.Collector``)."""

    collected: list[T] = attrs.field(factory=list)

    def collect(self, value: T) -> None:
        """Give out a result."""
        self.collected.append(value)


class KeyedStateReaderFunction(Function, Generic[KEY, OUT]):
    """Reads the state of each key (``org.apache.flink.state.api.functions.KeyedStateReaderFunction``).

    Ask for all states in :meth:`open`, with the descriptors of the job. They can be read in :meth:`read_key`
    and nowhere changed. Keys that have none of these states are not visited.
    """

    class Context(ABC):
        """What is known of the key besides its state."""

        @abstractmethod
        def registered_event_time_timers(self) -> set[int]:
            """Return when the key's timers by event time are due, in ms since 1970."""

        @abstractmethod
        def registered_processing_time_timers(self) -> set[int]:
            """Return when the key's timers by processing time are due, in ms since 1970."""

    @abstractmethod
    def read_key(self, key: KEY, ctx: Context, out: Collector[OUT]) -> None:
        """Read the state of ``key``, and give results to ``out``."""
