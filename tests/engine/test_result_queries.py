"""Queries over the results of a job that has failed, where no Spark is needed."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError
from support_runtime import PATIENCE_S

from pyflinkstate.runtime.spark import streaming_queries
from pyflinkstate.runtime.spark.streaming_queries import ResultQueries


def test_a_query_that_always_has_more_to_read_is_ended_nevertheless(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It reads another source too, which never ends."""
    monkeypatch.setattr(streaming_queries, "READ_TIMEOUT_S", 0)
    stopped = threading.Event()
    query: Any = MagicMock(id="42", processAllAvailable=lambda: stopped.wait(PATIENCE_S), stop=stopped.set)
    queries = ResultQueries(MagicMock(), "file:/out")
    causes: list[bool] = []
    queries._set_cause = lambda _: causes.append(stopped.is_set())  # type: ignore[method-assign]
    ending = threading.Thread(target=queries._end, args=(query,), daemon=True)
    ending.start()
    ending.join(PATIENCE_S / 2)
    assert not ending.is_alive()
    assert stopped.is_set()
    assert causes == [False]
    assert "query 42 still reads" in caplog.text


@pytest.mark.parametrize("error", [ConnectionRefusedError(111), Py4JNetworkError("empty")])
def test_nothing_is_raised_where_the_jvm_has_gone_with_all_queries(error: Exception) -> None:
    session = MagicMock()
    session.streams.addListener.side_effect = session.streams.removeListener.side_effect = error
    queries = ResultQueries(session, "file:/out")
    queries.fail("job 'sums' has failed")
    queries._listens = True
    queries.forget()
