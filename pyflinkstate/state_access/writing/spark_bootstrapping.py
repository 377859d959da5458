"""Seeds an operator from a Spark ``DataFrame``: executors make the state and write its files.

The driver sees only their handles. Spark's objects are passed in, so nothing of PySpark is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api.values import SparkObject
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.errors import SparkJobError, UnsupportedSessionError
from pyflinkstate.runtime.storage import open_folder
from pyflinkstate.runtime.wire import InputFrame, encoded_frames, spark_cause, told_by_spark
from pyflinkstate.state_access.writing.seeding import SeedSettings, seeded, subtasks_of

#: The number of the partition and of the frame in it, and the frame's bytes.
Numbered = tuple[int, int, bytes]

_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}


def arrow_types(frame: SparkObject) -> dict[str, pa.DataType]:
    """Return the Arrow types of columns; null stands for one that no state gets its type from."""
    return {field.name: _TYPES.get(field.dataType.typeName(), pa.null()) for field in frame.schema.fields}


def check_classic(frame: SparkObject, what: str) -> None:
    """Refuse a ``DataFrame`` of Spark Connect, which has no RDD, with an ``UnsupportedSessionError``."""
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise UnsupportedSessionError(
            f"{what}: a DataFrame of a Spark Connect session has no RDD, through which rows are read: "
            f"give one of a classic SparkSession, or frame.toPandas(), which is read in this process"
        )


def seed_on_spark(frame: SparkObject, settings: SeedSettings, uri: str) -> list[OperatorSubtaskState]:
    """Write the state of each subtask on an executor.

    Args:
        frame: a Spark ``DataFrame``; the rows of a key are processed in order of partitions and in each.
        settings: the operator.
        uri: the savepoint's folder, which executors reach as well. Tasks that fail may leave files there.

    Raises:
        SparkJobError: Spark's job failed; the message says what a task raised.
    """
    routed = frame.rdd.mapPartitionsWithIndex(_Route(settings))
    written = routed.partitionBy(settings.parallelism, _itself).mapPartitionsWithIndex(_Write(settings, uri))
    try:
        return subtasks_of(written.collect())
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
            raise
        raise SparkJobError(
            f"operator {settings.keys.uid!r} cannot be seeded: {told_by_spark(error)}",
            operator=settings.keys.uid,
        ) from spark_cause(error)


def _itself(subtask: int) -> int:
    return subtask


@attrs.frozen
class _Route:
    """Sends the rows of a partition to the subtasks of their keys."""

    settings: SeedSettings

    def __call__(self, partition: int, rows: Iterable[SparkObject]) -> Iterator[tuple[int, Numbered]]:
        number = 0
        for subtask, frame in self.settings.frames(partition, rows):
            for data in encoded_frames(frame, self.settings.keys.uid):
                yield subtask, (partition, number, data)
                number += 1


@attrs.frozen
class _Write:
    """Makes the state of one subtask and writes it."""

    settings: SeedSettings
    uri: str

    def __call__(
        self, subtask: int, frames: Iterable[tuple[int, Numbered]]
    ) -> Iterator[tuple[int, OperatorSubtaskState]]:
        in_order = sorted((numbered for _, numbered in frames), key=lambda numbered: numbered[:2])
        decoded = (InputFrame.decode(data) for _, _, data in in_order)
        yield subtask, seeded(self.settings, decoded, open_folder(self.uri), self.uri, subtask)
