"""Whole numbers of numpy wherever a program gives a count, a size or a length of time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from event_time_functions import Contents

from pyflinkstate.api.async_functions import AsyncFunction
from pyflinkstate.api.serialization import RowFieldExtractorSchema
from pyflinkstate.api.slot_sharing_group import MemorySize
from pyflinkstate.api.state_backend import EmbeddedRocksDBStateBackend
from pyflinkstate.api.time import Time
from pyflinkstate.api.triggers import CountTrigger
from pyflinkstate.api.window_assigners import TumblingEventTimeWindows
from pyflinkstate.datastream import AsyncDataStream
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.operators.windows.windowing import window_operator
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings, ExecutionConfig
from pyflinkstate.runtime.settings.checkpoint_config import CheckpointConfig
from pyflinkstate.runtime.settings.restart import FailureRateRestart, FixedDelayRestart, RestartStrategies
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.text_file_sink import RollingPolicy
from pyflinkstate.runtime.sources import NumberSequenceSource
from pyflinkstate.runtime.storage.settings import FileSystemCheckpointStorage, JobManagerCheckpointStorage


class Echo(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


def transfer_threads(number: Any) -> int:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_number_of_transfer_threads(number)
    return backend.get_number_of_transfer_threads()


def capacity(number: Any) -> Any:
    stream: Any = SimpleNamespace(async_wait=lambda descriptor, _: descriptor)
    return AsyncDataStream.unordered_wait(stream, Echo(), Time.seconds(1), number).capacity


#: What takes a whole number of at least 1, and returns what became of it.
TAKES: dict[str, Callable[[Any], Any]] = {
    "interval": lambda n: CheckpointConfig().set_checkpoint_interval(n).get_checkpoint_interval(),
    "timeout": lambda n: CheckpointConfig().set_checkpoint_timeout(n).get_checkpoint_timeout(),
    "attempts": lambda n: FixedDelayRestart(n, 0).attempts,
    "delay": lambda n: RestartStrategies.fixed_delay_restart(1, n).delay_ms,  # type: ignore[attr-defined]
    "rate": lambda n: FailureRateRestart(1, n, 0).interval_ms,
    "backoff": lambda n: RestartStrategies.exponential_delay_restart(n).initial_backoff_ms,  # type: ignore[attr-defined]
    "reset": lambda n: (
        RestartStrategies.exponential_delay_restart(  # type: ignore[attr-defined]
            reset_backoff_threshold=n
        ).reset_threshold_ms
    ),
    "last attempt": lambda n: RestartStrategies.exponential_delay_restart(attempts=n).attempts,  # type: ignore[attr-defined]
    "threshold": lambda n: FileSystemCheckpointStorage("/x", n).file_state_size_threshold,
    "buffer": lambda n: FileSystemCheckpointStorage("/x", write_buffer_size=n).write_buffer_size,
    "state": lambda n: JobManagerCheckpointStorage(None, n).max_state_size,
    "retention": lambda n: FileSink("/x", retention_ms=n)._retention_ms,
    "part": lambda n: RollingPolicy(n).part_size,
    "first": lambda n: NumberSequenceSource(n, 100).start,
    "last": lambda n: NumberSequenceSource(-1, n).end,
    "records": lambda n: NumberSequenceSource(1, 9, records_per_epoch=n).records_per_epoch,
    "lateness": lambda n: (
        window_operator(
            TumblingEventTimeWindows.of(10), allowed_lateness_ms=n, function=Contents()
        ).allowed_lateness_ms
    ),
    "watermarks": lambda n: (
        ExecutionConfig(EnvironmentSettings(1)).set_auto_watermark_interval(n).get_auto_watermark_interval()
    ),
    "count": lambda n: CountTrigger(n)._window_size,
    "field": lambda n: RowFieldExtractorSchema(n).field_index,
    "memory": lambda n: MemorySize(bytes_size=n).get_bytes(),
    "threads": transfer_threads,
    "capacity": capacity,
}


@pytest.mark.parametrize("name", TAKES)
def test_a_whole_number_of_numpy_becomes_an_int(name: str) -> None:
    taken = TAKES[name](np.int64(7))
    assert (type(taken), taken) == (int, 7)


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("wrong", [1.5, np.float64(2), "3", True, np.True_], ids=repr)
def test_anything_else_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(PyFlinkStateError):
        TAKES[name](wrong)
