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


class Folder:
    def __fspath__(self) -> str:
        return "/checkpoints"


FILES = FileSystemCheckpointStorage("/checkpoints")
STORAGE_GETTERS = ("get_checkpoint_storage", "checkpoint_directory")
OF_JOB_MANAGER = JobManagerCheckpointStorage()
DELETED = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
DEFAULTS = {
    "is_checkpointing_enabled": False,
    "get_checkpointing_mode": CheckpointingMode.EXACTLY_ONCE,
    "is_incremental": False,
    "get_externalized_checkpoint_retention": None,  # unlike Flink's, which a cluster deletes
    "is_externalized_checkpoints_enabled": True,
    "is_fall_back_enabled": False,
    "get_checkpoint_storage": None,
    "checkpoint_directory": None,
    "get_alignment_timeout": Duration.of_millis(0),
    "get_aligned_checkpoint_timeout": Duration.of_millis(0),
    "is_unaligned_checkpoints_enabled": False,
    "is_force_unaligned_checkpoints": False,
}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], {}),
        ([("set_checkpoint_interval", 0)], {"is_checkpointing_enabled": True}),
        ([("set_checkpoint_interval", 10_000)], {"is_checkpointing_enabled": True}),
        ([("set_checkpointing_mode", CheckpointingMode.EXACTLY_ONCE)], {}),
        (
            [("set_checkpointing_mode", CheckpointingMode.AT_LEAST_ONCE)],
            {"get_checkpointing_mode": CheckpointingMode.AT_LEAST_ONCE},
        ),
        ([("enable_fall_back",)], {"is_fall_back_enabled": True}),
        ([("enable_fall_back",), ("enable_fall_back", False)], {}),
        ([("enable_incremental_checkpoints",)], {"is_incremental": True}),
        ([("enable_incremental_checkpoints",), ("enable_incremental_checkpoints", False)], {}),
        *(
            ([(setter, Duration.of_seconds(2))], dict.fromkeys(getters, Duration.of_millis(2000)))
            for setter in ("set_alignment_timeout", "set_aligned_checkpoint_timeout")
            for getters in [("get_alignment_timeout", "get_aligned_checkpoint_timeout")]
        ),
        ([("enable_unaligned_checkpoints",)], {"is_unaligned_checkpoints_enabled": True}),
        ([("enable_unaligned_checkpoints",), ("disable_unaligned_checkpoints",)], {}),
        ([("set_force_unaligned_checkpoints",)], {"is_force_unaligned_checkpoints": True}),
        ([("set_force_unaligned_checkpoints",), ("set_force_unaligned_checkpoints", False)], {}),
        *(
            (
                [("set_checkpoint_storage", path)],
                {"get_checkpoint_storage": FILES, "checkpoint_directory": FILES},
            )
            for path in ("/checkpoints", Path("/checkpoints"), Folder(), FILES)
        ),
        ([("set_checkpoint_storage", OF_JOB_MANAGER)], {"get_checkpoint_storage": OF_JOB_MANAGER}),
        (
            [("set_checkpoint_storage", JobManagerCheckpointStorage("/checkpoints"))],
            {
                "get_checkpoint_storage": JobManagerCheckpointStorage("/checkpoints"),
                "checkpoint_directory": FILES,
            },
        ),
        *(
            (
                [("set_externalized_checkpoint_retention", retention)],
                {
                    "get_externalized_checkpoint_retention": retention,
                    "is_externalized_checkpoints_enabled": retention is not DELETED,
                },
            )
            for retention in ExternalizedCheckpointRetention
        ),
    ],
    ids=str,
)
def test_what_is_set_is_given_back(
    config: CheckpointConfig, calls: list[tuple[Any, ...]], expected: dict[str, Any]
) -> None:
    for name, *arguments in calls:
        assert getattr(config, name)(*arguments) is config
    assert {name: getattr(config, name)() for name in DEFAULTS} == DEFAULTS | expected


@pytest.mark.parametrize(
    ("setter", "bad", "why"),
    [
        *(("set_checkpointing_mode", bad, "CheckpointingMode") for bad in ("EXACTLY_ONCE", 0, None)),
        ("set_alignment_timeout", 5, "a value of Duration is needed, not 5"),
        *(
            ("set_checkpoint_storage", bad, "a storage is a path, a URI or")
            for bad in (7, b"/checkpoints", None)
        ),
        *(
            ("set_externalized_checkpoint_retention", bad, "ExternalizedCheckpointRetention is needed")
            for bad in ("RETAIN_ON_CANCELLATION", 1, True, None)
        ),
    ],
    ids=repr,
)
def test_what_is_refused_changes_nothing(config: CheckpointConfig, setter: str, bad: Any, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        getattr(config, setter)(bad)
    assert {name: getattr(config, name)() for name in DEFAULTS} == DEFAULTS


def test_what_changes_nothing_is_said_once(
    config: CheckpointConfig, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pyflinkstate.configuration"):
        for _ in range(2):
            config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
            config.set_aligned_checkpoint_timeout(Duration.of_seconds(2))
            config.enable_unaligned_checkpoints()
            config.disable_unaligned_checkpoints()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert all("accepted and changes nothing" in message for message in said)
    assert "checkpoints are exactly once" in said[0]


@pytest.mark.parametrize("bad", [0, -1, "5 mb", 1.5])
def test_the_size_of_state_is_a_number_of_bytes(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_state_size"):
        JobManagerCheckpointStorage(max_state_size=bad)


def test_all_state_is_written_anew_as_often_as_was_asked_for_last(config: CheckpointConfig) -> None:
    config.enable_incremental_checkpoints()
    assert config.settings.materialization_interval == 10
    config.enable_incremental_checkpoints(materialization_interval=3)
    assert config.settings == CheckpointSettings(incremental=True, materialization_interval=3)
    config.enable_incremental_checkpoints(False).enable_incremental_checkpoints()
    assert config.settings == CheckpointSettings(incremental=True, materialization_interval=3)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "3", True], ids=repr)
def test_a_bad_interval_switches_nothing_on(config: CheckpointConfig, bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="materialization_interval"):
        config.enable_incremental_checkpoints(materialization_interval=bad)
    assert config.settings == CheckpointSettings()
