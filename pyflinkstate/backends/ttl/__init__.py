"""Time to live, as a decorator around any backend's state; the backend itself knows nothing of it."""

from pyflinkstate.backends.ttl.access import TtlRules
from pyflinkstate.backends.ttl.factory import create_ttl_state, with_timestamps

__all__ = ["TtlRules", "create_ttl_state", "with_timestamps"]
