"""Functions that tell where they run; slot processes import this file, so it is small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflinkstate import CoMapFunction, FlatMapFunction, MapFunction, OutputTag, Partitioner, ProcessFunction

ODD = OutputTag("odd")


def same(value: Any) -> Any:
    """The value."""
    return value


class Place(MapFunction):
    """Gives each record with the subtask that it is in, and how many there are."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    def map(self, value: Any) -> Any:
        return value, self.subtask, self.parallelism


class Places(CoMapFunction):
    """The same for two inputs."""

    def open(self, runtime_context: Any) -> None:
        self.place = Place()
        self.place.open(runtime_context)

    def map1(self, value: Any) -> Any:
        return self.place.map(value)

    def map2(self, value: Any) -> Any:
        return self.place.map(value)


class OddsAside(ProcessFunction):
    """Gives odd numbers to a side output."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield (ODD, value) if value % 2 else value


class OfItsSubtask(Partitioner):
    """A rich partitioner, which goes by where it runs."""

    def open(self, runtime_context: Any) -> None:
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    def partition(self, key: Any, num_partitions: int) -> int:
        return 1 if self.parallelism == 1 else 0


class Twice(FlatMapFunction):
    """Gives each record twice, and counts its calls."""

    calls: list[Any] = []  # noqa: RUF012 - the runner of the tests is in this process

    def flat_map(self, value: Any) -> Iterable[Any]:
        Twice.calls.append(value)
        return value, value
