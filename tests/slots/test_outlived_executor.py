"""A slot that outlives the executor that started it: nobody reads its standard output any more."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from slot_functions import Chatter
from support_runtime import next_event
from support_slots import Driver

from pyflinkstate.runtime.wire.messages import SlotOutput

pytestmark = pytest.mark.timeout(60)


class Executor:
    """The reader of what the slots of a Spark worker print."""

    def __init__(self) -> None:
        self.reads, self.writes = os.pipe()

    def end(self) -> None:
        if self.reads >= 0:
            os.close(self.reads)
            os.close(self.writes)
            self.reads = -1


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    made = Executor()
    copy = os.dup

    def of_the_executor(stream: int) -> int:
        return copy(made.writes if stream in (1, 2) else stream)

    monkeypatch.setattr(os, "dup", of_the_executor)
    yield made
    made.end()


def heard(driver: Driver, count: int) -> list[tuple[int, str]]:
    """Return so many of the next lines that slots have said."""
    lines: list[tuple[int, str]] = []
    while len(lines) < count:
        lines += next_event(driver.events, SlotOutput).lines
    return lines


def test_what_a_function_prints_and_logs_reaches_the_driver_and_the_function_goes_on(
    driver: Driver, executor: Executor
) -> None:
    slot = driver.start_slot(Chatter())
    executor.end()
    for epoch in (1, 2):
        record = ("a", epoch)
        assert slot.feed(epoch, [record])[0] == [record]
        assert heard(driver, 3) == [
            (logging.INFO, f"printed {record}"),
            (logging.WARNING, f"warned {record}"),
            (logging.ERROR, f"users.code: logged {record}"),
        ]


def test_as_long_as_there_is_an_executor_it_reads_all_of_it(driver: Driver, executor: Executor) -> None:
    slot = driver.start_slot(Chatter())
    slot.feed(1, [("a", 1)])
    assert len(heard(driver, 3)) == 3
    said = os.read(executor.reads, 10_000).decode()
    assert said.splitlines() == ["printed ('a', 1)", "warned ('a', 1)", "users.code: logged ('a', 1)"]
