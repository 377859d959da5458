"""On Spark: what a program brings along, cached streams, functions without keys that keep state."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from slot_functions import Buffer

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


# --- one environment after another -----------------------------------------------------------------------


class NameOf(KeyedProcessFunction):
    """Gives the name of a module that a slot can import, or of the error."""

    def __init__(self, module: str) -> None:
        self._module = module

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield imported(self._module)


def imported(module: str) -> str:
    try:
        return str(importlib.import_module(module).NAME)
    except ImportError as error:
        return type(error).__name__


def names_in(env: StreamExecutionEnvironment, module: str) -> tuple[set[str], set[str]]:
    """Return what tasks and slots find under the name of a module."""
    numbers = env.from_collection(list(range(8)), Types.INT())
    in_tasks = numbers.map(lambda _: imported(module)).execute_and_collect()
    in_slots = numbers.key_by(lambda number: number).process(NameOf(module)).execute_and_collect()
    return set(in_tasks), set(in_slots)


def new_environment(spark: Any, *files: Path) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    for file in files:
        env.add_python_file(file)
    return env


def module_of(folder: Path, content: str, name: str = "brought_twice") -> Path:
    folder.mkdir()
    (folder / f"{name}.py").write_text(content)
    return folder / f"{name}.py"


def test_each_environment_has_its_own_files(spark: Any, tmp_path: Path, path_as_before: None) -> None:
    one = module_of(tmp_path / "d0", "NAME = 'one'")
    two = module_of(tmp_path / "d1", "NAME = 'two'")
    first = new_environment(spark, one)
    assert names_in(first, "brought_twice") == ({"one"}, {"one"})
    assert names_in(new_environment(spark), "brought_twice") == (
        {"ModuleNotFoundError"},
        {"ModuleNotFoundError"},
    )
    assert names_in(new_environment(spark, two), "brought_twice") == ({"two"}, {"two"})
    assert names_in(first, "brought_twice") == ({"one"}, {"one"})
    seen = spark.sparkContext.parallelize(range(8), 4).map(lambda _: imported("brought_twice")).collect()
    assert set(seen) == {"ModuleNotFoundError"}


def test_jobs_that_run_at_once_have_their_own_files(spark: Any, tmp_path: Path, path_as_before: None) -> None:
    names = ["one", "two"]
    envs = [
        new_environment(spark, module_of(tmp_path / name, f"NAME = {name!r}"), tmp_path / name)
        for name in names
    ]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda env: names_in(env, "brought_twice"), envs))
    assert found == [({name}, {name}) for name in names]


def test_archives_of_two_environments_may_have_one_name(
    spark: Any, tmp_path: Path, path_as_before: None
) -> None:
    def read(_: int) -> str:
        return Path("data/data.txt").read_text() if Path("data").exists() else "none"

    found = []
    for content in ("one", "two", None):
        env = new_environment(spark)
        if content is not None:
            with zipfile.ZipFile(tmp_path / f"{content}.zip", "w") as file:
                file.writestr("data.txt", content)
            env.add_python_archive(tmp_path / f"{content}.zip", "data")
        found.append(list(env.from_collection([1], Types.INT()).map(read).execute_and_collect()))
    assert found == [["one"], ["two"], ["none"]]


def test_results_of_brought_classes_are_read_where_their_module_is(
    spark: Any, tmp_path: Path, path_as_before: None
) -> None:
    content = "class Thing:\n    pass\n"
    env = new_environment(spark, module_of(tmp_path / "d0", content, "brought_class"))

    def made(_: int) -> Any:
        return importlib.import_module("brought_class").Thing()

    things = env.from_collection([1, 2], Types.INT()).map(made).to_rdd()
    assert things.map(lambda thing: type(thing).__name__).collect() == ["Thing", "Thing"]


@pytest.mark.parametrize("name", ["cloudpickle", "attrs", "selectors"])
def test_a_file_cannot_take_the_place_of_what_slots_need(
    spark: Any, tmp_path: Path, path_as_before: None, name: str
) -> None:
    file = module_of(tmp_path / "d0", "raise RuntimeError('not the real one')", name)
    env = new_environment(spark, file, module_of(tmp_path / "d1", "NAME = 'one'"))
    assert names_in(env, "brought_twice") == ({"one"}, {"one"})


def test_requirements_cannot_bring_another_version_of_what_slots_need(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("cloudpickle==1.0.0\n")
    with pytest.raises(ConfigurationError, match=r"(?s)cloudpickle==1\.0\.0.*no other version of what"):
        env.set_python_requirements(tmp_path / "requirements.txt", tmp_path)


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


def test_what_a_function_without_keys_holds_is_restored_at_another_parallelism(
    spark: Any, tmp_path: Path
) -> None:
    _, made = held(spark, tmp_path, 1, 1000, fails_at=8)
    with pytest.raises(BadRecordError), made.execute_and_collect("held") as results:
        list(results)
    env, made = held(spark, tmp_path, 2, 6, fails_at=-1)
    env.restore_from()
    with made.execute_and_collect("held") as results:
        given = list(results)
    assert sorted(map(len, given)) == [6, 6]
    assert sorted(value for one in given for value in one) == list(range(12))
