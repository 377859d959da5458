"""The operators without state that make up a chain, as a plan describes them."""

from __future__ import annotations

import attrs

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record, UserFunction
from pyflinkstate.api.watermark_strategy import TimestampAssigner, WatermarkAlignment
from pyflinkstate.errors import BadRecordError

#: The kind of operator that assigns timestamps and watermarks; its function is a ``WatermarkStrategy``.
WATERMARKS = "watermarks"
#: The kind that calls an ``AsyncFunction``; its function is an ``AsyncFunctionDescriptor``.
ASYNC = "async"
#: The kind that checks the results of the operator before it; its function is an :class:`OutputCheck`.
CHECK = "check"
#: What an :class:`OutputCheck` says of a result that it refuses.
RESULT_MISFIT = "result does not fit output_type"


@attrs.frozen
class ChainedOperator:
    """One operator of a chain; ``kind`` decides how a chain runs it.

    Attributes:
        has_side_outputs: whether its side outputs are read.
        assigner_id: the id of an assigner of watermarks in checkpoints.
        isolates: whether its results are isolated; not if the check after it makes new values of them anyway.
    """

    kind: str
    name: str
    function: UserFunction
    has_side_outputs: bool = False
    assigner_id: str = ""
    isolates: bool = True


@attrs.frozen
class OutputCheck:
    """Checks the results of an operator against its ``output_type``; ``misfit`` says what is wrong."""

    operator: str
    output_type: TypeInformation
    misfit: str = RESULT_MISFIT

    def __call__(self, value: Record) -> Record:
        try:
            return self.output_type.check(value)
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: {self.misfit}: {error}",
                operator=self.operator,
            ) from None


class KeptTimestamp(TimestampAssigner):
    """Takes each timestamp from a pair of a record and its timestamp, which is None if there is none."""

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        timestamp: int = value[1]
        return timestamp


@attrs.frozen
class AlignedSource:
    """A source, by its key in the plan, that must not get too far ahead of the others in its group."""

    source: str
    alignment: WatermarkAlignment
