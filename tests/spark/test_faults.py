"""What goes wrong in a job on a real local Spark: one clear error, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from operators import Failing, RunningSum

from pyflinkstate import (
    FileSink,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
    errors,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]


def run_program(folder: Path, text: str) -> str:
    """Run a program as a user would and return what it prints."""
    path = folder / "program.py"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, str(path)], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CLASSES_IN_MAIN = """
from dataclasses import dataclass
from pyflinkstate import KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor

@dataclass(frozen=True)
class Event:
    user: str
    amount: int

class Largest(KeyedProcessFunction):
    def open(self, runtime_context):
        self.largest = runtime_context.get_state(ValueStateDescriptor("largest"))

    def process_element(self, value, ctx):
        assert isinstance(value, Event)
        largest = self.largest.value()
        if largest is None or value.amount > largest.amount:
            self.largest.update(value)
        assert largest is None or isinstance(largest, Event)
        yield self.largest.value()

env = StreamExecutionEnvironment().set_parallelism(2)
events = env.from_collection([Event("a", 1), Event("b", 2), Event("a", 3), Event("a", 2)])
stream = events.filter(lambda event: isinstance(event, Event)).key_by(lambda event: event.user)
largest = stream.process(Largest()).map(lambda event: isinstance(event, Event) and event)
results = list(largest.execute_and_collect())
print(sorted((event.user, event.amount) for event in results), {type(e) is Event for e in results})
"""


def test_records_whose_class_is_in_the_main_script(tmp_path: Path) -> None:
    printed = run_program(tmp_path, CLASSES_IN_MAIN)
    assert printed == "[('a', 1), ('a', 3), ('a', 3), ('b', 2)] {True}\n"


def test_relative_paths_are_those_of_the_program(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in", "1.json").write_text('["a",1]\n["a",2]\n')
    env = StreamExecutionEnvironment(spark).set_parallelism(1).enable_checkpointing(0, "checkpoints")
    stream = env.from_files("in", "json").key_by(lambda record: record[0]).process(RunningSum())
    stream.sink_to(FileSink("out"))
    env.execute()
    (part,) = tmp_path.glob("out/epoch=1/part-*")
    assert part.read_text() == '["a",1]\n["a",3]\n'
    assert list(tmp_path.glob("checkpoints/*/chk-1/_metadata"))


@pytest.mark.slow
def test_a_temp_folder_with_a_long_name(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unix socket's path has to be short; without one, tasks take the TCP socket."""
    from pyflinkstate.runtime.wire import transport

    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(transport.tempfile, "gettempdir", lambda: str(long))
    with pytest.raises(OSError, match="too long"):
        transport.listen_on_unix()
    program = (
        "from pyflinkstate import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment().set_parallelism(1)\n"
        "print(list(env.from_collection(['a']).key_by(str).map(str.upper).execute_and_collect()))\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(long)},
        timeout=120,
    )
    assert done.stdout == "['A']\n", done.stderr


# --- bad input -------------------------------------------------------------------------------------


@pytest.fixture
def env(spark: Any) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(2)


def test_a_function_that_raises_shows_operator_key_and_its_own_traceback(
    env: StreamExecutionEnvironment,
) -> None:
    stream = env.from_collection([("a", 1), ("b", 7)]).key_by(lambda record: record[0])
    with pytest.raises(errors.UserFunctionError) as caught:
        list(stream.process(Failing(fatal=7)).name("the operator").execute_and_collect())
    message = str(caught.value)
    assert "LookupError: cannot stand 7" in message
    assert "operator 'the operator', key 'b', record ('b', 7)" in message
    assert "operators.py" in message
    assert "runtime/operators/subtask.py" not in message, "only the user's own frames are shown"


# --- large records ---------------------------------------------------------------------------------

RECORDS = 2_000
SIZE = 500_000
#: What a slot and a worker may have at most, while the records of the epoch have 1,000 MB.
#: A worker sorts frames in memory up to ``spark.python.worker.memory`` (512 MB), and then on the disk.
MAX_SLOT_MB = 300
MAX_WORKER_MB = 1_000


def peak_mb() -> int:
    """Return what this process has had of memory at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return peak // 1024


class PassOn(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: tuple[int, bytes], ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value[0], value[1], peak_mb()


def test_many_large_records_take_little_memory(spark: Any) -> None:
    env = StreamExecutionEnvironment(spark).set_parallelism(1)
    numbers = env.from_collection(range(RECORDS), records_per_epoch=RECORDS)
    large = numbers.map(lambda number: (number, bytes([number % 256]) * SIZE))
    passed = large.key_by(lambda record: record[0] % 7).process(PassOn())
    seen = passed.map(lambda row: (row[0], len(row[1]), row[2], peak_mb()))
    rows = list(seen.execute_and_collect())
    assert sorted((number, size) for number, size, _, _ in rows) == [(n, SIZE) for n in range(RECORDS)]
    slot, worker = max(row[2] for row in rows), max(row[3] for row in rows)
    assert slot < MAX_SLOT_MB, f"slot {slot} MB, worker {worker} MB"
    assert worker < MAX_WORKER_MB, f"slot {slot} MB, worker {worker} MB"
    print(f"slot {slot} MB, worker {worker} MB")
