"""Applies a ``Configuration`` to the settings of an environment, by the table of settings.

The table has the rows of all fields, and options that are not fields. An option without effect is logged,
as it is probably misspelled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TypeAlias

import attrs

from pyflinkstate.api import Configuration
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings
from pyflinkstate.runtime.settings import (
    CheckpointConfig,
    CheckpointSettings,
    IdleCheckpointSettings,
    IdleExecutionSettings,
    IdleStreamSettings,
    Reader,
    Setting,
    rows_of,
    why_without_effect,
)
from pyflinkstate.runtime.wire import HeartbeatSettings

_log = logging.getLogger("pyflinkstate.configuration")

#: Gives a setting to the settings of an environment.
_Apply: TypeAlias = Callable[[EnvironmentSettings, Reader], None]


@attrs.frozen
class Option:
    """A row of the table, and what a ``Configuration`` with its key does."""

    row: Setting
    apply: _Apply


#: Where the objects are whose fields are settings.
_OWNERS: tuple[tuple[type, str], ...] = (
    (EnvironmentSettings, ""),
    (CheckpointConfig, "checkpoints"),
    (CheckpointSettings, "checkpoints"),
    (IdleCheckpointSettings, "checkpoints.idle"),
    (IdleExecutionSettings, "idle"),
    (IdleStreamSettings, "idle_streams"),
)


def _put(path: str, name: str, row: Setting, settings: EnvironmentSettings, reader: Reader) -> None:
    owner = attrgetter(path)(settings) if path else settings
    owner.put(**{name: row.read(attrs.evolve(reader, now=getattr(owner, name, None)))})


# --- options that are not fields ------------------------------------------------------------------------


def _set_restore_path(settings: EnvironmentSettings, reader: Reader) -> None:
    """Take the path with its switch; a switch that comes later does not bring an older path back."""
    name, older = _IGNORE_UNCLAIMED_STATE
    if reader.is_given():
        settings.restore_path = reader.text()
    settings.allows_non_restored_state = reader.switch(name, reader.switch(older))


def _check_backend(settings: EnvironmentSettings, reader: Reader) -> None:
    if reader.word() == "rocksdb":
        settings.warn_of_rocksdb()
    elif reader.word() not in ("hashmap", "jobmanager", "filesystem"):
        raise UnsupportedFeatureError(
            f"setting {reader.key!r} is {reader.text()!r}: state is kept in memory here, choose hashmap"
        )


def _set_heartbeat(settings: EnvironmentSettings, reader: Reader) -> None:
    """Apply interval and timeout together, as they are checked together; the one not given stays."""
    times_ms = {"heartbeat.interval": settings.heartbeat.interval_ms}
    times_ms["heartbeat.timeout"] = settings.heartbeat.timeout_ms
    times_ms |= {key: reader.milliseconds(key) for key in times_ms if reader.is_given(key)}
    settings.heartbeat = HeartbeatSettings(*times_ms.values())


def _add_python_files(settings: EnvironmentSettings, reader: Reader) -> None:
    for path in reader.text().split(","):
        if path.strip():
            settings.required_code_shipper().add_file(path.strip())


def _add_python_archives(settings: EnvironmentSettings, reader: Reader) -> None:
    for path, target in reader.paths():
        settings.required_code_shipper().add_archive(path, target)


def _add_python_requirements(settings: EnvironmentSettings, reader: Reader) -> None:
    """Take one file, after a ``#`` the folder with its packages."""
    path, _, cache = reader.text().strip().partition("#")
    settings.required_code_shipper().add_requirements(path, cache or None)


#: Whether state that no operator of the program claims is given up: the option, and its older name.
_IGNORE_UNCLAIMED_STATE = (
    "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint.ignore-unclaimed-state",
)
_OTHERS = (
    Option(
        Setting(
            key="execution.state-recovery.path",
            older=("execution.savepoint.path",),
            setter="restore_from",
            shown="none",
            meaning="the checkpoint or savepoint that the next job starts from",
            parts=dict.fromkeys(_IGNORE_UNCLAIMED_STATE),
        ),
        _set_restore_path,
    ),
    Option(
        Setting(
            key="state.backend.type",
            older=("state.backend",),
            setter="set_state_backend",
            shown="`hashmap`",
            meaning="how state is kept: always in memory",
        ),
        _check_backend,
    ),
    Option(
        Setting(
            key="heartbeat.interval",
            setter="set_heartbeat",
            shown="10 s",
            meaning="the time between two heartbeats of driver and slots",
        ),
        _set_heartbeat,
    ),
    Option(
        Setting(
            key="heartbeat.timeout",
            setter="set_heartbeat",
            shown="50 s",
            meaning="the silence after which a slot counts as lost",
        ),
        _set_heartbeat,
    ),
    Option(
        Setting(key="python.files", setter="add_python_file", shown="none", meaning="Python code to ship"),
        _add_python_files,
    ),
    Option(
        Setting(
            key="python.archives", setter="add_python_archive", shown="none", meaning="zip files to ship"
        ),
        _add_python_archives,
    ),
    Option(
        Setting(
            key="python.requirements",
            setter="set_python_requirements",
            shown="none",
            meaning="packages to install with pip, and to ship",
        ),
        _add_python_requirements,
    ),
)

_FIELDS = [
    Option(row, partial(_put, path, name, row)) for cls, path in _OWNERS for name, row in rows_of(cls).items()
]
#: All settings; those that no ``Configuration`` has come without a key.
TABLE = (*_FIELDS, *_OTHERS)
_OPTIONS = {option.row.key: option for option in TABLE if option.row.key}
_USED = {key for key, option in _OPTIONS.items() if not option.row.why_idle}
#: The option that an older name, or one that counts before its own, is about.
_OLDER = {name: key for key, option in _OPTIONS.items() for name in option.row.older}
_INSTEAD = {name: key for key, option in _OPTIONS.items() for name in option.row.instead}
#: Keys that are read with another one: that option, and the value that it must have (None: any).
_READ_WITH = {
    part: (key, needed) for key, option in _OPTIONS.items() for part, needed in option.row.parts.items()
}


def apply_configuration(settings: EnvironmentSettings, configuration: Configuration) -> None:
    """Apply the settings that an environment knows; settings without effect are kept and logged once.

    Raises:
        ConfigurationError: a setting that it knows has a value that makes no sense, or that is not there.
    """
    if not isinstance(configuration, Configuration):
        raise ConfigurationError(f"configure() takes a Configuration, not {configuration!r}")
    before = Configuration(settings.configuration)
    settings.configuration.add_all(configuration)
    changed: set[str] = set()
    for key in sorted(configuration.key_set()):
        why, option = _why_without_effect(key, settings.configuration), _option_of(key)
        if option in _OPTIONS and (why is None or _OPTIONS[option].row.why_idle):
            changed.add(option)
        if why is not None and not _is_told(key, before, configuration):
            _log.warning("setting %r changes nothing: %s", key, why)
    # The max parallelism first: a parallelism must fit it.
    for option in sorted(changed, key=lambda option: (option != "pipeline.max-parallelism", option)):
        name = next(filter(settings.configuration.contains_key, _OPTIONS[option].row.names()))
        _apply(_OPTIONS[option].apply, settings, Reader(settings.configuration, name, configuration))


def _is_told(key: str, before: Configuration, given: Configuration) -> bool:
    """Return whether a setting was logged before: an earlier call had the same value."""
    return before.contains_key(key) and before.get_string(key, "") == given.get_string(key, "")


def _option_of(key: str) -> str:
    """Return the option that a key is about: the one with that name, or the one that reads it along."""
    if key in _READ_WITH:
        return _READ_WITH[key][0]
    return _OLDER.get(key) or _INSTEAD.get(key) or key


def _apply(apply: _Apply, settings: EnvironmentSettings, reader: Reader) -> None:
    """Take one setting; whatever is wrong with it, the error names it."""
    try:
        apply(settings, reader)
    except ConfigurationError as error:
        if error.message.startswith("setting "):
            raise
        message = f"setting {reader.key!r} is {reader.text()!r}: {error.message}"
        raise type(error)(message, **error.context) from None


def _why_without_effect(key: str, configuration: Configuration) -> str | None:
    """Return why a setting changes nothing, if it does not, and is not the program's own either."""
    newer = _OLDER.get(key)
    if newer is not None and configuration.contains_key(newer):
        return f"{newer!r} is set, of which it is an older name"
    if _option_of(key) not in _USED:
        idle = _OPTIONS.get(_option_of(key))
        if idle is not None:
            is_default = idle.row.read(Reader(configuration, key, configuration)) == idle.row.default
            return None if is_default else idle.row.why_idle
        return why_without_effect(key, [*_USED, *_OLDER, *_INSTEAD, *_READ_WITH])
    if key not in _READ_WITH:
        return None
    other, needed = _READ_WITH[key]
    names = filter(configuration.contains_key, _OPTIONS[other].row.names())
    found = [Reader(configuration, name, configuration).word() for name in names]
    if not found:
        return f"{other!r} is not set" + (f", to {needed!r}" if needed else "")
    is_other = needed is not None and found[0].replace("-", "") != needed.replace("-", "")
    return f"{other!r} is {found[0]!r}, not {needed!r}" if is_other else None
