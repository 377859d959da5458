"""Functions over two streams (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from pyflinkstate.api.functions import Function, KeyedProcessFunction, ProcessFunction


class CoMapFunction(Function):
    """One result for each record of either stream."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """Return the result for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """Return the result for a record of the second stream."""


class CoFlatMapFunction(Function):
    """Any number of results for each record of either stream."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for a record of the first stream; None is none."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Return or yield the results for a record of the second stream; None is none."""


class CoProcessFunction(Function):
    """Any number of results for each record of two streams without keys."""

    class Context(ProcessFunction.Context, ABC):
        """What the function knows of the record beside its value."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results for a record of the first stream; None is none."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results for a record of the second stream; None is none."""


class KeyedCoProcessFunction(Function):
    """Any number of results for each record of two streams with keys, which share state and timers."""

    class Context(KeyedProcessFunction.Context, ABC):
        """What the function knows of the record beside its value."""

    class OnTimerContext(KeyedProcessFunction.OnTimerContext, Context, ABC):
        """What ``on_timer`` knows beside the timer's timestamp."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results for a record of the first stream; None is none."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results for a record of the second stream; None is none."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """A timer of the current key is due: return or yield results; None is none."""
        return None
