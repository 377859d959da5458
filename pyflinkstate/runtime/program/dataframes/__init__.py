"""Keyed functions over DataFrames: ``keyed_process`` and ``keyed_map``."""

from pyflinkstate.runtime.operators import KeyState
from pyflinkstate.runtime.program.dataframes.options import KeyedStep
from pyflinkstate.runtime.program.dataframes.processing import (
    KeyedProcessQuery,
    keyed_map,
    keyed_process,
    keyed_process_queries,
)

__all__ = [
    "KeyState",
    "KeyedProcessQuery",
    "KeyedStep",
    "keyed_map",
    "keyed_process",
    "keyed_process_queries",
]
