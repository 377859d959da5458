"""A wait ends when the other side is gone, and not before."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from pyflinkstate.errors import SparkUnavailableError
from pyflinkstate.runtime.wire import next_of, result_of, wait_for

GONE = SparkUnavailableError("the Spark application ended")


def looks(*found: int | None) -> tuple[Callable[[float], int | None], list[float]]:
    """Return a function that finds these, one at each look, and for how long each look was to wait."""
    left, waited = list(found), []

    def look(timeout_s: float) -> int | None:
        waited.append(timeout_s)
        return left.pop(0)

    return look, waited


def test_it_looks_again_as_long_as_the_other_side_lives() -> None:
    look, waited = looks(None, None, 7)
    assert wait_for(look, lambda: None, 0.5) == 7
    assert waited == [0.5, 0.5, 0.5]


def test_it_ends_when_the_other_side_is_gone() -> None:
    look, waited = looks(None, None, None)
    alive = [None, GONE]
    with pytest.raises(SparkUnavailableError):
        wait_for(look, lambda: alive.pop(0), 0.5)
    assert waited == [0.5, 0.5, 0]


def test_what_came_just_before_the_end_counts() -> None:
    look, _ = looks(None, 7)
    assert wait_for(look, lambda: GONE) == 7


def test_the_next_item_of_a_queue() -> None:
    mailbox: queue.SimpleQueue[int] = queue.SimpleQueue()
    assert next_of(mailbox)(0) is None
    mailbox.put(7)
    assert next_of(mailbox)(0) == 7


def test_a_result_may_be_none_or_an_error_and_one_that_never_comes_is_given_up() -> None:
    done: Future[None] = Future()
    done.set_result(None)
    assert result_of(done, lambda: GONE) is None
    failed: Future[None] = Future()
    failed.set_exception(ValueError("bad"))
    with pytest.raises(ValueError, match="bad"):
        result_of(failed, lambda: GONE)
    alone: Future[None] = Future()
    with pytest.raises(SparkUnavailableError):
        result_of(alone, lambda: GONE)


class _Empty:
    """An empty queue, and for how long it was waited for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def get_nowait(self) -> int:
        return self.get(timeout=0)

    def get(self, timeout: float) -> int:
        self.asked.append(timeout)
        raise queue.Empty


def test_a_queue_is_looked_at_before_it_is_waited_for() -> None:
    mailbox = _Empty()
    assert next_of(mailbox)(0.001) is None  # type: ignore[arg-type]
    assert mailbox.asked == [0, 0.001]
