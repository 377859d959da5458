"""An environment whose jobs run in this process: a few attributes and ``LocalRunner`` take Spark's place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support_job import LocalRunner

from pyflinkstate import StreamExecutionEnvironment
from pyflinkstate.runtime.engine import EpochRunner
from pyflinkstate.runtime.spark import epoch_runner, sessions


def local_environment(
    monkeypatch: pytest.MonkeyPatch, runner: Callable[[], EpochRunner] = LocalRunner
) -> StreamExecutionEnvironment:
    """Return a new environment of parallelism 1. What needs RDDs does not work: ``to_rdd()``, ``cache()``."""
    context = SimpleNamespace(
        defaultParallelism=1, master="local[1]", pythonExec=sys.executable, getConf=dict, uiWebUrl=None
    )
    monkeypatch.setattr(sessions, "context_of", lambda session: context)
    monkeypatch.setattr(epoch_runner, "SparkRunner", lambda *_: runner())
    session: Any = object()
    return StreamExecutionEnvironment(session)
