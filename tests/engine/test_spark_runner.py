"""Spark's runner where no Spark is needed: what it does when an epoch cannot be shuffled ahead."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.errors import SparkJobError
from pyflinkstate.runtime.spark.spark import SparkRunner

REQUEST: Any = SimpleNamespace(description="orders: ahead for epoch 2")


@pytest.fixture
def runner() -> SparkRunner:
    """A runner whose Spark is gone, and whose running epoch has built nothing yet."""
    gone: Any = None
    files: Any = object()
    return SparkRunner(gone, "group", files)


def test_what_is_to_be_shuffled_ahead_ends_when_the_epoch_before_it_is_cancelled(runner: SparkRunner) -> None:
    done = threading.Event()
    runner.shuffle_ahead(REQUEST, done.set)
    runner.cancel()
    assert done.wait(PATIENCE_S)


def test_a_system_without_threads_is_an_error_that_the_job_expects(
    runner: SparkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without_threads:
        without_threads.setattr(threading.Thread, "start", start)
        with pytest.raises(SparkJobError, match="ahead for epoch 2: can't start new thread"):
            runner.shuffle_ahead(REQUEST, lambda: None)
