"""Random programs that change, refill and share objects, against a model with a deep copy at every hand-over.

The function of a program is the same code in the harness and in the model. The model's state copies what is
stored, unless it is the very object that is stored already; its records and results are copies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from tiers import cases

from pyflinkstate import (
    FlatMapFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.runtime.wire import CheckpointTrigger
from pyflinkstate.testing import KeyedOneInputOperatorHarness, OneInputOperatorHarness, OperatorSnapshot

SIDE = OutputTag("side")
KEYS = "abc"


class Random:
    """A program: what it does with a record is drawn from a seed, also what it keeps and refills."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.kept: Any = ["kept"]
        self.buffer: dict[str, Any] = {"parts": []}
        self.number = 0

    def process(self, record: Any, states: Any) -> Iterator[Any]:
        steps = self._random.choices(STEPS, k=self._random.randint(2, 6))
        for step in steps:
            self.number += 1
            yield from step(self, record, states) or ()

    def choose(self, objects: list[Any]) -> Any:
        return self._random.choice(objects)

    def something(self, record: Any, states: Any) -> Any:
        """Return an object that is at hand; some of these hold others."""
        make = self._random.choice(SOURCES)
        return make(self, record, states)


def shared_pair(program: Random, record: Any, states: Any) -> Any:
    return program.kept, [program.kept, program.buffer]


SOURCES: list[Callable[[Random, Any, Any], Any]] = [
    lambda program, record, states: program.kept,
    lambda program, record, states: program.buffer,
    lambda program, record, states: record[1],
    lambda program, record, states: record,
    lambda program, record, states: states.value.value(),
    lambda program, record, states: list(states.all.get()),
    lambda program, record, states: dict(states.by_name.items()),
    lambda program, record, states: program.number,
    shared_pair,
]


def grow(value: Any, number: int) -> None:
    """Change what can be changed in place."""
    if isinstance(value, list):
        value.append(number)
    elif isinstance(value, dict):
        value[str(number % 3)] = [number]
    elif isinstance(value, tuple):
        for part in value:
            grow(part, number)


def refill(program: Random, record: Any, states: Any) -> None:
    program.buffer["n"] = program.number
    program.buffer["parts"].append(program.number)


def change_anything(program: Random, record: Any, states: Any) -> None:
    grow(program.something(record, states), program.number)


def keep(program: Random, record: Any, states: Any) -> None:
    """Keep something for later records; objects of state must not be kept, as the next snapshot has them."""
    program.kept = program.choose([record, record[1], program.buffer, [program.kept], (1, program.buffer)])


def read_change_store(program: Random, record: Any, states: Any) -> None:
    value = states.value.value()
    if value is None:
        value = [program.number]
    grow(value, program.number)
    states.value.update(value)


def store(program: Random, record: Any, states: Any) -> None:
    states.value.update(program.something(record, states))


def add(program: Random, record: Any, states: Any) -> None:
    element = program.something(record, states)
    states.all.add(0 if element is None else element)


def drop_elements(program: Random, record: Any, states: Any) -> None:
    elements = list(states.all.get())
    states.all.update(elements[program.number % 2 :: 2])


def put(program: Random, record: Any, states: Any) -> None:
    states.by_name.put(str(program.number % 3), program.something(record, states))


def emit(program: Random, record: Any, states: Any) -> Iterator[Any]:
    yield program.something(record, states)


def emit_and_change(program: Random, record: Any, states: Any) -> Iterator[Any]:
    value = program.something(record, states)
    for _ in range(2):
        yield value
        grow(value, program.number)


def emit_aside(program: Random, record: Any, states: Any) -> Iterator[Any]:
    yield SIDE, program.something(record, states)


STEPS: list[Callable[[Random, Any, Any], Any]] = [
    refill,
    change_anything,
    change_anything,
    keep,
    read_change_store,
    store,
    add,
    drop_elements,
    put,
    emit,
    emit,
    emit_and_change,
    emit_aside,
]


# --- the model -------------------------------------------------------------------------------------


class ModelValue:
    def __init__(self) -> None:
        self.stored: Any = None

    def value(self) -> Any:
        return self.stored

    def update(self, value: Any) -> None:
        if value is not self.stored:
            self.stored = copied_from(value, self.stored)


def copied_from(value: Any, stored: Any) -> Any:
    """Return a copy in which the fields that are stored already, in a tuple, stay what they are."""
    memo: dict[int, Any] = {}
    if type(value) is type(stored) is tuple:
        memo = {id(part): part for part in stored}
    return deepcopy(value, memo)


class ModelList:
    def __init__(self) -> None:
        self.stored: list[Any] = []

    def get(self) -> list[Any]:
        return self.stored

    def add(self, value: Any) -> None:
        self.stored.append(deepcopy(value))

    def update(self, values: list[Any]) -> None:
        left = list(self.stored)
        self.stored = [self._own(value, left) for value in values]

    def _own(self, value: Any, left: list[Any]) -> Any:
        for index, element in enumerate(left):
            if element is value:
                return left.pop(index)
        return deepcopy(value)


class ModelMap:
    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    def items(self) -> Any:
        return self.stored.items()

    def put(self, key: str, value: Any) -> None:
        before = self.stored.get(key)
        self.stored[key] = before if value is before else copied_from(value, before)


class ModelStates:
    def __init__(self) -> None:
        self.value, self.all, self.by_name = ModelValue(), ModelList(), ModelMap()

    def contents(self) -> Any:
        return deepcopy((self.value.value(), list(self.all.get()), dict(self.by_name.items())))


# --- the harness -----------------------------------------------------------------------------------


class Function(KeyedProcessFunction):
    def __init__(self, program: Random | None, has_ttl: bool) -> None:
        self.program = program
        self.has_ttl = has_ttl

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptors: list[Any] = [
            ValueStateDescriptor("value"),
            ListStateDescriptor("all"),
            MapStateDescriptor("by name", Types.STRING()),
        ]
        if self.has_ttl:
            config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
            for descriptor in descriptors:
                descriptor.enable_time_to_live(config)
        self.value = runtime_context.get_state(descriptors[0])
        self.all = runtime_context.get_list_state(descriptors[1])
        self.by_name = runtime_context.get_map_state(descriptors[2])

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if self.program is None:
            return iter([(self.value.value(), list(self.all.get()), dict(self.by_name.items()))])
        return self.program.process(value, self)


def records_of(seed: int) -> list[Any]:
    """Return records that share payloads."""
    source = random.Random(seed)
    payloads: list[Any] = [[0], {"p": [1]}, [[2], [3]]]
    return [(source.choice(KEYS), source.choice(payloads)) for _ in range(12)]


def harness_with(program: Random | None, has_ttl: bool, restore: Any = ()) -> KeyedOneInputOperatorHarness:
    return KeyedOneInputOperatorHarness(Function(program, has_ttl), lambda record: record[0], restore=restore)


@pytest.mark.parametrize("seed", cases(range(500), quick=range(20)))
def test_a_random_program_gives_what_deep_copies_give(seed: int) -> None:
    has_ttl = seed % 3 == 0
    program, model_program = Random(seed), Random(seed)
    harness = harness_with(program, has_ttl)
    states = {key: ModelStates() for key in KEYS}
    snapshots: list[tuple[Any, dict[str, Any]]] = []
    results: list[Any] = []
    aside: list[Any] = []
    for number, record in enumerate(records_of(seed)):
        if number % 4 == 3:
            trigger = CheckpointTrigger(number, 0, "memory")
            futures = harness.subtask.snapshot(trigger, MemoryCheckpoint()).futures
            snapshots.append((futures, {key: states[key].contents() for key in KEYS}))
        harness.process_element(record)
        mine = deepcopy(record)
        for result in model_program.process(mine, states[mine[0]]):
            is_aside = type(result) is tuple and result[0] is SIDE
            (aside if is_aside else results).append(deepcopy(result[1] if is_aside else result))
    assert harness.extract_output_values() == results
    assert harness.extract_side_output_values(SIDE) == aside
    assert contents_of(harness_with(None, has_ttl, [harness.snapshot()])) == {
        key: states[key].contents() for key in KEYS
    }
    for futures, expected in snapshots:
        snapshot = OperatorSnapshot(futures.finish(), 1, -(2**63), 128)
        assert contents_of(harness_with(None, has_ttl, [snapshot])) == expected


def contents_of(harness: KeyedOneInputOperatorHarness) -> dict[str, Any]:
    return {key: harness.process_element((key, None))[0] for key in KEYS}


# --- chains ----------------------------------------------------------------------------------------


class RandomFlatMap(FlatMapFunction):
    """Gives what it keeps, what it refills, and the record; changes them before and after."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.kept: Any = []
        self.buffer: dict[str, Any] = {}

    def flat_map(self, value: Any) -> Iterator[Any]:
        for number in range(self._random.randint(0, 3)):
            at_hand = [value, self.kept, self.buffer, (value, self.buffer), [self.kept, self.kept]]
            grow(self._random.choice(at_hand), number)
            given = self._random.choice(at_hand)
            yield given
            grow(given, number)
            self.kept = self._random.choice([self.kept, value, [number]])


@pytest.mark.parametrize("seed", cases(range(500), quick=range(20)))
def test_a_random_chain_gives_what_deep_copies_give(seed: int) -> None:
    length = 1 + seed % 4
    harness = OneInputOperatorHarness(*(RandomFlatMap(seed * 10 + place) for place in range(length)))
    model = [RandomFlatMap(seed * 10 + place) for place in range(length)]

    def through(value: Any, place: int) -> Iterator[Any]:
        if place == length:
            yield value
            return
        for result in model[place].flat_map(value):
            yield from through(deepcopy(result), place + 1)

    expected: list[Any] = []
    for _, payload in records_of(seed):
        harness.process_element(payload)
        expected.extend(through(deepcopy(payload), 0))
    assert harness.extract_output_values() == expected
