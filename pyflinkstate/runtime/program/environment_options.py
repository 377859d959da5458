"""Which settings of a ``Configuration`` an environment takes, under Flink's keys.

A length of time is a number of milliseconds, or a number with a unit: ``"10 s"``, ``"1 min"``. What an
environment does not take is logged: it is probably misspelled.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

from pyflinkstate.api.configuration import Configuration, parse_map_value
from pyflinkstate.api.time import Duration
from pyflinkstate.errors import ConfigurationError, UnsupportedFeatureError
from pyflinkstate.runtime.master import LOOPBACK, WebPageSettings
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings, RuntimeExecutionMode
from pyflinkstate.runtime.settings import (
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    RestartStrategies,
    RestartStrategy,
    why_without_effect,
)
from pyflinkstate.runtime.storage import (
    INLINE_THRESHOLD_BYTES,
    WRITE_BUFFER_BYTES,
    FileSystemCheckpointStorage,
)
from pyflinkstate.runtime.wire import HeartbeatSettings

_log = logging.getLogger("pyflinkstate.configuration")

_UNITS_MS = {
    "": 1,
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_SIZES = {
    **dict.fromkeys(("", "b", "bytes"), 1),
    **dict.fromkeys(("k", "kb", "kibibytes"), 1024),
    **dict.fromkeys(("m", "mb", "mebibytes"), 1024**2),
    **dict.fromkeys(("g", "gb", "gibibytes"), 1024**3),
    **dict.fromkeys(("t", "tb", "tebibytes"), 1024**4),
}
_A_TIME = "a number of milliseconds, or a number and ms, s, min, h or d, such as '10 s'"
_A_SIZE = "a number of bytes, or a number and b, kb, mb, gb or tb, such as '20 kb'"


def _measure(key: str, text: str, units: dict[str, int], needed: str) -> int:
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in units:
        raise ConfigurationError(f"setting {key!r} is {text!r}: {needed} is needed")
    return int(match[1]) * units[match[2].lower()]


class _Reader:
    """Reads one setting; the keys of those that belong to it are read along.

    Args:
        configuration: all that was ever given: settings that belong together may come one after the other.
        key: the name of the setting.
        given: what this call gives.
    """

    def __init__(self, configuration: Configuration, key: str, given: Configuration) -> None:
        self._configuration = configuration
        self._given = given
        self.key = key

    def is_given(self, key: str | None = None) -> bool:
        """Return whether this call gives it, and not only one before."""
        return self._given.contains_key(key or self.key)

    def text(self, key: str | None = None, default: str = "") -> str:
        return self._configuration.get_string(key or self.key, default)

    def word(self) -> str:
        return self.text().strip().lower().replace("_", "-")

    def number(self, key: str | None = None, default: int = 0) -> int:
        return self._configuration.get_integer(key or self.key, default)

    def real(self, key: str, default: float) -> float:
        return self._configuration.get_float(key, default)

    def switch(self, key: str | None = None, default: bool = False) -> bool:
        return self._configuration.get_boolean(key or self.key, default)

    def milliseconds(self, key: str | None = None, default: int = 0) -> int:
        key = key or self.key
        if not self._configuration.contains_key(key):
            return default
        return _measure(key, self.text(key), _UNITS_MS, _A_TIME)

    def size_bytes(self, key: str, default: int) -> int:
        return _measure(key, self.text(key, str(default)), _SIZES, _A_SIZE)

    def entries(self) -> dict[str, str]:
        """Read a map as configuration files write it: ``a:1,b:'x,y'`` or ``{a: 1, b: 'x,y'}``."""
        try:
            return parse_map_value(self.text())
        except ValueError as error:
            raise ConfigurationError(f"setting {self.key!r} is {self.text()!r}: {error}") from None

    def paths(self) -> list[tuple[str, str | None]]:
        """Read paths as Flink writes them, each with what may follow it: ``/a.zip#folder,/b.zip``."""
        parts = (part.strip().partition("#") for part in self.text().split(",") if part.strip())
        return [(path, more or None) for path, _, more in parts]

    def one_of(self, choices: dict[str, Any]) -> Any:
        if self.word() not in choices:
            raise ConfigurationError(
                f"setting {self.key!r} is {self.text()!r}: choose one of {', '.join(choices)}"
            )
        return choices[self.word()]


#: Whether state that no operator of the program claims is given up: the setting, and its older name.
_IGNORE_UNCLAIMED_STATE = (
    "execution.state-recovery.ignore-unclaimed-state",
    "execution.savepoint.ignore-unclaimed-state",
)


def _set_restore_path(settings: EnvironmentSettings, setting: _Reader) -> None:
    """Take the path with its switch; a switch that comes later does not bring an older path back."""
    name, older = _IGNORE_UNCLAIMED_STATE
    path = setting.text() if setting.is_given() else settings.restore_path
    settings.set_restore_path(path, setting.switch(name, setting.switch(older)))


def _restart_strategy(setting: _Reader) -> RestartStrategy:
    kind: str = setting.one_of(
        {
            "none": "none",
            "off": "none",
            "disable": "none",
            "fixed-delay": "fixed-delay",
            "fixeddelay": "fixed-delay",
            "failure-rate": "failure-rate",
            "failurerate": "failure-rate",
            "exponential-delay": "exponential-delay",
            "exponentialdelay": "exponential-delay",
        }
    )
    prefix = f"restart-strategy.{kind}"
    if kind == "fixed-delay":
        return RestartStrategies.fixed_delay_restart(
            setting.number(f"{prefix}.attempts", 1), setting.milliseconds(f"{prefix}.delay", 1000)
        )
    if kind == "failure-rate":
        return RestartStrategies.failure_rate_restart(
            setting.number(f"{prefix}.max-failures-per-interval", 1),
            setting.milliseconds(f"{prefix}.failure-rate-interval", 60_000),
            setting.milliseconds(f"{prefix}.delay", 1000),
        )
    if kind == "exponential-delay":
        return RestartStrategies.exponential_delay_restart(
            setting.milliseconds(f"{prefix}.initial-backoff", 1000),
            setting.milliseconds(f"{prefix}.max-backoff", 60_000),
            setting.real(f"{prefix}.backoff-multiplier", 1.5),
            setting.milliseconds(f"{prefix}.reset-backoff-threshold", 3_600_000),
            setting.real(f"{prefix}.jitter-factor", 0.1),
            setting.number(f"{prefix}.attempts-before-reset-backoff") or None,
        )
    return RestartStrategies.no_restart()


def _set_storage(settings: EnvironmentSettings, setting: _Reader) -> None:
    """Take the directory with its sizes; a size that comes later does not bring an older directory back."""
    now, path = settings.checkpoints.get_checkpoint_storage(), setting.text()
    if isinstance(now, FileSystemCheckpointStorage) and not setting.is_given():
        path = now.checkpoint_path
    settings.checkpoints.set_checkpoint_storage(
        FileSystemCheckpointStorage(
            path,
            setting.size_bytes("execution.checkpointing.data-inline-threshold", INLINE_THRESHOLD_BYTES),
            setting.size_bytes("execution.checkpointing.write-buffer-size", WRITE_BUFFER_BYTES),
        )
    )


def _check_backend(settings: EnvironmentSettings, setting: _Reader) -> None:
    if setting.word() == "rocksdb":
        settings.warn_of_rocksdb()
    elif setting.word() not in ("hashmap", "jobmanager", "filesystem"):
        raise UnsupportedFeatureError(
            f"setting {setting.key!r} is {setting.text()!r}: state is kept in memory here, choose hashmap"
        )


def _set_compression(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.snapshot_compression = setting.switch()


def _set_generated_uids(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.has_auto_generated_uids = setting.switch()


def _set_encryption(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.is_encrypted = setting.switch()


def _set_heartbeat(settings: EnvironmentSettings, setting: _Reader) -> None:
    """Take interval and timeout together, as only both can be checked; what is not given stays."""
    times_ms = {"heartbeat.interval": settings.heartbeat.interval_ms}
    times_ms["heartbeat.timeout"] = settings.heartbeat.timeout_ms
    times_ms |= {key: setting.milliseconds(key) for key in times_ms if setting.is_given(key)}
    settings.heartbeat = HeartbeatSettings(*times_ms.values())


def _set_web_page(settings: EnvironmentSettings, setting: _Reader) -> None:
    """Take all settings of the page together; a port, which may be a range, switches it on."""
    ports = setting.text() or setting.text("rest.port")
    settings.web_page = WebPageSettings(
        _ports(setting.key, ports),
        setting.text("rest.bind-address", LOOPBACK),
        setting.text("rest.address") or None,
        has_actions=setting.switch("web.cancel.enable", True),
    )


def _ports(key: str, text: str) -> tuple[int, ...] | range:
    """Read a port, several of them, or a range as Flink writes it: ``50100-50200``."""
    first, dash, last = text.strip().partition("-")
    parts = [first, last] if dash else text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise ConfigurationError(
            f"setting {key!r} is {text!r}: a port is needed, such as 8081 or 50100-50200"
        )
    numbers = tuple(int(part) for part in parts)
    return range(numbers[0], numbers[1] + 1) if dash else numbers


def _set_job_name(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.default_job_name = setting.text()


def _add_python_files(settings: EnvironmentSettings, setting: _Reader) -> None:
    for path in setting.text().split(","):
        if path.strip():
            settings.required_code_shipper().add_file(path.strip())


def _add_python_archives(settings: EnvironmentSettings, setting: _Reader) -> None:
    for path, target in setting.paths():
        settings.required_code_shipper().add_archive(path, target)


def _add_python_requirements(settings: EnvironmentSettings, setting: _Reader) -> None:
    """Take one file, after a ``#`` the folder with its packages."""
    path, _, cache = setting.text().strip().partition("#")
    settings.required_code_shipper().add_requirements(path, cache or None)


def _set_restart_strategy(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.restart = _restart_strategy(setting)


_RETENTIONS = {
    retention.name.lower().replace("_", "-"): retention for retention in ExternalizedCheckpointRetention
}
_MODES = {mode.name.lower().replace("_", "-"): mode for mode in CheckpointingMode}
_RUNTIME_MODES = {mode.name.lower(): mode for mode in RuntimeExecutionMode}

#: What a setting of a configuration does to the settings of an environment.
_Apply = Callable[[EnvironmentSettings, _Reader], object]

_OPTIONS: dict[str, _Apply] = {
    "parallelism.default": lambda settings, setting: settings.set_parallelism(setting.number()),
    "pipeline.max-parallelism": lambda settings, setting: settings.set_max_parallelism(setting.number()),
    "pipeline.name": _set_job_name,
    "execution.runtime-mode": lambda settings, setting: settings.set_mode(setting.one_of(_RUNTIME_MODES)),
    "execution.checkpointing.interval": lambda settings, setting: (
        settings.checkpoints.set_checkpoint_interval(setting.milliseconds())
    ),
    "execution.checkpointing.mode": lambda settings, setting: settings.checkpoints.set_checkpointing_mode(
        setting.one_of(_MODES)
    ),
    "execution.checkpointing.timeout": lambda settings, setting: settings.checkpoints.set_checkpoint_timeout(
        setting.milliseconds()
    ),
    "execution.checkpointing.min-pause": lambda settings, setting: (
        settings.checkpoints.set_min_pause_between_checkpoints(setting.milliseconds())
    ),
    "execution.checkpointing.max-concurrent-checkpoints": lambda settings, setting: (
        settings.checkpoints.set_max_concurrent_checkpoints(setting.number())
    ),
    "execution.checkpointing.tolerable-failed-checkpoints": lambda settings, setting: (
        settings.checkpoints.set_tolerable_checkpoint_failure_number(setting.number())
    ),
    "execution.checkpointing.externalized-checkpoint-retention": lambda settings, setting: (
        settings.checkpoints.set_externalized_checkpoint_retention(setting.one_of(_RETENTIONS))
    ),
    "execution.checkpointing.num-retained": lambda settings, setting: (
        settings.checkpoints.set_max_retained_checkpoints(setting.number())
    ),
    "execution.checkpointing.incremental": lambda settings, setting: (
        settings.checkpoints.enable_incremental_checkpoints(setting.switch())
    ),
    "execution.checkpointing.dir": _set_storage,
    "execution.checkpointing.savepoint-dir": lambda settings, setting: settings.set_savepoint_directory(
        setting.text()
    ),
    "execution.checkpointing.unaligned.enabled": lambda settings, setting: (
        settings.checkpoints.enable_unaligned_checkpoints(setting.switch())
    ),
    "execution.checkpointing.unaligned.forced": lambda settings, setting: (
        settings.checkpoints.set_force_unaligned_checkpoints(setting.switch())
    ),
    "execution.checkpointing.aligned-checkpoint-timeout": lambda settings, setting: (
        settings.checkpoints.set_aligned_checkpoint_timeout(Duration.of_millis(setting.milliseconds()))
    ),
    "execution.checkpointing.snapshot-compression": _set_compression,
    "pipeline.auto-generate-uids": _set_generated_uids,
    "pipeline.global-job-parameters": lambda settings, setting: settings.set_job_parameters(
        setting.entries()
    ),
    "heartbeat.interval": _set_heartbeat,
    "heartbeat.timeout": _set_heartbeat,
    "execution.state-recovery.path": _set_restore_path,
    "state.backend.type": _check_backend,
    "pyflinkstate.epochs-ahead": lambda settings, setting: settings.set_epochs_ahead(setting.number()),
    "rest.port": _set_web_page,
    "security.ssl.internal.enabled": _set_encryption,
    "restart-strategy.type": _set_restart_strategy,
    "python.archives": _add_python_archives,
    "python.files": _add_python_files,
    "python.requirements": _add_python_requirements,
}


def _idle(attribute: str, read: Callable[[_Reader], object]) -> _Apply:
    return lambda settings, setting: setattr(settings.idle, attribute, read(setting))


def _set_chaining(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.is_chaining_enabled = setting.switch()


def _set_buffer_timeout(settings: EnvironmentSettings, setting: _Reader) -> None:
    settings.buffer_timeout_ms = setting.milliseconds()


#: Options that have no effect here, but whose values the environment or its execution config gives back.
_IDLE_OPTIONS: dict[str, _Apply] = {
    "execution.buffer-timeout.interval": _set_buffer_timeout,
    "metrics.latency.interval": _idle("latency_tracking_interval_ms", _Reader.milliseconds),
    "pipeline.auto-watermark-interval": _idle("auto_watermark_interval_ms", _Reader.milliseconds),
    "pipeline.closure-cleaner-level": _idle("closure_cleaner", lambda setting: setting.word() != "none"),
    "pipeline.object-reuse": _idle("object_reuse", _Reader.switch),
    "pipeline.operator-chaining.enabled": _set_chaining,
    "task.cancellation.interval": _idle("cancellation_interval_ms", _Reader.milliseconds),
    "task.cancellation.timeout": _idle("cancellation_timeout_ms", _Reader.milliseconds),
}
_KEPT_OPTIONS = _OPTIONS | _IDLE_OPTIONS

#: Older names of settings. Where both are set, the newer name counts.
_SYNONYMS = {
    "execution.buffer-timeout": "execution.buffer-timeout.interval",
    "execution.checkpointing.unaligned": "execution.checkpointing.unaligned.enabled",
    "execution.savepoint.path": "execution.state-recovery.path",
    "pipeline.operator-chaining": "pipeline.operator-chaining.enabled",
    "restart-strategy": "restart-strategy.type",
    "state.backend": "state.backend.type",
    "state.backend.incremental": "execution.checkpointing.incremental",
    "state.checkpoints.dir": "execution.checkpointing.dir",
    "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
    "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
}

#: Names that count before that of the option itself: the page listens there.
_INSTEAD = {"rest.bind-port": "rest.port"}

#: Settings that are read together with another one: that setting, and the value it must have (None: any).
_READ_WITH: dict[str, tuple[str, str | None]] = {
    "execution.checkpointing.data-inline-threshold": ("execution.checkpointing.dir", None),
    "execution.checkpointing.write-buffer-size": ("execution.checkpointing.dir", None),
    **dict.fromkeys(_IGNORE_UNCLAIMED_STATE, ("execution.state-recovery.path", None)),
    "rest.address": ("rest.port", None),
    "rest.bind-address": ("rest.port", None),
    "web.cancel.enable": ("rest.port", None),
    **{
        f"restart-strategy.{kind}.{name}": ("restart-strategy.type", kind)
        for kind, names in {
            "fixed-delay": ("attempts", "delay"),
            "failure-rate": ("max-failures-per-interval", "failure-rate-interval", "delay"),
            "exponential-delay": (
                "initial-backoff",
                "max-backoff",
                "backoff-multiplier",
                "reset-backoff-threshold",
                "jitter-factor",
                "attempts-before-reset-backoff",
            ),
        }.items()
        for name in names
    },
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
        why = _why_without_effect(key, settings.configuration)
        if _option_of(key) in (_OPTIONS if why is None else _IDLE_OPTIONS):
            changed.add(_option_of(key))
        if why is not None and not _is_told(key, before, configuration):
            _log.warning("setting %r changes nothing: %s", key, why)
    # The max parallelism first: a parallelism must fit it.
    for option in sorted(changed, key=lambda option: (option != "pipeline.max-parallelism", option)):
        name = next(filter(settings.configuration.contains_key, _names_of(option)))
        _apply(_KEPT_OPTIONS[option], settings, _Reader(settings.configuration, name, configuration))


def _is_told(key: str, before: Configuration, given: Configuration) -> bool:
    """Return whether the log has been told of a setting: an earlier call gave the same."""
    return before.contains_key(key) and before.get_string(key, "") == given.get_string(key, "")


def _option_of(key: str) -> str:
    """Return the option that a key is about: the one with that name, or the one that reads it along."""
    if key in _READ_WITH:
        return _READ_WITH[key][0]
    return _SYNONYMS.get(key) or _INSTEAD.get(key) or key


def _names_of(option: str) -> list[str]:
    """Return the names under which an option may be set; if it is under several, the first counts."""
    instead, older = ([name for name, of in names.items() if of == option] for names in (_INSTEAD, _SYNONYMS))
    return [*instead, option, *older]


def _apply(apply: _Apply, settings: EnvironmentSettings, setting: _Reader) -> None:
    """Take one setting; whatever is wrong with it, the error names it."""
    try:
        apply(settings, setting)
    except ConfigurationError as error:
        if error.message.startswith("setting "):
            raise
        message = f"setting {setting.key!r} is {setting.text()!r}: {error.message}"
        raise type(error)(message, **error.context) from None


def _why_without_effect(key: str, configuration: Configuration) -> str | None:
    """Return why a setting changes nothing, if it does not, and is not the program's own either."""
    newer = _SYNONYMS.get(key)
    if newer is not None and configuration.contains_key(newer):
        return f"{newer!r} is set, of which it is an older name"
    if _option_of(key) not in _OPTIONS:
        return why_without_effect(key, [*_OPTIONS, *_SYNONYMS, *_INSTEAD, *_READ_WITH])
    if key not in _READ_WITH:
        return None
    other, needed = _READ_WITH[key]
    names = filter(configuration.contains_key, _names_of(other))
    found = [_Reader(configuration, name, configuration).word() for name in names]
    if not found:
        return f"{other!r} is not set" + (f", to {needed!r}" if needed else "")
    is_other = needed is not None and found[0].replace("-", "") != needed.replace("-", "")
    return f"{other!r} is {found[0]!r}, not {needed!r}" if is_other else None
