"""Pickles what crosses processes: functions by value, records in the fastest way that works.

A class of the main script or of a notebook cannot be pickled by name, as no other process has that
module. ``cloudpickle`` ships such a class by value, with an id that identifies two copies as the same
class. PySpark has its own ``cloudpickle`` with its own ids. If both are loaded they are made to share the
ids; otherwise a record's class and the class that a function refers to would differ.
"""

from __future__ import annotations

import io
import pickle
import sys
from types import CodeType
from typing import Any, ClassVar

import attrs
import cloudpickle

from pyflinkstate.api import SparkObject, UserFunction
from pyflinkstate.backends.types import PICKLE_PROTOCOL
from pyflinkstate.errors import ConfigurationError

_CLASS_IDS = (
    "_DYNAMIC_CLASS_TRACKER_BY_CLASS",
    "_DYNAMIC_CLASS_TRACKER_BY_ID",
    "_DYNAMIC_CLASS_TRACKER_LOCK",
)
_reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]
#: Which argument of ``types.CodeType`` is ``co_filename``.
_FILENAME = 10


def _reduce_code_with_file(code: CodeType) -> tuple[type[CodeType], tuple[object, ...]]:
    made_by, arguments = _reduce_code(code)
    return made_by, (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])


class _ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
    """Keeps the file of each function's code for tracebacks; cloudpickle 3.1.3 and later leave it out."""

    dispatch_table: ClassVar = cloudpickle.Pickler.dispatch_table.new_child(
        {CodeType: _reduce_code_with_file}
    )


def dumps_by_value(value: object) -> bytes:
    """Return a pickle of ``value`` that can be loaded without the main script."""
    _share_class_ids()
    with io.BytesIO() as file:
        _ByValuePickler(file, protocol=PICKLE_PROTOCOL).dump(value)
        return file.getvalue()


def dumps(value: object) -> bytes:
    """Return a pickle of ``value``, by name if that is possible."""
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dumps_by_value(value)


def loads(data: bytes) -> Any:
    """Load a pickle; call it only on bytes of the user's own job."""
    _share_class_ids()
    return pickle.loads(data)  # noqa: S301 - see above


def _share_class_ids() -> None:
    of_pyspark = sys.modules.get("pyspark.cloudpickle.cloudpickle")
    ours = sys.modules["cloudpickle.cloudpickle"]
    for name in _CLASS_IDS:
        shared = getattr(of_pyspark, name, None)
        if shared is not None and hasattr(ours, name):
            setattr(ours, name, shared)


@attrs.frozen
class ShippedFunction:
    """Stands for a function in the data that is sent to a task."""

    digest: str
    #: Its ``value`` maps digests to pickles; Spark keeps a copy on each executor.
    codes: SparkObject = attrs.field(eq=False, repr=False)

    def load(self) -> Any:
        """Return a copy of the function for this task alone."""
        return loads(self.codes.value[self.digest])


def unshipped(function: UserFunction) -> Any:
    """Return the function that ``function`` is or stands for."""
    return function.load() if isinstance(function, ShippedFunction) else function


def pickled(operator: str, function: UserFunction) -> bytes:
    """Return a pickle of ``function`` by value.

    Raises:
        ConfigurationError: the function cannot be pickled.
    """
    try:
        return dumps_by_value(function)
    except Exception as error:
        raise ConfigurationError(
            f"operator {operator!r}: its function cannot be pickled, so it cannot be sent to "
            f"executors: {error}. Create what it needs (connections, files) in open()",
            operator=operator,
        ) from error
