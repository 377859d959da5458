"""Keyed state in all the ways in which the contract tests run it.

One test of a behaviour runs against a backend, against one with snapshots held open around every single
access, and through a whole operator. It speaks to states by a
:class:`Contract`, which is one of these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from operator import itemgetter
from typing import Any

import attrs
from backend_support import prepare, restore, take_snapshot
from slot_functions import Mean

from pyflinkstate import (
    AggregateFunction,
    KeyedProcessFunction,
    StateTtlConfig,
    Time,
    TypeInformation,
    Types,
)
from pyflinkstate.api import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.backends.heap.backend import HeapSnapshotResources
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.testing import KeyedOneInputOperatorHarness, ManualClock

LONG, STRING, PICKLED = Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()

#: Few, so that a snapshot which looks at all of them is cheap.
KEY_GROUPS = 16

Script = Callable[[Any], Any]


@attrs.frozen
class Mode:
    """A way to run keyed state."""

    holds_snapshots: bool = False
    in_operator: bool = False


MODES = {
    "alone": Mode(),
    "snapshots open": Mode(holds_snapshots=True),
    "operator": Mode(in_operator=True),
}
EVERYWHERE = list(MODES)
#: Without the operator: where namespaces, and more than one key at a time, can be reached.
BARE = [name for name, mode in MODES.items() if not mode.in_operator]
#: What the quick tier runs.
QUICK = ("snapshots open", "operator")


class ScriptFunction(KeyedProcessFunction):
    """Each record is a key, and what is to be called under it: functions go from hand to hand as they are."""

    def process_element(self, value: tuple[Hashable, Callable[[ScriptFunction], Any]], ctx: Any) -> Any:
        return value[1](self)

    def state_of(self, descriptor: StateDescriptor) -> Any:
        context = self.get_runtime_context()
        request = {
            StateKind.VALUE: context.get_state,
            StateKind.LIST: context.get_list_state,
            StateKind.MAP: context.get_map_state,
            StateKind.REDUCING: context.get_reducing_state,
            StateKind.AGGREGATING: context.get_aggregating_state,
        }[descriptor.kind]
        return request(descriptor)


class Contract:
    """A backend, bare or inside an operator, and the snapshots that are held open while it is used."""

    def __init__(
        self,
        mode: Mode,
        key_type: TypeInformation = PICKLED,
        restored: Any = (),
        clock: ManualClock | None = None,
    ) -> None:
        self.mode = mode
        self.key_type = key_type
        self.clock = clock or ManualClock()
        self._held = HeldSnapshots()
        self._harness: KeyedOneInputOperatorHarness | None = None
        if mode.in_operator:
            self._harness = KeyedOneInputOperatorHarness(
                ScriptFunction(),
                itemgetter(0),
                key_type,
                clock=self.clock,
                max_parallelism=KEY_GROUPS,
                restore=restored,
            )
            self.backend = self._harness.backend
        else:
            self.backend = restore(
                restored,
                key_type,
                KeyGroupRange(0, KEY_GROUPS - 1),
                KEY_GROUPS,
                clock=self.clock,
            )

    def run(
        self,
        descriptor: StateDescriptor,
        script: Script,
        key: Hashable = "k",
        namespace: Hashable = VOID_NAMESPACE,
        namespace_type: TypeInformation = VOID_NAMESPACE_TYPE,
    ) -> Any:
        """Return what ``script`` does with the state of ``descriptor`` under ``key``."""
        if self.mode.holds_snapshots:
            self._held.take(self.backend)
        if self._harness is not None:
            assert namespace is VOID_NAMESPACE, "an operator's state has no namespace"
            results: list[Any] = []
            call = lambda function: results.append(script(function.state_of(descriptor)))  # noqa: E731
            self._harness.process_element((key, call))
            return results[0]
        self.backend.set_current_key(key)
        return script(self.backend.get_partitioned_state(descriptor, namespace, namespace_type))

    def state(
        self,
        descriptor: StateDescriptor,
        key: Hashable = "k",
        namespace: Hashable = VOID_NAMESPACE,
        namespace_type: TypeInformation = VOID_NAMESPACE_TYPE,
    ) -> BoundState:
        """Return the state of ``descriptor``, always under ``key``; each access is a :meth:`run`."""
        return BoundState(lambda script: self.run(descriptor, script, key, namespace, namespace_type))

    def entries(self) -> int:
        """Return the number of entries over all states."""
        return self.backend.num_key_value_state_entries()

    def snapshot(self) -> Any:
        """Return a snapshot, written."""
        return take_snapshot(self.backend) if self._harness is None else self._harness.snapshot()

    def restarted(self, key_type: TypeInformation | None = None) -> Contract:
        """Return another one, with what a snapshot of this one holds."""
        return Contract(self.mode, key_type or self.key_type, [self.snapshot()], self.clock)

    def close(self) -> None:
        """Check and release the snapshots that are open."""
        self._held.release_all()


class BoundState:
    """A state under one key: every method is a script of its own."""

    def __init__(self, run: Callable[[Script], Any]) -> None:
        self.run = run

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *args: self.run(lambda state: getattr(state, method)(*args))


class HeldSnapshots:
    """Up to three snapshots, each with what it has to hold."""

    def __init__(self) -> None:
        self._open: deque[tuple[HeapSnapshotResources, dict[str, dict[Any, Any]]]] = deque()

    def take(self, backend: HeapKeyedStateBackend) -> None:
        """Open one more, and release the oldest of four."""
        expected = contents(backend)
        self._open.append((prepare(backend), expected))
        if len(self._open) > 3:
            self._release(*self._open.popleft())

    def release_all(self) -> None:
        """Release the newest first."""
        while self._open:
            self._release(*self._open.pop())

    def _release(self, resources: HeapSnapshotResources, expected: dict[str, dict[Any, Any]]) -> None:
        held = {
            state.meta.name: {
                key: value
                for group in state.key_groups()
                for key, value in zip(group.entry_keys(), group.values, strict=True)
            }
            for state in resources.states
            if state.meta.name in expected
        }
        resources.release()
        assert held == expected, "a change got into an open snapshot"


def contents(backend: HeapKeyedStateBackend) -> dict[str, dict[Any, Any]]:
    """Return a deep copy of all state, made without the copies that a read makes."""
    return {
        name: {key: deepcopy(state_map.peek(key)) for state_map in table.maps for key in state_map.all_keys()}
        for name, table in backend.registered_kv_states.items()
    }


@contextmanager
def opened(mode: str, key_type: TypeInformation = PICKLED) -> Iterator[Contract]:
    """Give an empty :class:`Contract`, and check at the end what its open snapshots hold."""
    made = Contract(MODES[mode], key_type)
    yield made
    made.close()


# --- one state of each kind --------------------------------------------------------------------------


@attrs.frozen
class Kind:
    """How a state of some kind is declared, how one number is stored in it and read back."""

    describe: Callable[[str], StateDescriptor]
    store: Callable[[Any, int], None]
    read: Script


def _add_alone(state: Any, number: int) -> None:
    state.clear()
    state.add(number)


KINDS = {
    "value": Kind(
        lambda name: ValueStateDescriptor(name, LONG),
        lambda state, number: state.update(number),
        lambda state: state.value(),
    ),
    "list": Kind(
        lambda name: ListStateDescriptor(name, LONG),
        lambda state, number: state.update([number]),
        lambda state: next(iter(state.get()), None),
    ),
    "map": Kind(
        lambda name: MapStateDescriptor(name, STRING, LONG),
        lambda state, number: state.put("n", number),
        lambda state: state.get("n"),
    ),
    "reducing": Kind(
        lambda name: ReducingStateDescriptor(name, lambda old, new: old + new, LONG),
        _add_alone,
        lambda state: state.get(),
    ),
    "aggregating": Kind(
        lambda name: AggregatingStateDescriptor(name, Mean(), Types.LIST(LONG)),
        _add_alone,
        lambda state: state.get(),
    ),
}


class Joined(AggregateFunction):
    """Numbers in the order of adding; the accumulator, a list that begins with ">", changes in place."""

    def create_accumulator(self) -> list[str]:
        return [">"]

    def add(self, value: int, accumulator: list[str]) -> list[str]:
        accumulator.append(str(value))
        return accumulator

    def get_result(self, accumulator: list[str]) -> str:
        return "".join(accumulator)

    def merge(self, acc_a: list[str], acc_b: list[str]) -> list[str]:
        acc_a.extend(acc_b)
        return acc_a


class JoinedText(AggregateFunction):
    """As :class:`Joined`, with an accumulator that cannot change."""

    def create_accumulator(self) -> str:
        return ">"

    def add(self, value: int, accumulator: str) -> str:
        return f"{accumulator}{value}"

    def get_result(self, accumulator: str) -> str:
        return accumulator

    def merge(self, acc_a: str, acc_b: str) -> str:
        return acc_a + acc_b


def lives(descriptor: StateDescriptor, milliseconds: int) -> StateDescriptor:
    """Return ``descriptor``, with time to live."""
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(milliseconds)).build())
    return descriptor
