"""The files that a source has read, as its position keeps them; all other files are new.

As in Flink's ``FileSource``, a file is identified by its name, not by its place in the order: a file that
comes later with an earlier name is read, and a file may disappear. The position keeps a digest of the name in
16 bytes, and the size in 8. A file that is gone may come back, so it is remembered too. But a job that reads
and archives files for years would remember all of them, so only the newest of those that are gone are kept.
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
#: Number of deleted files that are remembered: 1.6 MB of a position.
MAX_GONE = 50_000
_REMEDY = "restore another checkpoint, or start without one, which reads all files again"


@lru_cache(maxsize=200_000)
def digest_of(name: str) -> bytes:
    """Return the digest of a name."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()


@attrs.frozen
class SeenFiles:
    """Digests of names, and the sizes of the files in bytes, in the order of reading."""

    sizes: Mapping[bytes, int] = attrs.Factory(dict)

    def __contains__(self, name: str) -> bool:
        return digest_of(name) in self.sizes

    def changed(self, listing: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        """Yield the files whose size has changed: name, size when read, and size now."""
        for name, size in listing.items():
            known = self.sizes.get(digest_of(name), size)
            if known != size:
                yield name, known, size

    def plus(self, read: Mapping[str, int], listing: Mapping[str, int]) -> SeenFiles:
        """Return these files and those in ``read``, without those gone from the ``listing`` for longest."""
        sizes = {**self.sizes, **{digest_of(name): size for name, size in read.items()}}
        present = {digest_of(name) for name in listing}
        gone = [digest for digest in sizes if digest not in present]
        for digest in islice(gone, max(0, len(gone) - MAX_GONE)):
            del sizes[digest]
        return SeenFiles(sizes)

    def encode(self) -> str:
        """Return a string for a position."""
        entries = (digest + size.to_bytes(_SIZE_BYTES, "big") for digest, size in self.sizes.items())
        return base64.b64encode(b"".join(entries)).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> SeenFiles:
        """Return the files that were encoded.

        Raises:
            IncompatibleCheckpointError: ``text`` is not such a string.
        """
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise IncompatibleCheckpointError(
                f"the list of files in the source position cannot be read: {error}; {_REMEDY}"
            ) from error
        if len(data) % _ENTRY_BYTES:
            raise IncompatibleCheckpointError(
                f"the list of files in the source position is truncated; {_REMEDY}"
            )
        starts = range(0, len(data), _ENTRY_BYTES)
        entries = (data[start : start + _ENTRY_BYTES] for start in starts)
        return cls({entry[:_DIGEST_BYTES]: int.from_bytes(entry[_DIGEST_BYTES:], "big") for entry in entries})
