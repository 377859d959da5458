"""Functions over two streams (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic

from pyflinkstate.api.functions import Function, KeyedProcessFunction, ProcessFunction
from pyflinkstate.api.output_tag import SideOutput
from pyflinkstate.api.type_variables import IN1, IN2, KEY, OUT, K_co


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """At most one result for each record of either stream: None is no result, as in PyFlink."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT | None:
        """Return the result for a record of the first stream; None means no result."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT | None:
        """Return the result for a record of the second stream; None means no result."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of either stream."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield the results for a record of the first stream; None means no results."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield the results for a record of the second stream; None means no results."""


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of two streams; if these have keys, they share keyed state."""

    class Context(ProcessFunction.Context, ABC):
        """The timestamp and the timer service for a record."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the first stream; None means no results."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the second stream; None means no results."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """Any number of results for each record of two streams with keys, which share state and timers."""

    class Context(KeyedProcessFunction.Context[K_co], ABC):
        """The timestamp and the timer service for a record."""

    class OnTimerContext(KeyedProcessFunction.OnTimerContext[K_co], Context[K_co], ABC):
        """The context of ``on_timer``."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context[KEY]) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the first stream; None means no results."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context[KEY]) -> Iterable[OUT | SideOutput] | None:
        """Return or yield the results for a record of the second stream; None means no results."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[KEY]) -> Iterable[OUT | SideOutput] | None:
        """A timer of the current key is due: return or yield results; None means no results."""
        return None
