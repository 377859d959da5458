"""Jobs that end with a savepoint of Flink and begin from one, with real slots."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from local_environment import local_environment
from operators import RunningSum
from support_job import LocalRunner, at

from pyflinkstate import Types
from pyflinkstate.backends.flink_format import operator_id
from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    IncompatibleCheckpointError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.storage import is_flink_savepoint
from pyflinkstate.state_access import open_checkpoint
from pyflinkstate.state_access.flink import conversion

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]

PATIENCE_S = 50
PAIRS = [("a", 1), ("b", 20), ("a", 300), ("b", 4000)]


class Program:
    """Running sums by key, an epoch a record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.runner = LocalRunner()
        self.env = local_environment(monkeypatch, lambda: self.runner)
        self.env.enable_checkpointing(0, str(folder / "checkpoints"))
        self.seen: list[Any] = []

    def run(self, key_type: Any = Types.STRING(), restore_from: str | None = None) -> JobClient:  # noqa: B008
        records = self.env.from_collection(PAIRS, records_per_epoch=1)
        sums = records.key_by(itemgetter(0), key_type=key_type).process(RunningSum()).uid("sums")
        sums.sink_to(DriverSink(lambda _, values: self.seen.extend(values)))
        if restore_from is not None:
            self.env.restore_from(restore_from)
        return self.env.execute_async("sums")

    def stopped(self, folder: Path, to: str, **given: Any) -> Future[str]:
        """Run the job, and stop it after the second epoch with a savepoint in a format."""
        client: Future[JobClient] = Future()
        asked: Future[Future[str]] = Future()

        def ask() -> None:
            try:
                asked.set_result(client.result().stop_with_savepoint(False, str(folder), format=to))
            except PyFlinkStateError as error:
                asked.set_exception(error)

        self.runner.before = at(1, ask)
        client.set_result(self.run(**given))
        client.result().get_job_execution_result().result(PATIENCE_S)
        return asked.result(0)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Program]:
    """Make a program with a folder of its own."""
    return lambda name: Program(monkeypatch, tmp_path / name)


@pytest.mark.parametrize("to", ["flink", "flink-process", "flink-thread"])
def test_a_job_stops_with_a_savepoint_of_flink_and_another_goes_on(
    program: Callable[[str], Program], tmp_path: Path, to: str
) -> None:
    first = program("first")
    folder = tmp_path / "savepoints"
    uri = first.stopped(folder, to).result(PATIENCE_S)
    assert [str(path) for path in folder.iterdir()] == [uri], "only Flink's is left"
    assert is_flink_savepoint(uri)
    assert first.seen == [("a", 1), ("b", 20)]
    if to == "flink":
        assert [one.uid for one in open_checkpoint(uri).operators()] == [operator_id("sums").hex()]
    second = program("second")
    second.run(restore_from=uri).get_job_execution_result().result(PATIENCE_S)
    assert second.seen == [("a", 2), ("b", 40), ("a", 302), ("b", 4040)]


def test_what_flink_cannot_keep_is_refused_before_the_barrier(
    program: Callable[[str], Program], tmp_path: Path
) -> None:
    first = program("first")
    with pytest.raises(ConfigurationError, match="operator 'sums': 'its keys' has pickles"):
        first.stopped(tmp_path / "savepoints", "flink", key_type=Types.PICKLED_BYTE_ARRAY())
    assert len(first.seen) == len(PAIRS), "the job has gone on"
    assert not (tmp_path / "savepoints").exists()
    with pytest.raises(ConfigurationError, match="not for 'java'"):
        program("second").stopped(tmp_path / "savepoints", "java")


def test_a_savepoint_that_cannot_be_written_for_flink_stays(
    program: Callable[[str], Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise CheckpointError("no space")

    monkeypatch.setattr(conversion, "write_flink_savepoint", fails)
    stopped = program("first").stopped(tmp_path / "savepoints", "flink")
    with pytest.raises(CheckpointError, match=r"not written for Flink.*no space") as caught:
        stopped.result(PATIENCE_S)
    left = open_checkpoint(caught.value.context["savepoint"])
    assert sorted(left.entries("sums", "sum").to_arrow().column("value").to_pylist()) == [1, 20]


def test_a_program_with_other_keys_is_refused(program: Callable[[str], Program], tmp_path: Path) -> None:
    uri = program("first").stopped(tmp_path / "savepoints", "flink").result(PATIENCE_S)
    with pytest.raises(IncompatibleCheckpointError, match="the type that the job had in Flink"):
        program("second").run(Types.LONG(), restore_from=uri)
    assert [*(tmp_path / "second" / "checkpoints").glob("from-flink-*")] == []
