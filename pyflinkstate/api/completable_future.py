"""The futures of a ``JobClient`` (``pyflink.common.completable_future``)."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future

from pyflinkstate.api.values import T


class CompletableFuture(Future[T]):
    """Python's ``concurrent.futures.Future``, which a coroutine can also await: ``await client.cancel()``."""

    def __await__(self) -> Generator[object, None, T]:
        """Wait without blocking the event loop, and return the result or raise the error."""
        from asyncio import wrap_future  # slow to load, and a slot has no use for it

        return wrap_future(self).__await__()
