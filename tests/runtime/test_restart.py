"""Restart strategies."""

from __future__ import annotations

import pytest

from pyflinkstate.errors import (
    BadRecordError,
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    InvalidKeyError,
    MalformedRecordError,
    PyFlinkStateError,
    SinkError,
    SlotLostError,
    SourceError,
    SparkJobError,
    StaleSlotError,
    UserFunctionError,
)
from pyflinkstate.runtime.restart import RestartStrategies, RestartStrategy

MAY_GO_AWAY = [
    UserFunctionError,
    SlotLostError,
    StaleSlotError,
    SparkJobError,
    SourceError,
    CheckpointStorageError,
    CheckpointFailuresExceededError,
]
MUST_COME_AGAIN = [
    BadRecordError,
    InvalidKeyError,
    MalformedRecordError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    SinkError,
]


@pytest.mark.parametrize("error", MAY_GO_AWAY)
def test_attempts_are_given_until_they_are_used_up(error: type[PyFlinkStateError]) -> None:
    strategy = RestartStrategies.fixed_delay_restart(2, 500)
    assert [strategy.allows(error("failed"), done) for done in range(4)] == [True, True, False, False]
    assert strategy.delay_ms == 500


@pytest.mark.parametrize("error", MUST_COME_AGAIN)
def test_what_must_come_again_is_not_tried_again(error: type[PyFlinkStateError]) -> None:
    assert not RestartStrategies.fixed_delay_restart(10, 0).allows(error("failed"), 0)


@pytest.mark.parametrize("error", [*MAY_GO_AWAY, *MUST_COME_AGAIN])
def test_without_restarts_no_error_is_tried_again(error: type[PyFlinkStateError]) -> None:
    assert not RestartStrategies.no_restart().allows(error("failed"), 0)


@pytest.mark.parametrize(("attempts", "delay_ms"), [(-1, 0), (0, -1)])
def test_negative_numbers_are_refused(attempts: int, delay_ms: int) -> None:
    with pytest.raises(ValueError, match="must be >= 0"):
        FixedDelayRestart(attempts, delay_ms)
