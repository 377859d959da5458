"""The user's settings for checkpoint storage (``pyflink.datastream.FileSystemCheckpointStorage``)."""

from __future__ import annotations

from typing import ClassVar

import attrs

from pyflinkstate.api.checks import at_least, positive
from pyflinkstate.api.state_backend import CheckpointStorage
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.storage.uris import absolute

#: Flink's defaults for ``data-inline-threshold`` and ``write-buffer-size``, and the first one's maximum.
INLINE_THRESHOLD_BYTES = 20 * 1024
WRITE_BUFFER_BYTES = 4096
MAX_INLINE_THRESHOLD_BYTES = 1024 * 1024
#: Flink's default of the greatest state that its job manager keeps in memory.
MAX_STATE_BYTES = 5 * 1024 * 1024


def _inline_threshold(size_bytes: int | None) -> int:
    if size_bytes is None or size_bytes == -1:
        return INLINE_THRESHOLD_BYTES
    return at_least("file_state_size_threshold", size_bytes, 0)


def _state_size(size_bytes: int | None) -> int:
    return MAX_STATE_BYTES if size_bytes is None else positive("max_state_size", size_bytes)


def _buffer_size(size_bytes: int) -> int:
    return WRITE_BUFFER_BYTES if size_bytes == -1 else at_least("write_buffer_size", size_bytes, 0)


@attrs.frozen
class FileSystemCheckpointStorage(CheckpointStorage):
    """A directory for checkpoints (``pyflink.datastream.checkpoint_storage.FileSystemCheckpointStorage``).

    Args:
        checkpoint_path: a path or URI that driver and executors can reach.
        file_state_size_threshold: a subtask's file of up to this many bytes is stored inside ``_metadata``
            (Flink: ``data-inline-threshold``), at most 1 MiB. None and -1 stand for the default, 20 KiB.
        write_buffer_size: the bytes that are collected before a file is written (``write-buffer-size``). -1
            stands for the default, 4096.

    Raises:
        ConfigurationError: a size is out of bounds.
    """

    #: The greatest ``file_state_size_threshold``.
    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = MAX_INLINE_THRESHOLD_BYTES

    checkpoint_path: str = attrs.field(converter=absolute)
    file_state_size_threshold: int = attrs.field(default=None, converter=_inline_threshold)
    write_buffer_size: int = attrs.field(default=-1, converter=_buffer_size)

    @file_state_size_threshold.validator
    def _check_threshold(self, _: object, value: int) -> None:
        if value > MAX_INLINE_THRESHOLD_BYTES:
            raise ConfigurationError(
                f"file_state_size_threshold must be 0 to {MAX_INLINE_THRESHOLD_BYTES} bytes, not {value!r}"
            )

    def get_checkpoint_path(self) -> str:
        """Return the directory of checkpoints."""
        return self.checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return up to how many bytes a file is stored inside ``_metadata``."""
        return self.file_state_size_threshold

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are collected before a file is written."""
        return self.write_buffer_size

    def get_savepoint_path(self) -> str | None:
        """Return None: savepoints go where the environment's ``set_default_savepoint_directory()`` says."""
        return None


@attrs.frozen
class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints for a run that need not outlive it.

    In Flink they are in the job manager's memory. Here they are in ``checkpoint_path``, or in a directory
    that is gone with the program, which takes a local Spark: the driver's memory is no place for state.

    Args:
        checkpoint_path: a path or URI that driver and executors reach; None for a temporary directory.
        max_state_size: how many bytes a state may have in Flink; kept, and no bound here. None: 5 MiB.

    Raises:
        ConfigurationError: the size is no number of bytes.
    """

    #: Flink's default of ``max_state_size``: 5 MiB.
    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = MAX_STATE_BYTES

    checkpoint_path: str | None = attrs.field(default=None, converter=attrs.converters.optional(absolute))
    max_state_size: int = attrs.field(default=None, converter=_state_size)

    def get_checkpoint_path(self) -> str | None:
        """Return where checkpoints go; None for a temporary directory."""
        return self.checkpoint_path

    def get_max_state_size(self) -> int:
        """Return the setting."""
        return self.max_state_size

    def get_savepoint_path(self) -> str | None:
        """Return None: savepoints go where the environment's ``set_default_savepoint_directory()`` says."""
        return None
