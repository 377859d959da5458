"""Time to live, as a decorator around a backend's state; tables and maps do not deal with it."""

from pyflinkstate.backends.ttl.factory import create_ttl_state, with_timestamps
from pyflinkstate.backends.ttl.rules import TtlRules, rules_of

__all__ = ["TtlRules", "create_ttl_state", "rules_of", "with_timestamps"]
