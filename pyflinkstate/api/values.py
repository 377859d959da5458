"""Words for what a user's program chooses: whatever it is, they say what part it plays.

Generic classes say what they hold with a parameter. These are for the code between them, which handles the
records, keys and states of every program alike.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

#: What travels in a stream: a record of a source, or what a function returned.
Record: TypeAlias = Any
#: What a key selector gives for a record.
Key: TypeAlias = Hashable
#: Gives the key of a record.
SelectKey: TypeAlias = Callable[[Record], Key]
#: What a state is bound to beside the key, such as a window.
Namespace: TypeAlias = Hashable
#: What a user puts into a state or gets out of it: a value, an element, a key or value of a map.
StateValue: TypeAlias = Any
#: What a state keeps for one key: a value, a list, a dict, an accumulator; with time to live, with its time.
Stored: TypeAlias = Any
#: A state of any kind, chosen by a descriptor: its methods are those of its kind.
AnyState: TypeAlias = Any
#: A window of any kind, or None while there is none.
AnyWindow: TypeAlias = Any
#: A field of a ``Row``.
FieldValue: TypeAlias = Any
#: A value of a ``Configuration``: text, number or truth value.
Setting: TypeAlias = Any
#: A value of a declared type, in the user's form.
TypedValue: TypeAlias = Any
#: A value in the form in which PyFlink hands it to the JVM.
InternalValue: TypeAlias = Any
#: A function of the user's: rich, of any kind, or plain.
UserFunction: TypeAlias = Any
#: What a function is given beside a record: the context that belongs to its kind.
FunctionContext: TypeAlias = Any
#: A part of a source's input that one task reads.
Split: TypeAlias = Any
#: What a task hands to the driver, such as what a sink has prepared; it is pickled.
Reported: TypeAlias = object
#: What a source can go on from; JSON keeps it in checkpoints.
Offset: TypeAlias = Any
#: An object of PySpark's, which ships no complete types.
SparkObject: TypeAlias = Any
#: An object of PyArrow's, which ships no types.
ArrowObject: TypeAlias = Any
#: What ``SparkSession.createDataFrame`` takes for a schema.
SparkSchema: TypeAlias = Any
#: What ``__reduce__`` returns.
Reduced: TypeAlias = tuple[Any, ...]
#: What JSON has read or is to write.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Json]
