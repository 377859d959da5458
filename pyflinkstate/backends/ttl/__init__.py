"""Time to live, as a decorator around a backend's state; tables and maps do not deal with it."""

from pyflinkstate.backends.ttl.factory import (
    create_ttl_state as create_ttl_state,
    with_timestamps as with_timestamps,
)
from pyflinkstate.backends.ttl.rules import TtlRules as TtlRules, rules_of as rules_of
