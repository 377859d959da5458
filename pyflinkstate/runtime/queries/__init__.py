"""Questions to the live state of a running job: the driver asks the slots, and reads what they send."""

from pyflinkstate.runtime.queries.answers import StateAnswer, state_reader
from pyflinkstate.runtime.queries.asking import LiveSlots, StateQueries, StateQuestion
from pyflinkstate.runtime.queries.live_entries import LiveEntries

__all__ = [
    "LiveEntries",
    "LiveSlots",
    "StateAnswer",
    "StateQueries",
    "StateQuestion",
    "state_reader",
]
