"""Side outputs (``pyflink.datastream.OutputTag``)."""

from __future__ import annotations

from typing import Generic, TypeAlias, TypeGuard

from pyflinkstate.api.basic_types import OutputType
from pyflinkstate.api.checks import check_text
from pyflinkstate.api.composite_types import declared_type
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import Record, Reduced, T


class OutputTag(Generic[T]):
    """Names a side output. A function yields ``(tag, value)``; ``get_side_output(tag)`` returns the stream.

    Tags are equal if their ids are, as in Flink.

    Args:
        tag_id: any non-empty string.
        type_info: the type of its values, or a list of types, which stands for a row of them; without it,
            anything that can be pickled.

    Raises:
        ConfigurationError: the id is not a string or is empty, or the type is not type information.
    """

    #: Whether this process has made a tag. Until then, no result can belong to a side output.
    exists = False

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: OutputType[T] | None = None) -> None:
        check_text("the id of an OutputTag", tag_id)
        declared = declared_type(f"OutputTag {tag_id!r}: type_info", type_info)
        self.tag_id = tag_id
        self.type_info: TypeInformation[T] = Types.PICKLED_BYTE_ARRAY() if declared is None else declared
        OutputTag.exists = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"

    def __reduce__(self) -> Reduced:
        return OutputTag, (self.tag_id, self.type_info)


#: A result for a side output.
SideOutput: TypeAlias = tuple[OutputTag, Record]


def is_side_output(result: object) -> TypeGuard[SideOutput]:
    """Return whether a function's result is a ``(tag, value)`` pair.

    >>> is_side_output((OutputTag("late"), 1)), is_side_output(("late", 1))
    (True, False)
    """
    return type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag)
