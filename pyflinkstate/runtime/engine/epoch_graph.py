"""The tasks of one epoch and how they are connected. An engine decides how partitions are computed.

``runtime.spark`` runs the tasks on Spark; a test can run them in its own process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import attrs

from pyflinkstate.api.values import Record, UserFunction
from pyflinkstate.runtime.engine.epochs import EpochRequest
from pyflinkstate.runtime.plan import (
    Branch,
    ChainNode,
    Exchange,
    Head,
    SettledOperator,
    SinkNode,
    SourceNode,
    Stage,
    StatefulNode,
)
from pyflinkstate.runtime.sources import RddEpoch, ReadBatches, SplitEpoch
from pyflinkstate.runtime.tasks import (
    ChainTask,
    MergeTask,
    Router,
    RouteTask,
    SinkTask,
    SlotTask,
    SourceTask,
    StageTask,
)

#: The engine's own form of partitioned data.
D = TypeVar("D")
#: A function that is called with the number of a partition and an iterator over its contents.
Task = Callable[[int, Iterable[Record]], Iterator[Record]]


class EpochGraph(ABC, Generic[D]):
    """Builds the partitions that each sink writes; a stage that several branches read is computed once."""

    def __init__(self, request: EpochRequest) -> None:
        self.request = request
        self._plan = request.plan
        self._stages: dict[Stage, D] = {}
        #: The frames of all inputs of an operator, by subtask.
        self._frames: dict[StatefulNode | Exchange, D] = {}
        heads = self._plan.heads()
        #: How often each stage is read.
        self._read = Counter(branch.stage for head in heads for branch in self._plan.branches(head))

    # --- what an engine implements --------------------------------------------------------------------------

    @abstractmethod
    def read(self, epoch: SplitEpoch | RddEpoch | None) -> D:
        """Return the input to be read, with one split per partition; None gives one empty partition."""

    @abstractmethod
    def transform(self, data: D, task: Task, name: str) -> D:
        """Return the result of ``task`` for each partition."""

    @abstractmethod
    def concatenate(self, parts: list[D]) -> D:
        """Return the partitions of all ``parts``, one after the other."""

    @abstractmethod
    def shuffle(self, data: D, parallelism: int) -> D:
        """Return the frames by subtask, sorted by ``FrameKey``."""

    @abstractmethod
    def keep(self, data: D) -> D:
        """Return the same data, computed only once even if it is read several times."""

    @abstractmethod
    def partitions(self, data: D) -> int:
        """Return the number of partitions."""

    def shipped(self, function: UserFunction) -> UserFunction:
        """Return what is sent to a task in place of a user function."""
        return function

    # --- the graph -----------------------------------------------------------------------------------------

    def shuffled_ahead(self) -> list[D]:
        """Return the shuffled inputs of the operators that only read sources, directly or through chains.

        The rest of the graph can be built later. It may belong to another request for the same epoch.
        """
        for stage in self._plan.stages_before_shuffles:
            self._build(stage)
        return [self._sent(head) for head in self._plan.first_shuffles]

    def written(self, sink: SinkNode) -> D:
        """Return the results of the sink's writers."""
        sink_id = f"{sink.name}-{self._plan.sinks.index(sink)}"
        writer = sink.sink.writer(self.request.link.epoch)
        parts: list[D] = []
        first = 0
        for number, branch in enumerate(self._plan.branches(sink)):
            data = self._stage(branch.stage)
            name = f"{sink_id}.{number}" if number else sink_id
            task = SinkTask(self._chain(branch, data), name, writer, first, self._plan.vertex_id(sink))
            parts.append(self.transform(data, task, sink.name))
            first += self.partitions(data)
        return self._all(parts)

    def read_again(self, sink: SinkNode) -> list[D]:
        """Return the results of stages that several branches of a sink's job read, in order; no sources."""
        read: Counter[Stage] = Counter()
        ahead: list[Head] = [sink]
        while ahead:
            for branch in self._plan.branches(ahead.pop()):
                read[branch.stage] += 1
                if read[branch.stage] == 1 and not isinstance(branch.stage, SourceNode):
                    ahead.append(branch.stage)
        return [
            self._stages[stage]
            for stage in self._plan.stages
            if read[stage] > 1 and stage in self._stages and not isinstance(stage, SourceNode)
        ]

    def _all(self, parts: list[D]) -> D:
        return parts[0] if len(parts) == 1 else self.concatenate(parts)

    def _stage(self, node: Stage) -> D:
        """Return the results of a stage; the stages before it are built first, without recursion."""
        if node not in self._stages:
            for stage in self._plan.stages[: self._plan.stages.index(node) + 1]:
                if stage not in self._stages:
                    self._build(stage)
        return self._stages[node]

    def _build(self, stage: Stage) -> None:
        if not self.request.takes_part(stage):
            return
        made = self._made(stage)
        self._stages[stage] = self.keep(made) if self._read[stage] > 1 else made

    def _made(self, node: Stage) -> D:
        if isinstance(node, SourceNode):
            return self._source(node)
        if isinstance(node, Exchange):
            return self._exchanged(node)
        return self._stateful(node) if isinstance(node, StatefulNode) else self._shared(node)

    def _source(self, node: SourceNode) -> D:
        epoch = self.request.epoch_of(node)
        data = self.read(epoch)
        if epoch is None:
            return data
        read = epoch.read if isinstance(epoch, SplitEpoch) else None
        stream, batches = self._plan.vertex_id(node), _read_batches(epoch)
        task = SourceTask(self.request.link, node.name, read, epoch.is_fresh, stream, batches)
        return self.transform(data, task, node.name)

    def _shared(self, node: ChainNode) -> D:
        parts: list[D] = []
        for number, branch in enumerate(self._plan.branches(node)):
            data = self._stage(branch.stage)
            # The name alone may belong to several stages.
            stage_id = f"{node.name}-{self._plan.stages.index(node)}.{number}"
            task = StageTask(self._chain(branch, data), stage_id, self._plan.vertex_id(node))
            parts.append(self.transform(data, task, node.name))
        return self._all(parts)

    def _exchanged(self, exchange: Exchange) -> D:
        watermarks = self.request.event_time.watermarks if self._plan.uses_event_time else None
        task = MergeTask(self.request.link, exchange.operator_id, watermarks)
        return self.transform(self._sent(exchange), task, exchange.name)

    def _stateful(self, node: StatefulNode) -> D:
        operator = self._plan.operator_of(node)
        task = SlotTask(
            self.request.link,
            operator.operator_id,
            operator.name,
            self.request.barrier,
            self.request.addresses,
            self._plan.uses_event_time,
            self.request.is_final,
        )
        return self.transform(self._sent(node), task, operator.name)

    def _sent(self, head: StatefulNode | Exchange) -> D:
        """Return the frames of all inputs of ``head``, by subtask."""
        if head not in self._frames:
            self._frames[head] = self._shuffled(head)
        return self._frames[head]

    def _shuffled(self, head: StatefulNode | Exchange) -> D:
        operator = self._plan.operator_of(head) if isinstance(head, StatefulNode) else head
        routed = [
            self._routed(operator, branch, number)
            for number, branch in enumerate(self._plan.branches(head))
            if self.request.takes_part(branch.stage)
        ]
        return self.shuffle(self._all(routed), operator.parallelism)

    def _routed(self, operator: SettledOperator | Exchange, branch: Branch, number: int) -> D:
        data = self._stage(branch.stage)
        chain = self._chain(branch, data)
        assert branch.input is not None
        router = Router(
            operator=operator.name,
            select_key=self.shipped(branch.input.select_key),
            key_type=branch.input.key_type,
            parallelism=operator.parallelism,
            max_parallelism=operator.max_parallelism,
            partitioning=branch.input.partitioning,
            input=branch.input_number,
            branch=number,
            event_time=chain.event_time,
            operator_id=operator.operator_id,
            epoch=self.request.link.epoch,
            partitions=chain.parallelism,
        )
        task = RouteTask(chain, operator.operator_id, router)
        return self.transform(data, task, f"{branch.stage.name} -> {operator.name}")

    def _chain(self, branch: Branch, data: D) -> ChainTask:
        return ChainTask(
            link=self.request.link,
            stage=branch.stage.name,
            operators=tuple(
                attrs.evolve(operator, function=self.shipped(operator.function))
                for operator in branch.operators
            ),
            parallelism=self.partitions(data),
            decodes=not isinstance(branch.stage, SourceNode),
            tag_id=branch.tag_id,
            event_time=self.request.event_time_of(branch),
            has_batches=self._has_batches(branch.stage),
        )

    def _has_batches(self, stage: Stage) -> bool:
        return isinstance(stage, SourceNode) and _read_batches(self.request.epoch_of(stage)) is not None


def _read_batches(epoch: SplitEpoch | RddEpoch | None) -> ReadBatches | None:
    return epoch.read if isinstance(epoch, RddEpoch) else None
