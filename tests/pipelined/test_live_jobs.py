"""Jobs whose sources are read live, without Spark: tasks are threads, slots are real processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import EVERY_EPOCH, JobRun, once
from support_pipelined import LocalPipelinedRunner
from support_runtime import PATIENCE_S
from tiers import cases

from pyflinkstate import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    Source,
    SplitEpoch,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import SlotLostError
from pyflinkstate.runtime.plan import ChainNode, SourceNode, StatefulNode, UnionNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sources import Available, Epoch, ReadTime
from pyflinkstate.runtime.storage import CheckpointFolders

pytestmark = pytest.mark.usefixtures("forked_slots")

LENGTH = 40
#: How many numbers of a split are read live in an epoch.
STEP = 6


@attrs.frozen
class Halves(Source):
    """Numbers in two splits, read live but for the last ones, which are planned."""

    name: str
    is_bounded = True

    def initial_offset(self) -> Any:
        return {"next": [0, 0]}

    def live(self, start: Any) -> SplitEpoch | None:
        if min(start["next"]) + STEP > LENGTH:
            return None
        return SplitEpoch([*enumerate(start["next"])], self._read_live, is_live=True)

    def _read_live(
        self, split: tuple[int, int], _: object, time: ReadTime
    ) -> Generator[list[Any], None, int]:
        half, begin = split
        for number in range(begin, begin + STEP):
            yield [(self.name, half, number)]
            yield []
        return begin + STEP

    def reached(self, start: Any, positions: list[Any]) -> Any:
        return {"next": positions}

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available({"next": [LENGTH, LENGTH]}, is_last=True)

    def plan(self, start: Any, end: Any) -> Epoch:
        rest = [(self.name, half, n) for half in (0, 1) for n in range(start["next"][half], LENGTH)]
        return SplitEpoch([rest], lambda split, _: split)


class Numbered(KeyedProcessFunction):
    """Counts the records of a key, which come in order."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count = self.count.value() or 0
        self.count.update(count + 1)
        yield value, count


@pytest.mark.timeout(120)
@pytest.mark.parametrize("failing", cases([None, 1, 3], quick=[3]))
def test_every_record_counts_once_whatever_fails(tmp_path: Path, failing: int | None) -> None:
    sources = [SourceNode(Halves(name), name) for name in ("a", "b")]
    union = UnionNode(tuple(sources), "union")
    keyed = StatefulNode(union, lambda r: f"{r[0]}{r[1]}", Types.STRING(), Numbered(), "count", parallelism=2)
    run = JobRun(
        keyed,
        storage=CheckpointFolders(str(tmp_path)),
        checkpoints=EVERY_EPOCH,
        restart=FixedDelayRestart(1, 0),
        runner=LocalPipelinedRunner(),  # type: ignore[arg-type]
    )
    if failing is not None:
        run.runner.after = once(SlotLostError("lost"), failing)
    run.run()
    expected = [((name, half, n), n) for name in "ab" for half in (0, 1) for n in range(LENGTH)]
    assert Counter(run.out) == Counter(expected)
    live = [request for request in run.runner.requests if _is_live(request.epoch)]
    assert len(live) >= LENGTH // STEP


def _is_live(epoch: Any) -> bool:
    return epoch is not None and any(one is not None and one.is_live for one in epoch.epochs.values())


@attrs.frozen
class Patient(Source):
    """One record; the live epoch goes on until a file is there."""

    path: Path
    is_bounded = True

    def initial_offset(self) -> Any:
        return 0

    def live(self, start: Any) -> SplitEpoch | None:
        return SplitEpoch(["all"], self._read_live, is_live=True) if start == 0 else None

    def _read_live(self, _: str, __: object, time: ReadTime) -> Generator[list[Any], None, int]:
        yield ["first"]
        until_ms = time.clock.monotonic_ms() + PATIENCE_S * 1000
        patient = attrs.evolve(time, until_ms=until_ms)
        while not self.path.exists() and patient.left_ms():
            patient.wait(2)
        yield [f"timer fired: {self.path.exists()}"]
        return 1

    def reached(self, start: Any, positions: list[Any]) -> Any:
        return positions[0]

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available(start, is_last=True)

    def plan(self, start: Any, end: Any) -> Epoch:
        raise AssertionError("there is nothing to plan")


class Alarm(KeyedProcessFunction):
    """Makes a file when a processing-time timer fires."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def process_element(self, value: str, ctx: KeyedProcessFunction.Context) -> Iterator[str]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 20)
        yield value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[str]:
        self.path.touch()
        yield "alarm"


@pytest.mark.timeout(120)
def test_a_timer_fires_while_the_epoch_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "fired"
    node = StatefulNode(SourceNode(Patient(path), "one"), len, Types.LONG(), Alarm(path), "alarm")
    run = JobRun(node, runner=LocalPipelinedRunner())  # type: ignore[arg-type]
    run.run()
    assert run.out[:3] == ["first", "alarm", "timer fired: True"]


class Noting(MapFunction):
    """Notes in a file when it is opened and closed, and counts its records."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _note(self, what: str) -> None:
        with self.path.open("a") as notes:
            notes.write(f"{what} ")

    def open(self, runtime_context: RuntimeContext) -> None:
        self._note("open")
        self.count = runtime_context.get_metrics_group().counter("mapped")

    def map(self, value: Any) -> Any:
        self.count.inc()
        return value

    def close(self) -> None:
        self._note("close")


@pytest.mark.timeout(120)
def test_functions_stay_open_from_epoch_to_epoch(tmp_path: Path) -> None:
    """Those of a source task and those behind an operator, in its slot; their metrics go on, too."""
    paths = {name: tmp_path / name for name in ("before", "behind")}
    source = SourceNode(Halves("a"), "a")
    before = ChainNode(source, "map", Noting(paths["before"]), "before")
    keyed = StatefulNode(before, lambda r: r[1], Types.LONG(), Numbered(), "count", parallelism=1)
    behind = ChainNode(keyed, "map", Noting(paths["behind"]), "behind")
    run = JobRun(behind, runner=LocalPipelinedRunner())  # type: ignore[arg-type]
    job = run.run()
    assert len(run.runner.requests) > LENGTH // STEP
    assert paths["before"].read_text().split() == ["open", "open", "close", "close"]
    assert paths["behind"].read_text().split() == ["open", "close"]
    metrics = job.result().metrics
    assert [metrics[f"{name}.mapped"].count for name in paths] == [2 * LENGTH, 2 * LENGTH]
