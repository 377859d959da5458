"""How the jobs of a program end when the program is told to end."""

from __future__ import annotations

import enum

import attrs

from pyflinkstate.errors import ConfigurationError


class OnSigterm(enum.Enum):
    """How a job ends when its program gets ``SIGTERM``."""

    #: With a savepoint at the next barrier.
    SAVEPOINT = 0
    #: At the next checkpoint, which is taken as soon as possible.
    CHECKPOINT = 1
    #: As if it was cancelled: what has not been committed is read again.
    AT_ONCE = 2


@attrs.frozen
class StopSettings:
    """How a job ends when its program gets ``SIGTERM``.

    Attributes:
        on_sigterm: how it ends.
        timeout_ms: how long that may take before the job is cancelled.
        savepoints: the directory for savepoints; None if there is none.

    Raises:
        ConfigurationError: it is to end with a savepoint, and there is no directory.
    """

    on_sigterm: OnSigterm = OnSigterm.CHECKPOINT
    timeout_ms: int = 20_000
    savepoints: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.on_sigterm is OnSigterm.SAVEPOINT and self.savepoints is None:
            raise ConfigurationError(
                "pyflinkstate.on-sigterm is SAVEPOINT, and there is no directory for savepoints: call "
                "set_default_savepoint_directory()"
            )
