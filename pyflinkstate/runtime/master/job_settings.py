"""The settings of a job, from the environment that starts it."""

from __future__ import annotations

import attrs

from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.runtime.master.reports.observe import JobListener
from pyflinkstate.runtime.settings import CheckpointSettings, ExternalizedCheckpointRetention, RestartStrategy


@attrs.frozen(kw_only=True)
class JobSettings:
    """The settings that the user made in the environment."""

    name: str
    checkpoints: CheckpointSettings
    restart: RestartStrategy
    listeners: tuple[JobListener, ...] = ()
    state_backend: HashMapStateBackend = attrs.Factory(HashMapStateBackend)
    retention: ExternalizedCheckpointRetention | None = None
    allow_non_restored_state: bool = False
    fall_back: bool = False
    slot_memory_bytes: int | None = None
    job_parameters: dict[str, str] = attrs.Factory(dict)
    #: How many epochs may be read and shuffled before their turn: one or none.
    epochs_ahead: int = 1
    #: Whether connections over TCP are encrypted.
    is_encrypted: bool = False
    #: The address of the web page, without its token; None if there is none.
    page: str | None = None
