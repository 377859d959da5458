"""PyFlink's ``pyflink.common.completable_future``: the futures of a ``JobClient`` are Python's own."""

from concurrent.futures import Future as CompletableFuture

__all__ = ["CompletableFuture"]
