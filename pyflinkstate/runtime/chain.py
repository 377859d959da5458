"""Chains of operators without state: they run inside a Spark task, record by record, as generators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs

from pyflinkstate.api.functions import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ProcessFunction,
)
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.clock import SystemClock
from pyflinkstate.runtime.context import OperatorContext, close_function, open_function
from pyflinkstate.runtime.failures import user_failure
from pyflinkstate.runtime.metrics import MetricValues, OperatorMetrics
from pyflinkstate.runtime.pickling import unshipped

Records = Iterable[Any]


@attrs.frozen
class ChainedOperator:
    """One operator of a chain; ``kind`` is a key of ``_RUNNERS``."""

    kind: str
    name: str
    function: Any


@attrs.frozen
class TaskInfo:
    """As what a chain runs: Spark's partition is the subtask."""

    subtask: int
    parallelism: int
    attempt: int
    metrics: OperatorMetrics = attrs.field(eq=False, factory=lambda: OperatorMetrics(SystemClock().now_ms))
    report: Callable[[MetricValues], None] = lambda values: None

    def report_metrics(self) -> None:
        """Report what the metrics stand at, if there are any; raises what is right to report."""
        try:
            values = self.metrics.values()
        except Exception as error:
            raise user_failure(error, "metrics", "none: in a gauge") from error
        if values:
            self.report(values)


def run_chain(
    operators: Iterable[ChainedOperator], records: Records, info: TaskInfo, counts: Counter[str]
) -> Iterator[Any]:
    """Yield what comes out of the last operator when ``records`` go into the first.

    ``counts`` gains ``"<name>.records_dropped"`` for each filter.
    """
    opened: list[ChainedOperator] = []
    try:
        for shipped in operators:
            operator = attrs.evolve(shipped, function=unshipped(shipped.function))
            _open(operator, info)
            opened.append(operator)
            records = _RUNNERS[operator.kind](operator, records, counts)
        yield from records
        info.report_metrics()
    finally:
        _close_all(opened)


def _open(operator: ChainedOperator, info: TaskInfo) -> None:
    own = OperatorMetrics(info.metrics.now_ms, f"{operator.name}.", info.metrics.metrics)
    context = OperatorContext(
        operator.name, info.subtask, info.parallelism, info.parallelism, info.attempt, metrics=own
    )
    try:
        open_function(operator.function, context)
    except Exception as error:
        raise user_failure(error, operator.name, "none: in open()") from error


def _close_all(operators: list[ChainedOperator]) -> None:
    """Close from the first to the last; one that raises keeps no other from closing."""
    failures = []
    for operator in operators:
        try:
            close_function(operator.function)
        except Exception as error:  # noqa: BLE001 - a user's close() may raise anything
            failures.append(user_failure(error, operator.name, "none: in close()"))
    if failures:
        raise failures[0]


def _bound(function: Any, rich: type, method: str) -> Callable[..., Any]:
    bound: Callable[..., Any] = getattr(function, method) if isinstance(function, rich) else function
    return bound


def _run_map(operator: ChainedOperator, records: Records, _: Counter[str]) -> Iterator[Any]:
    func = _bound(operator.function, MapFunction, "map")
    for record in records:
        try:
            result = func(record)
        except Exception as error:
            raise user_failure(error, operator.name, record) from error
        yield result


def _run_filter(operator: ChainedOperator, records: Records, counts: Counter[str]) -> Iterator[Any]:
    func = _bound(operator.function, FilterFunction, "filter")
    dropped = 0
    for record in records:
        try:
            keep = func(record)
        except Exception as error:
            raise user_failure(error, operator.name, record) from error
        if keep:
            yield record
        else:
            dropped += 1
    counts[f"{operator.name}.records_dropped"] += dropped


def _run_flat_map(operator: ChainedOperator, records: Records, _: Counter[str]) -> Iterator[Any]:
    func = _bound(operator.function, FlatMapFunction, "flat_map")
    return _expand(operator.name, func, records)


class _ProcessContext(ProcessFunction.Context):
    def timestamp(self) -> int | None:
        return None


def _run_process(operator: ChainedOperator, records: Records, _: Counter[str]) -> Iterator[Any]:
    context, process_element = _ProcessContext(), operator.function.process_element
    return _expand(operator.name, lambda record: process_element(record, context), records)


def _expand(name: str, func: Callable[[Any], Iterable[Any] | None], records: Records) -> Iterator[Any]:
    for record in records:
        try:
            results = func(record)
            results = () if results is None else list(results)
        except Exception as error:
            raise user_failure(error, name, record) from error
        yield from results


_RUNNERS: dict[str, Callable[[ChainedOperator, Records, Counter[str]], Iterator[Any]]] = {
    "map": _run_map,
    "filter": _run_filter,
    "flat_map": _run_flat_map,
    "process": _run_process,
}


@attrs.frozen
class OutputCheck:
    """Checks the results of an operator against its ``output_type``."""

    operator: str
    output_type: TypeInformation

    def __call__(self, value: Any) -> Any:
        try:
            return self.output_type.check(value)
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: result does not fit output_type: {error}",
                operator=self.operator,
            ) from None
