"""The life of a ``KeySelector``: whoever selects keys with it opens it before and closes it at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyflinkstate.api.functions import KeySelector
from pyflinkstate.api.values import SelectKey
from pyflinkstate.runtime.operators import closed_at_end
from pyflinkstate.runtime.plan import ChainedOperator
from pyflinkstate.runtime.tasks.chain import Chain, TaskInfo


@contextmanager
def opened_selector(
    select_key: SelectKey | KeySelector, operator: str, info_of: Callable[[], TaskInfo]
) -> Iterator[SelectKey]:
    """Lend what selects the keys of records; a ``KeySelector`` is open meanwhile.

    Args:
        select_key: a ``KeySelector``, or a function of the record, which has nothing to open.
        operator: the name of the operator that the records are for.
        info_of: returns as what a selector runs.

    Raises:
        PyFlinkStateError: the selector could not be opened or closed; the error is ready to be reported.
    """
    if not isinstance(select_key, KeySelector):
        yield select_key
        return
    info = info_of()
    # A chain knows how functions are opened and closed. No record goes through this one.
    alone = Chain([ChainedOperator("key_by", f"key_by before {operator}", select_key)], info, Counter())
    with closed_at_end(alone.close):
        alone.open()
        yield select_key.get_key
        info.report_metrics()
