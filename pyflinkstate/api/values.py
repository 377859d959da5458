"""Names for types that a user's program chooses, and the parameters of generic classes.

A name says what part a value plays. It is for the code in between, which handles the records, keys and
states of every program alike: it only passes them on, so they are objects. What looks into a value names the
type that it expects, or takes ``Any``, as do the signatures that a user's program overrides or calls. Generic
classes name their contents with a type parameter. A parameter that is left out stands for any type, even in
strict mode. Its name is that of Flink's Java class; a type that is only read is covariant, one that is only
written contravariant.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

#: What travels in a stream: a record of a source, or what a function returned.
Record: TypeAlias = object
#: What a key selector returns for a record.
Key: TypeAlias = Hashable
#: Returns the key of a record.
SelectKey: TypeAlias = Callable[[Any], Key]
#: What a state is bound to besides the key, such as a window.
Namespace: TypeAlias = Hashable
#: What a user puts into a state or gets out of it: a value, an element, a key or value of a map.
StateValue: TypeAlias = object
#: What a state keeps for one key: a value, a list, a dict or an accumulator, with its time if it can expire.
Stored: TypeAlias = object
#: A state of any kind; the descriptor decides which methods it has.
AnyState: TypeAlias = Any
#: A window of any kind, or None if there is none.
AnyWindow: TypeAlias = object
#: A field of a ``Row``.
FieldValue: TypeAlias = object
#: A value of a ``Configuration``: text, number or truth value.
Setting: TypeAlias = object
#: A value of a declared type, in the user's form.
TypedValue: TypeAlias = object
#: A value in the form in which PyFlink hands it to the JVM.
InternalValue: TypeAlias = object
#: A user function: a rich function of any kind, or a plain callable.
UserFunction: TypeAlias = object
#: The context that a function gets with a record; its type depends on the kind of function.
FunctionContext: TypeAlias = object
#: A part of a source's input that one task reads.
Split: TypeAlias = object
#: What a task hands to the driver, such as what a sink has prepared; it is pickled.
Reported: TypeAlias = object
#: A position from which a source can continue; checkpoints keep it as JSON.
Offset: TypeAlias = Any
#: An offset where it is only passed on.
Position: TypeAlias = object
#: An object of PySpark, which ships no complete types.
SparkObject: TypeAlias = Any
#: An object of PyArrow, which ships no types.
ArrowObject: TypeAlias = Any


class ArrowTable(Protocol):
    """A table that other libraries can read as Arrow: of pandas, polars, PyArrow, or of state."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...


class SparkType(Protocol):
    """A type of Spark's, such as a ``StructType``."""

    def simpleString(self) -> str: ...


#: What ``SparkSession.createDataFrame`` takes for a schema.
SparkSchema: TypeAlias = str | list[str] | tuple[str, ...] | SparkType
#: What ``__reduce__`` returns.
Reduced: TypeAlias = tuple[object, ...]
#: A value that JSON can write or has read.
Json: TypeAlias = object
JsonObject: TypeAlias = dict[str, Json]


if TYPE_CHECKING:
    # Type checkers know this module even if it is not installed.
    from typing_extensions import TypeVar
else:

    def TypeVar(name, *, default, **variance):
        """Return a type variable. Its default has no meaning at run time."""
        return typing.TypeVar(name, **variance)


T = TypeVar("T", default=Any)
T_co = TypeVar("T_co", covariant=True, default=Any)
K = TypeVar("K", default=Any)
K_co = TypeVar("K_co", covariant=True, default=Any)
L = TypeVar("L", default=Any)
R = TypeVar("R", default=Any)
S = TypeVar("S", default=Any)
V = TypeVar("V", default=Any)
W = TypeVar("W", default=Any)
W_co = TypeVar("W_co", covariant=True, default=Any)
W_contra = TypeVar("W_contra", contravariant=True, default=Any)
KEY = TypeVar("KEY", contravariant=True, default=Any)
IN = TypeVar("IN", contravariant=True, default=Any)
IN1 = TypeVar("IN1", contravariant=True, default=Any)
IN2 = TypeVar("IN2", contravariant=True, default=Any)
ACC = TypeVar("ACC", default=Any)
OUT = TypeVar("OUT", covariant=True, default=Any)


class JobID(str):
    """A job's id, 32 hexadecimal digits: also the folder of its checkpoints. It is a string."""

    __slots__ = ()
