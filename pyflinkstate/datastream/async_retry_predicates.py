"""PyFlink's ``pyflink.datastream.async_retry_predicates``."""

from __future__ import annotations

from pyflinkstate.api.async_retries import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]
