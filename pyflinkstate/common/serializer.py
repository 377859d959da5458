"""PyFlink's ``pyflink.common.serializer``."""

from __future__ import annotations

from pyflinkstate.api.serializer import (
    TypeSerializer,
    VoidNamespaceSerializer,
)

__all__ = [
    "TypeSerializer",
    "VoidNamespaceSerializer",
]
