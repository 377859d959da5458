"""The metadata of a state, which a backend knows without the descriptor; checkpoints keep it."""

from __future__ import annotations

import enum

import attrs

from pyflinkstate.api import ListTypeInfo, MapTypeInfo, StateKind, TypeInformation, Types
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE_TYPE


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
