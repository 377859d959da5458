"""PyFlink's ``pyflink.datastream.async_retry_predicates``."""

from pyflinkstate.api import (
    empty_result_predicate as empty_result_predicate,
    exception_type_predicate as exception_type_predicate,
    has_exception_predicate as has_exception_predicate,
)
