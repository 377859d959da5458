"""Where checkpoints go, as a program chooses it (``pyflink.datastream.CheckpointStorage``)."""

from __future__ import annotations

from abc import ABC


class CheckpointStorage(ABC):  # noqa: B024 - it has a name for type hints, and nothing to implement
    """A place for checkpoints: a directory, or a temporary place for one run."""
