"""Keyed functions over DataFrames: ``keyed_process`` and ``keyed_map``."""

from pyflinkstate.runtime.operators import KeyState as KeyState
from pyflinkstate.runtime.program.dataframes.options import KeyedStep as KeyedStep
from pyflinkstate.runtime.program.dataframes.processing import (
    KeyedProcessQuery as KeyedProcessQuery,
    keyed_map as keyed_map,
    keyed_process as keyed_process,
    keyed_process_queries as keyed_process_queries,
)
