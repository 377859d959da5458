"""The namespace of state that has none.

A window keeps its state under a namespace of its own; all other state lives in the void namespace, which
costs nothing: the key alone finds the entry.
"""

from __future__ import annotations

import attrs

from pyflinkstate.api.types import TypeInformation


class VoidNamespace:
    """The type of :data:`VOID_NAMESPACE` (Flink: ``VoidNamespace``)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "VOID_NAMESPACE"

    def __reduce__(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE = VoidNamespace()


@attrs.frozen
class VoidNamespaceTypeInfo(TypeInformation):
    """The type of namespaces of state that is not split by namespace (``VoidNamespaceSerializer``)."""

    def check(self, value: object) -> VoidNamespace:
        if value is not VOID_NAMESPACE:
            raise ValueError(f"{value!r} is not the void namespace")
        return VOID_NAMESPACE

    @property
    def name(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE_TYPE = VoidNamespaceTypeInfo()
