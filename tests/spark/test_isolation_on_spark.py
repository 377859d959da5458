"""On a real Spark: results are what they were when they were emitted, and records share nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pyflinkstate import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.datastream import OutputTag

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

RECORDS = [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 20)]
#: What PyFlink 2.3 gives, with parallelism 1.
HISTORIES = [("a", [1]), ("b", [10]), ("a", [1, 2]), ("a", [1, 2, 3]), ("b", [10, 20])]
SIDE = OutputTag("side")


class Seen(KeyedProcessFunction):
    """Emits the list that it keeps, to the main and to a side output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        seen = self.seen.value() or []
        seen.append(value[1])
        self.seen.update(seen)
        yield value[0], seen
        yield SIDE, (value[0], seen)


class Keep(KeyedProcessFunction):
    """The first payload of a key becomes its state, and grows there."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        kept = self.kept.value()
        if kept is None:
            kept = value[1]
        kept.append(value[0])
        self.kept.update(kept)
        yield value[0], kept


def by_key(record: Any) -> Any:
    return record[0]


def refilled(record: Any) -> Iterator[dict[str, Any]]:
    one: dict[str, Any] = {}
    for number in range(2):
        one["key"], one["n"] = record[0], record[1] + number
        yield one


def merged(first: Any, second: Any) -> Any:
    first[1].extend(second[1])
    return first


@pytest.fixture
def env(spark: object) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(1)  # type: ignore[arg-type]


def collected(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as results:
        return list(results)


def test_a_list_that_is_kept_and_emitted(env: StreamExecutionEnvironment) -> None:
    pairs = Types.TUPLE([Types.STRING(), Types.LIST(Types.LONG())])
    stream = env.from_collection(RECORDS).key_by(by_key)
    assert collected(stream.process(Seen())) == HISTORIES
    assert collected(stream.process(Seen(), output_type=pairs)) == HISTORIES
    assert collected(stream.process(Seen()).get_side_output(SIDE)) == HISTORIES


def test_a_reduce_function_that_changes_its_first_argument(env: StreamExecutionEnvironment) -> None:
    lists = env.from_collection(RECORDS).map(lambda record: (record[0], [record[1]]))
    assert collected(lists.key_by(by_key).reduce(merged)) == HISTORIES


def test_a_chain_that_refills_one_record(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection(RECORDS).flat_map(refilled).map(lambda record: record)
    expected = [{"key": key, "n": number + more} for key, number in RECORDS for more in range(2)]
    assert collected(stream) == expected


def payloads_that_are_one(keys: Iterable[str]) -> Iterator[Any]:
    payload: list[str] = []
    return ((key, payload) for key in keys)


@pytest.mark.parametrize("source", ["collection", "rdd"])
def test_a_payload_of_several_records_is_each_keys_own(
    env: StreamExecutionEnvironment, spark: Any, source: str
) -> None:
    records = list(payloads_that_are_one("abab"))
    if source == "collection":
        stream = env.from_collection(records)
    else:
        rdd = spark.sparkContext.parallelize("abab", 1).mapPartitions(payloads_that_are_one)
        stream = env.from_rdd(rdd)
    results = collected(stream.key_by(by_key).process(Keep()))
    assert results == [("a", ["a"]), ("b", ["b"]), ("a", ["a", "a"]), ("b", ["b", "b"])]
