"""State descriptors: the name of a state, what it holds, and how it combines values.

Names and argument order are PyFlink's (``pyflink.datastream.state``); a type that is left out is
``Types.PICKLED_BYTE_ARRAY()``. Descriptors are values: frozen, comparable, checked when made.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeAlias

import attrs

from pyflinkstate.api.functions import AggregateFunction, ReduceFunction
from pyflinkstate.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from pyflinkstate.api.ttl import StateTtlConfig
from pyflinkstate.api.type_variables import ACC, IN, OUT, K, S, T, V
from pyflinkstate.api.types import ArrayTypeInfo, ListTypeInfo, MapTypeInfo, TypeInformation, Types
from pyflinkstate.errors import DescriptorTypeError


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
