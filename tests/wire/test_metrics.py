"""Metrics: what functions keep about themselves, how tasks and slots report it, how the driver adds it up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from slot_functions import Echo, KeyedMeasured
from support_job import JobRun, numbers
from support_runtime import PICKLED, ManualClock, raising
from support_slots import SLOT, Driver, deployment, frames_for

from pyflinkstate import (
    Counter,
    Distribution,
    KeyedProcessFunction,
    MapFunction,
    Meter,
    MetricGroup,
    RuntimeContext,
)
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError, UserFunctionError
from pyflinkstate.runtime.master.job_reporter import Accumulators
from pyflinkstate.runtime.plan.nodes import ChainedOperator, ChainNode, StatefulNode
from pyflinkstate.runtime.sinks.sinks import DriverSink, FrameWriter
from pyflinkstate.runtime.slots import SlotHost, SlotService
from pyflinkstate.runtime.tasks import ChainTask, Router, RouteTask, SinkTask, SlotTask, TaskLink
from pyflinkstate.runtime.wire import (
    BeginEpoch,
    EpochDone,
    EpochFailed,
    MetricValue,
    MetricValues,
    OperatorMetrics,
    TaskReport,
    added_up,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0)


@pytest.fixture
def group(clock: ManualClock) -> OperatorMetrics:
    """The metrics of one subtask."""
    return OperatorMetrics(clock.now_ms)


def test_a_counter_counts_up_and_down_and_below_zero(group: OperatorMetrics) -> None:
    counter = group.counter("open")
    for change, expected in ((counter.inc, 1), (lambda: counter.inc(5), 6), (counter.dec, 5)):
        change()
        assert counter.get_count() == expected
    counter.dec(9)
    assert group.values() == {"open": MetricValue("counter", -4)}


@pytest.mark.parametrize(
    ("span_s", "steps"),
    [
        (60, [(10, 4, 2.5)]),
        (60, [(100, 0, 0.0)]),
        (60, [(100, -5, 0.0)]),
        (10, [(1_003, 1, 1_003.0), *[(3, 1, None)] * 18, (3, 1, 3.0)]),
        (10, [(0, 0, 0.0), (500, 100, 5.0)]),
        (2, [(100, 1, None), (0, 1, None), (0, 1, None), (0, 1, 0.0)]),
        (None, [(120, 30, 4.0), (0, 30, 2.0), (0, 30, 0.0)]),
    ],
    ids=["events", "no time", "set back", "last span", "seldom looked at", "silence", "default is a minute"],
)
def test_a_meter_tells_the_rate_of_the_last_time_span(
    group: OperatorMetrics, clock: ManualClock, span_s: int | None, steps: list[Any]
) -> None:
    """Each step marks events, lets some seconds pass, and looks; the rate None may be any."""
    meter = group.meter("m") if span_s is None else group.meter("m", time_span_in_seconds=span_s)
    for events, passed_s, rate in steps:
        meter.mark_event(events)
        clock.time_ms += passed_s * 1_000
        found = group.values()["m"].rate
        assert found == (found if rate is None else rate)
    count = sum(events for events, _, _ in steps)
    assert (meter.get_count(), group.values()["m"].count) == (count, count)


@pytest.mark.parametrize(
    ("values", "expected", "mean"),
    [
        ((4, -1, 9), MetricValue("distribution", 3, total=12, minimum=-1, maximum=9), 4.0),
        ((), MetricValue("distribution"), 0.0),
    ],
)
def test_a_distribution_keeps_number_sum_and_both_ends(
    group: OperatorMetrics, values: tuple[int, ...], expected: MetricValue, mean: float
) -> None:
    distribution = group.distribution("size")
    for value in values:
        distribution.update(value)
    assert (group.values()["size"], group.values()["size"].mean) == (expected, mean)


class TestGauge:
    def test_it_is_asked_whenever_metrics_are_gathered_and_the_later_function_counts(
        self, group: OperatorMetrics
    ) -> None:
        waiting: list[int] = []
        group.gauge("waiting", lambda: 99)
        group.gauge("waiting", lambda: len(waiting))
        assert group.values()["waiting"] == MetricValue("gauge", 1, total=0, minimum=0, maximum=0)
        waiting.append(1)
        assert group.values()["waiting"].maximum == 1

    @pytest.mark.parametrize("not_callable", [5, None, "len"])
    def test_a_function_is_needed(self, group: OperatorMetrics, not_callable: Any) -> None:
        with pytest.raises(ConfigurationError, match="gauge g: a function is needed"):
            group.gauge("g", not_callable)

    @pytest.mark.parametrize("value", [None, "many", [1], object()], ids=repr)
    def test_what_is_no_number_is_refused_where_it_is_found(self, group: OperatorMetrics, value: Any) -> None:
        """The driver could not add it up, and would fail a job that had gone well."""
        group.gauge("g", lambda: value)
        with pytest.raises(PyFlinkStateError, match="g"):
            group.values()


MAKERS: dict[str, Callable[[MetricGroup], Any]] = {
    "counter": lambda group: group.counter("x"),
    "meter": lambda group: group.meter("x"),
    "distribution": lambda group: group.distribution("x"),
    "gauge": lambda group: group.gauge("x", lambda: 1),
}


class TestGroups:
    def test_a_group_goes_before_the_name(self, group: OperatorMetrics) -> None:
        group.add_group("db").counter("calls").inc()
        group.add_group("db").add_group("shard", "7").counter("calls").inc(2)
        group.add_group("kind", "slow").counter("calls").inc(3)
        assert {name: value.count for name, value in group.values().items()} == {
            "db.calls": 1,
            "db.shard.7.calls": 2,
            "kind.slow.calls": 3,
        }

    @pytest.mark.parametrize("first", MAKERS)
    @pytest.mark.parametrize("second", MAKERS)
    def test_a_name_has_one_kind_of_metric(self, group: OperatorMetrics, first: str, second: str) -> None:
        inner = group.add_group("g")
        made = MAKERS[first](inner)
        if first == second:
            assert MAKERS[second](group.add_group("g")) is made
            assert made is None or MAKERS[second](group) is not made
        else:
            with pytest.raises(ConfigurationError, match=r"metric g\.x already exists"):
                MAKERS[second](inner)
        assert group.values()["g.x"].kind == first

    def test_they_are_what_the_contract_says(self, group: OperatorMetrics) -> None:
        made = (group, group.add_group("g"), *(MAKERS[kind](group.add_group(kind)) for kind in MAKERS))
        contracts = (MetricGroup, MetricGroup, Counter, Meter, Distribution, type(None))
        assert all(map(isinstance, made, contracts))

    def test_two_subtasks_share_nothing(self, group: OperatorMetrics, clock: ManualClock) -> None:
        group.counter("c").inc()
        assert OperatorMetrics(clock.now_ms).values() == {}


VALUES = st.builds(
    lambda values: added_up([{"d": MetricValue("distribution", 1, 0.0, v, v, v)} for v in values]),
    st.lists(st.integers(-99, 99), max_size=6),
)


class TestAddingUp:
    def test_counts_rates_and_sums_are_added_and_ends_are_the_outermost(self) -> None:
        one = MetricValue("meter", 3, 1.5)
        assert one.plus(MetricValue("meter", 4, 2.0)) == MetricValue("meter", 7, 3.5)
        low = MetricValue("distribution", 2, total=10, minimum=3, maximum=7)
        high = MetricValue("distribution", 1, total=90, minimum=90, maximum=90)
        assert low.plus(high) == MetricValue("distribution", 3, total=100, minimum=3, maximum=90)

    def test_gauges_of_subtasks_have_a_least_a_greatest_and_a_mean(self) -> None:
        total = added_up([{"g": MetricValue("gauge", 1, 0.0, n, n, n)} for n in (4, 1, 7)])["g"]
        assert (total.minimum, total.maximum, total.mean) == (1, 7, 4.0)

    def test_zero_is_an_end_like_any_other(self) -> None:
        nothing = MetricValue("distribution")
        zero = MetricValue("distribution", 1, total=0, minimum=0, maximum=0)
        above = MetricValue("distribution", 1, total=5, minimum=5, maximum=5)
        assert zero.plus(nothing) == nothing.plus(zero) == zero
        assert (zero.plus(above).minimum, zero.plus(above).maximum) == (0, 5)

    def test_a_metric_that_one_subtask_has_is_there_and_what_is_added_up_stays_as_it_is(self) -> None:
        one, other = {"a": MetricValue("counter", 1)}, {"b": MetricValue("counter", 2)}
        assert added_up([one, other]) == {**one, **other}
        assert added_up([one, one]) == {"a": MetricValue("counter", 2)}
        assert (one, added_up([])) == ({"a": MetricValue("counter", 1)}, {})

    @given(VALUES, VALUES, VALUES)
    def test_the_order_does_not_matter(self, a: MetricValues, b: MetricValues, c: MetricValues) -> None:
        assert added_up([a, b, c]) == added_up([c, added_up([b, a])])

    def test_values_travel(self) -> None:
        value = MetricValue("distribution", 3, total=1, minimum=0, maximum=1)
        assert pickle.loads(pickle.dumps(value)) == value


def counted(count: int) -> MetricValues:
    return {"x": MetricValue("counter", count)}


def of_slot(epoch: int, slot: str, metrics: MetricValues) -> TaskReport:
    return TaskReport(0, epoch, slot, metrics=metrics, are_totals=True)


def of_task(epoch: int, task: str, metrics: MetricValues) -> TaskReport:
    return TaskReport(0, epoch, task, metrics=metrics)


def spread(kind: str, *values: int) -> list[MetricValues]:
    return [{kind[0]: MetricValue(kind, 1, 0.0, n, n, n)} for n in values]


class TestAccumulators:
    """A slot tells what it ever counted, a Spark task what it counted in its one run."""

    @pytest.mark.parametrize(
        ("reports", "expected"),
        [
            ([of_slot(1, "p-1[0]", counted(5)), of_slot(2, "p-1[0]", counted(7))], counted(7)),
            ([of_slot(1, f"p-1[{subtask}]", counted(5 + subtask)) for subtask in range(3)], counted(18)),
            ([of_task(1, "rdd[0]", counted(5)), of_task(2, "rdd[0]", counted(7))], counted(12)),
            (
                [of_task(n, "rdd[0]", value) for n, value in enumerate(spread("distribution", 4, 8))],
                {"d": MetricValue("distribution", 2, 0.0, 12, 4, 8)},
            ),
            (
                [of_task(n, "rdd[0]", {"m": MetricValue("meter", 10, 5.0)}) for n in range(1, 9)],
                {"m": MetricValue("meter", 80, 5.0)},
            ),
            (
                [of_task(n, "rdd[0]", value) for n, value in enumerate(spread("gauge", 9, 4))],
                {"g": MetricValue("gauge", 1, 0.0, 4, 4, 4)},
            ),
            (
                [
                    of_slot(1, "count[0]", counted(5)),
                    of_task(1, "count[0]", {"y": MetricValue("counter", 1)}),
                    of_slot(2, "count[0]", counted(7)),
                    of_task(2, "count[0]", {"y": MetricValue("counter", 1)}),
                ],
                {**counted(7), "y": MetricValue("counter", 2)},
            ),
            ([of_slot(1, "p-1[0]", counted(5)), TaskReport(0, 2, "p-1[0]", {"p.records_in": 3})], counted(5)),
        ],
        ids=[
            "a slot's values replace its earlier ones",
            "slots are added up",
            "a task's counts are added over epochs",
            "a task's distribution goes on over epochs",
            "a task's rate does not grow with the number of epochs",
            "a task's gauge is its last one",
            "a task and a slot may have one name, if a user gives it as uid",
            "a report without metrics forgets none",
        ],
    )
    def test_totals(self, reports: list[TaskReport], expected: MetricValues) -> None:
        accumulators = Accumulators()
        for report in reports:
            accumulators.add(report)
        assert accumulators.metrics() == expected

    def test_after_a_restart_a_slot_begins_anew(self) -> None:
        accumulators = Accumulators()
        accumulators.add(of_slot(1, "p-1[0]", counted(5)))
        accumulators.reset(0, {})
        accumulators.add(of_slot(1, "p-1[0]", counted(2)))
        assert accumulators.metrics() == counted(2)


class Measured(MapFunction):
    """Keeps metrics of several kinds; its gauge tells whether it was asked in time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_open = True
        group = runtime_context.get_metrics_group().add_group("own")
        self.seen = group.counter("seen")
        self.sizes = group.distribution("sizes")
        group.gauge("is_open", lambda: int(self.is_open))

    def close(self) -> None:
        self.is_open = False

    def map(self, value: Any) -> Any:
        self.seen.inc()
        self.sizes.update(value)
        return value


class BadGauge(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_metrics_group().gauge("pool", raising(ConnectionResetError("no pool")))

    def map(self, value: Any) -> Any:
        return value


def no_pool() -> int:
    raise ConnectionResetError("no pool")


def chain(link: TaskLink, function: Any, name: str = "measure") -> ChainTask:
    return ChainTask(link, "numbers", (ChainedOperator("map", name, function),), 2, False)


class TestTasks:
    """A chain's metrics are told when its partition is through, under the operator's name."""

    def test_a_sink_task_reports_its_chains_metrics(self, driver: Driver, link: TaskLink) -> None:
        list(SinkTask(chain(link, Measured()), "sink", FrameWriter())(1, iter([4, 8])))
        (report,) = driver.reports()
        assert (report.epoch, report.attempt, report.are_totals, report.error) == (3, 0, False, None)
        assert report.metrics["measure.own.seen"] == MetricValue("counter", 2)
        assert report.metrics["measure.own.sizes"] == MetricValue("distribution", 2, 0.0, 12, 4, 8)
        assert report.metrics["measure.own.is_open"].total == 1, "it is asked before the function is closed"

    def test_a_route_task_does_too(self, driver: Driver, link: TaskLink) -> None:
        router = Router("count", str, PICKLED, 1, 128)
        list(RouteTask(chain(link, Measured()), "count-1", router)(0, [1, 2, 3]))
        (report,) = driver.reports()
        assert report.metrics["measure.own.seen"].count == 3

    def test_a_gauge_that_raises_is_the_functions_error(self, driver: Driver, link: TaskLink) -> None:
        task = SinkTask(chain(link, BadGauge()), "sink", FrameWriter())
        with pytest.raises(UserFunctionError, match="ConnectionResetError: no pool"):
            list(task(0, iter([1])))
        (report,) = driver.reports()
        assert isinstance(report.error, UserFunctionError)

    def test_every_run_of_a_task_counts_anew(self, driver: Driver, link: TaskLink) -> None:
        task = SinkTask(chain(link, Measured()), "sink", FrameWriter())
        for _ in range(2):
            list(pickle.loads(pickle.dumps(task))(0, iter([1])))
        assert [report.metrics["measure.own.seen"].count for report in driver.reports()] == [1, 1]

    def test_a_task_that_nobody_reads_to_the_end_tells_nothing(self, driver: Driver, link: TaskLink) -> None:
        running = SinkTask(chain(link, Measured()), "sink", FrameWriter())(0, iter(range(10_000)))
        next(running)
        running.close()
        assert list(driver.reports()) == []


class TestSlots:
    """A slot tells with every epoch what its metrics stand at."""

    def serve(self, function: KeyedProcessFunction, epochs: int = 1) -> list[EpochDone | EpochFailed]:
        """Feed epochs of three records to a slot without process and sockets."""
        host = SlotHost(raising(AssertionError("nothing to tell")), lambda run: run(), ManualClock().now_ms)
        slot = SlotService(SLOT, 0, host)
        assert slot.deploy(deployment(function)) is None
        ends = []
        for epoch in range(1, epochs + 1):
            slot.begin(BeginEpoch(0, epoch, None))
            for frame in frames_for([("a", 1), ("b", 2), ("a", 3)])[0]:
                list(slot.process(frame))
            ends.append(slot.end())
        return ends

    def test_they_live_as_long_as_the_slot(self) -> None:
        ends = self.serve(KeyedMeasured(), epochs=3)
        assert [end.metrics["seen"].count for end in ends] == [3, 6, 9]
        assert ends[-1].metrics["own.answer"] == MetricValue("gauge", 1, 0.0, 42, 42, 42)

    def test_a_function_without_metrics_tells_none(self) -> None:
        (end,) = self.serve(Echo())
        assert end.metrics == {}

    def test_a_gauge_that_raises_fails_the_epoch(self) -> None:
        (end,) = self.serve(KeyedMeasured(no_pool))
        assert isinstance(end, EpochFailed)
        assert isinstance(end.error, UserFunctionError)
        assert "no pool" in str(end.error)
        assert "in a gauge" in str(end.error)

    def test_its_task_reports_them_under_the_operators_name(self, driver: Driver, link: TaskLink) -> None:
        slot = driver.start_slot(KeyedMeasured())
        for epoch, records in enumerate(([("a", 1)], [("b", 2), ("c", 3)]), start=1):
            task = SlotTask(
                TaskLink(driver.link, epoch), SLOT.operator_id, "count", None, {SLOT: slot.address}
            )
            list(task(0, [((0, 0, n), data) for n, data in enumerate(frames_for(records)[0])]))
        told = [report for report in driver.reports() if report.metrics]
        assert [report.metrics["count.seen"].count for report in told] == [1, 3]
        assert {report.task for report in told} == {str(SLOT)}
        assert all(report.are_totals for report in told)
        assert told[0].metrics["count.own.answer"].total == 42


@pytest.mark.usefixtures("forked_slots")
@pytest.mark.parametrize("epochs", [1, 4])
def test_a_whole_job_adds_up_the_metrics_of_tasks_and_slots(epochs: int, storage: Any) -> None:
    mapped = ChainNode(numbers(10, *[3] * (epochs > 1)), "map", Measured(), "measure", None)
    keyed = StatefulNode(mapped, lambda n: n % 3, PICKLED, KeyedMeasured(), "count", None)
    keyed.uid = "count"
    end = ChainNode(keyed, "map", Measured(), "after", None)
    run = JobRun(end, DriverSink(lambda _, values: None), storage if epochs > 1 else None, parallelism=2)
    metrics = run.run().result().metrics
    assert len(run.heard.epochs) == epochs
    assert {name: value.count for name, value in metrics.items() if name.endswith("seen")} == {
        "measure.own.seen": 10,
        "count.seen": 10,
        "after.own.seen": 10,
    }
    assert metrics["measure.own.sizes"] == MetricValue("distribution", 10, 0.0, 45, 0, 9)
    assert metrics["count.own.answer"] == MetricValue("gauge", 2, 0.0, 84, 42, 42)
