"""Frames on their way through Spark's shuffle, with bounds in bytes.

PySpark's own ``repartitionAndSortWithinPartitions`` counts items: it collects ten for each partition before
it hands them to Spark, and a hundred and more before it looks at the memory they take. Frames may have
megabytes each. So they are collected, and sorted, by bytes: what is too much at once waits in a temporary
file.
"""

from __future__ import annotations

import heapq
import os
import pickle
import struct
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import IO

import attrs

from pyflinkstate.runtime.frames import FrameKey

Item = tuple[FrameKey, bytes]

#: A task hands its frames to Spark when it has about so many bytes of them.
COLLECTED_BYTES = 8 * 1024 * 1024
#: Or so many frames: each costs some objects.
COLLECTED_FRAMES = 1000
_key_of = itemgetter(0)


@attrs.frozen
class Collector:
    """Makes of a partition's frames what Spark's shuffle takes: a subtask, then a pickled list for it.

    Args:
        dumps: pickles a list as Spark will load it.
    """

    dumps: Callable[[list[Item]], bytes]

    def __call__(self, _: int, frames: Iterable[Item]) -> Iterator[bytes]:
        buckets: defaultdict[int, list[Item]] = defaultdict(list)
        number = size = 0
        for key, data in frames:
            buckets[key[0]].append((key, data))
            number, size = number + 1, size + len(data)
            if number >= COLLECTED_FRAMES or size >= COLLECTED_BYTES:
                yield from self._handed_over(buckets)
                number = size = 0
        yield from self._handed_over(buckets)

    def _handed_over(self, buckets: dict[int, list[Item]]) -> Iterator[bytes]:
        for subtask in sorted(buckets):
            yield struct.pack("!q", subtask)
            yield self.dumps(buckets.pop(subtask))


@attrs.frozen
class Sorter:
    """Sorts the frames of a subtask by their keys.

    Args:
        limit_bytes: so many are held in memory, the rest in temporary files.
    """

    limit_bytes: int

    def __call__(self, frames: Iterable[Item]) -> Iterator[Item]:
        runs: list[Iterator[Item]] = []
        held: list[Item] = []
        size = 0
        for item in frames:
            held.append(item)
            size += len(item[1])
            if size > self.limit_bytes:
                held.sort(key=_key_of)
                runs.append(_spilled(held))
                held, size = [], 0
        held.sort(key=_key_of)
        return heapq.merge(*runs, held, key=_key_of) if runs else iter(held)


def _spilled(items: list[Item]) -> Iterator[Item]:
    """Write items to a file that is gone when it is closed; return what reads them back."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - it is closed when it has been read
    for item in items:
        pickle.dump(item, file, protocol=pickle.HIGHEST_PROTOCOL)
    file.seek(0)
    return _read_back(file, len(items))


def _read_back(file: IO[bytes], number: int) -> Iterator[Item]:
    with file:
        for _ in range(number):
            yield pickle.load(file)  # noqa: S301 - it was written by this process
