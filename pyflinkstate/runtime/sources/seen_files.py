"""The files that a source has read, as a position keeps them: what is not among them is new.

As in Flink's ``FileSource``, a file is known by its name and not by its place among the others: one with
an earlier name that comes later is read, and one that goes is no matter. Of a name 16 bytes are kept, a
digest, and of the size 8. A file that is gone may come back, so it is remembered too; but a job that reads
and archives for years would remember all of them, so of those that are gone only the newest are kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice

import attrs

from pyflinkstate.errors import IncompatibleCheckpointError

_DIGEST_BYTES = 16
_SIZE_BYTES = 8
_ENTRY_BYTES = _DIGEST_BYTES + _SIZE_BYTES
#: Files that are gone from the directory and still known, at most: 1.6 MB of a position.
MAX_GONE = 50_000


@lru_cache(maxsize=200_000)
def digest_of(name: str) -> bytes:
    """Return what a name is known by."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()


@attrs.frozen
class SeenFiles:
    """Digests of names, and the sizes that the files had, in bytes; in the order of reading."""

    sizes: Mapping[bytes, int] = attrs.Factory(dict)

    def __contains__(self, name: str) -> bool:
        return digest_of(name) in self.sizes

    def changed(self, listing: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        """Yield the files that have another size now: name, size when read, and now."""
        for name, size in listing.items():
            known = self.sizes.get(digest_of(name), size)
            if known != size:
                yield name, known, size

    def plus(self, read: Mapping[str, int], listing: Mapping[str, int]) -> SeenFiles:
        """Return these and those ``read``, without what has been gone from the ``listing`` for longest."""
        sizes = {**self.sizes, **{digest_of(name): size for name, size in read.items()}}
        present = {digest_of(name) for name in listing}
        gone = [digest for digest in sizes if digest not in present]
        for digest in islice(gone, max(0, len(gone) - MAX_GONE)):
            del sizes[digest]
        return SeenFiles(sizes)

    def encode(self) -> str:
        """Return text for a position."""
        entries = (digest + size.to_bytes(_SIZE_BYTES, "big") for digest, size in self.sizes.items())
        return base64.b64encode(b"".join(entries)).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> SeenFiles:
        """Return what was encoded.

        Raises:
            IncompatibleCheckpointError: ``text`` was not.
        """
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise IncompatibleCheckpointError(f"the source position's list of files: {error}") from error
        if len(data) % _ENTRY_BYTES:
            raise IncompatibleCheckpointError("the source position's list of files is cut off")
        starts = range(0, len(data), _ENTRY_BYTES)
        entries = (data[start : start + _ENTRY_BYTES] for start in starts)
        return cls({entry[:_DIGEST_BYTES]: int.from_bytes(entry[_DIGEST_BYTES:], "big") for entry in entries})
