"""What a backend knows of a state without its descriptor; it outlives the program in the checkpoint."""

from __future__ import annotations

import attrs

from pyflinkstate.api.descriptors import StateKind
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.backends.namespaces import VOID_NAMESPACE_TYPE


@attrs.frozen
class RegisteredStateMeta:
    """A keyed state (Flink: ``RegisteredKeyValueStateBackendMetaInfo``).

    Attributes:
        name: what the descriptor calls it.
        kind: of the five.
        stored_type: of what is stored for one key and namespace.
        namespace_type: of its namespaces.
    """

    name: str
    kind: StateKind
    stored_type: TypeInformation
    namespace_type: TypeInformation = VOID_NAMESPACE_TYPE

    @property
    def is_namespaced(self) -> bool:
        """Whether entries are found by key and namespace, not by the key alone."""
        return self.namespace_type != VOID_NAMESPACE_TYPE

    def __str__(self) -> str:
        spaced = f" by {self.namespace_type}" if self.is_namespaced else ""
        return f"{self.kind.value} of {self.stored_type}{spaced}"


@attrs.frozen
class RegisteredQueueMeta:
    """A queue of timers (Flink: ``RegisteredPriorityQueueStateBackendMetaInfo``).

    It is stored as entries of key, namespace and timestamp.
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
