"""The driver's connections to the tasks that stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.errors import SlotLostError
from pyflinkstate.runtime.pipelined.crew import Crew
from pyflinkstate.runtime.pipelined.processes import ENGINE, JoinEngine
from pyflinkstate.runtime.pipelined.programs import CODES, Host, Outputs, Peer, SinkResults
from pyflinkstate.runtime.pipelined.vertices import Part
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.tasks import DriverLink
from pyflinkstate.runtime.wire import Address, Channel, Heartbeat, HeartbeatSettings, SlotId, connect, dumps

SECRET = b"s" * 32
NOWHERE = Address("127.0.0.1", 1)
HEARTBEATS = HeartbeatSettings(100, 250)


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(Endpoint(), DriverLink(NOWHERE, SECRET, 0), 2, HEARTBEATS)
    yield made
    made.close()


def join(crew: Crew, opened: ExitStack) -> list[Channel]:
    """Return the tasks' ends of the connections of both."""
    tasks = []
    for subtask in range(2):
        tasks.append(opened.enter_context(connect(crew.task().engine, ENGINE, SECRET)))
        tasks[-1].send(JoinEngine(subtask, Peer(NOWHERE, ENGINE)))
    while crew.missing_tasks():
        crew.receive(PATIENCE_S)
    return tasks


def test_a_task_that_does_not_answer_is_lost_and_one_that_does_is_not(crew: Crew) -> None:
    with ExitStack() as opened:
        first, _ = join(crew, opened)
        for now_s in (0.0, 0.05, 0.1, 0.2):
            crew.beat(now_s)
        for _ in range(3):  # not at 0.05
            assert first.recv() == Heartbeat()
            first.send(Heartbeat())
        crew.receive(PATIENCE_S)
        with pytest.raises(SlotLostError, match="source task 1 has not answered for 310 ms"):
            crew.beat(0.31)


@attrs.frozen
class Waiting:
    """Keeps its vertex busy until the test is over."""

    def run(self, host: Host, outputs: Outputs) -> list[SinkResults]:
        assert TEST_IS_OVER.wait(PATIENCE_S)
        return []


@attrs.frozen
class Knowing:
    """Returns which functions its process knows."""

    def run(self, host: Host, outputs: Outputs) -> list[SinkResults]:
        return [SinkResults(0, 0, [*CODES.value])]


TEST_IS_OVER = threading.Event()


def test_an_order_knows_the_functions_that_came_with_the_one_before_to_another_vertex(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CODES, "value", {})
    with closing(Crew(Endpoint(), DriverLink(NOWHERE, SECRET, 0), 1, HEARTBEATS)) as crew:
        task = threading.Thread(target=lambda: list(crew.task()(0, ())))
        task.start()
        while crew.missing_tasks():
            crew.receive(PATIENCE_S)
        link, first, second = (
            SimpleNamespace(epoch=1),
            SimpleNamespace(codes={}),
            SimpleNamespace(codes={"f": b""}),
        )
        for code, vertex, program in (
            (first, "sources", Waiting()),
            (second, "sources", Waiting()),
            (second, "rebalance", Knowing()),
        ):
            request: Any = SimpleNamespace(code=code, link=link)
            crew.send(request, Part(SlotId(vertex, 0), dumps(program), [], ()))
        known = (1, SlotId("rebalance", 0))
        while not crew.have_ended([known]):
            crew.receive(PATIENCE_S)
        crew.check([known])
        assert crew.ended([known], sinks=1).results == [["f"]]
        TEST_IS_OVER.set()
    task.join()
