"""Sinks that stage what they write to tables of days and amounts, and the calls of their drivers."""

from typing import Any

import pyarrow as pa
from support_sinks import UsedSink, write

SCHEMA = pa.schema([("day", pa.string()), ("amount", pa.int64())])


def prepare(sink: UsedSink, epoch: int, *parts: list[Any]) -> list[Any]:
    """Run an epoch up to the end of its tasks, and return what they have staged."""
    results = write(sink, epoch, *parts, is_pickled=True)
    sink.prepare(epoch, results)
    return results


def run(sink: UsedSink, epoch: int, *amounts: int) -> None:
    """Run and commit an epoch with a partition for each amount."""
    prepare(sink, epoch, *([{"day": f"day{amount % 2}", "amount": amount}] for amount in amounts))
    sink.commit(epoch)
