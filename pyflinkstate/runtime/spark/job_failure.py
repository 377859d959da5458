"""Makes a streaming query fail with the job whose results it reads.

The job of a streaming DataFrame commits files, and queries read them. Spark does not know that the two belong
together, and a directory that nobody writes to any more looks like one that waits for data. Therefore the
DataFrame also reads a source that never has a row. Each time Spark asks it for its latest offset, it checks
whether the job has failed, and if so it raises the job's error. So every query on the DataFrame ends with
that error, in any session and however late it starts.

Spark runs such a source in a Python process beside its JVM, on the driver's host. The source checks for a
file that holds the text of the error, in a temporary folder of the program.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from weakref import WeakSet

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pyflinkstate.errors import JobFailedError

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # before Spark 4.2, where such a query reads all as one batch

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Spark asks for nothing."""


#: The name of the option with the path of the file.
_FILE = "file"
#: A source that has no row stands still.
_OFFSET = {"rows": 0}


class JobFailureSource(DataSource):
    """Reads nothing, and fails with its job."""

    @classmethod
    def name(cls) -> str:
        """Return what ``format()`` calls it."""
        return "pyflinkstate-job-failure"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what Spark asks."""
        return _Reader(Path(self.options[_FILE]))


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises at the second look at a failure.

    Between the two looks Spark lists the files of the job's results, after the job has failed: so the query
    has read whatever was committed.
    """

    def __init__(self, failure: Path) -> None:
        self._failure = failure
        self._was_seen = False

    def initialOffset(self) -> dict[str, int]:
        return _OFFSET

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """Say that nothing is new; without arguments Spark 4.1 asks."""
        if self._was_seen:
            # What PySpark would add is its own frames and this one; the process ends with the error.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise JobFailedError(self._failure.read_text(encoding="utf-8"))
        self._was_seen = self._failure.exists()
        return _OFFSET

    def prepareForTriggerAvailableNow(self) -> None:
        """A query that ends when it has read what there is asks once more, and hears of the failure too."""

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return iter(())


@attrs.frozen
class JobFailure:
    """Whether a job has failed, for all queries that read its results.

    Attributes:
        path: the file that is there once it has.
    """

    path: Path = attrs.field(factory=lambda: Path(_folder()) / uuid.uuid4().hex)

    def tell(self, text: str) -> None:
        """The job has failed: ``text`` is what queries fail with."""
        unfinished = self.path.with_suffix(".unfinished")
        unfinished.write_text(text, encoding="utf-8")
        unfinished.rename(self.path)

    def heard_by(self, results: DataFrame) -> DataFrame:
        """Return ``results``, a streaming DataFrame, so that its queries fail with the job.

        The source of the failure comes first, so that it is asked first.
        """
        session = results.sparkSession
        if session not in _sessions:
            session.dataSource.register(JobFailureSource)
            _sessions.add(session)
        reader = session.readStream.format(JobFailureSource.name()).schema(results.schema)
        return reader.option(_FILE, str(self.path)).load().union(results)


#: The sessions that know the source: Spark warns of one that is told again.
_sessions: WeakSet[SparkSession] = WeakSet()
_folders: list[TemporaryDirectory[str]] = []


def _folder() -> str:
    if not _folders:
        _folders.append(TemporaryDirectory(prefix="pyflinkstate-", ignore_cleanup_errors=True))
    return _folders[0].name
