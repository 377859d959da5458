"""Key selectors with a life: each task that selects keys opens its selector, and closes it at the end."""

from __future__ import annotations

from typing import Any

import pytest
from support_runtime import PICKLED
from support_slots import Driver

from pyflinkstate import KeySelector, ReduceFunction, RuntimeContext
from pyflinkstate.errors import UserFunctionError
from pyflinkstate.runtime.plan import ChainedOperator
from pyflinkstate.runtime.tasks import ChainTask, EventTimeSettings, Router, RouteTask, TaskLink
from pyflinkstate.runtime.wire import InputFrame
from pyflinkstate.testing import harness_of


class Tens(KeySelector):
    """The tens of a number; notes what happens to it, and may fail at some of it."""

    def __init__(self, *fails_at: str) -> None:
        self.fails_at = fails_at
        self.events: list[Any] = []

    def note(self, event: str, told: Any) -> None:
        self.events.append(told)
        if event in self.fails_at:
            raise LookupError(f"no {event}")

    def open(self, runtime_context: RuntimeContext) -> None:
        self.note("open", f"open {runtime_context.get_task_name_with_subtasks()}")
        runtime_context.get_metrics_group().counter("opened").inc()

    def get_key(self, value: int) -> int:
        self.note("get_key", value)
        return value // 10

    def close(self) -> None:
        self.note("close", "close")


class HasContext(KeySelector):
    """Needs no ``open``: the context is there from then on."""

    def get_key(self, value: int) -> int:
        return self.get_runtime_context().get_number_of_parallel_subtasks()


def route_task(link: TaskLink, selector: KeySelector, is_timed: bool = False) -> RouteTask:
    """A task of the second of two partitions sends numbers below 90 to ``count``."""
    settings = EventTimeSettings() if is_timed else None
    small = ChainedOperator("filter", "small", lambda number: number < 90)
    chain = ChainTask(link, "numbers", (small,), 2, False, event_time=settings)
    router = Router("count", selector, PICKLED, 1, 128, event_time=settings)  # type: ignore[arg-type]
    return RouteTask(chain, "count-1", router)


OPENED = "open key_by before count (2/2)"


@pytest.mark.parametrize("is_timed", [False, True])
def test_a_selector_is_opened_before_the_first_key_and_closed_after_the_last(
    link: TaskLink, is_timed: bool
) -> None:
    selector = Tens()
    frames = [InputFrame.decode(data) for _, data in route_task(link, selector, is_timed)(1, [25, 31, 99])]
    assert selector.events == [OPENED, 25, 31, "close"]
    assert [key for frame in frames for key in frame.keys] == [2, 3]


def test_a_selector_has_a_context_without_an_open_of_its_own(link: TaskLink) -> None:
    ((_, data),) = route_task(link, HasContext())(1, [25])
    assert list(InputFrame.decode(data).keys) == [2]


def test_a_selector_is_closed_if_a_key_fails(link: TaskLink) -> None:
    selector = Tens("get_key")
    with pytest.raises(UserFunctionError, match=r"no get_key[\s\S]*operator 'count', record 25"):
        list(route_task(link, selector)(1, [25]))
    assert selector.events == [OPENED, 25, "close"]


def test_a_selector_is_closed_if_nobody_reads_to_the_end(link: TaskLink) -> None:
    selector = Tens()
    running = route_task(link, selector, is_timed=True)(1, [25])
    next(running)
    running.close()  # type: ignore[attr-defined]
    assert selector.events == [OPENED, "close"]


@pytest.mark.parametrize("place", ["open", "close"])
def test_a_selector_that_cannot_be_opened_or_closed_is_reported(
    driver: Driver, link: TaskLink, place: str
) -> None:
    problem = rf"no {place}[\s\S]*'key_by before count'.*in {place}\(\)"
    with pytest.raises(UserFunctionError, match=problem):
        list(route_task(link, Tens(place))(1, [25]))
    assert isinstance(driver.reports()[-1].error, UserFunctionError)


def test_the_first_error_is_reported_if_a_selector_cannot_be_closed_either(
    driver: Driver, link: TaskLink, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserFunctionError, match="no get_key"):
        list(route_task(link, Tens("get_key", "close"))(1, [25]))
    assert "no get_key" in str(driver.reports()[-1].error)
    assert "close() failed after another error" in caplog.text
    assert "no close" in caplog.text


def test_the_metrics_of_a_selector_are_reported(driver: Driver, link: TaskLink) -> None:
    list(route_task(link, Tens())(1, [25]))
    metrics = [report.metrics for report in driver.reports() if report.metrics]
    assert [found["key_by before count.opened"].count for found in metrics] == [1]


def test_a_harness_opens_and_closes_the_selectors_of_its_inputs() -> None:
    selector = Tens()
    harness = harness_of(lambda stream: stream.key_by(selector).max())
    assert selector.events == ["open key_by before max (1/1)"]
    assert harness.process_element(25) == [25]
    harness.close()
    assert selector.events[1:] == [25, "close"]


def test_a_harness_closes_the_selectors_after_a_function_that_cannot_be_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Greatest(ReduceFunction):
        def reduce(self, value1: int, value2: int) -> int:
            return max(value1, value2)

        def close(self) -> None:
            raise LookupError("no end of the function")

    selector = Tens("close")
    harness = harness_of(lambda stream: stream.key_by(selector).reduce(Greatest()))
    with pytest.raises(UserFunctionError, match="no end of the function"):
        harness.close()
    assert selector.events[-1] == "close"
    assert "no close" in caplog.text
