"""PyFlink's ``pyflink.common.serializer``."""

from pyflinkstate.api.serialization import (
    TypeSerializer as TypeSerializer,
    VoidNamespaceSerializer as VoidNamespaceSerializer,
)
