"""A job that reads the source of a table: what the tests of several connectors share."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

from pyflinkstate.runtime.sources import Source


def records(source: Source, start: Any, end: Any) -> list[dict[str, Any]]:
    """Read an epoch, as its tasks do."""
    epoch: Any = source.plan(start, end)
    read, splits = pickle.loads(pickle.dumps((epoch.read, epoch.splits)))
    return [row for split in splits for row in read(split, None)]


def epochs(source: Source, start: Any = None) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """Run a job until there is nothing more; yields the end of each epoch, and its records."""
    offset = source.initial_offset() if start is None else start
    while True:
        end = json.loads(json.dumps(source.latest_offset(offset, False).end))
        if end == offset:
            return
        yield end, records(source, offset, end)
        offset = end


def first_epoch(source: Source) -> Any:
    """Plan the epoch with all that there is now."""
    start = source.initial_offset()
    return source.plan(start, source.latest_offset(start, False).end)
