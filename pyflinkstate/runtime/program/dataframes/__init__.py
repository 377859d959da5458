"""Keyed functions over DataFrames: ``keyed_process`` and ``keyed_map``."""

from pyflinkstate.runtime.operators import KeyState
from pyflinkstate.runtime.program.dataframes.mapping import keyed_map
from pyflinkstate.runtime.program.dataframes.processing import keyed_process
from pyflinkstate.runtime.program.dataframes.queries import KeyedProcessQuery, keyed_process_queries
from pyflinkstate.runtime.program.dataframes.steps import KeyedStep

__all__ = [
    "KeyState",
    "KeyedProcessQuery",
    "KeyedStep",
    "keyed_map",
    "keyed_process",
    "keyed_process_queries",
]
