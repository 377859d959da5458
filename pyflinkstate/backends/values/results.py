"""What a function may return where an iterable of results is wanted: ``flat_map``, ``process_element``.

PyFlink iterates over whatever it is: a text gives its letters, a dict its keys, a row its fields. Those are
single records by mistake, and are refused. A tuple gives its items, as in PyFlink: ``return a, b`` is two
results.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final

from pyflinkstate.api import OutputTag, Row, StateValue, UserFunction, safe_repr
from pyflinkstate.errors import FunctionResultError

#: What of a record would be results, by the types that are refused though they can be iterated over.
_PARTS: Final[tuple[tuple[type, str], ...]] = (
    (str, "each of its letters"),
    (bytes, "each of its bytes"),
    (bytearray, "each of its bytes"),
    (memoryview, "each of its bytes"),
    (Mapping, "each of its keys"),
    (Row, "each of its fields"),
    (tuple, "each of its fields"),
)
_A_LIST: Final = "a list of them"
#: The same for what other packages make, by name: they need not be there, and are not imported here.
_PARTS_OF_TABLES: Final = {
    **dict.fromkeys(("DataFrame", "Table", "RecordBatch"), "each of its columns"),
    "Series": "each of its values",
}
#: By package, what to return instead of such a table.
_PACKAGES_OF_TABLES: Final = {
    **dict.fromkeys(("pandas", "polars", "pyspark"), _A_LIST),
    "pyarrow": "table.to_pylist()",
}
#: Types whose objects will do, as seen so far.
_accepted: set[type] = {list}
#: Types that are remembered; programs that make more of them begin anew.
_MAX_TYPES: Final = 1000
_MAX_REPR: Final = 60


def check_results(results: Any, given_by: UserFunction) -> None:
    """Check that ``results`` is an iterable of results.

    Args:
        results: what a function returned, and not None.
        given_by: the function, to name it.

    Raises:
        FunctionResultError: it is a single record, or cannot be iterated over.
    """
    kind = type(results)
    if kind is tuple:
        if len(results) == 2 and isinstance(results[0], OutputTag):
            raise _error(results, given_by, "each of the two would be a result", "[(tag, value)]")
        return
    if kind in _accepted:
        return
    refused = _refused(results)
    if refused is not None:
        parts, remedy = refused
        raise _error(results, given_by, f"{parts} would be a result", remedy)
    if not isinstance(results, Iterable):
        try:
            iter(results)  # it may have an index alone, as numpy's numbers have too
        except TypeError:
            raise _error(results, given_by, "that is no iterable of results") from None
    if len(_accepted) == _MAX_TYPES:
        _accepted.clear()
    _accepted.add(kind)


def _refused(results: StateValue) -> tuple[str, str] | None:
    """Return what of a single record would be results, and what to return; None if these are results."""
    for refused, parts in _PARTS:
        if isinstance(results, refused):
            return parts, _A_LIST
    for base in type(results).__mro__:
        package = base.__module__.partition(".")[0]
        if package in _PACKAGES_OF_TABLES and base.__name__ in _PARTS_OF_TABLES:
            return _PARTS_OF_TABLES[base.__name__], _PACKAGES_OF_TABLES[package]
    return None


def _error(
    results: StateValue, given_by: UserFunction, why: str, remedy: str = _A_LIST
) -> FunctionResultError:
    kind = type(results).__name__
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    function = told_function(given_by)
    return FunctionResultError(
        f"{function} returned {article} {kind}, {safe_repr(results, _MAX_REPR)}, and {why}: yield "
        f"results, or return {remedy}",
        function=function,
    )


def told_function(given_by: UserFunction) -> str:
    """Return name, file and line of a function of the user's, as far as they are known.

    >>> told_function(len), told_function("a".join)
    ('len()', 'str.join()')
    """
    adapter = getattr(given_by, "__self__", None)
    given_by = getattr(adapter, "__wrapped__", given_by)
    function: object = inspect.unwrap(given_by) if callable(given_by) else given_by
    called = _called(function, getattr(function, "__self__", getattr(given_by, "__self__", None)))
    code = getattr(function, "__code__", None)
    if code is None:
        return called
    return f"{called} ({PurePath(code.co_filename).name}, line {code.co_firstlineno})"


def _called(function: object, owner: object) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>":
        return "the lambda"
    if owner is None or isinstance(owner, ModuleType):
        return f"{name}()"
    kind = owner if isinstance(owner, type) else type(owner)
    return f"{kind.__name__}.{name}()"
