"""What the tests of time to live share: a clock set by hand, and seven ways to use a state that expires.

A *context* says how one way of using a state writes and reads it, and what comes out: values written to an
empty state, beside unexpired ones and over expired ones. An *arena* runs one context on a backend, and may
write a snapshot and restore it between all steps. After Flink's ``TtlStateTestContextBase``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from backend_support import MemoryReader, make_backend, prepare, take_snapshot, write
from pass_through import Count

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    Time,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import StateTtlConfig, StateTtlConfigBuilder, StateVisibility, UpdateType
from pyflinkstate.backends.format import KeyGroupsStateHandle
from pyflinkstate.backends.heap import HeapKeyedStateBackend, HeapRestoreOperation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.testing import ManualClock

TTL_MS = 100
MAX_LONG = 2**63 - 1
KEY_GROUPS = 10
USER_KEY = 1

Declared = Callable[[TypeInformation], TypeInformation]


def ttl_config(
    ttl_ms: int = TTL_MS,
    update_type: UpdateType = UpdateType.OnCreateAndWrite,
    visibility: StateVisibility = StateVisibility.NeverReturnExpired,
    cleanup: Callable[[StateTtlConfigBuilder], Any] = StateTtlConfigBuilder.disable_cleanup_in_background,
) -> StateTtlConfig:
    """Return a configuration; without ``cleanup``, only reading and writing remove what has expired."""
    builder = StateTtlConfig.new_builder(Time.milliseconds(ttl_ms))
    builder.set_update_type(update_type).set_state_visibility(visibility)
    cleanup(builder)
    return builder.build()


def with_ttl(descriptor: StateDescriptor, config: StateTtlConfig | None = None) -> StateDescriptor:
    """Return ``descriptor``, which now expires."""
    descriptor.enable_time_to_live(config or ttl_config())
    return descriptor


class FromThree(Count):
    """Adds to 3; the result is a text."""

    def create_accumulator(self) -> int:
        return 3

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> str:
        return str(accumulator)


@attrs.frozen(kw_only=True)
class Context:
    """One way to use a state: what is written, and what is read then.

    ``first`` is written to an empty state, ``second`` while the first lives, ``third`` after both expired;
    the second is read when the first alone would have expired.
    """

    name: str
    first: Any
    second: Any
    third: Any
    read_first: Any
    read_second: Any
    read_third: Any
    #: What an empty state gives.
    empty: Any = None
    merging: bool = False

    def descriptor(self, declared: Declared) -> StateDescriptor:
        raise NotImplementedError

    def update(self, state: Any, value: Any) -> None:
        raise NotImplementedError

    def get(self, state: Any) -> Any:
        raise NotImplementedError


class Value(Context):
    def descriptor(self, declared):
        return ValueStateDescriptor("state", declared(Types.STRING()))

    def update(self, state, value):
        state.update(value)

    def get(self, state):
        return state.value()


class List(Context):
    def descriptor(self, declared):
        return ListStateDescriptor("state", declared(Types.STRING()))

    def update(self, state, value):
        state.add_all(value)

    def get(self, state):
        return list(state.get())


class MapAllEntries(Context):
    def descriptor(self, declared):
        return MapStateDescriptor("state", declared(Types.LONG()), declared(Types.STRING()))

    def update(self, state, value):
        state.put_all(value)

    def get(self, state):
        return dict(state.items())


class MapPerElement(MapAllEntries):
    def update(self, state, value):
        state.put(USER_KEY, value)

    def get(self, state):
        value = state.get(USER_KEY)
        stored = state.get_internal()
        assert state.contains(USER_KEY) is (stored is not None and USER_KEY in stored)
        return value


class MapPerNoneElement(MapPerElement):
    """The user value is None, so what is there is told by ``contains``."""

    def get(self, state):
        there = state.contains(USER_KEY)
        assert state.get(USER_KEY) is None
        return there


class Reducing(Context):
    def descriptor(self, declared):
        return ReducingStateDescriptor("state", lambda old, new: old + new, declared(Types.LONG()))

    def update(self, state, value):
        state.add(value)

    def get(self, state):
        return state.get()


class Aggregating(Reducing):
    def descriptor(self, declared):
        return AggregatingStateDescriptor("state", FromThree(), declared(Types.LONG()))


def context(cls: type[Context], name: str, *written: Any, read: Any = None, **others: Any) -> Context:
    """Return a context that reads what was ``written``, unless it says what it reads."""
    names = ("first", "second", "third")
    values = dict(zip(names, written, strict=True))
    reads = {f"read_{name}": value for name, value in zip(names, read or written, strict=True)}
    return cls(name=name, **values, **reads, **others)


CONTEXTS: tuple[Context, ...] = (
    context(Value, "value", "one", "two", "three"),
    context(List, "list", ["5", "7", "10"], ["8", "9", "11"], ["6"], empty=[], merging=True),
    context(
        MapAllEntries,
        "map, all entries",
        {3: "3", 5: "5", 23: None, 10: "10"},
        {12: "12", 24: None, 7: "7"},
        {15: "15", 25: None, 4: "4"},
        empty={},
    ),
    context(MapPerElement, "map, per element", "one", "two", "three"),
    context(MapPerNoneElement, "map, per None element", None, None, None, read=[True] * 3, empty=False),
    context(Reducing, "reducing", 5, 7, 6, read=[5, 12, 6], merging=True),
    context(Aggregating, "aggregating", 5, 7, 6, read=["8", "15", "9"], merging=True),
)


class Arena:
    """A state of one context on a backend of its own, with a clock.

    Args:
        context: how the state is used.
        declared: gives the types of the state.
        async_snapshots: the kind of its table.
        restores: whether each :meth:`at` goes through a snapshot and a restore.
        key_groups: how many there are.
    """

    def __init__(
        self,
        context: Context,
        declared: Declared,
        async_snapshots: bool,
        restores: bool = False,
        key_groups: int = KEY_GROUPS,
    ) -> None:
        self.context = context
        self.clock = ManualClock()
        self.restores = restores
        self._declared = declared
        self._async_snapshots = async_snapshots
        self._key_groups = key_groups
        self._config: StateTtlConfig
        self.backend: HeapKeyedStateBackend
        self.state: Any
        self._key: Any = "key"
        self._namespace = "namespace"

    def start(self, config: StateTtlConfig) -> None:
        """Begin with an empty state."""
        self._config = config
        self.restore(None)

    def at(self, now_ms: int) -> Arena:
        """Set the clock, after a restore if there are any."""
        if self.restores:
            self.restore(self.take_snapshot())
        self.clock.now_ms = now_ms
        return self

    def begin_snapshot(self) -> Callable[[], KeyGroupsStateHandle | None]:
        """Take a snapshot; it is written when the result is called, or at once where it cannot wait."""
        resources = prepare(self.backend)
        if self._async_snapshots:
            return lambda: write(self.backend, resources)
        written = write(self.backend, resources)
        return lambda: written

    def take_snapshot(self) -> KeyGroupsStateHandle | None:
        """Return a snapshot of the state."""
        return take_snapshot(self.backend)

    def restore(self, snapshot: KeyGroupsStateHandle | None) -> None:
        """Go on with a new backend that holds ``snapshot``; key and namespace stay."""
        self.backend = make_backend(
            own=KeyGroupRange(0, self._key_groups - 1),
            max_parallelism=self._key_groups,
            async_snapshots=self._async_snapshots,
            clock=self.clock,
        )
        HeapRestoreOperation(self.backend, MemoryReader()).restore([snapshot])
        descriptor = with_ttl(self.context.descriptor(self._declared), self._config)
        self.state = self.backend.get_or_create_keyed_state(descriptor, Types.STRING())
        self.in_namespace(self._namespace)
        self.under_key(self._key)

    def under_key(self, key: Any) -> Arena:
        """Bind the state to ``key``."""
        self._key = key
        self.backend.set_current_key(key)
        return self

    def in_namespace(self, namespace: str) -> Arena:
        """Bind the state to ``namespace``."""
        self._namespace = namespace
        self.state.set_current_namespace(namespace)
        return self

    def update(self, value: Any) -> None:
        """Write ``value`` as the context does."""
        self.context.update(self.state, value)

    def get(self) -> Any:
        """Read as the context does."""
        return self.context.get(self.state)

    def is_cleared(self) -> bool:
        """Return whether nothing is stored, expired or not."""
        return self.state.get_internal() is None


def restored_from(
    snapshots: list[KeyGroupsStateHandle | None], clock: Callable[[], int], async_snapshots: bool = True
) -> HeapKeyedStateBackend:
    """Return a backend of all 128 key groups that holds ``snapshots``."""
    backend = make_backend(clock=clock, async_snapshots=async_snapshots)
    HeapRestoreOperation(backend, MemoryReader()).restore(snapshots)
    return backend


class ClockedBackend:
    """A backend with a clock, for tests of a single state; states are bound to the key ``"k"`` at first."""

    def __init__(self, async_snapshots: bool) -> None:
        self.clock = ManualClock()
        self.async_snapshots = async_snapshots
        self.backend = make_backend(async_snapshots=async_snapshots, clock=self.clock)
        self.backend.set_current_key("k")

    def state(self, descriptor: StateDescriptor, config: StateTtlConfig | None = None) -> Any:
        """Return the state of ``descriptor`` with time to live."""
        return self.backend.get_partitioned_state(with_ttl(descriptor, config))

    def at(self, now_ms: int) -> None:
        """Set the clock."""
        self.clock.now_ms = now_ms

    def restored(self, *snapshots: KeyGroupsStateHandle | None) -> HeapKeyedStateBackend:
        """Return another backend with the same clock, bound to ``"k"``, that holds ``snapshots``."""
        backend = restored_from(list(snapshots), self.clock, self.async_snapshots)
        backend.set_current_key("k")
        return backend
