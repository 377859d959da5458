"""Questions to the live state of a running job: the driver asks the slots, and reads what they send."""

from pyflinkstate.runtime.queries.asking import (
    LiveEntries,
    LiveSlots,
    StateAnswer,
    StateQueries,
    StateQuestion,
    state_reader,
)

__all__ = [
    "LiveEntries",
    "LiveSlots",
    "StateAnswer",
    "StateQueries",
    "StateQuestion",
    "state_reader",
]
