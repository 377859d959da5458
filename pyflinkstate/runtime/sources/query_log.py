"""Reads what Spark has recorded about a streaming query in its checkpoint location.

Spark writes ``offsets/<n>`` when it has planned batch ``n``, before it runs it, and ``commits/<n>`` when the
batch is done. So these files tell, before a query is started, with which batch it will continue and whether
that batch is already planned. If it is, Spark runs it again with the same records; if not, it may have other
records than an earlier batch with that number. ``metadata`` holds the query's id.
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
    """Reads a checkpoint location like Spark does; ``runtime.spark`` implements it."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the location, or none if there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file in the location, or None if it does not exist."""


@attrs.frozen
class NextBatch:
    """The batch with which a query continues.

    Attributes:
        number: the number of the batch.
        identity: distinguishes it from other batches with that number; None if Spark has not planned it yet.
    """

    number: int
    identity: str | None = None


class QueryLog:
    """A query's checkpoint location, read only."""

    def __init__(self, files: QueryFiles) -> None:
        self._files = files

    def query_id(self) -> str | None:
        """Return the id of the query, which all its runs share, or None if it never ran."""
        data = self._files.read(METADATA)
        if data is None:
            return None
        try:
            return str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(
                f"the streaming query's checkpoint location is damaged: its file {METADATA!r} is "
                f"{data[:80]!r}; restore that file, or start from scratch with another checkpoint location"
            ) from error

    def next_batch(self) -> NextBatch:
        """Return the batch with which the query would continue if it were started now."""
        cut = self._newest(OFFSETS)
        done = self._newest(COMMITS)
        if cut is None or cut <= (-1 if done is None else done):
            return NextBatch(0 if cut is None else cut + 1)
        return NextBatch(cut, self.identity(cut))

    def identity(self, batch: int) -> str | None:
        """Return the identity of a batch among those with its number, or None if Spark has not planned it.

        It is a digest of all that Spark recorded. Offsets alone are not enough, as those of a file source are
        only numbers, but Spark also records when it planned the batch.
        """
        noted = self._files.read(f"{OFFSETS}/{batch}")
        return None if noted is None else hashlib.sha256(noted).hexdigest()

    def _newest(self, folder: str) -> int | None:
        return max((int(name) for name in self._files.names(folder) if name.isdecimal()), default=None)


def position_of(batch: int, query_id: str, identity: str | None) -> JsonObject:
    """Return the source position after a batch, which checkpoints keep."""
    position = {"batch": batch, "query": query_id}
    return position if identity is None else {**position, "identity": identity}
