"""What an environment takes from a ``Configuration``. Nothing runs, so there is no Spark."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pyflinkstate.api.configuration import Configuration
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.plan.plan import SourceNode, UnionNode
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings
from pyflinkstate.runtime.program.execution_config import ExecutionConfig, RuntimeExecutionMode
from pyflinkstate.runtime.settings.checkpoint_config import CheckpointingMode, ExternalizedCheckpointRetention
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
)
from pyflinkstate.runtime.sources.sources import CollectionSource, RateSource
from pyflinkstate.runtime.wire.heartbeat import HeartbeatSettings


class Settings(EnvironmentSettings):
    """An environment without Spark, which notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Any] = {}
        for name in (
            "set_parallelism",
            "set_max_parallelism",
            "set_default_savepoint_directory",
            "set_restart_strategy",
            "restore_from",
        ):
            setattr(self, name, lambda value, name=name: self.told.update({name: value}))

    def get_parallelism(self) -> int:
        return int(self.told.get("set_parallelism", 1))

    def get_max_parallelism(self) -> int | None:
        return self.told.get("set_max_parallelism")


def told(settings: dict[str, Any]) -> Settings:
    return Settings().configure(Configuration.from_dict(settings))


def test_what_is_of_the_environment() -> None:
    env = told({"parallelism.default": "4", "pipeline.max-parallelism": 8, "pipeline.name": "a job"})
    assert env.told == {"set_max_parallelism": 8, "set_parallelism": 4}
    assert list(env.told) == ["set_max_parallelism", "set_parallelism"]
    assert env._default_job_name == "a job"


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_the_runtime_mode(mode: RuntimeExecutionMode) -> None:
    env = told({"execution.runtime-mode": mode.name})
    bounded = SourceNode(CollectionSource([]), "bounded")
    endless = SourceNode(RateSource(1, lambda: 0), "endless")
    assert env.runs_in_batch(bounded) is (mode is not RuntimeExecutionMode.STREAMING)
    assert env.runs_in_batch(UnionNode((bounded, endless))) is (mode is RuntimeExecutionMode.BATCH)


def test_checkpoints() -> None:
    config = told(
        {
            "execution.checkpointing.interval": "10 s",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.timeout": "2min",
            "execution.checkpointing.min-pause": 500,
            "execution.checkpointing.max-concurrent-checkpoints": 2,
            "execution.checkpointing.tolerable-failed-checkpoints": 3,
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.num-retained": 5,
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.dir": "s3://bucket/checkpoints",
            "execution.checkpointing.data-inline-threshold": "10 kb",
            "execution.checkpointing.unaligned.enabled": False,
        }
    ).get_checkpoint_config()
    assert config.get_checkpoint_interval() == 10_000
    assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    assert config.get_checkpoint_timeout() == 120_000
    assert config.get_min_pause_between_checkpoints() == 500
    assert config.get_max_concurrent_checkpoints() == 2
    assert config.get_tolerable_checkpoint_failure_number() == 3
    retention = config.get_externalized_checkpoint_retention()
    assert retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    assert config.get_max_retained_checkpoints() == 5
    assert config.is_incremental()
    storage = config.get_checkpoint_storage()
    assert storage is not None
    assert (storage.get_checkpoint_path(), storage.get_min_file_size_threshold()) == (
        "s3://bucket/checkpoints",
        10 * 1024,
    )


def test_older_names_of_settings() -> None:
    env = told({"state.backend": "hashmap", "state.savepoints.dir": "/s", "execution.savepoint.path": "/s/1"})
    assert env.told == {"set_default_savepoint_directory": "/s", "restore_from": "/s/1"}


@pytest.mark.parametrize(
    ("settings", "strategy"),
    [
        ({"type": "none"}, FixedDelayRestart(0, 0)),
        ({"type": "fixed-delay"}, FixedDelayRestart(1, 1000)),
        (
            {"type": "fixed-delay", "fixed-delay.attempts": 7, "fixed-delay.delay": "2 s"},
            FixedDelayRestart(7, 2000),
        ),
        (
            {"type": "failure-rate", "failure-rate.max-failures-per-interval": 2},
            FailureRateRestart(2, 60_000, 1000),
        ),
        (
            {"type": "exponential-delay", "exponential-delay.max-backoff": "5 s"},
            ExponentialDelayRestart(max_backoff_ms=5000),
        ),
    ],
)
def test_restart_strategies(settings: dict[str, Any], strategy: Any) -> None:
    env = told({f"restart-strategy.{key}": value for key, value in settings.items()})
    assert env.told == {"set_restart_strategy": strategy}


def test_settings_of_pythons_workers_are_logged_and_left(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pyflinkstate.configuration"):
        env = told({"python.executable": "python3", "no.such.key": 1})
    assert [record.getMessage() for record in caplog.records] == [
        "setting 'python.executable' has no meaning here: Spark starts the Python workers"
    ]
    assert env._configuration.key_set() == {"python.executable", "no.such.key"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.interval", "soon"),
        ("execution.checkpointing.interval", "10 fortnights"),
        ("execution.runtime-mode", "FAST"),
        ("restart-strategy.type", "hopeful"),
        ("parallelism.default", "many"),
    ],
)
def test_a_value_that_makes_no_sense_is_told_with_its_key(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"setting '{key}' is '{value}'"):
        told({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("state.backend.type", "rocksdb"),
        ("execution.checkpointing.mode", "AT_LEAST_ONCE"),
        ("execution.checkpointing.unaligned.enabled", "true"),
    ],
)
def test_what_is_not_there_is_refused(key: str, value: str) -> None:
    with pytest.raises(UnsupportedFeatureError):
        told({key: value})


def test_what_changes_nothing_is_accepted_and_told_again() -> None:
    env = Settings()
    assert (env.get_buffer_timeout(), env.is_chaining_enabled()) == (100, True)
    env.set_buffer_timeout(5).disable_operator_chaining()
    assert (env.get_buffer_timeout(), env.is_chaining_enabled()) == (5, False)
    config = env.get_config()
    assert config is env.get_config()
    assert isinstance(config, ExecutionConfig)
    assert (config.get_auto_watermark_interval(), config.get_max_parallelism()) == (200, -1)
    config.set_parallelism(3).set_auto_watermark_interval(10).enable_object_reuse()
    assert env.get_parallelism() == 3
    assert (config.get_auto_watermark_interval(), config.is_object_reuse_enabled()) == (10, True)


def test_a_mode_or_configuration_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RuntimeExecutionMode"):
        Settings().set_runtime_mode("BATCH")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="takes a Configuration"):
        Settings().configure({})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, HeartbeatSettings(10_000, 50_000)),
        ({"heartbeat.interval": "2 s"}, HeartbeatSettings(2_000, 50_000)),
        ({"heartbeat.timeout": "2 min"}, HeartbeatSettings(10_000, 120_000)),
        ({"heartbeat.interval": 60_000, "heartbeat.timeout": 90_000}, HeartbeatSettings(60_000, 90_000)),
    ],
)
def test_heartbeats(settings: dict[str, Any], expected: HeartbeatSettings) -> None:
    assert told(settings)._heartbeat == expected


def test_heartbeats_rarer_than_their_timeout_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"heartbeat\.interval is 60000 ms"):
        told({"heartbeat.interval": "1 min"})
