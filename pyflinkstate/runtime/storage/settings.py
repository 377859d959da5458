"""The user's settings for checkpoint storage (``pyflink.datastream.FileSystemCheckpointStorage``)."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import attrs

from pyflinkstate.errors import (
    ConfigurationError,
)
from pyflinkstate.runtime.storage.uris import absolute

#: Flink's defaults for ``data-inline-threshold`` and ``write-buffer-size``, and the first one's maximum.
INLINE_THRESHOLD_BYTES = 20 * 1024
WRITE_BUFFER_BYTES = 4096
MAX_INLINE_THRESHOLD_BYTES = 1024 * 1024


def _absolute_path(path: str | Path) -> str:
    return absolute(str(path))


@attrs.frozen
class FileSystemCheckpointStorage:
    """A directory for checkpoints (``pyflink.datastream.checkpoint_storage.FileSystemCheckpointStorage``).

    Args:
        checkpoint_path: a path or URI that driver and executors can reach.
        file_state_size_threshold: a subtask's file of up to this many bytes is stored inside ``_metadata``
            (Flink: ``data-inline-threshold``). Default: 20 KiB; at most 1 MiB.
        write_buffer_size: the bytes that are collected before a file is written (``write-buffer-size``).
            Default: 4096.

    Raises:
        ConfigurationError: a size is out of bounds.
    """

    #: The greatest ``file_state_size_threshold``.
    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = MAX_INLINE_THRESHOLD_BYTES

    checkpoint_path: str = attrs.field(converter=_absolute_path)
    file_state_size_threshold: int = attrs.field(default=INLINE_THRESHOLD_BYTES)
    write_buffer_size: int = attrs.field(default=WRITE_BUFFER_BYTES)

    @file_state_size_threshold.validator
    def _check_threshold(self, _: object, value: int) -> None:
        if type(value) is not int or not 0 <= value <= MAX_INLINE_THRESHOLD_BYTES:
            raise ConfigurationError(
                f"file_state_size_threshold must be 0 to {MAX_INLINE_THRESHOLD_BYTES} bytes, not {value!r}"
            )

    @write_buffer_size.validator
    def _check_buffer(self, _: object, value: int) -> None:
        if type(value) is not int or value < 0:
            raise ConfigurationError(f"write_buffer_size must be a number of bytes, 0 or more, not {value!r}")

    def get_checkpoint_path(self) -> str:
        """Return the directory of checkpoints."""
        return self.checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """Return up to how many bytes a file is stored inside ``_metadata``."""
        return self.file_state_size_threshold

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are collected before a file is written."""
        return self.write_buffer_size
