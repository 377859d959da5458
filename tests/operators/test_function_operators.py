"""Operators around functions: what they allow and refuse, how they begin, how several things are closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from pyflinkstate import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    FunctionResultError,
    NoCurrentKeyError,
    NotKeyedStreamError,
    StateAccessError,
    UserFunctionError,
)
from pyflinkstate.runtime.operators import ColumnOrder, KeyedMap, KeyState, close_all, closed_at_end
from pyflinkstate.runtime.program.dataframes.options import check_method
from pyflinkstate.testing import (
    BroadcastOperatorHarness,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    TwoInputOperatorHarness,
    harness_of,
)

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
SIDE = OutputTag("side")


class Does(KeyedBroadcastProcessFunction):
    """Calls what the record is with the context."""

    def process_element(self, value: Callable[..., Any], ctx: Any) -> Iterable[Any]:
        return [value(ctx)]

    def process_broadcast_element(self, value: Callable[..., Any], ctx: Any) -> Iterable[Any]:
        return [value(ctx)]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        return [(timestamp, ctx.get_current_key(), dict(ctx.get_broadcast_state(RULES).items()))]


class DoesPlainly(BroadcastProcessFunction):
    process_element = Does.process_element  # type: ignore[assignment]
    process_broadcast_element = Does.process_broadcast_element  # type: ignore[assignment]


@pytest.fixture(params=["keyed", "not keyed"])
def harness(request: pytest.FixtureRequest) -> BroadcastOperatorHarness:
    if request.param == "keyed":
        return BroadcastOperatorHarness(Does(), [RULES], lambda value: "k")
    return BroadcastOperatorHarness(DoesPlainly(), [RULES])


@pytest.fixture
def keyed() -> BroadcastOperatorHarness:
    return BroadcastOperatorHarness(Does(), [RULES], lambda value: "k")


class TestBroadcastState:
    def test_broadcast_records_write_it_and_others_read_it(self, harness: BroadcastOperatorHarness) -> None:
        harness.process_broadcast_element(lambda ctx: ctx.get_broadcast_state(RULES).put("a", 1))
        reads: list[Callable[[Any], Any]] = [
            lambda state: state.get("a"),
            lambda state: state.contains("a"),
            lambda state: list(state.keys()),
            lambda state: list(state.values()),
            lambda state: list(state.items()),
            lambda state: state.is_empty(),
        ]
        for process in (harness.process_element, harness.process_broadcast_element):
            found = [
                process(lambda ctx, read=read: read(ctx.get_broadcast_state(RULES)))[0] for read in reads
            ]
            assert found == [1, True, ["a"], [1], [("a", 1)], False]

    @pytest.mark.parametrize(
        "write",
        [
            lambda state: state.put("a", 1),
            lambda state: state.put_all({"a": 1}),
            lambda state: state.remove("a"),
            lambda state: state.clear(),
            lambda state: state.__setitem__("a", 1),
            lambda state: state.__delitem__("a"),
        ],
        ids=["put", "put_all", "remove", "clear", "[]=", "del"],
    )
    def test_records_that_are_not_broadcast_may_not_write_it(
        self, harness: BroadcastOperatorHarness, write: Callable[[Any], Any]
    ) -> None:
        harness.process_broadcast_element(lambda ctx: ctx.get_broadcast_state(RULES).put("a", 7))
        with pytest.raises(StateAccessError, match=r"'rules' may only be changed in process_broadcast"):
            harness.process_element(lambda ctx: write(ctx.get_broadcast_state(RULES)))
        assert harness.process_element(lambda ctx: ctx.get_broadcast_state(RULES).get("a")) == [7]

    def test_a_state_that_was_not_named_is_refused(self, harness: BroadcastOperatorHarness) -> None:
        other = MapStateDescriptor("other", Types.STRING(), Types.LONG())
        for process in (harness.process_element, harness.process_broadcast_element):
            with pytest.raises(StateAccessError, match=r"'other'.*broadcast with 'rules'"):
                process(lambda ctx: ctx.get_broadcast_state(other))


class TestKeyedBroadcast:
    def test_a_broadcast_record_has_no_key(self, keyed: BroadcastOperatorHarness) -> None:
        with pytest.raises(NoCurrentKeyError, match="no key is set"):
            keyed.process_broadcast_element(lambda ctx: ctx.get_current_key())

    def test_timers_belong_to_the_keyed_side(self, keyed: BroadcastOperatorHarness) -> None:
        keyed.process_broadcast_element(lambda ctx: ctx.get_broadcast_state(RULES).put("a", 1))
        keyed.process_element(lambda ctx: ctx.timer_service().register_event_time_timer(5))
        assert keyed.process_watermark(5) == [(5, "k", {"a": 1})]

    def test_both_sides_are_told_the_time(self, keyed: BroadcastOperatorHarness) -> None:
        keyed.process_watermark(9)
        keyed.set_processing_time(3)
        for process in (keyed.process_element, keyed.process_broadcast_element):
            found = process(
                lambda ctx: (ctx.timestamp(), ctx.current_watermark(), ctx.current_processing_time()), 11
            )
            assert found == [(11, 9, 3)]


class Both(KeyedCoProcessFunction):
    """Adds to one state from both sides; ``"side"`` goes to the side."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self.seen.update((self.seen.value() or ()) + (value,))
        yield ctx.get_current_key(), self.seen.value()

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield SIDE, value
        yield from self.process_element1(-value, ctx)


class TestTwoInputs:
    def test_both_share_the_state_of_a_key(self) -> None:
        harness = KeyedTwoInputOperatorHarness(Both(), abs, abs)
        assert harness.process_element1(1) == [(1, (1,))]
        assert harness.process_element2(1) == [(1, (1, -1))]
        assert harness.extract_side_output_values(SIDE) == [1]

    def test_an_error_names_the_record_of_its_side(self) -> None:
        harness = KeyedTwoInputOperatorHarness(Both(), len, len)
        with pytest.raises(UserFunctionError, match=r"TypeError[\s\S]*operator 'Both', key 1, record 'x'"):
            harness.process_element2("x")

    @pytest.mark.parametrize(
        "harness_of_two",
        [TwoInputOperatorHarness, lambda function: KeyedTwoInputOperatorHarness(function, str, str)],
        ids=["without keys", "keyed"],
    )
    def test_a_map_gives_one_result_and_none_is_no_result(self, harness_of_two: Callable[..., Any]) -> None:
        """As the adapters in PyFlink's ``ConnectedStreams.map`` do; Java emits a null."""

        class Map(CoMapFunction):
            def map1(self, value: Any) -> Any:
                return value

            map2 = map1

        harness = harness_of_two(Map())
        for process in (harness.process_element1, harness.process_element2):
            assert [process(value) for value in (None, 0, "", [2])] == [[], [0], [""], [[2]]]

    def test_a_flat_map_gives_any_number(self) -> None:
        class FlatMap(CoFlatMapFunction):
            def flat_map1(self, value: Any) -> Any:
                return None

            def flat_map2(self, value: Any) -> Any:
                yield from range(value)

        harness = TwoInputOperatorHarness(FlatMap())
        assert (harness.process_element1(1), harness.process_element2(2)) == ([], [0, 1])


class Unkeyed(CoProcessFunction):
    def process_element1(self, value: Callable[..., Any], ctx: CoProcessFunction.Context) -> Iterable[Any]:
        return [value(ctx, self.get_runtime_context())]

    process_element2 = process_element1


class CoMapWithState(CoMapFunction):
    """Asks for keyed state."""

    def open(self, runtime_context: Any) -> None:
        runtime_context.get_state(ValueStateDescriptor("seen"))

    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


class BroadcastWithState(DoesPlainly):
    open = CoMapWithState.open


STATE_WITHOUT_KEYS: dict[str, Callable[[], Any]] = {
    "connected": lambda: harness_of(lambda a, b: a.connect(b).map(CoMapWithState())),
    "connected, in its harness": lambda: TwoInputOperatorHarness(CoMapWithState()),
    "broadcast": lambda: harness_of(lambda a, b: a.connect(b.broadcast(RULES)).process(BroadcastWithState())),
    "broadcast, in its harness": lambda: BroadcastOperatorHarness(BroadcastWithState(), [RULES]),
}


class TestWithoutKeys:
    @pytest.mark.parametrize("kind", ["event", "processing"])
    @pytest.mark.parametrize("what", ["register", "delete"])
    def test_timers_are_refused(self, kind: str, what: str) -> None:
        """F6: timers are supported on keyed streams only."""
        harness = TwoInputOperatorHarness(Unkeyed())
        for process in (harness.process_element1, harness.process_element2):
            with pytest.raises(NotKeyedStreamError, match=r"after key_by\(\)[\s\S]*operator 'Unkeyed'"):
                process(lambda ctx, _: getattr(ctx.timer_service(), f"{what}_{kind}_time_timer")(5))
        assert harness.num_event_time_timers() + harness.num_processing_time_timers() == 0

    def test_the_time_is_told(self) -> None:
        harness = TwoInputOperatorHarness(Unkeyed())
        harness.process_watermark(9)
        harness.set_processing_time(3)
        assert harness.process_element1(lambda ctx, _: ctx.timer_service().current_watermark()) == [9]
        assert harness.process_element1(lambda ctx, _: ctx.timer_service().current_processing_time()) == [3]

    @pytest.mark.parametrize("opened", STATE_WITHOUT_KEYS.values(), ids=STATE_WITHOUT_KEYS)
    def test_keyed_state_is_refused_where_it_is_asked_for(self, opened: Callable[[], Any]) -> None:
        with pytest.raises(NotKeyedStreamError, match=r"keyed state 'seen' .* after key_by\(\)"):
            opened()

    def test_with_keys_the_same_function_has_keyed_state(self) -> None:
        harness = harness_of(lambda a, b: a.connect(b).key_by(str, str).map(CoMapWithState()))
        assert harness.process_element1(1) == [1]

    def test_there_is_no_keyed_state_to_apply_a_function_to(self) -> None:
        harness = BroadcastOperatorHarness(DoesPlainly(), [RULES])
        seen = ValueStateDescriptor("seen")
        with pytest.raises(NotKeyedStreamError, match="keyed state 'seen'"):
            harness.process_broadcast_element(lambda ctx: ctx.apply_to_keyed_state(seen, print))


class SumsOfBoth(CoProcessFunction):
    """Adds up the records of both inputs, by key; it knows nothing of keys itself."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + value)
        yield self.total.value()

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        return self.process_element1(-value, ctx)


def test_a_function_that_knows_nothing_of_keys_shares_keyed_state_if_both_streams_have_keys() -> None:
    """As in PyFlink, whose ``process`` of connected streams takes it either way."""
    harness = harness_of(lambda a, b: a.connect(b).key_by(abs, abs, Types.LONG()).process(SumsOfBoth()))
    results = [harness.process_element1(3), harness.process_element1(4), harness.process_element2(3)]
    assert results == [[3], [4], [0]]


# --- closing several things --------------------------------------------------------------------------------


class Closing:
    """What is to be closed, and what has been."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def of(self, name: str, error: BaseException | None = None) -> Callable[[], None]:
        def close() -> None:
            self.closed.append(name)
            if error is not None:
                raise error

        return close


@pytest.fixture
def closing() -> Closing:
    return Closing()


def test_what_closes_says_nothing(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    close_all()
    close_all(closing.of("a"), closing.of("b"))
    with closed_at_end(closing.of("c")):
        assert closing.closed == ["a", "b"]
    assert closing.closed == ["a", "b", "c"]
    assert caplog.text == ""


def test_all_are_closed_and_the_first_error_is_raised(
    closing: Closing, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(LookupError, match="first"):
        close_all(
            closing.of("a"),
            closing.of("b", LookupError("first")),
            closing.of("c", SystemExit("second")),
            closing.of("d"),
            closing.of("e", OSError("third")),
        )
    assert closing.closed == ["a", "b", "c", "d", "e"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    for text in ("SystemExit: second", "OSError: third"):
        assert f"close() failed after another error: {text}" in caplog.text


def test_an_error_of_close_alone_is_raised(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(OSError, match="disk full"), closed_at_end(closing.of("a", OSError("disk full"))):
        pass
    assert caplog.text == ""


def test_an_error_of_the_block_is_kept(closing: Closing, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadRecordError, match="bad"), closed_at_end(closing.of("a", OSError("disk full"))):
        raise BadRecordError("bad")
    assert closing.closed == ["a"]
    assert "close() failed after another error: OSError: disk full" in caplog.text


# --- handle_initial_state: what it may do, and what it is refused ------------------------------------------


def user_of(value: Any) -> Any:
    return value[0]


class Total(KeyedProcessFunction):
    """Emits the key's total; it begins with what the key had before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("total", Types.LONG())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(100)).build())
        self.total = runtime_context.get_state(descriptor)

    def handle_initial_state(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        assert ctx.get_current_key() == value[0]
        assert ctx.timestamp() is None
        self.total.update((self.total.value() or 0) + value[1])
        ctx.timer_service().register_processing_time_timer(1_000)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.total.update((self.total.value() or 0) + value[1])
        yield value[0], self.total.value()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), "timer"


class AsyncTotal(Total):
    async def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + value[1])
        return [(value[0], self.total.value())]


@pytest.mark.parametrize("function", [Total(), AsyncTotal()], ids=["plain", "async"])
def test_rows_fill_the_state_of_their_keys(function: Total) -> None:
    harness = KeyedOneInputOperatorHarness(function, user_of)
    for row in [("ann", 10), ("bob", 20), ("ann", 1)]:
        harness.process_initial_state(row)
    assert harness.num_processing_time_timers() == 2
    assert harness.process_element(("ann", 1)) == [("ann", 12)]
    assert harness.process_element(("eve", 1)) == [("eve", 1)]
    assert harness.process_element(("bob", 1)) == [("bob", 21)]
    assert sorted(harness.set_processing_time(1_000)) == [("ann", "timer"), ("bob", "timer")]


def test_state_that_expires_was_written_when_the_row_was_read() -> None:
    harness = KeyedOneInputOperatorHarness(Total(), user_of)
    harness.set_processing_time(50)
    harness.process_initial_state(("ann", 10))
    harness.set_processing_time(149)
    assert harness.process_element(("ann", 1)) == [("ann", 11)]
    harness.set_processing_time(249)
    assert harness.process_element(("ann", 1)) == [("ann", 1)]


class Returns(Total):
    def handle_initial_state(self, value: Any, ctx: Any) -> Any:
        return [value]


class Raises(Total):
    def handle_initial_state(self, value: Any, ctx: Any) -> None:
        raise LookupError("no")


def test_it_returns_nothing() -> None:
    harness = KeyedOneInputOperatorHarness(Returns(), user_of)
    with pytest.raises(FunctionResultError, match=r"handle_initial_state.*returns nothing"):
        harness.process_initial_state(("ann", 10))


def test_what_it_raises_names_the_row_and_its_key() -> None:
    harness = KeyedOneInputOperatorHarness(Raises(), user_of)
    with pytest.raises(UserFunctionError, match=r"(?s)ann.*LookupError"):
        harness.process_initial_state(("ann", 10))


class Yields(Total):
    def handle_initial_state(self, value: Any, ctx: Any) -> Any:
        yield value


class Awaits(Total):
    async def handle_initial_state(self, value: Any, ctx: Any) -> Any:
        """Nobody would await it."""


class Without(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Without(), r"define handle_initial_state\(self, value, ctx\) in Without"),
        (Yields(), r"Yields.handle_initial_state\(\) yields"),
        (Awaits(), r"Awaits.handle_initial_state\(\) is 'async def'"),
        (len, r"needs a KeyedProcessFunction"),
    ],
)
def test_functions_that_take_no_initial_state(function: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_method(function)


def test_functions_that_do() -> None:
    check_method(Total())
    check_method(AsyncTotal())


def shown(key: str, rows: Iterator[Any], state: KeyState) -> Iterator[tuple[str, Any, int]]:
    yield key, state.get(), len(list(rows))


def test_a_plain_function_finds_the_value_of_the_column() -> None:
    operator = KeyedMap(shown, ValueStateDescriptor("state", Types.LONG()), "total")
    harness = KeyedOneInputOperatorHarness(operator, lambda row: row["user"])
    harness.process_initial_state({"user": "ann", "total": 10})
    harness.process_initial_state({"user": "bob", "total": None})
    harness.process_element({"user": "ann", "n": 1})
    harness.process_element({"user": "bob", "n": 1})
    found = [value for output in harness.subtask.finish_epoch() for value in output.values]
    assert found == [("ann", 10, 1), ("bob", None, 1)]
    with pytest.raises(BadRecordError, match=r"several rows for this key.*group the DataFrame"):
        harness.process_initial_state({"user": "ann", "total": 11})


def described(key: str, rows: list[Any], state: KeyState) -> Iterator[Any]:
    yield key, len(rows), [row["n"] for row in rows], [row["n"] for row in rows]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (None, [3, None, 1, 2]),
        (ColumnOrder(("n",)), [None, 1, 2, 3]),
        (ColumnOrder(("day", "n")), [None, 2, 3, 1]),
        (lambda row: -(row["n"] or 0), [3, 2, 1, None]),
    ],
)
def test_rows_are_a_list_in_the_order_that_was_asked_for(order: Any, expected: list[Any]) -> None:
    operator = KeyedMap(described, ValueStateDescriptor("state", Types.LONG()), order=order)
    harness = KeyedOneInputOperatorHarness(operator, lambda row: row["user"])
    for n, day in ((3, 1), (None, None), (1, 2), (2, 1)):
        harness.process_element({"user": "ann", "n": n, "day": day})
    found = [value for output in harness.subtask.finish_epoch() for value in output.values]
    assert found == [("ann", 4, expected, expected)]


def exits(key: str, rows: list[Any], state: KeyState) -> Iterator[Any]:
    yield key
    raise SystemExit(3)


def test_sys_exit_at_the_end_of_an_epoch_names_the_key() -> None:
    operator = KeyedMap(exits, ValueStateDescriptor("state", Types.LONG()))
    harness = KeyedOneInputOperatorHarness(operator, user_of)
    harness.process_element(("ann", 1))
    with pytest.raises(UserFunctionError, match=r"SystemExit: 3\s+in operator .*, key 'ann', at the end"):
        list(harness.subtask.finish_epoch())
