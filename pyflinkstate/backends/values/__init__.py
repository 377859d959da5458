"""Values regardless of their types: which of them can change in place, and how objects are kept apart.

The lists that state hands out are here too, because copies of them are plain lists.
"""

from pyflinkstate.backends.values.checked import (
    NOTED_FROM,
    CheckedDict,
    CheckedList,
    StateList,
    WatchedDict,
    WatchedList,
)
from pyflinkstate.backends.values.isolation import (
    RecordCounter,
    isolated,
    isolated_elements,
    isolated_from,
    own_copy,
    take_isolated,
)
from pyflinkstate.backends.values.list_iterator import ListIterator, changed_meanwhile
from pyflinkstate.backends.values.nan import refuse_nan
from pyflinkstate.backends.values.results import check_results, told_function

__all__ = [
    "NOTED_FROM",
    "CheckedDict",
    "CheckedList",
    "ListIterator",
    "RecordCounter",
    "StateList",
    "WatchedDict",
    "WatchedList",
    "changed_meanwhile",
    "check_results",
    "isolated",
    "isolated_elements",
    "isolated_from",
    "own_copy",
    "refuse_nan",
    "take_isolated",
    "told_function",
]
