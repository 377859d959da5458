"""PyFlink's ``pyflink.datastream.state_backend``."""

from __future__ import annotations

from pyflinkstate.api.state_backend import EmbeddedRocksDBStateBackend, PredefinedOptions, StateBackend
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend

__all__ = [
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]
