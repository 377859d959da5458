"""Bad input on a real local Spark: one clear error of the project's own, and nothing left behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from operators import Failing, RunningSum

from pyflinkstate import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    errors,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(2)


def run(env: StreamExecutionEnvironment, function: Any, records: Any = (("a", 1),), **key: Any) -> None:
    stream = env.from_collection(records).key_by(lambda record: record[0], **key)
    list(stream.process(function).name("the operator").execute_and_collect())


@pytest.mark.parametrize("make_key", [lambda: None, lambda: math.nan, list, dict, object])
def test_a_bad_key_names_operator_and_record(
    env: StreamExecutionEnvironment, make_key: Callable[[], Any]
) -> None:
    stream = env.from_collection([("good", 1), ("bad", 2)]).key_by(
        lambda record: make_key() if record[0] == "bad" else record[0]
    )
    results = stream.process(RunningSum()).name("the operator").execute_and_collect()
    with pytest.raises(errors.InvalidKeyError, match=r"(?s)'the operator'.*record"):
        list(results)


def test_a_key_that_does_not_fit_its_declared_type(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(errors.InvalidKeyError, match="does not fit LONG"):
        run(env, RunningSum(), key_type=Types.LONG())


class Stateful(KeyedProcessFunction):
    """Does one thing with state, in ``open`` or for a record."""

    def __init__(self, in_open: Callable[..., Any] | None = None, use: Callable[..., Any] | None = None):
        self.in_open = in_open
        self.use = use

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = self.in_open(runtime_context) if self.in_open is not None else None

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if self.use is not None:
            self.use(self.state)
        yield value


def test_a_value_that_does_not_fit_its_declared_type(env: StreamExecutionEnvironment) -> None:
    descriptor = ValueStateDescriptor("n", Types.LONG())
    function = Stateful(lambda context: context.get_state(descriptor), lambda state: state.update("x"))
    with pytest.raises(errors.StateValueError, match=r"(?s)state 'n', key 'a'.*LONG.*'the operator'"):
        run(env, function)


def test_state_without_a_current_key(env: StreamExecutionEnvironment) -> None:
    descriptor = ValueStateDescriptor("n")
    function = Stateful(lambda context: context.get_state(descriptor).value())
    with pytest.raises(errors.NoCurrentKeyError, match=r"(?s)state 'n'.*in open\(\)"):
        run(env, function)


@pytest.mark.parametrize(
    "second", [ListStateDescriptor("n", Types.LONG()), ValueStateDescriptor("n", Types.STRING())]
)
def test_one_name_for_two_states(env: StreamExecutionEnvironment, second: Any) -> None:
    def in_open(context: RuntimeContext) -> None:
        context.get_state(ValueStateDescriptor("n", Types.LONG()))
        if isinstance(second, ListStateDescriptor):
            context.get_list_state(second)
        else:
            context.get_state(second)

    with pytest.raises(errors.StateRegistrationError, match="'n' is in use as VALUE of LONG"):
        run(env, Stateful(in_open))


class AsksForState(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_map_state(MapStateDescriptor("m"))

    def map(self, value: Any) -> Any:
        return value


def test_keyed_state_on_a_stream_without_keys(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(errors.NotKeyedStreamError, match=r"'m' \(MAP\).*after key_by"):
        list(env.from_collection([1]).map(AsksForState()).execute_and_collect())


def test_a_function_that_raises_shows_operator_key_and_its_own_traceback(
    env: StreamExecutionEnvironment,
) -> None:
    with pytest.raises(errors.UserFunctionError) as caught:
        run(env, Failing(fatal=7), [("a", 1), ("b", 7)])
    message = str(caught.value)
    assert "LookupError: cannot stand 7" in message
    assert "operator 'the operator', key 'b', record ('b', 7)" in message
    assert "operators.py" in message
    assert "runtime/operators/subtask.py" not in message, "only the user's own frames are shown"


def test_a_key_selector_that_raises(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(errors.UserFunctionError, match=r"(?s)TypeError.*record 3"):
        run(env, RunningSum(), [("a", 1), 3])


def test_a_result_that_does_not_fit_output_type(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(str, output_type=Types.LONG())
    with pytest.raises(errors.BadRecordError, match=r"'str'.*does not fit LONG"):
        list(stream.execute_and_collect())


@pytest.mark.parametrize("setting", ["operator", "environment"])
def test_parallelism_above_max_parallelism(env: StreamExecutionEnvironment, setting: str) -> None:
    stream = env.from_collection([("a", 1)]).key_by(lambda record: record[0]).process(RunningSum())
    if setting == "operator":
        stream.set_parallelism(5).set_max_parallelism(4)
    else:
        env.set_parallelism(5).set_max_parallelism(4)
    with pytest.raises(errors.ParallelismError, match="not within bounds: 5"):
        stream.execute_and_collect()


class WithBadTimer(RunningSum):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(1.5)
        return super().process_element(value, ctx)


def test_a_timer_at_no_whole_millisecond(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(errors.StateValueError, match=r"whole number of milliseconds from .*, not 1\.5"):
        run(env, WithBadTimer())


def test_a_function_that_cannot_be_pickled(env: StreamExecutionEnvironment) -> None:
    import threading

    function = RunningSum()
    function.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(errors.ConfigurationError, match=r"'the operator'.*cannot be pickled"):
        run(env, function)


ROWS = "name,n\na,1\nb\na,2,3\n\nb,4\n"


@pytest.fixture
def csv_dir(tmp_path: Path) -> Path:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "1.csv").write_text(ROWS)
    return tmp_path / "rows"


def test_a_malformed_row_fails_the_job_by_default(env: StreamExecutionEnvironment, csv_dir: Path) -> None:
    with pytest.raises(errors.MalformedRecordError, match=r"1\.csv, line 3: .*1 fields.*has 2"):
        list(env.from_files(str(csv_dir)).execute_and_collect())


@pytest.mark.parametrize("policy", ["drop", "collect"])
def test_malformed_rows_are_counted(env: StreamExecutionEnvironment, csv_dir: Path, policy: str) -> None:
    env.from_files(str(csv_dir), on_malformed=policy).map(lambda row: row["n"]).print()
    result = env.execute()
    assert result.get_accumulator_result("files.records_malformed") == 2
    assert result.get_accumulator_result("files.records_out") == 2
    collected = [(row.line, row.text) for row in result.rejected]
    assert collected == ([] if policy == "drop" else [(3, "b"), (4, "a,2,3")])


def test_a_directory_without_files(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match="holds no files"):
        env.from_files(str(tmp_path))
    with pytest.raises(errors.ConfigurationError, match="cannot list"):
        env.from_files(str(tmp_path / "nowhere"))


def test_a_file_that_cannot_be_read(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "1.csv.gz").write_bytes(b"this is no gzip")
    with pytest.raises(errors.SourceError, match=r"'files' cannot be read: .*1\.csv\.gz: "):
        list(env.from_files(str(tmp_path)).execute_and_collect())


def test_no_record_before_the_bad_one_is_committed(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    from pyflinkstate import FileSink

    stream = env.from_collection([("a", n) for n in range(100)]).key_by(lambda record: record[0])
    stream.process(Failing(fatal=99)).sink_to(FileSink(str(tmp_path / "out")))
    with pytest.raises(errors.UserFunctionError):
        env.execute()
    assert list((tmp_path / "out").glob("epoch=*")) == []
