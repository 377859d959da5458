"""How often driver and slots give each other a sign of life, and how long they wait for one."""

from __future__ import annotations

import attrs

from pyflinkstate.errors import ConfigurationError


@attrs.frozen
class HeartbeatSettings:
    """Flink's ``heartbeat.interval`` and ``heartbeat.timeout``, with its defaults.

    Attributes:
        interval_ms: the driver sends a heartbeat to each slot so often, and the slot answers.
        timeout_ms: who was silent for so long is given up: the driver counts the slot as lost, and a slot
            ends its process.
    """

    interval_ms: int = 10_000
    timeout_ms: int = 50_000

    def __attrs_post_init__(self) -> None:
        if not 0 < self.interval_ms <= self.timeout_ms:
            raise ConfigurationError(
                f"heartbeat.interval is {self.interval_ms} ms and heartbeat.timeout {self.timeout_ms} ms: "
                f"the interval must be more than 0, and the timeout no less than the interval"
            )
