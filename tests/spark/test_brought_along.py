"""On Spark: what a program brings along, cached streams, functions without keys that keep state."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkpointed_functions import Buffer

from pyflinkstate import (
    Duration,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(2)


@pytest.fixture
def path_as_before() -> Iterator[None]:
    """What is brought along goes on the driver's path too; the next test does not need it."""
    before = list(sys.path)
    yield
    sys.path[:] = before


class FromPackages(KeyedProcessFunction):
    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        from brought_package import thing  # type: ignore[import-not-found]

        yield thing.made(value)


def wheel(folder: Path) -> Path:
    """Return a wheel of a package with a module and a file of data, made by hand."""
    path = folder / "brought_package-1.0-py3-none-any.whl"
    info = "brought_package-1.0.dist-info"
    read = "from pathlib import Path\nTEXT = Path(__file__).with_name('data.txt').read_text()\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("brought_package/__init__.py", "")
        file.writestr("brought_package/data.txt", "from a file")
        file.writestr("brought_package/thing.py", f"{read}def made(number):\n    return TEXT, number\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: brought-package\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path


def test_required_packages_are_there_where_functions_run_with_their_data(
    env: StreamExecutionEnvironment, tmp_path: Path, path_as_before: None
) -> None:
    wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text("brought-package==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path))
    numbers = env.from_collection([1, 2, 3], Types.INT()).key_by(lambda number: number)
    assert sorted(numbers.process(FromPackages()).execute_and_collect()) == [
        ("from a file", number) for number in (1, 2, 3)
    ]


def test_what_cannot_be_brought_along_is_told_at_once(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "file.txt").write_text("no-such-package-of-anybody")
    text, missing = str(tmp_path / "file.txt"), str(tmp_path / "missing")
    for call in (env.add_python_file, env.add_python_archive, env.set_python_requirements):
        with pytest.raises(ConfigurationError, match=r"\(\): there is no .*missing"):
            call(missing)
    with pytest.raises(ConfigurationError, match="is no module"):
        env.add_python_file(text)
    with pytest.raises(ConfigurationError, match="is no zip file"):
        env.add_python_archive(text)
    with pytest.raises(ConfigurationError, match=r"pip cannot install .*file\.txt"):
        env.set_python_requirements(text, str(tmp_path))
    with pytest.raises(ConfigurationError, match="one folder's name"):
        env.add_python_archive(str(wheel(tmp_path)), "../out")


# --- cached streams ------------------------------------------------------------------------------------


def computed(log: Path) -> Any:
    def compute(number: int) -> int:
        with log.open("a") as file:
            file.write(f"{number}\n")
        return number * 10

    return compute


def test_a_cached_stream_is_computed_once_until_it_is_invalidated(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    log = tmp_path / "computed"
    cached = env.from_collection([1, 2, 3], Types.INT()).map(computed(log), Types.INT()).cache()
    assert not log.exists()
    assert sorted(cached.execute_and_collect()) == [10, 20, 30]
    assert sorted(cached.key_by(str).sum().execute_and_collect()) == [10, 20, 30]
    assert sorted(log.read_text().split()) == ["1", "2", "3"]
    cached.invalidate()
    assert sorted(cached.map(str).execute_and_collect()) == ["10", "20", "30"]
    assert len(log.read_text().split()) == 6
    env.close()
    assert sorted(cached.execute_and_collect()) == [10, 20, 30]
    assert len(log.read_text().split()) == 9


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


def test_a_cached_stream_keeps_event_time(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(5))
    records = [("a", 1), ("a", 12), ("b", 3), ("a", 4)]
    cached = (
        env.enable_checkpointing(0, storage=str(tmp_path))
        .from_collection(records)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Second()))
        .cache()
    )
    windows = cached.key_by(lambda record: record[0]).window(TumblingEventTimeWindows.of(10))
    expected = [("a", 5), ("a", 12), ("b", 3)]
    for _ in range(2):
        summed = windows.reduce(lambda one, other: (one[0], one[1] + other[1]))
        assert sorted(summed.execute_and_collect()) == expected


class WithItsTimestamp(ProcessFunction):
    """Gives each record with its timestamp."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


def test_a_cached_record_without_a_timestamp_has_none_later(env: StreamExecutionEnvironment) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    timed = env.from_collection([("a", 1)]).assign_timestamps_and_watermarks(strategy)
    cached = timed.union(env.from_collection([("b", 2)])).cache()
    for _ in range(2):
        found = cached.process(WithItsTimestamp()).execute_and_collect()
        assert sorted(found) == [(("a", 1), 1), (("b", 2), None)]


def test_what_cannot_be_cached_says_so(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1])
    with pytest.raises(ConfigurationError, match="cannot follow key_by"):
        numbers.key_by(str).cache()
    with pytest.raises(ConfigurationError, match=r"source .* has no end"):
        env.from_rate(1).map(str).cache()
    with pytest.raises(ConfigurationError, match=r"cache\(\) adds none"):
        numbers.cache().name("cached")


# --- functions without keys that keep state --------------------------------------------------------------


class Fails(ProcessFunction):
    def __init__(self, at: int) -> None:
        self.at = at

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[int]:
        if value == self.at:
            raise BadRecordError("bad input")
        yield value


def held(spark: Any, storage: Path, parallelism: int, enough: int, fails_at: int) -> Any:
    env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
    env.enable_checkpointing(0, storage=str(storage))
    numbers = env.from_collection(list(range(12)), Types.LONG(), records_per_epoch=4)
    return env, numbers.process(Fails(fails_at)).flat_map(Buffer(enough)).uid("held")


@pytest.mark.quick
@pytest.mark.parametrize(("before", "after"), [(1, 2)])
def test_what_a_function_without_keys_holds_is_restored_at_another_parallelism(
    spark: Any, tmp_path: Path, before: int, after: int
) -> None:
    _, made = held(spark, tmp_path, before, 1000, fails_at=8)
    with pytest.raises(BadRecordError), made.execute_and_collect("held") as results:
        list(results)
    env, made = held(spark, tmp_path, after, 12 // after, fails_at=-1)
    env.restore_from()
    with made.execute_and_collect("held") as results:
        given = list(results)
    assert sorted(map(len, given)) == [12 // after] * after
    assert sorted(value for one in given for value in one) == list(range(12))
