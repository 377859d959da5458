"""PyFlink's ``pyflink.datastream.state_backend``."""

from pyflinkstate.api import (
    EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
    PredefinedOptions as PredefinedOptions,
    StateBackend as StateBackend,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend as HashMapStateBackend
