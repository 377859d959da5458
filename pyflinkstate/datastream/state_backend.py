"""PyFlink's ``pyflink.datastream.state_backend``."""

from __future__ import annotations

from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend

__all__ = [
    "HashMapStateBackend",
]
