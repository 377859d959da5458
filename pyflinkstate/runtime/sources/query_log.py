"""What Spark has noted of a streaming query in its checkpoint location.

Spark writes ``offsets/<n>`` when it has cut batch ``n``, before it runs it, and ``commits/<n>`` when the
batch is done. So these files tell with which batch a query will go on before it is started, and whether that
batch has been cut already: if it has, Spark runs it again with the same records; if not, it may have other
ones than a batch of that number ever had. ``metadata`` holds the query's id.
"""

from __future__ import annotations

import hashlib
import json
from typing import Protocol

import attrs

from pyflinkstate.api.values import JsonObject
from pyflinkstate.errors import SourceError

OFFSETS = "offsets"
COMMITS = "commits"
METADATA = "metadata"


class QueryFiles(Protocol):
    """Reads a checkpoint location the way Spark does; ``runtime.spark`` implements it."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the location; none where there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """Return a file of the location; None where there is none."""


@attrs.frozen
class NextBatch:
    """The batch with which a query goes on.

    Attributes:
        number: of the batch.
        identity: tells it from others of that number; None where Spark has not cut it yet.
    """

    number: int
    identity: str | None = None


class QueryLog:
    """A query's checkpoint location, read only."""

    def __init__(self, files: QueryFiles) -> None:
        self._files = files

    def query_id(self) -> str | None:
        """Return the id that the query has over all its runs; None where it never ran."""
        data = self._files.read(METADATA)
        if data is None:
            return None
        try:
            return str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(
                f"the streaming query's checkpoint location is damaged: its file {METADATA!r} is "
                f"{data[:80]!r}"
            ) from error

    def next_batch(self) -> NextBatch:
        """Return the batch that a query started now begins with."""
        cut = self._newest(OFFSETS)
        done = self._newest(COMMITS)
        if cut is None or cut <= (-1 if done is None else done):
            return NextBatch(0 if cut is None else cut + 1)
        return NextBatch(cut, self.identity(cut))

    def identity(self, batch: int) -> str | None:
        """Return what tells a batch from any other of that number; None where Spark has not cut it.

        It is a digest of all that Spark noted. Offsets alone would not do: those of a source of files are
        just numbers. With them Spark notes when it cut the batch.
        """
        noted = self._files.read(f"{OFFSETS}/{batch}")
        return None if noted is None else hashlib.sha256(noted).hexdigest()

    def _newest(self, folder: str) -> int | None:
        return max((int(name) for name in self._files.names(folder) if name.isdecimal()), default=None)


def position_of(batch: int, query_id: str, identity: str | None) -> JsonObject:
    """Return the source position after a batch: what checkpoints keep."""
    position = {"batch": batch, "query": query_id}
    return position if identity is None else {**position, "identity": identity}
