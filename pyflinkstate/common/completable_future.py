"""PyFlink's ``pyflink.common.completable_future``: Python's own futures, which can be awaited too."""

from pyflinkstate.api import CompletableFuture

__all__ = ["CompletableFuture"]
