"""The live state of a running job as tables: the answers to questions."""

from pyflinkstate.state_access.live.live_table import LiveTable
from pyflinkstate.state_access.live.questions import query, query_value

__all__ = ["LiveTable", "query", "query_value"]
