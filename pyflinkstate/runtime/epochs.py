"""One epoch on its way to be run: what the job master asks of Spark, and what comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.messages import CheckpointTrigger, SlotId
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.shipping import CodeBook
from pyflinkstate.runtime.sources import Epoch
from pyflinkstate.runtime.tasks import TaskLink
from pyflinkstate.runtime.transport import Address


@attrs.frozen
class EpochRequest:
    """One epoch, ready to be run by an :class:`EpochRunner`."""

    plan: JobPlan
    link: TaskLink
    epoch: Epoch | None
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Address]
    description: str
    code: CodeBook


@attrs.frozen
class EpochEnded:
    """Event: the Spark job of an epoch ended, with one list of results for each sink, or an error."""

    results: list[list[Any]] | None
    error: PyFlinkStateError | None


class EpochRunner:
    """Runs epochs beside the job master; ``runtime.spark`` implements it."""

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """Begin; ``done`` is called from another thread, once."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Make the running epoch end soon; its ``done`` is still called."""
        raise NotImplementedError
