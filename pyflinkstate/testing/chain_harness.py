"""A harness for stateless operators: the chain that a Spark task would run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyflinkstate.api.type_information import OutputType
from pyflinkstate.api.values import Record, Setting, UserFunction
from pyflinkstate.api.watermark_strategy import WatermarkStrategy
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import KINDS, close_after_error, lives_in_slot
from pyflinkstate.runtime.plan import WATERMARKS, ChainedOperator
from pyflinkstate.runtime.tasks import Chain, TaskInfo
from pyflinkstate.runtime.wire import NO_WATERMARK, OperatorMetrics
from pyflinkstate.testing.checked_output import CheckedOutput
from pyflinkstate.testing.harness import Harness
from pyflinkstate.testing.jumping_event_loop import JumpingEventLoop
from pyflinkstate.testing.manual_clock import ManualClock
from pyflinkstate.testing.output import Watermark


class OneInputOperatorHarness(Harness):
    """A chain of operators without keys (Flink: ``OneInputStreamOperatorTestHarness``).

    Args:
        *functions: each is a ``ProcessFunction``, ``MapFunction``, ``FlatMapFunction``, ``FilterFunction`` or
            ``WatermarkStrategy``; plain callables go through :func:`harness_of`.
        output_type: the type against which results are checked. Default: no check.
        clock: the processing time. Default: its own clock, at 0 ms.
        job_parameters: what ``get_job_parameter`` returns, by name: the global parameters of the job.

    >>> from pyflinkstate import FlatMapFunction
    >>> class Words(FlatMapFunction):
    ...     def flat_map(self, value):
    ...         return value.split()
    >>> with OneInputOperatorHarness(Words()) as harness:
    ...     harness.process_element("to be or")
    ['to', 'be', 'or']
    """

    def __init__(
        self,
        *functions: UserFunction,
        output_type: OutputType | None = None,
        clock: ManualClock | None = None,
        job_parameters: Mapping[str, Setting] | None = None,
    ) -> None:
        super().__init__(job_parameters)
        self.clock = ManualClock() if clock is None else clock
        operators = [_operator(function, number) for number, function in enumerate(functions)]
        self._checked = CheckedOutput(operators[-1].name if operators else "none", output_type)
        info = TaskInfo(
            0,
            1,
            0,
            OperatorMetrics(self.clock),
            new_event_loop=JumpingEventLoop,
            job_parameters=self._job_parameters,
        )
        self._chain = Chain(operators, info, Counter())
        self._watermark = NO_WATERMARK
        try:
            self._chain.open()
        except BaseException:
            close_after_error(self._chain.close)
            raise

    def process_element(self, value: Record, timestamp: int | None = None) -> list[Record]:
        """Process one record; return the values of its results in the main output.

        After a ``WatermarkStrategy`` the watermark advances with each record; in a job it advances less
        often.

        Args:
            value: the record.
            timestamp: its event time in ms since 1970.

        Raises:
            PyFlinkStateError: an error that would fail the job, such as ``UserFunctionError``.
        """
        self._chain.source_time.timestamp = timestamp
        return self._run([isolated(value)])

    def process_watermark(self, timestamp: int) -> list[Record]:
        """Advance the watermark before the operators; it never goes back. These operators have no timers."""
        time = self._chain.source_time
        time.watermark = max(time.watermark, timestamp)
        return self._run([])

    def set_processing_time(self, now_ms: int) -> None:
        """Set the clock, in ms since 1970."""
        self.clock.now_ms = now_ms

    def get_processing_time(self) -> int:
        """Return the time of the clock, in ms since 1970."""
        return self.clock.now_ms

    def get_watermark(self) -> int:
        """Return the watermark after the operators."""
        return self._watermark

    def _run(self, values: Sequence[Record]) -> list[Record]:
        chain, given = self._chain, []
        for value in chain.through(values):
            checked = self._checked(value)
            self._collected.add([checked], [chain.time.timestamp])
            given.append(checked)
        for tag_id, columns in chain.side.items():
            self._collected.add_side(tag_id, *columns)
        chain.side.clear()
        if chain.time.watermark > self._watermark:
            self._watermark = chain.time.watermark
            self._collected.main.append(Watermark(self._watermark))
        return given

    def close(self) -> None:
        """Close the functions."""
        self._chain.close()


def _operator(function: UserFunction, number: int) -> ChainedOperator:
    if isinstance(function, ChainedOperator):
        return function
    if lives_in_slot(function):
        raise ConfigurationError(
            f"{type(function).__name__} has to do with checkpoints, and so lives in a state slot: "
            f"CheckpointedOperatorHarness runs it"
        )
    for kind, expected in {**KINDS, WATERMARKS: WatermarkStrategy}.items():
        if isinstance(function, expected):
            return ChainedOperator(kind, type(function).__name__, function, True, f"assigner-{number}")
    raise ConfigurationError(
        f"this harness runs operators without keys, such as a ProcessFunction, not {function!r}; "
        f"use harness_of() for an operator that a call on a stream makes"
    )
