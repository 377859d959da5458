"""Questions to live state over HTTP."""

from pyflinkstate.monitor.queries.state_query import answer

__all__ = ["answer"]
