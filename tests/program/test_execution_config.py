"""Settings of a job that are kept and given back: some do something, and the others say that they do not."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program import EnvironmentSettings, ExecutionConfig


@pytest.fixture
def settings() -> EnvironmentSettings:
    return EnvironmentSettings(lambda: 2)


@pytest.fixture
def config(settings: EnvironmentSettings) -> ExecutionConfig:
    return ExecutionConfig(settings)


#: What changes nothing: a call, what is read after it, and before.
IDLE: dict[str, tuple[str, tuple[Any, ...], str, Any, Any]] = {
    "watermarks": ("set_auto_watermark_interval", (5,), "get_auto_watermark_interval", 5, 200),
    "latency": ("set_latency_tracking_interval", (5,), "get_latency_tracking_interval", 5, 0),
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


@pytest.mark.parametrize("name", ["watermarks", "latency", "interval", "timeout"])
@pytest.mark.parametrize("bad", [-1, 1.5, "5 s", None])
def test_a_time_is_a_whole_number(config: ExecutionConfig, name: str, bad: Any) -> None:
    put, _, get, _, before = IDLE[name]
    with pytest.raises(ConfigurationError, match="in milliseconds must be a whole number"):
        getattr(config, put)(bad)
    assert getattr(config, get)() == before


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
