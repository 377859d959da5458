"""How state is kept, where checkpoints go (``pyflink.datastream.state_backend``, ``checkpoint_storage``)."""

from __future__ import annotations

import enum
from abc import ABC

from pyflinkstate.api.checks import check_kind, positive


class StateBackend(ABC):  # noqa: B024 - it has a name for type hints, and nothing to implement
    """A state backend, for ``StreamExecutionEnvironment.set_state_backend``."""


class PredefinedOptions(enum.Enum):
    """Sets of options for RocksDB, kept as a setting; see :class:`EmbeddedRocksDBStateBackend`."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class EmbeddedRocksDBStateBackend(StateBackend):
    """Keeps the state that is used in memory, and the other state in RocksDB on a local disk.

    It needs the extra ``pyflinkstate[rocksdb]``. ``state.backend.rocksdb.memory.fixed-per-slot`` limits the
    memory for state, and ``state.backend.rocksdb.localdir`` is the place of its files. Timers stay in memory.
    A value is read and written as a whole; a list or a map of one key is one value. Checkpoints are those of
    ``HashMapStateBackend``, as are savepoints, so a job can change from one to the other.

    Options for RocksDB itself are kept and returned, and have no effect.

    Args:
        enable_incremental_checkpointing: None leaves it to ``CheckpointConfig``.

    Raises:
        ConfigurationError: it is not True, False or None.
    """

    def __init__(self, enable_incremental_checkpointing: bool | None = None) -> None:
        check_kind(
            "enable_incremental_checkpointing is True, False or None",
            enable_incremental_checkpointing,
            (bool, type(None)),
        )
        self.incremental = enable_incremental_checkpointing
        self._paths: list[str] = []
        self._predefined = PredefinedOptions.DEFAULT
        self._options: str | None = None
        self._transfer_threads = 4

    def is_incremental_checkpoints_enabled(self) -> bool:
        """Return whether incremental checkpoints were asked for."""
        return bool(self.incremental)

    def set_db_storage_paths(self, *paths: str) -> None:
        """Choose local directories, of which each slot takes one; without arguments, clear them."""
        self._paths = [str(path) for path in paths]

    def get_db_storage_paths(self) -> list[str]:
        """Return the directories that were set."""
        return list(self._paths)

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Store a set of options for RocksDB, which has no effect."""
        self._predefined = options

    def get_predefined_options(self) -> PredefinedOptions:
        """Return the set of options that was chosen."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Store the name of a Java class that makes options, which has no effect."""
        self._options = options_factory_class_name

    def get_options(self) -> str | None:
        """Return the name of the Java class that was set, or None."""
        return self._options

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Store the number of transfer threads, which has no effect."""
        self._transfer_threads = positive("the number of transfer threads", number_of_transfering_threads)

    def get_number_of_transfer_threads(self) -> int:
        """Return the number of transfer threads; 4 if it was not set."""
        return self._transfer_threads

    def __repr__(self) -> str:
        return f"EmbeddedRocksDBStateBackend({self.incremental})"


class CheckpointStorage(ABC):  # noqa: B024 - it has a name for type hints, and nothing to implement
    """A place for checkpoints: a directory, or a temporary place for one run."""
