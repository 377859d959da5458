"""How often driver and slots send each other heartbeats, and how long they wait for one."""

from __future__ import annotations

import attrs

from pyflinkstate.errors import ConfigurationError


@attrs.frozen
class HeartbeatSettings:
    """Flink's ``heartbeat.interval`` and ``heartbeat.timeout``, with its defaults.

    Attributes:
        interval_ms: the time between two heartbeats from the driver, which each slot answers.
        timeout_ms: the time without a message after which the driver counts a slot as lost, and a slot ends
            its process.
    """

    interval_ms: int = 10_000
    timeout_ms: int = 50_000

    def __attrs_post_init__(self) -> None:
        if not 0 < self.interval_ms <= self.timeout_ms:
            raise ConfigurationError(
                f"heartbeat.interval is {self.interval_ms} ms and heartbeat.timeout {self.timeout_ms} ms: "
                f"the interval must be positive, and the timeout must not be less than the interval"
            )
