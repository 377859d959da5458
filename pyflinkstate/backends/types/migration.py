"""The metadata of a state, the changes that its type may have in a restore, and the conversion of its values.

A backend knows the metadata without the descriptor, and checkpoints keep it.

Flink's heap backend reads values with the type they were written with, and accepts another type only if
the two are compatible. A type and its parts may change in these ways:

* A row gets other fields. They are matched by name: old fields that are gone are dropped, new ones are None.
* A number gets wider: ``INT`` to ``LONG``, ``FLOAT`` to ``DOUBLE``. Python has one ``int`` and one ``float``,
  so the values stay as they are and no entry is visited.
* A list or an array becomes an array that accepts more, such as None.
* Time to live is turned on: values get the time of the migration. Or it is turned off: the timestamps are
  dropped, and expired values come back, as in Flink.
* A declared type becomes a pickled one. A pickled one becomes a declared one if the program allows it; the
  module :mod:`pyflinkstate.backends.types.internal_types` explains why it has to.

The keys of maps, by which values are looked up, may change only if equal keys stay equal and different keys
stay different.

Subtasks may change the type of a state at different times, and the files of an incremental checkpoint may
have been written before and after that. A restore does not know yet which type the next program asks for. So
it gives all values their *common type*, which both others can become and which can become both: it has the
fields of both rows, the wider of two numbers, the time to live, the pickle.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import attrs

from pyflinkstate.api import (
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    StateKind,
    TypedValue,
    TypeInformation,
    Types,
)
from pyflinkstate.backends.types.codec import Codec, Convert, in_order, unchanged, walk
from pyflinkstate.backends.types.internal_types import (
    VOID_NAMESPACE_TYPE,
    Enclosed,
    SealedPickles,
    TtlTypeInfo,
    dump_pickle,
    load_pickle,
    unsealed,
)
from pyflinkstate.backends.types.table import USER_DEFINED, codec_of, find_codec, names_under
from pyflinkstate.errors import ConfigurationError, StateMigrationError


@attrs.frozen
class RegisteredStateMeta:
    """A keyed state (Flink: ``RegisteredKeyValueStateBackendMetaInfo``).

    Attributes:
        name: the name in the descriptor.
        kind: the kind of state.
        stored_type: the type of what is stored for one key and namespace.
        namespace_type: the type of its namespaces.
        ttl_ms: how long its values live, for those who read checkpoints; None without time to live, or if the
            file does not say. A program may change it at any time, so it makes no other state.
    """

    name: str
    kind: StateKind
    stored_type: TypeInformation
    namespace_type: TypeInformation = VOID_NAMESPACE_TYPE
    ttl_ms: int | None = attrs.field(default=None, eq=False)

    @property
    def is_namespaced(self) -> bool:
        """Whether entries are looked up by key and namespace, not by the key alone."""
        return self.namespace_type != VOID_NAMESPACE_TYPE

    def __str__(self) -> str:
        spaced = f" by {self.namespace_type}" if self.is_namespaced else ""
        return f"{self.kind.value} of {self.stored_type}{spaced}"


@attrs.frozen
class RegisteredQueueMeta:
    """A timer queue (Flink: ``RegisteredPriorityQueueStateBackendMetaInfo``).

    A timer is stored as an entry of key, namespace and timestamp.
    """

    name: str
    namespace_type: TypeInformation = VOID_NAMESPACE_TYPE

    @property
    def stored_type(self) -> TypeInformation:
        """The type of timestamps, in milliseconds."""
        return Types.LONG()

    @property
    def is_namespaced(self) -> bool:
        """Whether timers have a namespace."""
        return self.namespace_type != VOID_NAMESPACE_TYPE


StateMeta = RegisteredStateMeta | RegisteredQueueMeta


class OperatorStateMode(enum.Enum):
    """How operator state is redistributed on a restore (Flink: ``OperatorStateHandle.Mode``)."""

    #: The elements of all subtasks are distributed evenly.
    SPLIT_DISTRIBUTE = "SPLIT_DISTRIBUTE"
    #: Every subtask gets all elements of all subtasks.
    UNION = "UNION"
    #: Every subtask gets the elements of one of them, as all have the same.
    BROADCAST = "BROADCAST"


@attrs.frozen
class RegisteredOperatorStateMeta:
    """An operator state (Flink: ``RegisteredOperatorStateBackendMetaInfo``).

    ``stored_type`` is a ``LIST`` for list states and a ``MAP`` for broadcast states.
    """

    name: str
    mode: OperatorStateMode
    stored_type: TypeInformation

    @property
    def columns(self) -> list[tuple[str, TypeInformation]]:
        """The name and type of each column in which the state is written."""
        if isinstance(self.stored_type, MapTypeInfo):
            return [("key", self.stored_type.key_type_info), ("value", self.stored_type.value_type_info)]
        assert isinstance(self.stored_type, ListTypeInfo)
        return [("value", self.stored_type.element_type)]

    def __str__(self) -> str:
        return f"{self.mode.value} of {self.stored_type}"


#: Java gives equal numbers of these types the same hash, so keys stay in their key groups.
_HASHED_ALIKE = ("BYTE", "SHORT", "INT")


@attrs.frozen
class Migration:
    """How values of one type become values of another.

    Attributes:
        convert: turns a value into one of the new type, or raises ``ValueError`` if it does not fit. It is
            ``unchanged`` if all values stay as they are.
        changes_values: whether a checkpoint would have other values than before.
        dropped: descriptions of the row fields that are dropped.
    """

    convert: Convert
    changes_values: bool
    dropped: tuple[str, ...] = ()


def state_migration(
    was: RegisteredStateMeta,
    now: RegisteredStateMeta,
    clock: Callable[[], int],
    loads_pickles: bool = False,
) -> Migration:
    """Return the migration of the stored values of a state.

    Args:
        was: the restored state.
        now: the state that the program asks for.
        clock: gives the time in ms with which values are stamped.
        loads_pickles: whether pickled values may become values of a declared type.

    Raises:
        StateMigrationError: the kind, the namespace type or the value type is incompatible.
    """
    if was.kind is not now.kind:
        raise _incompatible(was, now, "the kind cannot change")
    if was.namespace_type != now.namespace_type:
        raise _incompatible(was, now, "the type of namespaces cannot change")
    try:
        return type_migration(was.stored_type, now.stored_type, clock, loads_pickles)
    except ValueError as error:
        raise _incompatible(was, now, f"the type cannot change so: {error}") from error


def type_migration(
    was: TypeInformation,
    now: TypeInformation,
    clock: Callable[[], int],
    loads_pickles: bool = False,
    is_key: bool = False,
) -> Migration:
    """Return the migration of values from one type to another.

    Args:
        was: the restored type.
        now: the requested type.
        clock: gives the time in ms with which values are stamped.
        loads_pickles: whether pickled values may become values of a declared type.
        is_key: whether the values are keys, by which other values are looked up.

    Raises:
        ValueError: the type cannot change in this way; the message says why.
    """
    conversions = _Conversions(clock(), loads_pickles)
    convert = conversions.of(was, now, is_key)
    if conversions.declares_pickles:
        convert = _checked(convert, now)
    changes = convert is not unchanged and now != unsealed(was)
    return Migration(convert, changes, tuple(conversions.dropped))


def keys_may_become(was: TypeInformation, now: TypeInformation) -> bool:
    """Return whether every key of type ``was`` is a key of type ``now`` in the same key group.

    >>> from pyflinkstate.api.types import Types
    >>> keys_may_become(Types.SHORT(), Types.INT()), keys_may_become(Types.INT(), Types.LONG())
    (True, False)
    """
    if {was.kind, now.kind} <= set(_HASHED_ALIKE):
        return _HASHED_ALIKE.index(was.kind) <= _HASHED_ALIKE.index(now.kind)
    before, after = was.parts(), now.parts()
    if was == now or was.kind != now.kind or not before or len(before) != len(after):
        return was == now
    return was.with_parts(after) == now and all(map(keys_may_become, before, after))


def bare(type_info: TypeInformation) -> TypeInformation:
    """Return the type inside an ``EXTERNAL``, which has the same values."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info


@attrs.define
class _Conversions:
    """Finds the conversion of a type from those of its parts, and collects what they have in common."""

    now_ms: int
    loads_pickles: bool
    #: Whether pickles become values of a declared type; these still have to be checked.
    declares_pickles: bool = False
    dropped: list[str] = attrs.field(factory=list)

    def of(self, was: TypeInformation, now: TypeInformation, is_key: bool = False) -> Convert:
        """Return the conversion, which leaves None alone; raise ``ValueError`` if there is none."""
        was, now = bare(was), bare(now)
        if was == now:
            return unchanged
        if isinstance(was, TtlTypeInfo) or isinstance(now, TtlTypeInfo):
            return self._of_ttl(was, now)
        if isinstance(was, SealedPickles):
            return self._of_pickles(now, is_key)
        if isinstance(now, PickledBytesTypeInfo):
            return _sealing(was) if isinstance(now, SealedPickles) else self.of(was, unsealed(was), is_key)
        return self._of_parts(was, now, is_key)

    def _of_ttl(self, was: TypeInformation, now: TypeInformation) -> Convert:
        before = was.value_type if isinstance(was, TtlTypeInfo) else was
        after = now.value_type if isinstance(now, TtlTypeInfo) else now
        convert, now_ms = self.of(before, after), self.now_ms
        if not isinstance(now, TtlTypeInfo):
            return lambda value: convert(value[1])
        if not isinstance(was, TtlTypeInfo):
            return lambda value: (now_ms, convert(value))
        return unchanged if convert is unchanged else lambda value: (value[0], convert(value[1]))

    def _of_pickles(self, now: TypeInformation, is_key: bool) -> Convert:
        if isinstance(now, PickledBytesTypeInfo):
            return load_pickle
        if not self.loads_pickles:
            raise ValueError(
                f"what was pickled becomes {now} only where the descriptor says allow_pickled_restore(), as "
                f"loading a pickle runs code"
            )
        self.declares_pickles = True
        check_key = now.check_key
        return (lambda data: check_key(load_pickle(data))) if is_key else load_pickle

    def _of_parts(self, was: TypeInformation, now: TypeInformation, is_key: bool) -> Convert:
        codec = _changeable(was, now)
        if was.kind:
            if is_key and was.kind == "FLOAT":
                raise ValueError(
                    "keys of FLOAT cannot become DOUBLE: those of streams, MapState and broadcast state are "
                    "rounded to 32 bits, and nobody would find them by their DOUBLE"
                )
            return unchanged
        places = codec.places(was, now)
        self._note_dropped(was, places, is_key)
        parts = [
            unchanged if place is None else self._of_part(was, place, part, is_key or index < codec.key_parts)
            for index, (place, part) in enumerate(zip(places, now.parts(), strict=True))
        ]
        assert codec.converted is not None
        return codec.converted(was, now, places, parts)

    def _of_part(self, was: TypeInformation, place: int, now: TypeInformation, is_key: bool) -> Convert:
        try:
            return self.of(was.parts()[place], now, is_key)
        except ValueError as error:
            if isinstance(was, RowTypeInfo):
                raise ValueError(f"field {was.field_names[place]!r}: {error}") from error
            raise

    def _note_dropped(self, was: TypeInformation, places: list[int | None], is_key: bool) -> None:
        if not isinstance(was, RowTypeInfo):
            return
        gone = [name for place, name in enumerate(was.field_names) if place not in places]
        if gone and is_key:
            raise ValueError(f"without {gone[0]!r} two keys of {was} might be one")
        self.dropped += [f"{name!r} of {was}" for name in gone]


def _changeable(was: TypeInformation, now: TypeInformation) -> Codec:
    """Return the codec of ``was``; raise ``ValueError`` if no value of ``was`` can become one of ``now``."""
    before, after = find_codec(was), find_codec(now)
    has_other_parts = before.converted is not None and after.name == before.name
    if not has_other_parts and after.name not in before.may_become:
        raise ValueError(f"{was} cannot become {now}")
    return before


def _sealing(was: TypeInformation) -> Convert:
    """Return the function that pickles values without loading the pickles inside them."""
    enclose = for_each_pickle(was, lambda data: None if data is None else Enclosed(data))
    return lambda value: None if value is None else dump_pickle(enclose(value))


def for_each_pickle(type_info: TypeInformation, convert: Convert) -> Convert:
    """Return the function that converts each part of a value whose type is a sealed pickle.

    >>> from pyflinkstate.api.types import Types
    >>> from pyflinkstate.backends.types import sealed
    >>> for_each_pickle(sealed(Types.LIST(Types.PICKLED_BYTE_ARRAY())), len)([b"", b"12"])
    [0, 2]
    """
    return walk(type_info, lambda of, parts: _on_pickles(convert, of, parts))


def _on_pickles(convert: Convert, was: TypeInformation, parts: list[Convert]) -> Convert:
    if isinstance(was, SealedPickles):
        return convert
    if all(part is unchanged for part in parts):
        return unchanged
    codec = codec_of(was)
    if codec.converted is None:  # the wrapper of another type
        (part,) = parts
        if not isinstance(was, TtlTypeInfo):
            return part
        return lambda value: (value[0], part(value[1]))
    return codec.converted(was, was, in_order(was, was), parts)


def _checked(convert: Convert, now: TypeInformation) -> Convert:
    def converted(value: TypedValue) -> TypedValue:
        made = convert(value)
        return None if made is None else now.check(made)

    return converted


def _incompatible(was: RegisteredStateMeta, now: RegisteredStateMeta, rule: str) -> StateMigrationError:
    return StateMigrationError(
        f"state {was.name!r} was restored as {was}, and is requested as {now}: {rule}; use another name, "
        f"or what the checkpoint has",
        state=was.name,
    )


def common_meta(one: RegisteredStateMeta, other: RegisteredStateMeta) -> RegisteredStateMeta:
    """Return the metadata with the common type of both; raise ``StateMigrationError`` if they have none."""
    stored_type = common_type(one.stored_type, other.stored_type)
    if stored_type is None:
        raise StateMigrationError(f"{one} and {other} have nothing in common", state=one.name)
    return attrs.evolve(one, stored_type=stored_type)


def common_type(one: TypeInformation, other: TypeInformation) -> TypeInformation | None:
    """Return a type to which values of both can be converted without loss, or None.

    >>> from pyflinkstate.api.types import Types
    >>> rows = (Types.ROW_NAMED(["a", "b"], [Types.INT()] * 2), Types.ROW_NAMED(["b"], [Types.LONG()]))
    >>> print(common_type(*rows))
    ROW(a: INT, b: LONG)
    """
    one, other = bare(one), bare(other)
    if one == other:
        return one
    if isinstance(one, TtlTypeInfo) or isinstance(other, TtlTypeInfo):
        return _expiring(one, other)
    if isinstance(one, SealedPickles) or isinstance(other, SealedPickles):
        return SealedPickles()
    if isinstance(one, RowTypeInfo) and isinstance(other, RowTypeInfo):
        return _row_of_both(one, other)
    return _of_same_shape(one, other) or _of_same_shape(other, one)


def _expiring(one: TypeInformation, other: TypeInformation) -> TypeInformation | None:
    values = [part.value_type if isinstance(part, TtlTypeInfo) else part for part in (one, other)]
    value_type = common_type(*values)
    return None if value_type is None else TtlTypeInfo(value_type)


def _row_of_both(one: RowTypeInfo, other: RowTypeInfo) -> TypeInformation | None:
    fields: dict[str, TypeInformation | None] = dict(zip(names_under(one, other), one.parts(), strict=True))
    for name, part in zip(other.field_names, other.parts(), strict=True):
        known = fields.get(name)
        fields[name] = part if known is None else common_type(known, part)
    found = [part for part in fields.values() if part is not None]
    return RowTypeInfo(found, fields) if len(found) == len(fields) else None


def _of_same_shape(one: TypeInformation, other: TypeInformation) -> TypeInformation | None:
    """Return ``other`` with the common types of the parts, if ``one`` may become a type of its name."""
    narrow, wide = find_codec(one), find_codec(other)
    if wide is USER_DEFINED or wide.name not in {*narrow.may_become, narrow.name}:
        return None
    if one.kind:
        return other
    if len(one.parts()) != len(other.parts()):
        return None
    parts = [common_type(*pair) for pair in zip(one.parts(), other.parts(), strict=True)]
    found = [part for part in parts if part is not None]
    return _made_of(other, found) if len(found) == len(parts) else None


def _made_of(type_info: TypeInformation, parts: list[TypeInformation]) -> TypeInformation:
    """Return the type with these parts. Only an array of objects accepts elements of every type."""
    try:
        return type_info.with_parts(parts)
    except ConfigurationError:
        return ObjectArrayTypeInfo(*parts)
