"""PyFlink's ``pyflink.common.serializer``."""

from pyflinkstate.api import (
    TypeSerializer as TypeSerializer,
    VoidNamespaceSerializer as VoidNamespaceSerializer,
)
