"""The five kinds of keyed state, as a user sees them, and their descriptors.

Names and members are PyFlink's (``pyflink.datastream.state``), semantics are those of Flink's Java
states. A state is bound to the current key: the same object returns another value once the runtime
moves on to the next record. Every method raises ``NoCurrentKeyError`` while no key is set, and every
method that takes a value raises ``StateValueError`` when it does not fit the declared type.

A descriptor has the name of a state, what it holds, and how it combines values. A type that is left out is
``Types.PICKLED_BYTE_ARRAY()``. Descriptors are values: frozen, comparable, checked when made.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeAlias

import attrs

from pyflinkstate.api.functions import AggregateFunction, ReduceFunction
from pyflinkstate.api.ttl import StateTtlConfig
from pyflinkstate.api.types import ArrayTypeInfo, ListTypeInfo, MapTypeInfo, TypeInformation, Types
from pyflinkstate.api.values import ACC, IN, OUT, K, S, T, V
from pyflinkstate.errors import DescriptorTypeError


class State(ABC):
    """The base of all kinds of state."""

    @abstractmethod
    def clear(self) -> None:
        """Remove the value under the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """Return the value under the current key, or the descriptor's default (or None) if there is none.

        The live object is returned: after changing a mutable one in place, call :meth:`update`.
        """

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Set the value under the current key. ``update(None)`` is ``clear()``, as in Flink."""


class AppendingState(State, Generic[IN, OUT]):
    """State to which values are added, and which returns them combined."""

    @abstractmethod
    def get(self) -> OUT | None:
        """Return the combined values that were added under the current key."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Add ``value`` under the current key."""


class MergingState(AppendingState[IN, OUT]):
    """Appending state whose contents under several namespaces can be merged."""


class ListState(MergingState[T, Iterable[T]]):
    """A list per key, in the order of adding."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """Return the elements under the current key, or an empty iterable if there are none.

        Its iterators are fail-fast: after an ``add`` the next step raises a
        :class:`~pyflinkstate.errors.ConcurrentModificationError`.
        """

    @abstractmethod
    def add(self, value: T) -> None:
        """Append ``value``.

        Raises:
            StateValueError: ``value`` is None (Flink: "You cannot add null to a ListState.").
        """

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append all ``values``, or none of them if one is refused.

        Flink's heap state keeps the elements before the refused one; here the call is atomic.
        An empty list is a no-op.
        """

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list. ``update([])`` removes the entry."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class ReducingState(MergingState[T, T]):
    """One value per key: all that was added, combined by a reduce function.

    ``get()`` is None if nothing was added. ``add(None)`` is ``clear()``, as in Flink.
    """


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator per key, fed by an aggregate function.

    ``get()`` is ``get_result(accumulator)``, or None if nothing was added. The accumulator is made
    by the first ``add``. ``add(None)`` is ``clear()``, as in Flink.
    """


class _ReadableEntries(State, Generic[K, V]):
    """The reading half of a map of entries. The order of iteration is unspecified."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """Return the value of ``key``, or None."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Return whether ``key`` is present, even if its value is None (PyFlink returns False then)."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V | None]]:
        """Return the entries, or an empty iterable if there are none."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """Return the keys."""

    @abstractmethod
    def values(self) -> Iterable[V | None]:
        """Return the values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return whether there is no entry."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableEntries(_ReadableEntries[K, V]):
    """A map of entries. None is a legal value."""

    @abstractmethod
    def put(self, key: K, value: V | None) -> None:
        """Set the value of ``key``."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V | None]) -> None:
        """Set all entries of ``dict_value``, or none of them if one is refused."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Remove ``key`` if it is present."""

    def __setitem__(self, key: K, value: V | None) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableEntries[K, V]):
    """A dict per key.

    ``items``, ``keys`` and ``values`` look the entries up when iteration begins. Their iterators raise
    ``ConcurrentModificationError``, a ``RuntimeError``, if a key is added or removed meanwhile. As in
    PyFlink, they have a ``remove()`` for the entry that they returned last.
    """


class ReadOnlyBroadcastState(_ReadableEntries[K, V]):
    """A map that is the same on all subtasks, for functions that must not change it."""


class BroadcastState(ReadOnlyBroadcastState[K, V], _WritableEntries[K, V]):
    """A map that every subtask must change in the same way, as it is restored from any one of them."""


class StateKind(enum.Enum):
    """The kinds of keyed state (Flink: ``StateDescriptor.Type``)."""

    VALUE = "VALUE"
    LIST = "LIST"
    REDUCING = "REDUCING"
    AGGREGATING = "AGGREGATING"
    MAP = "MAP"


#: A field of a descriptor, as attrs passes it to a validator.
_Field: TypeAlias = "attrs.Attribute[object]"


def _check_name(descriptor: StateDescriptor, _: attrs.Attribute[str], name: str) -> None:
    if not isinstance(name, str):
        raise DescriptorTypeError(
            f"{type(descriptor).__name__}: the name must be a str, not {name!r}", name=repr(name)
        )


def _check_type(descriptor: StateDescriptor, attribute: _Field, type_info: object) -> None:
    if not isinstance(type_info, TypeInformation):
        raise DescriptorTypeError(
            f"{type(descriptor).__name__} {descriptor.name!r}: {attribute.name} must be made by "
            f"Types, such as Types.LONG(), not {type_info!r}",
            state=descriptor.name,
        )


def _type_field() -> Any:
    return attrs.field(
        default=None,
        converter=attrs.converters.default_if_none(factory=Types.PICKLED_BYTE_ARRAY),
        validator=_check_type,
    )


@attrs.frozen
class StateDescriptor(Generic[S]):
    """The base of the five descriptors; the type parameter is the kind of state."""

    kind: ClassVar[StateKind]

    name: str = attrs.field(validator=_check_name)
    #: Set later, by :meth:`enable_time_to_live`, as in PyFlink.
    ttl_config: StateTtlConfig | None = attrs.field(init=False, default=None, hash=False)
    #: Set by :meth:`allow_pickled_restore`.
    allows_pickled_restore: bool = attrs.field(init=False, default=False, repr=False, eq=False)

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Make the state expire. Call this before asking for the state.

        Raises:
            DescriptorTypeError: ``ttl_config`` is not a ``StateTtlConfig``.
        """
        if not isinstance(ttl_config, StateTtlConfig):
            raise DescriptorTypeError(
                f"{type(self).__name__} {self.name!r}: a StateTtlConfig is needed, not {ttl_config!r}",
                state=self.name,
            )
        object.__setattr__(self, "ttl_config", ttl_config)

    def allow_pickled_restore(self) -> None:
        """Allow a restore of values that were written without a declared type.

        The values are unpickled, and each must fit the declared type. Loading a pickle runs code: call this
        only if nobody else could write the checkpoint, and remove the call once a savepoint has the declared
        type. Call it before asking for the state. Flink and PyFlink have no counterpart.
        """
        object.__setattr__(self, "allows_pickled_restore", True)

    @property
    def is_ttl_enabled(self) -> bool:
        """Whether the state expires."""
        return self.ttl_config is not None and self.ttl_config.is_enabled()

    def get_name(self) -> str:
        """Return the name under which a checkpoint keeps the state."""
        return self.name

    @property
    def stored_type(self) -> TypeInformation:
        """The type of what is stored for one key."""
        raise NotImplementedError


@attrs.frozen
class ValueStateDescriptor(StateDescriptor[ValueState[T]], Generic[T]):
    """Describes a :class:`~pyflinkstate.api.state.ValueState`.

    ``value()`` returns a copy of ``default_value`` if nothing is stored. PyFlink has no default value; this
    is that of the Java descriptor. With time to live it is ignored, as in Flink.
    """

    kind: ClassVar[StateKind] = StateKind.VALUE

    value_type_info: TypeInformation[T] = _type_field()
    default_value: T | None = attrs.field(default=None, kw_only=True, hash=False)

    def __attrs_post_init__(self) -> None:
        if self.default_value is None:
            return
        try:
            checked = self.value_type_info.check(self.default_value)
        except ValueError as error:
            raise DescriptorTypeError(
                f"{type(self).__name__} {self.name!r}: the default value: {error}", state=self.name
            ) from None
        object.__setattr__(self, "default_value", checked)

    @property
    def stored_type(self) -> TypeInformation:
        return self.value_type_info


@attrs.frozen
class ListStateDescriptor(StateDescriptor[ListState[T]], Generic[T]):
    """Describes a :class:`~pyflinkstate.api.state.ListState`."""

    kind: ClassVar[StateKind] = StateKind.LIST

    elem_type_info: TypeInformation[T] = _type_field()

    @property
    def stored_type(self) -> TypeInformation:
        return ListTypeInfo(self.elem_type_info)


@attrs.frozen
class MapStateDescriptor(StateDescriptor[MapState[K, V]], Generic[K, V]):
    """Describes a :class:`~pyflinkstate.api.state.MapState`."""

    kind: ClassVar[StateKind] = StateKind.MAP

    key_type_info: TypeInformation[K] = _type_field()
    value_type_info: TypeInformation[V] = _type_field()

    def __attrs_post_init__(self) -> None:
        unhashable = isinstance(self.key_type_info, (ListTypeInfo, MapTypeInfo, ArrayTypeInfo))
        if unhashable and not self.key_type_info.kind:
            raise DescriptorTypeError(
                f"{type(self).__name__} {self.name!r}: user keys of {self.key_type_info} are not hashable",
                state=self.name,
            )

    @property
    def stored_type(self) -> TypeInformation:
        return MapTypeInfo(self.key_type_info, self.value_type_info)


@attrs.frozen
class _PlainReduceFunction(ReduceFunction[T]):
    """Makes a reduce function of a plain callable."""

    _func: Callable[[T, T], T]

    def reduce(self, value1: T, value2: T) -> T:
        return self._func(value1, value2)


def _as_reduce_function(func: ReduceFunction[T] | Callable[[T, T], T]) -> ReduceFunction[T]:
    if isinstance(func, (ReduceFunction, type)) or not callable(func):
        return func  # type: ignore[return-value]  # the validator refuses a class
    return _PlainReduceFunction(func)


def _check_function(cls: type, what: str) -> Callable[[StateDescriptor, _Field, object], None]:
    def check(descriptor: StateDescriptor, attribute: _Field, func: object) -> None:
        if not isinstance(func, cls):
            raise DescriptorTypeError(
                f"{type(descriptor).__name__} {descriptor.name!r}: {attribute.name} must be {what},"
                f" not {func!r}",
                state=descriptor.name,
            )

    return check


@attrs.frozen
class ReducingStateDescriptor(StateDescriptor[ReducingState[T]], Generic[T]):
    """Describes a :class:`~pyflinkstate.api.state.ReducingState`.

    ``reduce_function`` is a :class:`ReduceFunction` or any callable of two values.
    """

    kind: ClassVar[StateKind] = StateKind.REDUCING

    reduce_function: ReduceFunction[T] = attrs.field(
        converter=_as_reduce_function,
        validator=_check_function(ReduceFunction, "a ReduceFunction or a callable"),
    )
    type_info: TypeInformation[T] = _type_field()

    def get_reduce_function(self) -> ReduceFunction[T]:
        """Return the reduce function."""
        return self.reduce_function

    @property
    def stored_type(self) -> TypeInformation:
        return self.type_info


@attrs.frozen
class AggregatingStateDescriptor(StateDescriptor[AggregatingState[IN, OUT]], Generic[IN, ACC, OUT]):
    """Describes a :class:`~pyflinkstate.api.state.AggregatingState`.

    ``state_type_info`` is the type of the accumulator.
    """

    kind: ClassVar[StateKind] = StateKind.AGGREGATING

    agg_function: AggregateFunction[IN, ACC, OUT] = attrs.field(
        validator=_check_function(AggregateFunction, "an AggregateFunction"),
    )
    state_type_info: TypeInformation[ACC] = _type_field()

    def get_agg_function(self) -> AggregateFunction[IN, ACC, OUT]:
        """Return the aggregate function."""
        return self.agg_function

    @property
    def stored_type(self) -> TypeInformation:
        return self.state_type_info
