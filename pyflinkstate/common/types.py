"""PyFlink's ``pyflink.common.types``."""

from pyflinkstate.api import Row as Row, RowKind as RowKind
