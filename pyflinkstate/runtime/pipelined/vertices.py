"""The graph of a job as processes that stay: what each of them does in an epoch.

The partitions of the graph are *pipes*: a place in the steps of a process. What is added behind a pipe
becomes one of its steps, and a shuffle ends it at the slots of the next operator.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from pyflinkstate.api import UserFunction
from pyflinkstate.runtime.engine import EpochGraph, EpochRequest, Task
from pyflinkstate.runtime.pipelined.measures import Marking
from pyflinkstate.runtime.pipelined.processes import SOURCES
from pyflinkstate.runtime.pipelined.programs import (
    CODES,
    ExchangeProgram,
    FedProgram,
    SlotProgram,
    SourceProgram,
    Step,
    Steps,
    ToSink,
    ToSubtasks,
    collecting,
)
from pyflinkstate.runtime.plan import ChainNode, JobPlan, SourceNode, StatefulNode
from pyflinkstate.runtime.sinks import KeptRddSink
from pyflinkstate.runtime.sources import RddEpoch, SplitEpoch
from pyflinkstate.runtime.tasks import MergeTask, SlotTask, SourceTask
from pyflinkstate.runtime.wire import SlotId, dumps_by_value


def why_in_stages(plan: JobPlan) -> str | None:
    """Return why a job can only be run in stages, or None if it can be run in tasks that stay."""
    for node in plan.sources:
        if node.source.gives_rdds:
            return f"source {node.name!r} reads what Spark computes"
    for sink in plan.sinks:
        if isinstance(sink.sink, KeptRddSink):
            return f"sink {sink.name!r} keeps its results in Spark"
    return None


def can_read_ahead(plan: JobPlan) -> bool:
    """Return whether all that is read of the sources goes to operators that read nothing else."""
    reading = (
        head
        for head in plan.heads()
        if not isinstance(head, ChainNode)
        for branch in plan.branches(head)
        if any(isinstance(root, SourceNode) for root in plan.regions.roots_of(branch.stage))
    )
    return all(head in plan.first_shuffles for head in reading)


@attrs.define(eq=False)
class Vertex:
    """The processes that run the same steps.

    Attributes:
        parallelism: how many partitions there are.
        partitions: the items of each partition of a source; None in other vertices.
        steps: what each does.
        task: what the slots of an operator are told; None in other vertices.
        before: the vertices that send to it.
        openings: how many partitions send to it.
        target: where those end that send to it.
        is_live: whether it reads a source live.
        source_id: the id of the source that it reads; empty in other vertices, or if it reads nothing.
    """

    parallelism: int
    partitions: list[list[object]] | None = None
    steps: Steps = attrs.Factory(list)
    task: SlotTask | None = None
    before: list[Vertex] = attrs.Factory(list)
    openings: int = 0
    target: ToSubtasks = attrs.Factory(ToSubtasks)
    is_live: bool = False
    source_id: str = ""

    def subtasks(self) -> list[SlotId]:
        """Return the names of the slots of an operator, or the subtasks of an exchange."""
        return [SlotId(self.target.operator_id, subtask) for subtask in range(self.parallelism)]


@attrs.frozen
class Pipe:
    """Partitions of a vertex, and where their items are taken.

    Attributes:
        vertex: the vertex.
        steps: what takes the items.
        first: the number of the first partition among those of all pipes beside it.
    """

    vertex: Vertex
    steps: Steps
    first: int = 0


Pipes = list[Pipe]


@attrs.frozen
class Part:
    """What one vertex of a process does in an epoch.

    Attributes:
        vertex: its name.
        program: the pickle of what it does.
        behind: the subtasks to which it sends.
        operators: the ids of the operators whose subtask it is.
    """

    vertex: SlotId
    program: bytes
    behind: list[SlotId]
    operators: tuple[str, ...]


class PipelinedGraph(EpochGraph[Pipes]):
    """What each process does in one epoch.

    Args:
        request: the epoch.
        tasks: how many tasks share the partitions of the sources.
        is_ahead: whether to read the sources alone, see :func:`can_read_ahead`.
    """

    def __init__(self, request: EpochRequest, tasks: int, is_ahead: bool = False) -> None:
        link = attrs.evolve(request.link, driver=collecting(request.link.driver))
        super().__init__(attrs.evolve(request, link=link))
        self._tasks = [SlotId(SOURCES, number) for number in range(tasks)]
        self._sources: list[Vertex] = []
        self._fed: list[Vertex] = []
        if is_ahead:
            self._read_alone()
            return
        for number, sink in enumerate(request.plan.sinks):
            for pipe in self.written(sink):
                pipe.steps.append(ToSink(number))

    def _read_alone(self) -> None:
        for head, (pipe,) in zip(self._plan.first_shuffles, self.shuffled_ahead(), strict=True):
            operator = self._plan.operator_of(head) if isinstance(head, StatefulNode) else head
            pipe.vertex.target.operator_id = operator.operator_id

    # --- programs ------------------------------------------------------------------------------------

    def reading(self) -> list[Part]:
        """Return what the tasks do that read the sources."""
        steps = dumps_by_value([source.steps for source in self._sources])
        parts = [
            (number, partition, items)
            for number, source in enumerate(self._sources)
            for partition, items in enumerate(source.partitions or [])
        ]
        behind = [target for source in self._sources for target in self._behind(source)]
        count = len(self._tasks)
        live = frozenset(number for number, source in enumerate(self._sources) if source.is_live)
        ids, interval_ms = [source.source_id for source in self._sources], self.request.latency_interval_ms
        markings = {n: Marking(one, interval_ms) for n, one in enumerate(ids) if one and interval_ms}
        programs = (
            SourceProgram(steps, [part for part in parts if part[1] % count == number], live, markings)
            for number in range(count)
        )
        return [
            Part(task, dumps_by_value(program), behind, tuple(filter(None, ids)))
            for task, program in zip(self._tasks, programs, strict=True)
        ]

    def fed(self) -> Iterator[Part]:
        """Yield what the slots and the subtasks of exchanges do."""
        for vertex in self._fed:
            senders, openings = frozenset(map(str, self._senders(vertex))), vertex.openings
            program: FedProgram = ExchangeProgram(senders, openings, vertex.steps)
            if vertex.task is not None:
                program = SlotProgram(senders, openings, vertex.steps, vertex.task)
            data, behind = dumps_by_value(program), self._behind(vertex)
            own = (vertex.target.operator_id,)
            yield from (Part(subtask, data, behind, own) for subtask in vertex.subtasks())

    def _senders(self, vertex: Vertex) -> Iterator[SlotId]:
        for before in vertex.before:
            yield from self._tasks if before.partitions is not None else before.subtasks()

    def _behind(self, vertex: Vertex) -> list[SlotId]:
        return [target for fed in self._fed if vertex in fed.before for target in fed.subtasks()]

    # --- the graph -----------------------------------------------------------------------------------

    def read(self, epoch: SplitEpoch | RddEpoch | None) -> Pipes:
        assert not isinstance(epoch, RddEpoch)
        partitions: list[list[object]] = [[]] if epoch is None else [[split] for split in epoch.splits]
        vertex = Vertex(len(partitions), partitions, is_live=epoch is not None and epoch.is_live)
        self._sources.append(vertex)
        return [Pipe(vertex, vertex.steps)]

    def transform(self, data: Pipes, task: Task, name: str) -> Pipes:
        if isinstance(task, (SlotTask, MergeTask)):
            data[0].vertex.target.operator_id = task.operator_id
        if isinstance(task, SourceTask):
            data[0].vertex.source_id = task.stream
        if isinstance(task, SlotTask):
            data[0].vertex.task = task
            return data
        made = []
        for pipe in data:
            step = Step(task, pipe.first)
            pipe.steps.append(step)
            made.append(attrs.evolve(pipe, steps=step.then))
        return made

    def concatenate(self, parts: list[Pipes]) -> Pipes:
        made, first = [], 0
        for part in parts:
            made += [attrs.evolve(pipe, first=first + pipe.first) for pipe in part]
            first += self.partitions(part)
        return made

    def shuffle(self, data: Pipes, parallelism: int) -> Pipes:
        vertex = Vertex(parallelism, openings=self.partitions(data) if self._plan.uses_event_time else 0)
        self._fed.append(vertex)
        for pipe in data:
            pipe.steps.append(vertex.target)
            if pipe.vertex not in vertex.before:
                vertex.before.append(pipe.vertex)
        return [Pipe(vertex, vertex.steps)]

    def keep(self, data: Pipes) -> Pipes:
        return data

    def partitions(self, data: Pipes) -> int:
        return sum(pipe.vertex.parallelism for pipe in data)

    def shipped(self, function: UserFunction) -> UserFunction:
        return self.request.code.shipped(function, CODES)
