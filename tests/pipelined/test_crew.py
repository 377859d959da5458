"""The driver's connections to the tasks that stay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.errors import SlotLostError
from pyflinkstate.runtime.pipelined.crew import Crew
from pyflinkstate.runtime.pipelined.processes import ENGINE, JoinEngine
from pyflinkstate.runtime.pipelined.programs import Peer
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.tasks import DriverLink
from pyflinkstate.runtime.wire import Address, Channel, Heartbeat, HeartbeatSettings, connect

SECRET = b"s" * 32
NOWHERE = Address("127.0.0.1", 1)


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(Endpoint(), DriverLink(NOWHERE, SECRET, 0), 2, HeartbeatSettings(100, 250))
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
