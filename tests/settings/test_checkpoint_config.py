"""The settings of checkpoints: PyFlink's names, Flink's defaults, and what is refused."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import attrs
import pytest

import pyflinkstate
from pyflinkstate import Duration
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.settings import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointSettings,
    ExternalizedCheckpointRetention,
    rows_of,
)
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage

#: PyFlink's ``CheckpointConfig`` with its parameters, without what is about unaligned checkpoints and
#: without deprecated names.
PYFLINK_NAMES = {
    "get_checkpoint_interval": [],
    "get_checkpoint_timeout": [],
    "get_checkpointing_mode": [],
    "get_externalized_checkpoint_retention": [],
    "get_max_concurrent_checkpoints": [],
    "get_min_pause_between_checkpoints": [],
    "get_tolerable_checkpoint_failure_number": [],
    "is_checkpointing_enabled": [],
    "is_externalized_checkpoints_enabled": [],
    "set_checkpoint_interval": ["checkpoint_interval"],
    "set_checkpoint_timeout": ["checkpoint_timeout"],
    "set_checkpointing_mode": ["checkpointing_mode"],
    "set_externalized_checkpoint_retention": ["retention_mode"],
    "set_max_concurrent_checkpoints": ["max_concurrent_checkpoints"],
    "set_min_pause_between_checkpoints": ["min_pause_between_checkpoints"],
    "set_tolerable_checkpoint_failure_number": ["tolerable_checkpoint_failure_number"],
}
#: The rows of the table of settings that have a setter of their own, by the names of the fields.
ROWS = {
    name: row for name, row in rows_of(CheckpointSettings).items() if hasattr(CheckpointConfig, row.setter)
}
#: Getter and setter, the default, another good value, the field of the coordinator's settings.
NUMBERS = [
    (row.setter.removeprefix("set_"), -1 if row.default is None else row.default, row.least + 7, name)
    for name, row in ROWS.items()
    if row.least is not None
]
#: The least value that is taken.
LEAST = {row.setter.removeprefix("set_"): row.least for row in ROWS.values() if row.least is not None}


@pytest.fixture
def config() -> CheckpointConfig:
    return CheckpointConfig()


def get(config: CheckpointConfig, name: str) -> Any:
    return getattr(config, f"get_{name}")()


def put(config: CheckpointConfig, name: str, value: Any) -> Any:
    return getattr(config, f"set_{name}")(value)


class TestNames:
    @pytest.mark.parametrize(("name", "parameters"), PYFLINK_NAMES.items())
    def test_they_are_pyflinks(self, config: CheckpointConfig, name: str, parameters: list[str]) -> None:
        assert list(inspect.signature(getattr(config, name)).parameters) == parameters

    def test_the_package_has_them_at_its_door(self) -> None:
        assert pyflinkstate.CheckpointConfig is CheckpointConfig
        assert pyflinkstate.CheckpointingMode is CheckpointingMode
        assert pyflinkstate.ExternalizedCheckpointRetention is ExternalizedCheckpointRetention

    def test_modes_have_pyflinks_numbers(self) -> None:
        assert {mode.name: mode.value for mode in CheckpointingMode} == {
            "EXACTLY_ONCE": 0,
            "AT_LEAST_ONCE": 1,
        }

    def test_retentions_have_pyflinks_names(self) -> None:
        assert {retention.name for retention in ExternalizedCheckpointRetention} == {
            "DELETE_ON_CANCELLATION",
            "RETAIN_ON_CANCELLATION",
            "NO_EXTERNALIZED_CHECKPOINTS",
        }


class TestDefaults:
    @pytest.mark.parametrize(("name", "default", "_", "field"), NUMBERS)
    def test_numbers_are_those_of_the_table(
        self, config: CheckpointConfig, name: str, default: int, _: int, field: str
    ) -> None:
        assert get(config, name) == default
        assert getattr(config.settings, field) == (None if default == -1 else default)

    def test_they_are_flinks(self) -> None:
        flinks = {"interval_ms": None, "timeout_ms": 600_000, "min_pause_ms": 0, "max_concurrent": 1}
        flinks |= {"tolerable_failures": 0, "num_retained": 1, "incremental": False}
        assert attrs.asdict(CheckpointSettings()) == flinks | {"materialization_interval": 10}

    def test_no_checkpoints_are_taken(self, config: CheckpointConfig) -> None:
        assert not config.is_checkpointing_enabled()
        assert config.settings == CheckpointSettings()

    def test_they_are_exactly_once_and_full(self, config: CheckpointConfig) -> None:
        assert config.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
        assert not config.is_incremental()

    def test_they_stay_when_the_job_ends(self, config: CheckpointConfig) -> None:
        """Unlike Flink's, which a cluster deletes."""
        assert config.get_externalized_checkpoint_retention() is None

    def test_a_damaged_checkpoint_is_not_passed_over(self, config: CheckpointConfig) -> None:
        assert not config.is_fall_back_enabled()


class TestNumbers:
    @pytest.mark.parametrize(("name", "_", "value", "field"), NUMBERS)
    def test_what_is_set_is_read_and_goes_to_the_coordinator(
        self, config: CheckpointConfig, name: str, _: int, value: int, field: str
    ) -> None:
        assert put(config, name, value) is config
        assert get(config, name) == value
        changed = {
            other: getattr(config.settings, other)
            for *_, other in NUMBERS
            if getattr(config.settings, other) != getattr(CheckpointSettings(), other)
        }
        assert changed == {field: value}

    @pytest.mark.parametrize(("name", "least"), LEAST.items())
    def test_the_least_value_is_taken(self, config: CheckpointConfig, name: str, least: int) -> None:
        put(config, name, least)
        assert get(config, name) == least

    @pytest.mark.parametrize(("name", "least"), LEAST.items())
    def test_a_smaller_one_is_refused(self, config: CheckpointConfig, name: str, least: int) -> None:
        with pytest.raises(
            ConfigurationError, match=f"must be a whole number, at least {least}, not {least - 1}"
        ):
            put(config, name, least - 1)

    @pytest.mark.parametrize("name", LEAST)
    @pytest.mark.parametrize("bad", [1.0, "1000", None, True, float("inf"), [1]], ids=repr)
    def test_what_is_no_whole_number_is_refused(self, config: CheckpointConfig, name: str, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="must be a whole number"):
            put(config, name, bad)

    @pytest.mark.parametrize(("name", "_", "value", "__"), NUMBERS)
    def test_a_refused_value_changes_nothing(
        self, config: CheckpointConfig, name: str, _: int, value: int, __: str
    ) -> None:
        put(config, name, value)
        before = config.settings
        with pytest.raises(ConfigurationError):
            put(config, name, -5)
        assert config.settings is before

    def test_the_message_names_the_setting(self, config: CheckpointConfig) -> None:
        with pytest.raises(ConfigurationError, match=r"timeout_ms must be .*, not 'ten minutes'"):
            config.set_checkpoint_timeout("ten minutes")  # type: ignore[arg-type]

    @pytest.mark.parametrize("interval", [0, 10_000])
    def test_an_interval_enables_checkpoints(self, config: CheckpointConfig, interval: int) -> None:
        config.set_checkpoint_interval(interval)
        assert config.is_checkpointing_enabled()

    def test_settings_that_were_handed_out_do_not_change(self, config: CheckpointConfig) -> None:
        before = config.settings
        config.set_checkpoint_interval(5)
        assert before.interval_ms is None

    def test_two_environments_share_nothing(self, config: CheckpointConfig) -> None:
        config.set_checkpoint_interval(5).enable_incremental_checkpoints().enable_fall_back()
        other = CheckpointConfig()
        assert other.settings == CheckpointSettings()
        assert not other.is_fall_back_enabled()


class TestRows:
    """A row alone makes a setting known to ``Configuration``, documents and simulations."""

    @pytest.mark.parametrize("name", rows_of(CheckpointSettings))
    def test_simulations_draw_values_that_the_setting_takes(self, name: str) -> None:
        row = rows_of(CheckpointSettings)[name]
        values = (True, False) if isinstance(row.drawn, float) else row.drawn
        assert len({*values}) > 1
        assert [getattr(CheckpointConfig().put(**{name: value}).settings, name) for value in values] == [
            *values
        ]

    @pytest.mark.parametrize("name", rows_of(CheckpointSettings))
    def test_its_default_is_that_of_the_field(self, name: str) -> None:
        assert getattr(CheckpointSettings(), name) == rows_of(CheckpointSettings)[name].default

    @pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.least is not None])
    def test_the_class_itself_refuses_less_than_the_least(self, name: str) -> None:
        with pytest.raises(ValueError, match=name):
            CheckpointSettings(**{name: (ROWS[name].least or 0) - 1})


class TestMode:
    def test_exactly_once_is_accepted(self, config: CheckpointConfig) -> None:
        assert config.set_checkpointing_mode(CheckpointingMode.EXACTLY_ONCE) is config

    def test_at_least_once_is_kept_and_said_once_to_be_exactly_once(
        self, config: CheckpointConfig, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "pyflinkstate.configuration"):
            config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
            config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
        assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
        (record,) = caplog.records
        assert "checkpoints are exactly once" in record.getMessage()

    @pytest.mark.parametrize("bad", ["EXACTLY_ONCE", 0, None])
    def test_what_is_no_mode_is_refused(self, config: CheckpointConfig, bad: Any) -> None:
        with pytest.raises(ConfigurationError):
            config.set_checkpointing_mode(bad)


class TestAlignment:
    """There is none to be long: what is said about it is kept, and changes nothing."""

    def test_it_is_kept_and_given_back(self, config: CheckpointConfig) -> None:
        assert (
            config.get_alignment_timeout() == config.get_aligned_checkpoint_timeout() == Duration.of_millis(0)
        )
        assert config.set_alignment_timeout(Duration.of_seconds(2)) is config
        assert config.get_aligned_checkpoint_timeout() == Duration.of_millis(2000)
        config.enable_unaligned_checkpoints().set_force_unaligned_checkpoints()
        assert config.is_unaligned_checkpoints_enabled()
        assert config.is_force_unaligned_checkpoints()
        config.disable_unaligned_checkpoints().set_force_unaligned_checkpoints(False)
        assert not config.is_unaligned_checkpoints_enabled()
        assert not config.is_force_unaligned_checkpoints()

    def test_each_is_said_once_to_change_nothing(
        self, config: CheckpointConfig, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "pyflinkstate.configuration"):
            for _ in range(2):
                config.set_aligned_checkpoint_timeout(Duration.of_seconds(2))
                config.enable_unaligned_checkpoints()
                config.disable_unaligned_checkpoints()
        assert len(caplog.records) == 2
        assert all("accepted and changes nothing" in record.getMessage() for record in caplog.records)

    def test_a_timeout_is_a_duration(self, config: CheckpointConfig) -> None:
        with pytest.raises(ConfigurationError, match="a Duration is needed, not 5"):
            config.set_alignment_timeout(5)  # type: ignore[arg-type]


class TestStorage:
    def test_any_path_will_do(self, config: CheckpointConfig) -> None:
        class Folder:
            def __fspath__(self) -> str:
                return "/checkpoints"

        for path in ("/checkpoints", Path("/checkpoints"), Folder()):
            config.set_checkpoint_storage(path)
            assert config.get_checkpoint_storage() == FileSystemCheckpointStorage("/checkpoints")

    @pytest.mark.parametrize("bad", [7, b"/checkpoints", None])
    def test_what_is_no_path_is_refused(self, config: CheckpointConfig, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="a storage is a path, a URI or"):
            config.set_checkpoint_storage(bad)

    def test_that_of_the_job_manager_is_a_directory_for_this_run(self, config: CheckpointConfig) -> None:
        storage = JobManagerCheckpointStorage()
        assert config.set_checkpoint_storage(storage).get_checkpoint_storage() is storage
        assert config.checkpoint_directory() is None

    def test_with_a_path_it_is_that_directory(self, config: CheckpointConfig) -> None:
        config.set_checkpoint_storage(JobManagerCheckpointStorage("/some/where"))
        assert config.checkpoint_directory() == FileSystemCheckpointStorage("/some/where")

    def test_a_path_stands_for_a_file_system(self, config: CheckpointConfig) -> None:
        config.set_checkpoint_storage("/some/where")
        assert config.get_checkpoint_storage() == FileSystemCheckpointStorage("/some/where", None, -1)

    @pytest.mark.parametrize("bad", [0, -1, "5 mb", 1.5])
    def test_a_size_is_a_number_of_bytes(self, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="max_state_size"):
            JobManagerCheckpointStorage(max_state_size=bad)


class TestIncremental:
    def test_it_can_be_switched_on_and_off(self, config: CheckpointConfig) -> None:
        assert config.enable_incremental_checkpoints() is config
        assert config.is_incremental()
        assert config.settings.incremental
        config.enable_incremental_checkpoints(False)
        assert not config.is_incremental()

    def test_all_state_is_written_anew_every_ten_checkpoints(self, config: CheckpointConfig) -> None:
        config.enable_incremental_checkpoints()
        assert config.settings.materialization_interval == 10

    def test_or_as_often_as_is_asked_for(self, config: CheckpointConfig) -> None:
        config.enable_incremental_checkpoints(materialization_interval=3)
        assert config.settings == CheckpointSettings(incremental=True, materialization_interval=3)

    def test_which_stays_when_they_are_switched_on_again(self, config: CheckpointConfig) -> None:
        config.enable_incremental_checkpoints(materialization_interval=3)
        config.enable_incremental_checkpoints(False).enable_incremental_checkpoints()
        assert config.settings == CheckpointSettings(incremental=True, materialization_interval=3)

    @pytest.mark.parametrize("bad", [0, -1, 1.5, "3", True], ids=repr)
    def test_a_bad_interval_switches_nothing_on(self, config: CheckpointConfig, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="materialization_interval"):
            config.enable_incremental_checkpoints(materialization_interval=bad)
        assert config.settings == CheckpointSettings()


class TestRetention:
    @pytest.mark.parametrize("retention", ExternalizedCheckpointRetention)
    def test_it_is_kept(self, config: CheckpointConfig, retention: ExternalizedCheckpointRetention) -> None:
        assert config.set_externalized_checkpoint_retention(retention) is config
        assert config.get_externalized_checkpoint_retention() is retention

    @pytest.mark.parametrize("bad", ["RETAIN_ON_CANCELLATION", 1, True, None], ids=repr)
    def test_what_is_no_retention_is_refused(self, config: CheckpointConfig, bad: Any) -> None:
        config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)
        with pytest.raises(ConfigurationError, match="ExternalizedCheckpointRetention is needed"):
            config.set_externalized_checkpoint_retention(bad)
        kept = config.get_externalized_checkpoint_retention()
        assert kept is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION

    def test_it_tells_whether_checkpoints_outlive_a_failed_job(self, config: CheckpointConfig) -> None:
        assert config.is_externalized_checkpoints_enabled()
        for retention in ExternalizedCheckpointRetention:
            config.set_externalized_checkpoint_retention(retention)
            deleted = retention is ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
            assert config.is_externalized_checkpoints_enabled() is not deleted


class TestFallBack:
    def test_it_can_be_switched_on_and_off(self, config: CheckpointConfig) -> None:
        assert config.enable_fall_back() is config
        assert config.is_fall_back_enabled()
        config.enable_fall_back(False)
        assert not config.is_fall_back_enabled()
