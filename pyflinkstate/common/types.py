"""PyFlink's ``pyflink.common.types``."""

from pyflinkstate.api.row import Row as Row, RowKind as RowKind
