"""The connectors into which a kill round may write, and what readers find there afterwards.

The packages of a connector are imported where they are used, because slots import this file.

Each entry of ``TARGETS`` makes the sink of one start of the program, and reads the rows of the round. They
are those of ``kill_program``, with their list as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pyflinkstate import ParquetSink, StagedSink, connectors

COLUMNS = ["key", "number", "total", "last", "same"]
SCHEMA = pa.schema([(name, pa.string() if name == "last" else pa.int64()) for name in COLUMNS])
#: When a program may kill itself that publishes an epoch.
MOMENTS = ("before", "after")


@attrs.frozen
class KilledTarget:
    """A target of rounds.

    Attributes:
        sink: makes the sink of a program; the folder is that of the round.
        rows: returns what readers see; nothing if there is no target yet.
    """

    sink: Callable[[Path], StagedSink]
    rows: Callable[[Path], Iterable[Iterable[Any]]]


def _connected(folder: Path) -> sqlite3.Connection:
    database = sqlite3.connect(folder / "out.sqlite")
    columns = ", ".join(f"{name} BIGINT" if name != "last" else "last TEXT" for name in COLUMNS)
    database.execute(f"CREATE TABLE IF NOT EXISTS kept ({columns})")
    return database


def _sql_sink(folder: Path) -> StagedSink:
    _connected(folder).close()
    return connectors.SqlSink(f"sqlite:///{folder}/out.sqlite", "kept", COLUMNS)


def _sql_rows(folder: Path) -> Iterable[Iterable[Any]]:
    with closing(_connected(folder)) as database:
        return database.execute("SELECT * FROM kept").fetchall()


def _delta_rows(folder: Path) -> Iterable[Iterable[Any]]:
    from deltalake import DeltaTable

    if not (folder / "kept").exists():
        return []
    return [row.values() for row in DeltaTable(folder / "kept").to_pyarrow_table(columns=COLUMNS).to_pylist()]


def _catalog(folder: Path) -> dict[str, str]:
    uri = f"sqlite:///{folder}/catalog.sqlite"
    return {"name": "default", "type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}


def _iceberg_rows(folder: Path) -> Iterable[Iterable[Any]]:
    from pyiceberg.catalog import load_catalog

    properties = _catalog(folder)
    catalog = load_catalog(properties.pop("name"), **properties)
    if not catalog.table_exists("shop.kept"):
        return []
    rows = catalog.load_table("shop.kept").scan(selected_fields=tuple(COLUMNS)).to_arrow().to_pylist()
    return [[row[name] for name in COLUMNS] for row in rows]


def _parquet_rows(folder: Path) -> Iterable[Iterable[Any]]:
    if not (folder / "kept").exists():
        return []
    rows = pq.read_table(folder / "kept", schema=SCHEMA).select(COLUMNS).to_pylist()
    return [row.values() for row in rows]


TARGETS = {
    "sql": KilledTarget(_sql_sink, _sql_rows),
    "delta": KilledTarget(lambda folder: connectors.DeltaSink(folder / "kept", SCHEMA), _delta_rows),
    "iceberg": KilledTarget(
        lambda folder: connectors.IcebergSink(_catalog(folder), "shop.kept", SCHEMA), _iceberg_rows
    ),
    "parquet": KilledTarget(
        lambda folder: ParquetSink(folder / "kept", SCHEMA, partition_by=["key"], join_files=True),
        _parquet_rows,
    ),
}


def flattened(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row of the program as a row of a table."""
    key, number, total, last, same = row
    return key, number, total, json.dumps(last), same


def rows_of(name: str, folder: Path) -> list[list[Any]]:
    """Return the rows of a target as the program's."""
    found = (list(row) for row in TARGETS[name].rows(folder))
    return [[key, number, total, json.loads(last), same] for key, number, total, last, same in found]


def sink_of(name: str, folder: Path, kill: tuple[str, int] | None, say: Callable[[str], None]) -> StagedSink:
    """Return the sink of a target; the program kills itself as the sink publishes for the n-th time.

    Args:
        name: of the target.
        folder: of the round.
        kill: a moment and n; None if the program is not to kill itself.
        say: is told before the kill.
    """
    sink = TARGETS[name].sink(folder)
    if kill is not None:
        moment, left = kill
        publish = sink.publish

        def published(epoch: int, staged: list[Any]) -> None:
            nonlocal left
            left -= 1
            for now in MOMENTS:
                if left == 0 and now == moment:
                    say(f"killed itself {moment} it published epoch {epoch}")
                    os.kill(os.getpid(), signal.SIGKILL)
                if now == "before":
                    publish(epoch, staged)

        sink.publish = published  # type: ignore[method-assign]
    return sink
