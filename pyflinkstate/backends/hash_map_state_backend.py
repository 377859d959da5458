"""The state backend that a user chooses (``pyflink.datastream.state_backend.HashMapStateBackend``)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.api import StateBackend, TypeInformation, check_kind
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.errors import ConfigurationError


@attrs.frozen(kw_only=True)
class HashMapStateBackend(StateBackend):
    """Keeps state as objects in memory.

    Args:
        async_snapshots: whether snapshots are written while state goes on changing. If False, processing
            waits for each snapshot, and nothing is copied for it.
        snapshot_compression: ``"zstd"``, ``"lz4"`` or None.

    Raises:
        ConfigurationError: a setting has another value.
    """

    async_snapshots: bool = True
    snapshot_compression: str | None = "zstd"

    def __attrs_post_init__(self) -> None:
        check_kind("async_snapshots must be True or False", self.async_snapshots, bool)
        if self.snapshot_compression not in ("zstd", "lz4", None):
            raise ConfigurationError(
                f"snapshot_compression must be 'zstd', 'lz4' or None, not {self.snapshot_compression!r}"
            )

    def create_keyed_state_backend(
        self,
        key_type: TypeInformation,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        clock: Callable[[], int],
    ) -> HeapKeyedStateBackend:
        """Return an empty backend for the keyed state of one subtask."""
        return HeapKeyedStateBackend(
            key_type,
            key_group_range,
            max_parallelism,
            async_snapshots=self.async_snapshots,
            clock=clock,
        )

    def create_operator_state_backend(self) -> DefaultOperatorStateBackend:
        """Return an empty backend for the operator state of one subtask."""
        return DefaultOperatorStateBackend()
