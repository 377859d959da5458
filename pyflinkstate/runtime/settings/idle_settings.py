"""Settings of Flink's that are accepted, kept and given back, and that change nothing here."""

from __future__ import annotations

import logging

_log = logging.getLogger("pyflinkstate.configuration")


class IdleSettings:
    """Logs each such setting once, so that nobody relies on a setting that has no effect."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def take(self, name: str, why: str) -> None:
        """Say once of the setting ``name`` that it changes nothing, and why."""
        if name not in self._told:
            self._told.add(name)
            _log.info("%s is accepted and changes nothing: %s", name, why)
