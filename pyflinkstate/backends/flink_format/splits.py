"""The splits of a source: what its readers keep as operator state of bytes, one element for each split.

Those of the Kafka source are partitions (``KafkaPartitionSplitSerializer``)::

    i4 0 | i4 n | UTF topic | i4 partition | i8 next offset | i8 where it stops

Until a record was read, the next offset may be negative: -1 is the end of the partition, -2 its begin, and -3
the offset of the consumer group.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyflinkstate.backends.flink_format.cursor import Reader
from pyflinkstate.backends.flink_format.errors import located

#: The name of the operator state with the splits.
READER_STATE = "SourceReaderState"


def kafka_offsets(splits: Iterable[bytes]) -> dict[tuple[str, int], int]:
    """Return the next offset by topic and partition.

    Raises:
        CorruptCheckpointError: a split makes no sense.
        IncompatibleCheckpointError: another kind of source, or another release of it, wrote a split.
    """
    found = {}
    with located(f"state {READER_STATE!r}", state=READER_STATE):
        for split in splits:
            source = Reader(split)
            source.version("a split of the Kafka source", 0, 0)
            whole = source.enter()
            partition = source.utf(), source.unsigned(4)
            found[partition] = source.long()
            source.long()
            source.leave(whole)
    return found
