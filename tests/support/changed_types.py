"""A program whose state changes its type: what may change, and an operator that is restored with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
from backend_support import MemoryReader, MemoryStreams

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    RowKind,
    StateDescriptor,
    ValueStateDescriptor,
)
from pyflinkstate.api import ExternalTypeInfo, TypeInformation, Types
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend, assign_state
from pyflinkstate.runtime.operators import StreamOperatorState

BYTE, SHORT, INT, LONG = Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG()
STRING, PICKLED = Types.STRING(), Types.PICKLED_BYTE_ARRAY()
MAX_PARALLELISM = 16
Values = list[tuple[Any, Any]]


def row(*fields: tuple[str, TypeInformation]) -> TypeInformation:
    """Return the type of rows with these fields."""
    made: TypeInformation = Types.ROW_NAMED([name for name, _ in fields], [part for _, part in fields])
    return made


def named(**fields: Any) -> Row:
    return Row(**fields)


@attrs.frozen
class Change:
    """One change of a type: what is written, and what the changed program reads."""

    was: TypeInformation
    now: TypeInformation
    values: Values
    #: The new descriptor says ``allow_pickled_restore()``.
    pickled: bool = False


A, B, C, D = ("a", INT), ("b", STRING), ("c", LONG), ("d", Types.LIST(LONG))
AB = row(A, B)
DELETED = Row.of_kind(RowKind.DELETE, a=3, b=None)

#: What may change about the type of a value, an element or an accumulator.
CHANGES: dict[str, Change] = {
    "a field more": Change(
        AB,
        row(A, C, B),
        [
            (named(a=1, b="x"), named(a=1, c=None, b="x")),
            (DELETED, Row.of_kind(RowKind.DELETE, a=3, c=None, b=None)),
        ],
    ),
    "a field less": Change(
        row(A, B, D),
        row(B, D),
        [(named(a=1, b="x", d=[1]), named(b="x", d=[1])), (named(a=2, b=None, d=[]), named(b=None, d=[]))],
    ),
    "fields in another order": Change(
        row(("x", LONG), ("y", LONG)),
        row(("y", LONG), ("x", LONG)),
        [(named(x=1, y=2), named(y=2, x=1)), (named(x=3, y=None), named(y=None, x=3))],
    ),
    "one more, one less, one wider, another order": Change(
        AB,
        row(C, ("a", LONG)),
        [
            (named(a=2**31 - 1, b="x"), named(c=None, a=2**31 - 1)),
            (named(a=None, b=""), named(c=None, a=None)),
        ],
    ),
    "names for a row without": Change(
        Types.ROW([INT, STRING]), AB, [(Row(f0=1, f1="x"), named(a=1, b="x")), ((2, "y"), named(a=2, b="y"))]
    ),
    "rows in a list": Change(
        Types.LIST(AB),
        Types.LIST(row(B)),
        [([named(a=1, b="x"), DELETED], [named(b="x"), Row.of_kind(RowKind.DELETE, b=None)]), ([], [])],
    ),
    "rows in an array in a map in a tuple": Change(
        Types.TUPLE([LONG, Types.MAP(STRING, Types.OBJECT_ARRAY(AB))]),
        Types.TUPLE([LONG, Types.MAP(STRING, Types.OBJECT_ARRAY(row(B, C)))]),
        [
            (
                (1, {"k": [named(a=1, b="x"), None], "none": None}),
                (1, {"k": [named(b="x", c=None), None], "none": None}),
            ),
            ((None, None), (None, None)),
        ],
    ),
    "rows in rows": Change(
        row(("inner", AB), A),
        row(A, ("inner", row(B, A))),
        [
            (named(inner=named(a=1, b="x"), a=2), named(a=2, inner=named(b="x", a=1))),
            (named(inner=None, a=5), named(a=5, inner=None)),
        ],
    ),
    "INT to LONG": Change(INT, LONG, [(-(2**31), -(2**31)), (2**31 - 1, 2**31 - 1), (0, 0)]),
    "BYTE to SHORT": Change(BYTE, SHORT, [(-128, -128), (127, 127)]),
    "SHORT to BIG_INT": Change(SHORT, Types.BIG_INT(), [(-(2**15), -(2**15)), (7, 7)]),
    "FLOAT to DOUBLE": Change(Types.FLOAT(), Types.DOUBLE(), [(0.1, 0.1), (float("inf"), float("inf"))]),
    "wider in a map": Change(
        Types.MAP(INT, INT), Types.MAP(LONG, Types.BIG_INT()), [({1: 2, 3: None}, {1: 2, 3: None}), ({}, {})]
    ),
    "a list to an array": Change(Types.LIST(INT), Types.OBJECT_ARRAY(LONG), [([1, 2], [1, 2]), ([], [])]),
    "an array to one with None": Change(
        Types.PRIMITIVE_ARRAY(INT), Types.BASIC_ARRAY(INT), [([1, 2], [1, 2]), ([], [])]
    ),
    "an array to one of objects": Change(
        Types.BASIC_ARRAY(INT), Types.OBJECT_ARRAY(INT), [([1, None], [1, None]), ([], [])]
    ),
    "without a wrapper": Change(ExternalTypeInfo(AB), row(B), [(named(a=1, b="x"), named(b="x"))]),
    "declared to pickled": Change(AB, PICKLED, [(named(a=1, b="x"), named(a=1, b="x")), (DELETED, DELETED)]),
    "a list to pickled": Change(Types.LIST(LONG), PICKLED, [([1], [1]), ([], [])]),
    "a part to pickled": Change(
        row(A, B),
        row(("a", PICKLED), C),
        [(named(a=1, b="x"), named(a=1, c=None)), (DELETED, Row.of_kind(RowKind.DELETE, a=3, c=None))],
    ),
    "pickled parts to pickled": Change(
        Types.TUPLE([PICKLED, Types.LIST(PICKLED)]),
        PICKLED,
        [(({1}, [1, "x"]), ({1}, [1, "x"])), ((None, []), (None, []))],
    ),
    "pickled to declared": Change(
        PICKLED,
        AB,
        [((1, "x"), named(a=1, b="x")), (DELETED, DELETED), ({"b": None, "a": 5}, named(a=5, b=None))],
        True,
    ),
    "pickled to a list": Change(PICKLED, Types.LIST(LONG), [([1, 2], [1, 2]), ((), [])], True),
    "pickled parts to declared": Change(
        row(("a", PICKLED), B),
        row(C, ("a", LONG)),
        [(named(a=1, b="x"), named(c=None, a=1)), (named(a=None, b="x"), named(c=None, a=None))],
        True,
    ),
}

#: What may change about the keys of a map.
KEY_CHANGES: dict[str, Change] = {
    "wider": Change(INT, LONG, [(-1, -1), (2**31 - 1, 2**31 - 1)]),
    "wider in a tuple": Change(
        Types.TUPLE([BYTE, STRING]),
        Types.TUPLE([LONG, STRING]),
        [((1, "x"), (1, "x")), ((None, ""), (None, ""))],
    ),
    "a field more and another order": Change(
        AB,
        row(C, B, A),
        [(named(a=1, b="x"), named(c=None, b="x", a=1)), (named(a=1, b=None), named(c=None, b=None, a=1))],
    ),
    "declared to pickled": Change(STRING, PICKLED, [("x", "x"), ("", "")]),
    "pickled to declared": Change(PICKLED, LONG, [(1, 1), (True + 1, 2)], True),
    "pickled to rounded": Change(PICKLED, Types.FLOAT(), [(0.5, 0.5), (0.25, 0.25)], True),
}

#: What is refused, and what the error says.
REFUSED: dict[str, tuple[TypeInformation, TypeInformation, Any, str]] = {
    "narrower": (LONG, INT, 1, "LONG cannot become INT"),
    "less exact": (Types.DOUBLE(), Types.FLOAT(), 1.5, "DOUBLE cannot become FLOAT"),
    "LONG to DOUBLE": (LONG, Types.DOUBLE(), 1, "LONG cannot become DOUBLE"),
    "another kind of type": (LONG, STRING, 1, "LONG cannot become STRING"),
    "a tuple with more": (
        Types.TUPLE([LONG]),
        Types.TUPLE([LONG, LONG]),
        (1,),
        "has 1 fields, and TUPLE.* has 2",
    ),
    "all names": (AB, row(("c", INT), ("d", STRING)), named(a=1, b="x"), "fields are found by their names"),
    "a narrower field": (row(B, C), row(("c", INT)), named(b="x", c=1), "field 'c': LONG cannot become INT"),
    "a field deep inside": (
        row(("in", Types.LIST(row(B, C)))),
        row(("in", Types.LIST(row(B, ("c", STRING))))),
        Row(**{"in": []}),
        "field 'in': field 'c': LONG cannot become STRING",
    ),
    "a row to a tuple": (AB, Types.TUPLE([INT, STRING]), named(a=1, b="x"), "cannot become TUPLE"),
    "an array with None to a list": (Types.BASIC_ARRAY(INT), Types.LIST(INT), [1], "cannot become LIST"),
    "bytes to numbers": (Types.PRIMITIVE_ARRAY(BYTE), Types.PRIMITIVE_ARRAY(INT), b"a", "cannot become"),
    "pickled, and nobody allowed it": (PICKLED, LONG, 1, r"says allow_pickled_restore\(\)"),
    "pickled inside": (
        row(B, ("c", PICKLED)),
        row(B, C),
        named(b="x", c=1),
        r"field 'c': .*allow_pickled_restore",
    ),
    "a user key that loses a field": (
        Types.MAP(AB, LONG),
        Types.MAP(row(B), LONG),
        {named(a=1, b="x"): 1},
        "two keys",
    ),
    "a user key of FLOAT": (
        Types.MAP(Types.FLOAT(), LONG),
        Types.MAP(Types.DOUBLE(), LONG),
        {0.5: 1},
        "32 bits",
    ),
}


class Last(AggregateFunction):
    """The last of what was added; that is the accumulator too."""

    def __init__(self, first: Any = None) -> None:
        self.first = first

    def create_accumulator(self) -> Any:
        return self.first

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_b


def last_of(old: Any, new: Any) -> Any:
    return new


@attrs.frozen
class Place:
    """A kind of state: how one of a type is described, and how a value is put into it and read."""

    describe: Callable[[TypeInformation], StateDescriptor]
    put: Callable[[Any, Any], object]
    get: Callable[[Any], Any]


#: Of the five kinds of keyed state.
KEYED: dict[str, Place] = {
    "value": Place(
        lambda part: ValueStateDescriptor("s", part),
        lambda state, value: state.update(value),
        lambda s: s.value(),
    ),
    "list": Place(
        lambda part: ListStateDescriptor("s", part),
        lambda state, value: state.add_all([value, value]),
        lambda state: _only_one(list(state.get())),
    ),
    "map": Place(
        lambda part: MapStateDescriptor("s", STRING, part),
        lambda state, value: state.put_all({"there": value, "none": None}),
        lambda state: _beside_none(state),
    ),
    "reducing": Place(
        lambda part: ReducingStateDescriptor("s", last_of, part),
        lambda state, value: state.add(value),
        lambda state: state.get(),
    ),
    "aggregating": Place(
        lambda part: AggregatingStateDescriptor("s", Last(), part),
        lambda state, value: state.add(value),
        lambda state: state.get(),
    ),
}


def _only_one(elements: list[Any]) -> Any:
    if not elements:
        return None
    first, second = elements
    assert first == second
    return first


def _beside_none(state: Any) -> Any:
    assert state.get("none") is None
    return state.get("there")


@attrs.define
class Operator:
    """The subtasks of an operator, which are written and restored as slots do it."""

    subtasks: list[StreamOperatorState]
    key_type: TypeInformation
    last_id: int = 0
    #: Of each subtask, where checkpoints are increments: the chain so far.
    chains: list[OperatorSubtaskState | None] = attrs.Factory(list)

    @classmethod
    def of(
        cls,
        parallelism: int,
        key_type: TypeInformation = LONG,
        async_snapshots: bool = True,
        clock: Callable[[], int] = lambda: 0,
    ) -> Operator:
        """Return one without state."""
        backends = [
            HeapKeyedStateBackend(
                key_type,
                key_group_range(MAX_PARALLELISM, parallelism, index),
                MAX_PARALLELISM,
                async_snapshots=async_snapshots,
                clock=clock,
            )
            for index in range(parallelism)
        ]
        return cls(
            [StreamOperatorState(keyed, DefaultOperatorStateBackend(), "zstd") for keyed in backends],
            key_type,
        )

    def track_changes(self) -> Operator:
        """Have all checkpoints be increments where they can."""
        for subtask in self.subtasks:
            subtask.track_changes()
        self.chains = [None] * len(self.subtasks)
        return self

    def keyed(self, key: Any) -> HeapKeyedStateBackend:
        """Return the backend that owns ``key``, bound to it."""
        for subtask in self.subtasks:
            try:
                subtask.keyed.set_current_key(key)
            except ValueError:
                continue
            return subtask.keyed
        raise AssertionError(f"no subtask owns {key!r}")

    def state(self, descriptor: StateDescriptor, key: Any) -> Any:
        return self.keyed(key).get_partitioned_state(descriptor)

    def checkpoint(self) -> list[OperatorSubtaskState]:
        """Take one, of all state or of what changed."""
        self.last_id += 1
        if not self.chains:
            return [self._written(subtask, None)[0] for subtask in self.subtasks]
        for index, subtask in enumerate(self.subtasks):
            written, is_increment = self._written(subtask, self.last_id - 1 if self.last_id > 1 else None)
            before = self.chains[index]
            self.chains[index] = _chained(before, written) if is_increment and before is not None else written
        return [chain for chain in self.chains if chain is not None]

    def _written(
        self, subtask: StreamOperatorState, base_id: int | None
    ) -> tuple[OperatorSubtaskState, bool]:
        changes = None if subtask.history is None else subtask.history.cut(self.last_id, base_id)
        futures = subtask.snapshot(subtask.raw_outputs(), MemoryStreams(), None, changes)
        return futures.finish(), changes is not None

    def restored(self, parallelism: int, **settings: Any) -> Operator:
        """Take a checkpoint and return the operator that is restored from it."""
        return Operator.of(parallelism, settings.pop("key_type", self.key_type), **settings).load(
            self.checkpoint()
        )

    def load(self, written: list[OperatorSubtaskState]) -> Operator:
        assigned = assign_state(written, len(self.subtasks), MAX_PARALLELISM, self.key_type)
        for subtask, assignment in zip(self.subtasks, assigned, strict=True):
            subtask.restore(assignment, MemoryReader())
        return self

    def stores(self) -> Iterator[DefaultOperatorStateBackend]:
        """The operator state of each subtask."""
        return (subtask.operator for subtask in self.subtasks)


def _chained(before: OperatorSubtaskState, increment: OperatorSubtaskState) -> OperatorSubtaskState:
    keyed = before.managed_keyed
    if keyed is None or increment.managed_keyed is None:
        return attrs.evolve(increment, managed_keyed=keyed or increment.managed_keyed)
    whole = attrs.evolve(keyed, increments=(*keyed.increments, increment.managed_keyed))
    return attrs.evolve(increment, managed_keyed=whole)
