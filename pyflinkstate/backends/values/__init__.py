"""Values regardless of their types: which of them can change in place, and how objects are kept apart.

The lists that state hands out are here too, because copies of them are plain lists.
"""

from pyflinkstate.backends.values.checked import (
    NOTED_FROM as NOTED_FROM,
    CheckedDict as CheckedDict,
    CheckedList as CheckedList,
    StateList as StateList,
    WatchedDict as WatchedDict,
    WatchedList as WatchedList,
)
from pyflinkstate.backends.values.isolation import (
    RecordCounter as RecordCounter,
    isolated as isolated,
    isolated_elements as isolated_elements,
    isolated_from as isolated_from,
    own_copy as own_copy,
    take_isolated as take_isolated,
)
from pyflinkstate.backends.values.list_iterator import (
    ListIterator as ListIterator,
    changed_meanwhile as changed_meanwhile,
)
from pyflinkstate.backends.values.nan import refuse_nan as refuse_nan
from pyflinkstate.backends.values.results import (
    check_results as check_results,
    told_function as told_function,
)
