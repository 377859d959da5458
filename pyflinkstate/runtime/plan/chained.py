"""An operator without state, as a plan knows it: what a chain is made of."""

from __future__ import annotations

import attrs

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record, UserFunction
from pyflinkstate.api.watermark_strategy import WatermarkAlignment
from pyflinkstate.errors import BadRecordError

#: The kind of operator that assigns timestamps and watermarks; its function is a ``WatermarkStrategy``.
WATERMARKS = "watermarks"
#: The kind that calls an ``AsyncFunction``; its function is an ``AsyncFunctionDescriptor``.
ASYNC = "async"
#: The kind that checks the results before it; its function is an :class:`OutputCheck`.
CHECK = "check"


@attrs.frozen
class ChainedOperator:
    """One operator of a chain; ``kind`` is what a chain tells how to run it by.

    Attributes:
        has_side_outputs: what it gives to side outputs is wanted.
        assigner_id: what checkpoints know an assigner of watermarks by.
        isolates: its results are isolated. A check that comes next may make new values of them anyway.
    """

    kind: str
    name: str
    function: UserFunction
    has_side_outputs: bool = False
    assigner_id: str = ""
    isolates: bool = True


@attrs.frozen
class OutputCheck:
    """Checks the results of an operator against its ``output_type``."""

    operator: str
    output_type: TypeInformation

    def __call__(self, value: Record) -> Record:
        try:
            return self.output_type.check(value)
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: result does not fit output_type: {error}",
                operator=self.operator,
            ) from None


@attrs.frozen
class AlignedSource:
    """A source, by its key in the plan, that may not be too far ahead of the others of its group."""

    source: str
    alignment: WatermarkAlignment
