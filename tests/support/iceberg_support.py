"""What the tests of the Iceberg connectors share: a catalog on SQLite, and the calls of a driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from support_sinks import JOB, history
from table_sinks import SCHEMA

from pyflinkstate.connectors.iceberg_sink import IcebergSink

TABLE = "sales.orders"


def properties_of(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog whose files are in a folder."""
    return {
        "name": "test",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"{folder}/warehouse",
    }


class Lake:
    """A catalog in a folder, with the sinks of drivers that write to its table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.properties = properties_of(folder)
        self.catalog: Catalog = load_catalog(**self.properties)

    @property
    def table(self) -> Table:
        """The newest version of the table."""
        return self.catalog.load_table(TABLE)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that readers see, sorted by their values."""
        return sorted(self.table.scan().to_arrow().to_pylist(), key=lambda row: str(list(row.values())))

    @property
    def amounts(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["amount"].to_pylist())

    def create(self, schema: pa.Schema = SCHEMA) -> Table:
        self.catalog.create_namespace_if_not_exists("sales")
        return self.catalog.create_table(TABLE, schema)

    def append(self, *amounts: int) -> None:
        """Append rows, as another program."""
        days = ["other"] * len(amounts)
        self.table.append(pa.table({"day": days, "amount": amounts}, schema=SCHEMA))

    def sink(self, schema: pa.Schema = SCHEMA, **options: Any) -> IcebergSink:
        return IcebergSink(self.properties, TABLE, schema, **{"staging": self.folder / "staging", **options})

    def opened(
        self, run: int = 1, restored: int | None = None, job: str = JOB, **options: Any
    ) -> IcebergSink:
        """Return the sink of a driver whose run has a number."""
        sink = self.sink(**options)
        sink.open_run(job, history((run, restored or 0)), restored)
        return sink
