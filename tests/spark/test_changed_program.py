"""A program that changes the types of its state, on Spark: from a savepoint and a checkpoint, rescaled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_savepoints import PATIENCE_S, Given, Records, Watch, by_key, records

from pyflinkstate import (
    CheckpointedFunction,
    FileSink,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RestartStrategies,
    Row,
    RuntimeContext,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    Types,
    ValueStateDescriptor,
    errors,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left"), pytest.mark.timeout(180)]

INT, LONG, STRING = Types.INT(), Types.LONG(), Types.STRING()


class Version1(KeyedProcessFunction, CheckpointedFunction):
    """Keeps what it has seen of a key in four kinds of state, and of all keys in three of the operator."""

    account = Types.ROW_NAMED(["total", "last"], [INT, STRING])
    number, item = INT, Types.TUPLE([INT, STRING])
    largest = ReducingStateDescriptor("largest", max)
    rule = Types.ROW_NAMED(["name"], [STRING])

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.journal = store.get_list_state(ListStateDescriptor("journal", self.item))
        self.everybody = store.get_union_list_state(ListStateDescriptor("everybody", self.number))
        self.rules = store.get_broadcast_state(MapStateDescriptor("rules", self.number, self.rule))
        self.items = list(self.journal.get())
        self.known = max([0, *self.everybody.get()])
        if not context.is_restored():
            self.rules.put(7, Row(name="seven"))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.journal.update(self.items)
        self.everybody.update([self.known])

    def open(self, runtime_context: RuntimeContext) -> None:
        self.accounts = runtime_context.get_state(ValueStateDescriptor("account", self.account))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", self.number))
        self.by_rest = runtime_context.get_map_state(MapStateDescriptor("by rest", self.number, self.account))
        self.most = runtime_context.get_reducing_state(self.largest)

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterator[list[Any]]:
        key, number = value
        self.accounts.update(self.added(self.accounts.value(), number))
        self.by_rest.put(number % 3, self.added(self.by_rest.get(number % 3), number))
        self.seen.add(number)
        self.most.add(number)
        self.items.append((number, key))
        self.known = max(self.known, number)
        account, rest = self.accounts.value(), self.by_rest.get(number % 3)
        assert account is not None
        assert rest is not None
        assert self.rules.get(7)["name"] == "seven"
        yield [
            key,
            account["total"],
            rest["total"],
            len(list(self.seen.get())),
            self.most.get(),
            *self.more(account),
        ]

    def added(self, account: Row | None, number: int) -> Row:
        return Row(total=(0 if account is None else account["total"]) + number, last=str(number))

    def more(self, account: Row) -> list[Any]:
        return [account["last"]]


class Version2(Version1):
    """The same with wider numbers, a field more, another order, a declared type and time to live."""

    account = Types.ROW_NAMED(["last", "count", "total"], [STRING, LONG, LONG])
    number, item = LONG, Types.TUPLE([LONG, Types.PICKLED_BYTE_ARRAY()])
    rule = Types.ROW_NAMED(["since", "name"], [LONG, STRING])

    def open(self, runtime_context: RuntimeContext) -> None:
        self.largest = ReducingStateDescriptor("largest", max, LONG)
        self.largest.allow_pickled_restore()
        self.largest.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(10)).build())
        super().open(runtime_context)

    def added(self, account: Row | None, number: int) -> Row:
        count = 0 if account is None else account["count"] or 0
        made = super().added(account, number)
        return Row(last=made["last"], count=count + 1, total=made["total"])

    def more(self, account: Row) -> list[Any]:
        return [account["last"], account["count"]]


class Version3(Version2):
    """Asks for what cannot be."""

    account = Types.ROW_NAMED(["last", "count", "total"], [STRING, LONG, INT])


def expected(given: Records, since_version_2: int) -> list[list[Any]]:
    """What the versions emit, by a plain loop."""
    totals: dict[Any, int] = {}
    emitted: list[list[Any]] = []
    seen: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for index, (key, number) in enumerate(given):
        for place in (key, (key, number % 3)):
            totals[place] = totals.get(place, 0) + number
        seen.setdefault(key, []).append(number)
        line = [key, totals[key], totals[key, number % 3], len(seen[key]), max(seen[key]), str(number)]
        if index >= since_version_2:
            counts[key] = counts.get(key, 0) + 1
            line.append(counts[key])
        emitted.append(line)
    return sorted(emitted, key=repr)


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_a_changed_program_goes_on_with_its_state(spark: Any, tmp_path: Path, incremental: bool) -> None:
    source = Given(*records(0, 60))

    def environment(function: KeyedProcessFunction, parallelism: int) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment(spark).set_parallelism(parallelism)
        env.enable_checkpointing(0, str(tmp_path / "checkpoints"), incremental=incremental)
        env.set_restart_strategy(RestartStrategies.no_restart())
        keyed = env.from_source(source).key_by(by_key, STRING)
        keyed.process(function).uid("ledger").sink_to(FileSink(str(tmp_path / "out")))
        return env

    def rows() -> list[list[Any]]:
        files = (tmp_path / "out").glob("epoch=*/*.jsonl")
        return sorted(
            (json.loads(line) for path in files for line in path.read_text().splitlines()), key=repr
        )

    def tree() -> dict[str, bytes]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and "/runs/" not in str(path)]
        return {str(path): path.read_bytes() for path in files}

    watch = Watch()
    client = environment(Version1(), 2).add_listener(watch).execute_async("ledger")
    watch.until(lambda: bool(watch.checkpoints))
    savepoint = client.stop_with_savepoint(savepoint_directory=str(tmp_path / "savepoints")).result(
        PATIENCE_S
    )
    client.get_job_execution_result().result(PATIENCE_S)
    source.give(records(60, 90))

    watch = Watch()
    client = environment(Version2(), 3).restore_from(savepoint).add_listener(watch).execute_async("ledger")
    watch.until(lambda: len(rows()) >= 90)
    source.give(records(90, 120))
    watch.until(lambda: len(rows()) >= 120)
    client.cancel().result(PATIENCE_S)
    assert rows() == expected(source.records, 60)

    before = tree()
    with pytest.raises(errors.StateMigrationError, match=r"'account'.*field 'total': LONG cannot become INT"):
        environment(Version3(), 2).restore_from("latest").execute("ledger")
    assert tree() == before
    source.give(records(120, 140))
    source.finish()
    environment(Version2(), 1).restore_from("latest").execute("ledger")
    assert rows() == expected(source.records, 60)
