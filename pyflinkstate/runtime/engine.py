"""What an engine runs: requests to run an epoch, its code, and its tasks and how they are connected.

An engine decides how partitions are computed: ``runtime.spark`` runs the tasks on Spark; a test can run them
in its own process.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import attrs

from pyflinkstate.api import Record, Reported, UserFunction
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.plan import (
    Branch,
    ChainNode,
    Exchange,
    Head,
    JobPlan,
    SettledOperator,
    SinkNode,
    SourceNode,
    Stage,
    StatefulNode,
    functions_of,
)
from pyflinkstate.runtime.sinks import KeptRddSink
from pyflinkstate.runtime.sources import Epoch, EpochSet, InitialRows, RddEpoch, ReadBatches, SplitEpoch
from pyflinkstate.runtime.tasks import (
    ChainTask,
    EventTimeSettings,
    LiveLimits,
    LiveTask,
    MergeTask,
    RegionInput,
    RegionStage,
    RegionTask,
    Router,
    RouteTask,
    SelectTask,
    SinkTask,
    SlotTask,
    SourceTask,
    StageTask,
    TaskLink,
)
from pyflinkstate.runtime.wire import (
    Address,
    CheckpointTrigger,
    EventTimeProgress,
    ShippedFunction,
    SlotId,
    TaskReport,
    pickled,
)


class CodeBook:
    """The pickled functions of a plan that run inside Spark tasks.

    Raises:
        ConfigurationError: one of them cannot be pickled.
    """

    def __init__(self, plan: JobPlan) -> None:
        #: The pickles by digest.
        self.codes: dict[str, bytes] = {}
        #: Functions and the digests of their pickles, by the ids of the functions.
        self._functions: dict[int, tuple[UserFunction, str]] = {}
        for name, function in functions_of(plan):
            data = pickled(name, function)
            digest = hashlib.sha256(data).hexdigest()
            self.codes[digest] = data
            self._functions[id(function)] = function, digest

    def shipped(self, function: UserFunction, codes: object) -> UserFunction:
        """Return the object to send in place of ``function``: itself, if it is not part of the plan."""
        _, digest = self._functions.get(id(function), (None, None))
        return function if digest is None else ShippedFunction(digest, codes)


@attrs.frozen
class EpochRequest:
    """A request to an :class:`EpochRunner` to run one epoch."""

    plan: JobPlan
    link: TaskLink
    epoch: Epoch | None
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Address]
    description: str
    code: CodeBook
    event_time: EventTimeProgress = attrs.Factory(EventTimeProgress)
    #: Whether this is the last epoch.
    is_final: bool = False
    #: More about the job than its name, for whoever looks at the engine: its operators, its page.
    about: str = ""
    #: How sources are read that are read live.
    live: LiveLimits = attrs.Factory(LiveLimits)
    #: The interval at which markers of latency leave the sources, in ms; 0 for none.
    latency_interval_ms: int = 0

    def epoch_of(self, source: Stage) -> SplitEpoch | RddEpoch | None:
        """Return the part of the epoch that a source reads; None if it reads nothing, or is no source."""
        if not isinstance(source, SourceNode):
            return None
        if isinstance(self.epoch, EpochSet):
            return self.epoch.epochs.get(self.plan.source_key(source))
        return self.epoch

    def takes_part(self, stage: Stage) -> bool:
        """Return whether a stage has a part in this epoch. Initial rows have one only in the epoch of theirs.

        After that they are no input any more, so nobody waits for their watermark.
        """
        if isinstance(stage, SourceNode) and isinstance(stage.source, InitialRows):
            return self.epoch_of(stage) is not None
        return True

    def event_time_of(self, branch: Branch) -> EventTimeSettings | None:
        """Return the event time of a task of ``branch``, or None if the job does not use event time."""
        if not self.plan.uses_event_time:
            return None
        assigners = [operator.assigner_id for operator in branch.operators if operator.assigner_id]
        return EventTimeSettings(
            self._ends(branch.stage),
            bool(assigners) and assigners[-1] in self.event_time.idle,
            self.event_time.watermarks,
        )

    def _ends(self, stage: Stage) -> bool:
        if self.is_final:
            return True
        if isinstance(self.epoch, EpochSet) and isinstance(stage, SourceNode):
            return self.plan.source_key(stage) in self.epoch.ended
        return False


@attrs.frozen
class SlotsRequest:
    """A request to start slots and restore their state before any epoch runs."""

    link: TaskLink
    slots: tuple[SlotId, ...]
    description: str


@attrs.frozen
class EpochEnded:
    """Event: the Spark job of an epoch ended, with one list of results for each sink, or with an error.

    The job that starts slots ends with this event too, without results. ``run`` counts the requests to the
    engine. The job master sets it, to tell the request that it waits for from one that it gave up.
    ``reports`` are those of tasks that have not sent them by themselves.
    """

    results: list[list[Reported]] | None
    error: PyFlinkStateError | None
    run: int = 0
    reports: tuple[TaskReport, ...] = ()


class EpochRunner:
    """Runs epochs concurrently with the job master; ``runtime.spark`` implements it."""

    #: Whether sources may be read live, see :class:`~pyflinkstate.runtime.sources.SplitEpoch`.
    reads_live = False

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """Start an epoch; ``done`` is called once, from another thread."""
        raise NotImplementedError

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """Start slots; ``done`` is called once, from another thread, when all of them run."""
        raise NotImplementedError

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        """Read and shuffle the input of an epoch while the one before it runs, and keep the result.

        This is what comes before the first shuffles of the epoch, and no more. A later ``start`` with the
        same link and the same input goes on from there. An engine need not do anything. If something fails
        nobody is told, as the epoch does it again when it is started. At most one epoch is shuffled ahead.

        Args:
            request: the epoch; its barrier, its addresses and ``is_final`` are not known yet.
            done: called once, from any thread, when nothing of it runs any more.
        """
        done()

    def cancel(self) -> None:
        """Make the running epoch and what is shuffled ahead end soon; ``done`` is called all the same.

        The job master calls this again and again until they have ended.
        """
        raise NotImplementedError

    def lost(self) -> PyFlinkStateError | None:
        """Return why the epoch that was started last will never end, or None while something runs it.

        The job master calls this again and again while it waits, so it must not block. If it returns an
        error, ``done`` was called before or will not be called any more.
        """
        raise NotImplementedError

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        """Return why the engine can run nothing any more, or None as long as it can.

        The job master calls this whenever it waits, also while nothing runs, so it must not block.

        Args:
            at_once: whether an answer of a moment ago will not do, because an attempt has just failed.
        """
        return None

    def close(self) -> None:
        """Release what was kept for the job, which has ended; results that were handed over stay."""


#: The engine's own form of partitioned data.
D = TypeVar("D")
#: A function that is called with the number of a partition and an iterator over its contents.
Task = Callable[[int, Iterable[Any]], Iterator[Record]]
#: What is computed together: the results of a root of :class:`Regions` (None), those of one stage without
#: state over the partitions of the root, or those of all such stages (the root again).
Part = tuple[Stage, Stage | None]


class EpochGraph(ABC, Generic[D]):
    """Builds the partitions that each sink writes; a stage that several branches read is computed once."""

    def __init__(self, request: EpochRequest) -> None:
        self.request = request
        self._plan = request.plan
        self._stages: dict[Stage, D] = {}
        #: The frames of all inputs of an operator, by subtask.
        self._frames: dict[StatefulNode | Exchange, D] = {}
        #: What is kept of stages and regions, in the order in which it is computed.
        self._kept: dict[Part, D] = {}
        heads = [head for head in self._plan.heads() if not isinstance(head, ChainNode)]
        read = Counter(part for head in heads for part in self._parts_before(head))
        #: Number of readers of each part.
        self._read = read + Counter(before for part in read for before in _parts_within(part))
        #: The stages that are not only read by other stages of their region.
        self._read_outside = {branch.stage for head in heads for branch in self._plan.branches(head)}

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

    def shipped(self, function: UserFunction) -> Any:
        """Return the object that is sent to a task in place of a user function."""
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
            chain, stream = self._chain(branch, data, name), self._plan.vertex_id(sink)
            task = SinkTask(chain, name, writer, first, stream, not isinstance(sink.sink, KeptRddSink))
            parts.append(self.transform(data, task, sink.name))
            first += self.partitions(data)
        return self._all(parts)

    def read_again(self, sink: SinkNode) -> list[D]:
        """Return the kept results that several branches of a sink's job read, in order; no sources."""
        read: Counter[Part] = Counter()
        ahead = [*self._parts_before(sink)]
        while ahead:
            part = ahead.pop()
            read[part] += 1
            if read[part] == 1:
                ahead += _parts_within(part) or self._parts_before(part[0])
        kept = [part for part in self._kept if read[part] > 1]
        return [self._kept[part] for part in kept if part[1] or not isinstance(part[0], SourceNode)]

    def _parts_before(self, head: Head | SourceNode) -> Iterator[Part]:
        """Yield the parts that the branches to a head read."""
        for branch in () if isinstance(head, SourceNode) else self._plan.branches(head):
            yield from (
                self._part_of(branch.stage, root) for root in self._plan.regions.roots_of(branch.stage)
            )

    def _part_of(self, stage: Stage, root: Stage) -> Part:
        if stage is root:
            return root, None
        return root, stage if self._plan.regions.is_flat(root) else root

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
        if not self.request.takes_part(stage) or self._is_within(stage):
            return
        self._stages[stage] = self._all(
            [self._over(root, stage) for root in self._plan.regions.roots_of(stage)]
        )

    def _is_within(self, stage: Stage) -> bool:
        """Return whether only other stages of its region read a stage."""
        return isinstance(stage, ChainNode) and stage not in self._read_outside

    def _over(self, root: Stage, stage: Stage) -> D:
        """Return the results of a stage over the partitions of a root."""
        part = self._part_of(stage, root)
        if part not in self._kept:
            made = self._made(part)
            self._kept[part] = self.keep(made) if self._read[part] > 1 else made
        if part[1] is not root:
            return self._kept[part]
        number = self._plan.regions.stages_of(root).index(stage)
        return self.transform(self._kept[part], SelectTask(number), stage.name)

    def _made(self, part: Part) -> D:
        root, stage = part
        if stage is not None:
            return self._region(root) if stage is root else self._shared(root, stage)
        if isinstance(root, SourceNode):
            return self._source(root)
        if isinstance(root, Exchange):
            return self._exchanged(root)
        assert isinstance(root, StatefulNode)
        return self._stateful(root)

    def _source(self, node: SourceNode) -> D:
        epoch = self.request.epoch_of(node)
        data = self.read(epoch)
        if epoch is None:
            return data
        read = epoch.read if isinstance(epoch, SplitEpoch) else None
        stream, batches = self._plan.vertex_id(node), _read_batches(epoch)
        task = SourceTask(self.request.link, node.name, read, epoch.is_fresh, stream, batches)
        if _is_live(epoch):
            fields = attrs.asdict(task, recurse=False)
            task = LiveTask(**fields, source=self._plan.source_key(node), limits=self.request.live)
        return self.transform(data, task, node.name)

    def _shared(self, root: Stage, stage: Stage) -> D:
        data = self._stages[root]
        (branch,) = self._branches_over(root, stage)
        return self.transform(
            data,
            StageTask(
                self._chain(branch, data, self._id_over(root, stage)),
                self._id_over(root, stage),
                self._plan.vertex_id(stage),
            ),
            stage.name,
        )

    def _region(self, root: Stage) -> D:
        """Return the results of all stages without state over the partitions of a root."""
        data, stages = self._stages[root], self._plan.regions.stages_of(root)
        numbers = {stage: number for number, stage in enumerate(stages)}
        made = tuple(
            RegionStage(
                self._id_over(root, stage),
                self._plan.vertex_id(stage),
                tuple(
                    RegionInput(
                        self._chain(branch, data, f"{self._id_over(root, stage)}.{number}", is_framed=True),
                        numbers.get(branch.stage),
                    )
                    for number, branch in enumerate(self._branches_over(root, stage))
                ),
                not self._is_within(stage),
            )
            for stage in stages
        )
        epoch = self.request.epoch_of(root)
        decodes = not isinstance(root, SourceNode)
        task = RegionTask(self.request.link, made, decodes, _read_batches(epoch) is not None, _is_live(epoch))
        return self.transform(data, task, ", ".join(stage.name for stage in stages))

    def _branches_over(self, root: Stage, stage: Stage) -> list[Branch]:
        assert isinstance(stage, ChainNode)
        roots_of = self._plan.regions.roots_of
        return [branch for branch in self._plan.branches(stage) if root in roots_of(branch.stage)]

    def _id_over(self, root: Stage, stage: Stage) -> str:
        """Return the id of a stage over the partitions of a root; a name may belong to several stages."""
        number = self._plan.regions.roots_of(stage).index(root)
        return f"{self._plan.vertex_id(stage)}.{number}"

    def _exchanged(self, exchange: Exchange) -> D:
        watermarks = self.request.event_time.watermarks if self._plan.uses_event_time else None
        return self.transform(
            self._sent(exchange),
            MergeTask(self.request.link, exchange.operator_id, watermarks),
            exchange.name,
        )

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
        chain = self._chain(branch, data, f"{branch.stage.name} to {operator.operator_id}.{number}")
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
        return self.transform(
            data, RouteTask(chain, operator.operator_id, router), f"{branch.stage.name} -> {operator.name}"
        )

    def _chain(self, branch: Branch, data: D, place: str, is_framed: bool = False) -> ChainTask:
        epoch = None if is_framed else self.request.epoch_of(branch.stage)
        return ChainTask(
            link=self.request.link,
            stage=branch.stage.name,
            operators=tuple(
                attrs.evolve(operator, function=self.shipped(operator.function))
                for operator in branch.operators
            ),
            parallelism=self.partitions(data),
            decodes=is_framed or not isinstance(branch.stage, SourceNode),
            tag_id=branch.tag_id,
            event_time=self.request.event_time_of(branch),
            has_batches=_read_batches(epoch) is not None,
            is_live=_is_live(epoch),
            place=place,
        )


def _parts_within(part: Part) -> list[Part]:
    """Return what a part of a region reads: its root. Roots read parts of other regions."""
    root, stage = part
    return [] if stage is None else [(root, None)]


def _read_batches(epoch: SplitEpoch | RddEpoch | None) -> ReadBatches | None:
    return epoch.read if isinstance(epoch, RddEpoch) else None


def _is_live(epoch: SplitEpoch | RddEpoch | None) -> bool:
    return isinstance(epoch, SplitEpoch) and epoch.is_live
