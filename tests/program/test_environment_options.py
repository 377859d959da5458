"""What an environment takes from a ``Configuration``. Nothing runs, so there is no Spark."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pyflinkstate.api import Configuration, Duration, EmbeddedRocksDBStateBackend
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.rocksdb import RocksDBStateBackend
from pyflinkstate.errors import ConfigurationError, ParallelismError, UnsupportedFeatureError
from pyflinkstate.runtime.master import WebPageSettings
from pyflinkstate.runtime.plan import SourceNode, UnionNode
from pyflinkstate.runtime.program import (
    EnvironmentSettings,
    ExecutionConfig,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from pyflinkstate.runtime.program.environment_settings import TABLE, apply_configuration, told_settings
from pyflinkstate.runtime.settings import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointSettings,
    ExternalizedCheckpointRetention,
    OnSigterm,
    rows_of,
)
from pyflinkstate.runtime.settings.option_names import FLINK_OPTIONS
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
)
from pyflinkstate.runtime.sources import CollectionSource, RateSource
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage
from pyflinkstate.runtime.wire import HeartbeatSettings


def new_settings() -> EnvironmentSettings:
    return EnvironmentSettings(lambda: 2)


def told(options: dict[str, Any]) -> EnvironmentSettings:
    return told_in_turn(options)


def told_in_turn(*calls: dict[str, Any]) -> EnvironmentSettings:
    settings = new_settings()
    for options in calls:
        apply_configuration(settings, Configuration.from_dict(options))
    return settings


def restart(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [{f"restart-strategy.{key}": value for key, value in call.items()} for call in calls]


#: As Flink 2.3's ``TimeUtils.parseDuration`` and ``MemorySize.parse`` have it.
DURATIONS_MS = {"10": 10, "10 secs": 10_000, "2 m": 120_000, "2min": 120_000, "3 hours": 3 * 3_600_000}
DURATIONS_MS |= {"1 d": 86_400_000, "5 millis": 5, "5 S": 5000}
SIZES = {"10": 10, "10 bytes": 10, "1k": 1024, "1 KB": 1024, "1 m": 1 << 20, "1g": 1 << 30, "1 tb": 1 << 40}
CHECKPOINTS = {
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
IDLE_CHECKPOINTS = {
    "execution.checkpointing.mode": "AT_LEAST_ONCE",
    "execution.checkpointing.unaligned.enabled": "true",
    "execution.checkpointing.aligned-checkpoint-timeout": "3 s",
}
#: What an environment is told, in one call or several, and what it has then, by the way to it: calls of
#: methods are in brackets.
TAKEN: list[tuple[list[dict[str, Any]], str, Any]] = [
    ([{"parallelism.default": "4", "pipeline.max-parallelism": 8}], "parallelism", 4),
    ([{"parallelism.default": "4", "pipeline.max-parallelism": 8}], "max_parallelism", 8),
    ([{"pipeline.name": "a job"}], "default_job_name", "a job"),
    ([{}], "epochs_ahead", 1),
    ([{"pyflinkstate.epochs-ahead": "0"}], "epochs_ahead", 0),
    ([{"execution.buffer-timeout": "1 min"}], "buffer_timeout_ms", 60_000),
    ([{"execution.buffer-timeout.interval": "7"}], "buffer_timeout_ms", 7),
    ([{"metrics.latency.interval": "5 s"}], "latency_tracking_interval_ms", 5000),
    ([{"state.backend": "hashmap", "state.savepoints.dir": "/s"}], "savepoint_directory", "/s"),
    ([{"execution.savepoint.path": "/s/1"}], "restore_path", "/s/1"),
    ([CHECKPOINTS], "checkpoints.get_checkpoint_interval()", 10_000),
    ([CHECKPOINTS], "checkpoints.get_checkpointing_mode()", CheckpointingMode.EXACTLY_ONCE),
    ([CHECKPOINTS], "checkpoints.get_checkpoint_timeout()", 120_000),
    ([CHECKPOINTS], "checkpoints.get_min_pause_between_checkpoints()", 500),
    ([CHECKPOINTS], "checkpoints.get_max_concurrent_checkpoints()", 2),
    ([CHECKPOINTS], "checkpoints.get_tolerable_checkpoint_failure_number()", 3),
    (
        [CHECKPOINTS],
        "checkpoints.get_externalized_checkpoint_retention()",
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
    ),
    ([CHECKPOINTS], "checkpoints.get_max_retained_checkpoints()", 5),
    ([CHECKPOINTS], "checkpoints.is_incremental()", True),
    (
        [CHECKPOINTS],
        "checkpoints.get_checkpoint_storage()",
        FileSystemCheckpointStorage("s3://bucket/checkpoints", 10 * 1024),
    ),
    (
        [
            {"execution.checkpointing.data-inline-threshold": "10 kb"},
            {"execution.checkpointing.dir": "/a"},
            {"execution.checkpointing.write-buffer-size": "1 mb"},
        ],
        "checkpoints.get_checkpoint_storage()",
        FileSystemCheckpointStorage("/a", 10 * 1024, 1024 * 1024),
    ),
    ([IDLE_CHECKPOINTS], "checkpoints.get_checkpointing_mode()", CheckpointingMode.AT_LEAST_ONCE),
    ([IDLE_CHECKPOINTS], "checkpoints.is_unaligned_checkpoints_enabled()", True),
    ([IDLE_CHECKPOINTS], "checkpoints.get_aligned_checkpoint_timeout()", Duration.of_seconds(3)),
    *(
        ([{"execution.checkpointing.interval": text}], "checkpoints.get_checkpoint_interval()", milliseconds)
        for text, milliseconds in DURATIONS_MS.items()
    ),
    *(
        (
            [{"execution.checkpointing.dir": "/x", "execution.checkpointing.write-buffer-size": text}],
            "checkpoints.get_checkpoint_storage().get_write_buffer_size()",
            size_bytes,
        )
        for text, size_bytes in SIZES.items()
    ),
    (restart({"type": "none"}), "restart", NoRestart()),
    (restart({"type": "fixed-delay"}), "restart", FixedDelayRestart(1, 1000)),
    (
        restart({"type": "fixed-delay", "fixed-delay.attempts": 7, "fixed-delay.delay": "2 s"}),
        "restart",
        FixedDelayRestart(7, 2000),
    ),
    (
        restart({"type": "failure-rate", "failure-rate.max-failures-per-interval": 2}),
        "restart",
        FailureRateRestart(2, 60_000, 1000),
    ),
    (
        restart({"type": "exponential-delay", "exponential-delay.max-backoff": "5 s"}),
        "restart",
        ExponentialDelayRestart(max_backoff_ms=5000),
    ),
    (
        restart({"type": "fixed-delay"}, {"fixed-delay.attempts": 7}, {"fixed-delay.delay": "2 s"}),
        "restart",
        FixedDelayRestart(7, 2000),
    ),
    (restart({"fixed-delay.attempts": 7}, {"type": "fixed-delay"}), "restart", FixedDelayRestart(7, 1000)),
    (restart({"type": "fixed-delay", "fixed-delay.attempts": 7}, {"type": "none"}), "restart", NoRestart()),
    (restart({"type": "none"}, {"fixed-delay.attempts": 7}), "restart", NoRestart()),
    ([{}], "heartbeat", HeartbeatSettings(10_000, 50_000)),
    ([{"heartbeat.interval": "2 s"}], "heartbeat", HeartbeatSettings(2_000, 50_000)),
    ([{"heartbeat.timeout": "2 min"}], "heartbeat", HeartbeatSettings(10_000, 120_000)),
    (
        [{"heartbeat.interval": 60_000, "heartbeat.timeout": 90_000}],
        "heartbeat",
        HeartbeatSettings(60_000, 90_000),
    ),
    (
        [{"heartbeat.interval": "2 s"}, {"heartbeat.timeout": "9 s"}],
        "heartbeat",
        HeartbeatSettings(2_000, 9_000),
    ),
    (
        [{"heartbeat.timeout": "9 s", "heartbeat.interval": "1 s"}, {"heartbeat.interval": "2 s"}],
        "heartbeat",
        HeartbeatSettings(2_000, 9_000),
    ),
    ([{}], "web_page", None),
    ([{"rest.address": "jobs.example", "web.cancel.enable": False}], "web_page", None),
    ([{"rest.port": 8081}], "web_page", WebPageSettings((8081,))),
    ([{"rest.bind-port": "0", "rest.port": 8081}], "web_page", WebPageSettings((0,))),
    ([{"rest.bind-port": "50100-50102"}], "web_page", WebPageSettings(range(50100, 50103))),
    ([{"rest.port": "8081, 8082"}], "web_page", WebPageSettings((8081, 8082))),
    (
        [
            {"pyflinkstate.rest.token-file": "/run/token"},
            {"rest.port": 1, "pyflinkstate.rest.health-timeout": "2 min"},
        ],
        "web_page",
        WebPageSettings((1,), token_file="/run/token", health_timeout_ms=120_000),
    ),
    ([{"pyflinkstate.on-sigterm": "at_once"}], "on_sigterm", OnSigterm.AT_ONCE),
    ([{"pyflinkstate.on-sigterm.timeout": "2 min"}], "on_sigterm_timeout_ms", 120_000),
    (
        [{"rest.port": 1, "rest.bind-address": "0.0.0.0", "rest.address": "jobs.example"}],
        "web_page",
        WebPageSettings((1,), "0.0.0.0", "jobs.example"),
    ),
    *(
        (calls, "web_page", WebPageSettings((1,), "0.0.0.0", has_actions=False))
        for calls in (
            [{"rest.port": 1}, {"rest.bind-address": "0.0.0.0"}, {"web.cancel.enable": False}],
            [{"rest.bind-address": "0.0.0.0"}, {"web.cancel.enable": False}, {"rest.port": 1}],
            [
                {"rest.port": 2, "web.cancel.enable": False},
                {"rest.bind-address": "0.0.0.0"},
                {"rest.port": 1},
            ],
            [
                {"rest.port": 2, "web.cancel.enable": False, "rest.bind-address": "0.0.0.0"},
                {"rest.bind-port": 1},
            ],
        )
    ),
    *(
        ([{"pipeline.global-job-parameters": text}], "job_parameters", expected)
        for text, expected in [
            ("limit:3, mode : 'a,b:c'", {"limit": "3", "mode": "a,b:c"}),
            ("{a: 1, b: 2}", {"a": "1", "b": "2"}),
            ("  { a : 'x, y' , b: \"it's\" }", {"a": "x, y", "b": "it's"}),
            ("{}", {}),
            ({"a": "x", "n": 1}, {"a": "x", "n": "1"}),
        ]
    ),
]


@pytest.mark.parametrize(("calls", "way", "expected"), TAKEN)
def test_what_an_environment_takes(calls: list[dict[str, Any]], way: str, expected: Any) -> None:
    found: Any = told_in_turn(*calls)
    for name in way.split("."):
        found = getattr(found, name.removesuffix("()"))
        found = found() if name.endswith("()") else found
    assert found == expected


def test_where_no_parallelism_is_set_it_is_the_default_one_else_sparks() -> None:
    settings = new_settings()
    assert settings.get_parallelism() == 2
    settings.default_parallelism = 5
    assert settings.get_parallelism() == 5
    settings.parallelism = 3
    assert settings.get_parallelism() == 3


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_the_runtime_mode(mode: RuntimeExecutionMode) -> None:
    env = told({"execution.runtime-mode": mode.name})
    bounded = SourceNode(CollectionSource([]), "bounded")
    endless = SourceNode(RateSource(1, lambda: 0), "endless")
    assert env.runs_in_batch(bounded) is (mode is not RuntimeExecutionMode.STREAMING)
    assert env.runs_in_batch(UnionNode((bounded, endless))) is (mode is RuntimeExecutionMode.BATCH)


@pytest.mark.parametrize(
    ("settings", "is_allowed"),
    [
        ({}, False),
        ({"execution.state-recovery.ignore-unclaimed-state": True}, True),
        ({"execution.savepoint.ignore-unclaimed-state": True}, True),
        (
            {
                "execution.state-recovery.ignore-unclaimed-state": False,
                "execution.savepoint.ignore-unclaimed-state": True,
            },
            False,
        ),
    ],
)
def test_state_that_nobody_claims_may_be_given_up(
    caplog: pytest.LogCaptureFixture, settings: dict[str, Any], is_allowed: bool
) -> None:
    env = told({"execution.state-recovery.path": "/s/1", **settings})
    assert (env.restore_path, env.allows_non_restored_state) == ("/s/1", is_allowed)
    assert "changes nothing" not in caplog.text


def test_that_changes_nothing_if_nothing_is_restored(caplog: pytest.LogCaptureFixture) -> None:
    env = told({"execution.state-recovery.ignore-unclaimed-state": True})
    assert (env.restore_path, env.allows_non_restored_state) == (None, False)
    assert "'execution.state-recovery.path' is not set" in caplog.text


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (
            "execution.checkpointing.intervall",
            "it is no setting of Flink's; did you mean 'execution.checkpointing.interval'?",
        ),
        (
            "execution.checkpoint.interval",
            "it is no setting of Flink's; did you mean 'execution.checkpointing.interval'?",
        ),
        (
            "restart-strategy.fixed-delay.attemps",
            "it is no setting of Flink's; did you mean 'restart-strategy.fixed-delay.attempts'?",
        ),
        ("paralellism.default", "it is no setting of Flink's; did you mean 'parallelism.default'?"),
        ("pipeline.nmae", "it is no setting of Flink's; did you mean 'pipeline.name'?"),
        ("state.checkpoint.dir", "it is no setting of Flink's; did you mean 'state.checkpoints.dir'?"),
        ("pipeline.zzz", "it is no setting of Flink's"),
        ("python.executable", "Spark starts the Python workers"),
        ("pipeline.force-kryo", "this option is recognised but has no effect here"),
        ("taskmanager.numberOfTaskSlots", "it is about a cluster of Flink's"),
        ("state.backend.rocksdb.compaction.style", "no state backend here has such an option"),
        (
            "state.backend.rocksdb.metrics.num-running-flushes",
            "the same metrics of RocksDB are always reported",
        ),
        ("restart-strategy.fixed-delay.delay", "'restart-strategy.type' is not set, to 'fixed-delay'"),
        ("execution.checkpointing.write-buffer-size", "'execution.checkpointing.dir' is not set"),
    ],
)
def test_what_changes_nothing_is_told_once(caplog: pytest.LogCaptureFixture, key: str, why: str) -> None:
    settings, configuration = new_settings(), Configuration.from_dict({key: "1"})
    with caplog.at_level(logging.INFO, "pyflinkstate"):
        apply_configuration(settings, configuration)
        apply_configuration(settings, configuration)
    assert warnings(caplog) == [f"setting {key!r} changes nothing: {why}"]
    assert [record.name for record in caplog.records] == ["pyflinkstate.configuration"]
    assert settings.configuration.key_set() == {key}


IDLE_OPTIONS: dict[str, tuple[str, Callable[[EnvironmentSettings], object], object]] = {
    "pipeline.operator-chaining": (
        "false",
        lambda settings: settings.idle_streams.is_chaining_enabled,
        False,
    ),
    "pipeline.operator-chaining.enabled": (
        "false",
        lambda settings: settings.idle_streams.is_chaining_enabled,
        False,
    ),
    "pipeline.auto-watermark-interval": (
        "1 s",
        lambda settings: ExecutionConfig(settings).get_auto_watermark_interval(),
        1000,
    ),
    "pipeline.closure-cleaner-level": (
        "NONE",
        lambda settings: ExecutionConfig(settings).is_closure_cleaner_enabled(),
        False,
    ),
    "pipeline.object-reuse": ("true", lambda s: ExecutionConfig(s).is_object_reuse_enabled(), True),
    "task.cancellation.interval": ("7", lambda s: ExecutionConfig(s).get_task_cancellation_interval(), 7),
    "task.cancellation.timeout": ("7", lambda s: ExecutionConfig(s).get_task_cancellation_timeout(), 7),
}


@pytest.mark.parametrize("key", IDLE_OPTIONS)
def test_a_setting_without_effect_is_given_back_as_after_its_setter(
    caplog: pytest.LogCaptureFixture, key: str
) -> None:
    text, get, value = IDLE_OPTIONS[key]
    assert get(new_settings()) != value
    assert get(told({key: text})) == value
    (why,) = (option.row.why_idle for option in TABLE if key in option.row.names())
    assert warnings(caplog) == [f"setting {key!r} changes nothing: {why}"]


def drawn_texts() -> list[tuple[str, str, str, Any]]:
    """Return for each setting of checkpoints a key, the name of its field, a text, and what it means."""
    return [
        (key, name, str(value).lower(), value)
        for name, row in rows_of(CheckpointSettings).items()
        if row.key
        for key in row.names()
        for value in ((True, False) if isinstance(row.drawn, float) else row.drawn)
    ]


@pytest.mark.parametrize(("key", "name", "text", "value"), drawn_texts())
def test_a_configuration_takes_whatever_simulations_draw(key: str, name: str, text: str, value: Any) -> None:
    assert getattr(told({key: text}).checkpoints.settings, name) == value


def test_what_has_no_effect_and_is_the_default_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    told({"execution.checkpointing.mode": "EXACTLY_ONCE", "pipeline.object-reuse": False})
    assert warnings(caplog) == []


def test_each_key_has_one_row() -> None:
    keys = [key for option in TABLE for key in (*option.row.names(), *option.row.parts) if key]
    assert [key for key, number in Counter(keys).items() if number > 1] == []


def test_each_key_is_flinks_or_our_own() -> None:
    keys = {key for option in TABLE for key in (*option.row.names(), *option.row.parts) if key}
    assert {key for key in keys - FLINK_OPTIONS if not key.startswith("pyflinkstate.")} == set()


def test_each_row_tells_what_it_means_and_who_sets_it() -> None:
    rows = [option.row for option in TABLE if option.row.setter]
    assert [row.setter for row in rows if not row.meaning and not row.why_idle] == []
    homes = (StreamExecutionEnvironment, ExecutionConfig, CheckpointConfig)
    setters = {row.setter.partition("(")[0] for row in rows}
    assert [name for name in setters if not any(hasattr(home, name) for home in homes)] == []


@pytest.mark.parametrize(
    "key", ["no.such.key", "threshold", "my.app.interval", "user.parallelism", "job.name"]
)
def test_keys_of_the_programs_own_are_kept_in_silence(caplog: pytest.LogCaptureFixture, key: str) -> None:
    assert told({key: "1"}).configuration.key_set() == {key}
    assert warnings(caplog) == []


def test_what_has_an_effect_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    told(
        {
            "parallelism.default": 2,
            "state.checkpoints.dir": "/tmp/checkpoints",
            "execution.checkpointing.data-inline-threshold": "1 kb",
            "restart-strategy": "fixeddelay",
            "restart-strategy.fixed-delay.attempts": 3,
        }
    )
    assert warnings(caplog) == []


def test_settings_of_another_restart_strategy_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    told({"restart-strategy.type": "failure-rate", "restart-strategy.fixed-delay.attempts": 3})
    assert warnings(caplog) == [
        "setting 'restart-strategy.fixed-delay.attempts' changes nothing: 'restart-strategy.type' is "
        "'failure-rate', not 'fixed-delay'"
    ]


A_TIME = "a number of milliseconds, or a number and ms, s, min, h or d, such as '10 s' is needed"
A_SIZE = "a number of bytes, or a number and b, kb, mb, gb or tb, such as '20 kb' is needed"


@pytest.mark.parametrize(
    ("key", "value", "needed"),
    [
        ("execution.checkpointing.interval", "soon", A_TIME),
        ("execution.checkpointing.interval", "10 fortnights", A_TIME),
        ("execution.checkpointing.interval", "-5 s", A_TIME),
        ("execution.checkpointing.interval", "1.5 s", A_TIME),
        ("execution.runtime-mode", "FAST", "choose one of streaming, batch, automatic"),
        ("restart-strategy.type", "hopeful", "choose one of none, off"),
        ("parallelism.default", "many", "a whole number is needed, such as 4"),
        ("parallelism.default", "4.5", "a whole number is needed, such as 4"),
        ("parallelism.default", 4.5, "a whole number is needed, such as 4"),
        ("parallelism.default", 0, "parallelism not within bounds: 0"),
        ("execution.checkpointing.num-retained", -1, "must be a whole number, at least 1"),
        ("execution.checkpointing.incremental", "yes", "true or false is needed"),
    ],
)
def test_a_value_that_makes_no_sense_is_told_with_its_key(key: str, value: Any, needed: str) -> None:
    with pytest.raises(ConfigurationError, match=f"setting '{key}' is '?{value}'?: .*{needed}"):
        told({key: value})


@pytest.mark.parametrize(
    ("key", "value", "needed"),
    [
        ("restart-strategy.fixed-delay.attempts", "few", "a whole number is needed, such as 4"),
        ("restart-strategy.fixed-delay.delay", "a while", A_TIME),
        ("execution.checkpointing.write-buffer-size", "large", A_SIZE),
    ],
)
def test_so_is_one_that_is_read_with_another(key: str, value: str, needed: str) -> None:
    others = {"restart-strategy.type": "fixed-delay", "execution.checkpointing.dir": "/x"}
    with pytest.raises(ConfigurationError, match=f"^setting '{key}' is '{value}': {needed}"):
        told({**others, key: value})


MIB = 1 << 20


@pytest.mark.parametrize(("word", "expected"), [("ROCKSDB", True), ("HEAP", False), (None, True)])
def test_where_timers_are(monkeypatch: pytest.MonkeyPatch, word: str | None, expected: bool) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", ModuleType("rocksdict"))
    settings = told({"state.backend.type": "rocksdb"})
    if word is not None:
        options = {"state.backend.rocksdb.timer-service.factory": word}
        apply_configuration(settings, Configuration.from_dict(options))
    assert settings.chosen_state_backend() == RocksDBStateBackend(has_timers_on_disk=expected)


@pytest.mark.parametrize(
    ("options", "paths", "slot_bytes", "directories", "memory_bytes"),
    [
        ({}, (), None, (), 256 * MIB),
        ({"localdir": " /a, /b"}, (), None, ("/a", "/b"), 256 * MIB),
        ({"localdir": "/a"}, ("/c",), None, ("/c",), 256 * MIB),
        ({"memory.fixed-per-slot": "64 mb"}, (), 1000 * MIB, (), 64 * MIB),
        ({}, (), 1000 * MIB, (), 500 * MIB),
        ({"memory.managed": "false"}, (), 1000 * MIB, (), 256 * MIB),
    ],
)
def test_rocksdb_gets_its_directories_and_memory(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    paths: tuple[str, ...],
    slot_bytes: int | None,
    directories: tuple[str, ...],
    memory_bytes: int,
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", ModuleType("rocksdict"))
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths(*paths)
    settings = told({f"state.backend.rocksdb.{key}": value for key, value in options.items()})
    settings.state_backend = backend  # type: ignore[assignment]
    settings.slot_memory_bytes = slot_bytes
    chosen = settings.chosen_state_backend()
    assert chosen == RocksDBStateBackend(directories=directories, memory_bytes=memory_bytes)
    assert settings.checkpoints.is_incremental()


def test_the_type_of_the_backend_chooses_rocksdb_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", ModuleType("rocksdict"))
    settings = told({"state.backend.type": "rocksdb"})
    assert settings.state_backend == RocksDBStateBackend()
    apply_configuration(settings, Configuration.from_dict({"state.backend.type": "hashmap"}))
    assert type(settings.state_backend) is HashMapStateBackend


def test_single_operators_have_other_backends_with_the_same_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", ModuleType("rocksdict"))
    options = {"pyflinkstate.state-backend-overrides": "sums: rocksdb, names: hashmap"}
    options |= {
        "state.backend.rocksdb.localdir": "/a",
        "execution.checkpointing.snapshot-compression": "false",
    }
    plain = HashMapStateBackend(snapshot_compression=None)
    on_disk = RocksDBStateBackend(directories=("/a",), snapshot_compression=None)
    settings = told(options)
    assert settings.own_state_backends() == {"sums": on_disk, "names": plain}
    assert settings.chosen_state_backend() == plain
    settings = told({**options, "state.backend.type": "rocksdb"})
    assert settings.own_state_backends() == {"sums": on_disk, "names": plain}
    with pytest.raises(ConfigurationError, match="has 'forst' for 'sums': choose hashmap or rocksdb"):
        told({"pyflinkstate.state-backend-overrides": "sums:forst"})


def test_without_rocksdict_it_is_said_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyflinkstate\[rocksdb\]'"):
        told({"state.backend.type": "rocksdb"})


def test_what_is_set_on_the_execution_config_is_set_for_the_environment() -> None:
    settings = new_settings()
    config = ExecutionConfig(settings)
    assert (config.get_auto_watermark_interval(), config.get_max_parallelism()) == (200, -1)
    config.set_parallelism(3).set_auto_watermark_interval(10).enable_object_reuse()
    assert (settings.parallelism, config.get_parallelism()) == (3, 3)
    assert (config.get_auto_watermark_interval(), config.is_object_reuse_enabled()) == (10, True)


def test_the_execution_config_checks_as_the_environment_does() -> None:
    config = ExecutionConfig(new_settings()).set_max_parallelism(8)
    with pytest.raises(ParallelismError):
        config.set_parallelism(9)
    with pytest.raises(ParallelismError):
        config.set_max_parallelism(0)
    assert (config.get_parallelism(), config.get_max_parallelism()) == (2, 8)


def test_a_mode_or_configuration_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RuntimeExecutionMode"):
        new_settings().mode = "BATCH"  # type: ignore[assignment]
    with pytest.raises(ConfigurationError, match="takes a Configuration"):
        apply_configuration(new_settings(), {})  # type: ignore[arg-type]


class Shipped(list[tuple[Any, ...]]):
    """What would be shipped to where functions run."""

    def add_file(self, path: str) -> None:
        self.append(("file", path))

    def add_archive(self, path: str, target_dir: str | None) -> None:
        if not path.endswith(".zip"):
            raise ConfigurationError(f"{path} is no zip file")
        self.append(("archive", path, target_dir))

    def add_requirements(self, file_path: str, cache_dir: str | None) -> None:
        self.append(("requirements", file_path, cache_dir))


@pytest.mark.parametrize(
    ("key", "text", "shipped"),
    [
        ("python.files", "/a/one.py, /a/folder,", [("file", "/a/one.py"), ("file", "/a/folder")]),
        (
            "python.archives",
            "/a.zip#data,/b.zip",
            [("archive", "/a.zip", "data"), ("archive", "/b.zip", None)],
        ),
        ("python.requirements", "/a/needed.txt", [("requirements", "/a/needed.txt", None)]),
        ("python.requirements", "/needed.txt#/packages", [("requirements", "/needed.txt", "/packages")]),
    ],
)
def test_python_code_is_shipped_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture, key: str, text: str, shipped: list[Any]
) -> None:
    settings = EnvironmentSettings(lambda: 2, code_shipper=Shipped())
    apply_configuration(settings, Configuration.from_dict({key: text}))
    assert settings.code_shipper == shipped
    assert warnings(caplog) == []


def test_code_that_cannot_be_shipped_is_named_with_its_setting() -> None:
    settings = EnvironmentSettings(lambda: 2, code_shipper=Shipped())
    with pytest.raises(ConfigurationError, match=r"setting 'python.archives' is '/a.tar': /a.tar is no zip"):
        apply_configuration(settings, Configuration.from_dict({"python.archives": "/a.tar"}))


@pytest.mark.parametrize("port", ["no", "-1", "50-x", "5-4", "65536", "", "1,,2"])
def test_a_port_of_the_web_page_is_checked(port: str) -> None:
    with pytest.raises(ConfigurationError, match=r"rest\.port"):
        told({"rest.port": port})


def test_an_address_without_a_port_changes_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    told({"rest.address": "jobs.example"})
    assert "'rest.address' changes nothing: 'rest.port' is not set" in caplog.text


# --- settings that belong together -------------------------------------------------------------------


def test_an_interval_that_was_set_in_between_stays() -> None:
    settings = told_in_turn({"heartbeat.interval": "2 s"})
    settings.heartbeat = HeartbeatSettings(3_000, 50_000)
    apply_configuration(settings, Configuration.from_dict({"heartbeat.timeout": "9 s"}))
    assert settings.heartbeat == HeartbeatSettings(3_000, 9_000)


def test_a_size_of_files_brings_no_older_directory_back() -> None:
    settings = told_in_turn({"execution.checkpointing.dir": "/a"})
    settings.checkpoints.set_checkpoint_storage("/b")
    apply_configuration(
        settings, Configuration.from_dict({"execution.checkpointing.write-buffer-size": "1 mb"})
    )
    storage = settings.checkpoints.get_checkpoint_storage()
    assert storage == FileSystemCheckpointStorage("/b", write_buffer_size=1024 * 1024)


@pytest.mark.parametrize("path", ["/sp2", None])
def test_giving_unclaimed_state_up_brings_no_older_path_back(path: str | None) -> None:
    settings = told_in_turn({"execution.state-recovery.path": "/sp1"})
    settings.restore_path = path
    ignore = {"execution.state-recovery.ignore-unclaimed-state": True}
    apply_configuration(settings, Configuration.from_dict(ignore))
    assert (settings.restore_path, settings.allows_non_restored_state) == (path, True)


def test_what_is_no_path_is_not_restored_from() -> None:
    settings = EnvironmentSettings(lambda: 1)
    settings.restore_path = Path("/s/chk-1")  # type: ignore[assignment]
    assert settings.restore_path == "/s/chk-1"
    with pytest.raises(ConfigurationError, match=r"a path must be a string or a pathlib\.Path, not 5"):
        settings.restore_path = 5  # type: ignore[assignment]


def test_what_an_error_says_of_a_setting_of_an_earlier_call() -> None:
    settings = told_in_turn({"restart-strategy.fixed-delay.attempts": "few"})
    with pytest.raises(
        ConfigurationError, match=r"setting 'restart-strategy\.fixed-delay\.attempts' is 'few'"
    ):
        apply_configuration(settings, Configuration.from_dict({"restart-strategy.type": "fixed-delay"}))


# --- older names -------------------------------------------------------------------------------------

#: Options with their older names, a value of each, and what the settings have then.
BOTH_NAMES: list[tuple[str, str, Any, Any, Callable[[EnvironmentSettings], Any], Any]] = [
    (
        "execution.checkpointing.dir",
        "state.checkpoints.dir",
        "/new",
        "/old",
        lambda settings: settings.checkpoints.get_checkpoint_storage(),
        FileSystemCheckpointStorage("/new"),
    ),
    (
        "execution.checkpointing.num-retained",
        "state.checkpoints.num-retained",
        3,
        5,
        lambda settings: settings.checkpoints.get_max_retained_checkpoints(),
        3,
    ),
    (
        "execution.state-recovery.path",
        "execution.savepoint.path",
        "/new",
        "/old",
        lambda settings: settings.restore_path,
        "/new",
    ),
    (
        "restart-strategy.type",
        "restart-strategy",
        "none",
        "fixed-delay",
        lambda settings: settings.restart,
        NoRestart(),
    ),
]


@pytest.mark.parametrize(
    ("newer", "older", "value", "of_older", "found", "expected"),
    BOTH_NAMES,
    ids=[names[0] for names in BOTH_NAMES],
)
def test_the_present_name_of_a_setting_counts(
    caplog: pytest.LogCaptureFixture,
    newer: str,
    older: str,
    value: Any,
    of_older: Any,
    found: Callable[[EnvironmentSettings], Any],
    expected: Any,
) -> None:
    orders: list[list[dict[str, Any]]] = [
        [{newer: value, older: of_older}],
        [{older: of_older, newer: value}],
        [{newer: value}, {older: of_older}],
        [{older: of_older}, {newer: value}],
    ]
    assert [found(told_in_turn(*calls)) for calls in orders] == [expected] * 4
    why = f"setting {older!r} changes nothing: {newer!r} is set, of which it is an older name"
    assert warnings(caplog) == [why] * 3


# --- maps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{a: 1", "{a: {b: 1}}", "{a}", "{a", "a"])
def test_a_map_that_cannot_be_read_is_refused_with_its_setting(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"setting 'pipeline\.global-job-parameters' is '\{?a"):
        told({"pipeline.global-job-parameters": text})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: told({"parallelism.default": 9, "pipeline.max-parallelism": 8}),
            ParallelismError,
            "not within bounds: 9",
            id="the_max_parallelism_bounds_the_parallelism_whichever_comes_first",
        ),
        pytest.param(
            lambda: told({"state.backend.type": "forst"}),
            UnsupportedFeatureError,
            "choose hashmap",
            id="a_state_backend_that_is_none_is_refused",
        ),
        pytest.param(
            lambda: told({"pyflinkstate.epochs-ahead": "2"}),
            ConfigurationError,
            "pyflinkstate.epochs-ahead.*0 or 1 epochs",
            id="one_epoch_is_read_ahead_at_the_most",
        ),
        pytest.param(
            lambda: told({"heartbeat.interval": "1 min"}),
            ConfigurationError,
            r"heartbeat\.interval is 60000 ms",
            id="heartbeats_rarer_than_their_timeout_are_refused",
        ),
        pytest.param(
            lambda: told({"python.files": "/a.py"}),
            ConfigurationError,
            r"python\.files.*nowhere to ship code to",
            id="code_is_not_shipped_where_everything_runs_in_one_process",
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# --- settings that are kept and given back -----------------------------------------------------------------


@pytest.fixture
def settings() -> EnvironmentSettings:
    return EnvironmentSettings(lambda: 2)


@pytest.fixture
def config(settings: EnvironmentSettings) -> ExecutionConfig:
    return ExecutionConfig(settings)


#: What changes nothing: a call, what is read after it, and before.
IDLE: dict[str, tuple[str, tuple[Any, ...], str, Any, Any]] = {
    "watermarks": ("set_auto_watermark_interval", (5,), "get_auto_watermark_interval", 5, 200),
    "object reuse": ("enable_object_reuse", (), "is_object_reuse_enabled", True, False),
    "closures": ("disable_closure_cleaner", (), "is_closure_cleaner_enabled", False, True),
    "interval": ("set_task_cancellation_interval", (5,), "get_task_cancellation_interval", 5, 30_000),
    "timeout": ("set_task_cancellation_timeout", (5,), "get_task_cancellation_timeout", 5, 180_000),
}


@pytest.mark.parametrize("name", IDLE)
def test_what_changes_nothing_is_kept_and_says_so_once(
    config: ExecutionConfig, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    put, arguments, get, after, before = IDLE[name]
    assert getattr(config, get)() == before
    with caplog.at_level(logging.INFO, "pyflinkstate.configuration"):
        for _ in range(2):
            assert getattr(config, put)(*arguments) is config
    assert getattr(config, get)() == after
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{put}() is accepted and changes nothing: ")


#: Times: those that change nothing, and one that does.
TIMES = {name: IDLE[name] for name in ("watermarks", "interval", "timeout")}
TIMES["latency"] = ("set_latency_tracking_interval", (5,), "get_latency_tracking_interval", 5, 0)


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("bad", [-1, 1.5, "5 s", None])
def test_a_time_is_a_whole_number(config: ExecutionConfig, name: str, bad: Any) -> None:
    put, _, get, _, before = TIMES[name]
    with pytest.raises(ConfigurationError, match="in milliseconds must be a whole number"):
        getattr(config, put)(bad)
    assert getattr(config, get)() == before


def test_the_interval_of_latency_markers_is_kept(config: ExecutionConfig) -> None:
    assert config.set_latency_tracking_interval(5).get_latency_tracking_interval() == 5


def test_switches_go_back(config: ExecutionConfig) -> None:
    assert config.disable_closure_cleaner().enable_closure_cleaner().is_closure_cleaner_enabled()
    assert not config.enable_object_reuse().disable_object_reuse().is_object_reuse_enabled()
    assert config.disable_auto_generated_uids().enable_auto_generated_uids().has_auto_generated_uids_enabled()


class TestJobParameters:
    def test_there_are_none_at_first_and_what_is_no_text_becomes_one(self, config: ExecutionConfig) -> None:
        assert config.get_global_job_parameters() == {}
        config.set_global_job_parameters({"n": 3, "on": True, "text": "x"})
        assert config.get_global_job_parameters() == {"n": "3", "on": "true", "text": "x"}

    def test_they_replace_those_before_and_are_copied(self, config: ExecutionConfig) -> None:
        given = {"a": "1"}
        config.set_global_job_parameters({"b": "2"}).set_global_job_parameters(given)
        given["a"] = "changed"
        config.get_global_job_parameters()["a"] = "changed"
        assert config.get_global_job_parameters() == {"a": "1"}

    @pytest.mark.parametrize("bad", [None, "a:1", [("a", "1")], {1: "a"}])
    def test_what_is_no_dict_of_texts_is_refused(self, config: ExecutionConfig, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="global job parameters"):
            config.set_global_job_parameters(bad)


class TestCompression:
    @pytest.mark.parametrize(
        ("own", "told", "chosen"),
        [
            ("zstd", None, "zstd"),
            ("lz4", True, "lz4"),
            (None, True, "zstd"),
            ("lz4", False, None),
            (None, None, None),
        ],
    )
    def test_it_goes_before_what_the_state_backend_says(
        self, settings: EnvironmentSettings, own: str | None, told: bool | None, chosen: str | None
    ) -> None:
        settings.state_backend = HashMapStateBackend(snapshot_compression=own)
        if told is not None:
            config = ExecutionConfig(settings).set_use_snapshot_compression(told)
            assert config.is_use_snapshot_compression() is told
        assert settings.chosen_state_backend().snapshot_compression == chosen


class TestAsAValue:
    def test_those_of_equal_settings_are_equal(self) -> None:
        one, other = (ExecutionConfig(EnvironmentSettings(lambda: 2)) for _ in range(2))
        one.set_global_job_parameters({"a": "1", "b": "2"}).set_task_cancellation_timeout(5)
        assert one != other
        other.set_task_cancellation_timeout(5).set_global_job_parameters({"b": "2", "a": "1"})
        assert one == other
        assert hash(one) == hash(other)
        assert str(one) == str(other)

    def test_each_change_makes_another_and_the_text_names_all(self, config: ExecutionConfig) -> None:
        for put, arguments, *_ in IDLE.values():
            getattr(config, put)(*arguments)
            assert config != ExecutionConfig(EnvironmentSettings(lambda: 2))
        assert config != "a configuration"
        text = str(config.set_parallelism(3))
        assert text.startswith("ExecutionConfig(parallelism=3, max_parallelism=-1, global_job_parameters={}")
        assert "cancellation_timeout_ms=5" in text


def test_settings_are_told_as_strings_and_without_secrets() -> None:
    settings = EnvironmentSettings(lambda: 2)
    given = {"pipeline.global-job-parameters": "password:hush", "execution.checkpointing.incremental": "true"}
    apply_configuration(settings, Configuration.from_dict(given))
    settings.put(web_page=WebPageSettings(token_file="hush"))
    told = told_settings(settings)
    assert told["execution.checkpointing.incremental"] == "true"
    assert told["pyflinkstate.on-sigterm"] == "CHECKPOINT"
    assert "hush" not in str(told)
    assert {type(value) for value in told.values()} == {str}
