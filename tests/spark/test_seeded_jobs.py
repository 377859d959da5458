"""A job that starts from a seeded or changed savepoint goes on as one that has seen all rows itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import SparkJobError
from pyflinkstate.state_access import StateBootstrapFunction, dry_run, edit, new_savepoint

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left"), pytest.mark.timeout(180)]

TOTAL = ValueStateDescriptor("total", Types.LONG())
WIDE = ValueStateDescriptor("sum", Types.DOUBLE())
WORDS = MapStateDescriptor("words", Types.STRING(), Types.LONG())
LAST = ListStateDescriptor("last", Types.LONG())
JOB = "seeded"


class Totals(KeyedProcessFunction):
    """Sums, counts words and lists the last amounts; ``total`` is the descriptor of the sum."""

    def __init__(self, total: ValueStateDescriptor = TOTAL) -> None:
        self._descriptor = total

    def open(self, runtime_context):
        self.total = runtime_context.get_state(self._descriptor)
        self.words = runtime_context.get_map_state(WORDS)
        self.last = runtime_context.get_list_state(LAST)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value["amount"])
        self.words.put(value["word"], (self.words.get(value["word"]) or 0) + 1)
        self.last.update([*self.last.get(), value["amount"]][-3:])
        yield (
            value["who"],
            value["amount"],
            int(self.total.value()),
            tuple(sorted(self.words.items())),
            tuple(self.last.get()),
        )


def rows(begin: int, end: int) -> list[tuple[str, int, str]]:
    return [(f"k{n % 37}", n, f"w{n % 5}") for n in range(begin, end)]


def frame(spark: Any, begin: int, end: int, partitions: int = 3) -> Any:
    made = spark.createDataFrame(rows(begin, end), "who string, amount long, word string")
    return made.coalesce(1) if partitions == 1 else made.repartitionByRange(partitions, "amount")


def program(spark: Any, folder: Path, data: Any, *, uid: str = "totals", total: ValueStateDescriptor = TOTAL):
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    env.enable_checkpointing(0, str(folder))
    records = env.from_dataframe(data)
    totals = records.key_by(lambda row: row["who"], key_type=Types.STRING()).process(Totals(total))
    return env, totals.uid(uid).name("totals")


def emitted(stream: Any) -> Counter[tuple[Any, ...]]:
    with stream.execute_and_collect(JOB) as results:
        return Counter(results)


def test_a_seeded_job_goes_on_as_one_that_has_seen_the_rows(spark: Any, tmp_path: Path) -> None:
    _, whole = program(spark, tmp_path / "whole", frame(spark, 0, 600, partitions=1))
    expected = Counter(dict.fromkeys((row for row in emitted(whole) if row[1] >= 400), 1))

    savepoint = new_savepoint(JOB).bootstrap(
        "totals",
        frame(spark, 0, 400),
        key="who",
        key_type=Types.STRING(),
        function=Totals(),
        parallelism=3,
    )
    written = savepoint.write(str(tmp_path / "savepoint"))
    assert len(written.operator("totals").subtasks) == 3
    env, rest = program(spark, tmp_path / "rest", frame(spark, 400, 600, partitions=1))
    env.restore_from(written.uri)
    assert emitted(rest) == expected

    changed = edit(written).set_max_parallelism("totals", 60).rename_uid("totals", "sums")
    changed.migrate("sums", "total", WIDE, float)
    again = changed.write(str(tmp_path / "changed"))
    env, rest = program(
        spark, tmp_path / "changed-rest", frame(spark, 400, 600, partitions=1), uid="sums", total=WIDE
    )
    env.set_parallelism(3).restore_from(again.uri)
    assert emitted(rest) == expected


def test_a_dry_run_names_each_operator_and_state_that_would_not_be_restored(
    spark: Any, tmp_path: Path
) -> None:
    data = frame(spark, 0, 50)
    savepoint = new_savepoint(JOB).bootstrap(
        "totals", data, key="who", key_type=Types.STRING(), function=Totals()
    )

    def tried(checkpoint: Any, job_name: str = JOB, **options: Any) -> Any:
        env, stream = program(spark, tmp_path / "never", data, **options)
        stream.print()
        return dry_run(checkpoint, env, job_name)

    assert tried(savepoint).is_restorable
    written = savepoint.write(str(tmp_path / "savepoint"))
    found = tried(written.uri)
    assert (found.mismatches, found.restored, found.new_operators) == ((), ("totals",), ())
    assert tried(written, total=WIDE).is_restorable  # another state begins empty

    (other,) = tried(written, total=ValueStateDescriptor("total", Types.STRING())).mismatches
    assert (other.uid, other.state) == ("totals", "total")
    assert "LONG" in other.message
    (renamed,) = tried(written, uid="sums").mismatches
    assert renamed.uid == "totals"
    assert "does not have" in renamed.message
    (job,) = tried(written, "another").mismatches
    assert (job.uid, job.state) == (None, None)
    assert not (tmp_path / "never").exists()
    mended = edit(written).rename_uid("totals", "sums")
    env, stream = program(spark, tmp_path / "never", data, uid="sums")
    stream.print()
    assert mended.dry_run(env, JOB).is_restorable

    names = new_savepoint(JOB).bootstrap("names", [1, 2], key=None, function=Names())
    (unknown,) = tried(names).mismatches
    assert "operator 'names', which the program does not have" in unknown.message
    assert tried(edit(names.write(str(tmp_path / "names"))).drop_state("names", "names")).is_restorable


class Names(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.names = store.get_list_state(ListStateDescriptor("names", Types.LONG()))

    def process_element(self, value, ctx):
        self.names.add(value)


def test_dataframes_without_rows_and_with_bad_ones(spark: Any, tmp_path: Path) -> None:
    nothing = spark.sql("select 'a' as who, 1L as amount where false")
    assert nothing.rdd.getNumPartitions() == 0
    options = {"key": "who", "key_type": Types.STRING(), "function": {TOTAL: "amount"}}
    written = new_savepoint(JOB).bootstrap("totals", nothing, **options).write(str(tmp_path / "nothing"))
    assert list(written.keyed("totals").rows()) == []

    bad = spark.sql("select cast(null as string) as who, 1L as amount")
    with pytest.raises(SparkJobError, match=r"operator 'totals' cannot be seeded: .*InvalidKeyError"):
        new_savepoint(JOB).bootstrap("totals", bad, **options).write(str(tmp_path / "bad"))
    assert not (tmp_path / "bad").exists()
