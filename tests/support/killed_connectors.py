"""The connectors into which a kill round may write, and what readers find there afterwards.

The packages of a connector are imported where they are used, because slots import this file.

Each entry of ``TARGETS`` makes the sink of one start of the program, and reads the rows of the round. They
are those of ``kill_program``, with their list as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from pyflinkstate import (
    DeliveryGuarantee,
    FileCompactStrategy,
    FileSink,
    ParquetSink,
    Sink,
    StagedSink,
    connectors,
)

if TYPE_CHECKING:
    import sqlalchemy

COLUMNS = ["key", "number", "total", "last", "same"]
SCHEMA = pa.schema([(name, pa.string() if name == "last" else pa.int64()) for name in COLUMNS])
DDL = ", ".join(f"{name} {'TEXT' if name == 'last' else 'BIGINT'}" for name in COLUMNS)
#: When a program may kill itself that publishes an epoch.
MOMENTS = ("before", "after")


@attrs.frozen
class Place:
    """Where a round writes.

    Attributes:
        folder: of the round.
        address: of the target's server; empty if it has none.
    """

    folder: Path
    address: str = ""

    @property
    def name(self) -> str:
        """The name of the round's table or topic: rounds may share a server."""
        return f"kept_{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"


@attrs.frozen
class Server:
    """A server that a round kills and starts again; it keeps its data."""

    address: str
    kill: Callable[[], None]
    start: Callable[[], None]


@attrs.frozen
class KilledTarget:
    """A target of rounds.

    Attributes:
        sink: makes the sink of a program.
        rows: returns what readers see; nothing if there is no target yet.
        serve: starts the server of the target, which ends with the context; None for a target without one.
    """

    sink: Callable[[Place], StagedSink | FileSink]
    rows: Callable[[Place], Iterable[Iterable[Any]]]
    serve: Callable[[], AbstractContextManager[Server | None]] = nullcontext


# --- databases ---------------------------------------------------------------------------------------


def _url(place: Place) -> str:
    return place.address or f"sqlite:///{place.folder}/out.sqlite"


def _engine(place: Place) -> sqlalchemy.Engine:
    """Return the database, which has the table."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(_url(place), poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {place.name} ({DDL})")
    return engine


def _sql_sink(place: Place) -> StagedSink:
    _engine(place)
    return connectors.SqlSink(_url(place), place.name, COLUMNS)


def _sql_rows(place: Place) -> Iterable[Iterable[Any]]:
    with _engine(place).connect() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {place.name}")]


@contextmanager
def _postgresql() -> Iterator[Server]:
    import pytest
    from postgres_server import PostgresServer, is_there

    if not is_there():
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    with closing(PostgresServer()) as server:
        yield Server(server.url, server.kill, server.start)


# --- tables of files -----------------------------------------------------------------------------------


def _delta_rows(place: Place) -> Iterable[Iterable[Any]]:
    from deltalake import DeltaTable

    if not (table := place.folder / "kept").exists():
        return []
    return [row.values() for row in DeltaTable(table).to_pyarrow_table(columns=COLUMNS).to_pylist()]


def _catalog(place: Place) -> dict[str, str]:
    uri = f"sqlite:///{place.folder}/catalog.sqlite"
    return {"name": "default", "type": "sql", "uri": uri, "warehouse": f"file://{place.folder}/warehouse"}


def _iceberg_rows(place: Place) -> Iterable[Iterable[Any]]:
    from pyiceberg.catalog import load_catalog

    properties = _catalog(place)
    catalog = load_catalog(properties.pop("name"), **properties)
    if not catalog.table_exists("shop.kept"):
        return []
    rows = catalog.load_table("shop.kept").scan(selected_fields=tuple(COLUMNS)).to_arrow().to_pylist()
    return [[row[name] for name in COLUMNS] for row in rows]


def _parquet_rows(place: Place) -> Iterable[Iterable[Any]]:
    if not (place.folder / "kept").exists():
        return []
    rows = pq.read_table(place.folder / "kept", schema=SCHEMA).select(COLUMNS).to_pylist()
    return [row.values() for row in rows]


def _joined_sink(place: Place) -> FileSink:
    every_third = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).build()
    return FileSink(place.folder / "kept", "parquet", SCHEMA, compact=every_third)


# --- Kafka ---------------------------------------------------------------------------------------------

#: A call to a broker that is away fails after so long, and the job restarts.
_CALL_MS = 15_000
#: The broker ends a transaction that a program has left open; it hides the markers of the round's other jobs.
_TRANSACTION_MS = 30_000


def _as_json(row: list[Any]) -> bytes:
    return json.dumps(row).encode()


def _with_topic(place: Place) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": place.address, "log_level": 0})
    try:
        admin.create_topics([NewTopic(place.name, 2, 1)])[place.name].result(60)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _kafka_sink(place: Place) -> StagedSink:
    _with_topic(place)
    schema = connectors.KafkaRecordSerializationSchema.builder().set_topic(place.name)
    sink = (
        connectors.KafkaSink.builder()
        .set_bootstrap_servers(place.address)
        .set_record_serializer(schema.set_value_serialization_schema(_as_json).build())
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("kept")
        .set_marker_topic(f"{place.name}_markers")
        .set_property("default.api.timeout.ms", str(_CALL_MS))
        .set_property("transaction.timeout.ms", str(_TRANSACTION_MS))
        .build()
    )
    assert isinstance(sink, StagedSink)
    return sink


def _kafka_rows(place: Place) -> Iterable[Iterable[Any]]:
    from kafka_server import values_of

    _with_topic(place)
    return [json.loads(value) for value in values_of(place.address, place.name)]


@contextmanager
def _kafka() -> Iterator[Server]:
    from kafka_server import running_kafka

    with running_kafka() as broker:
        yield Server(broker.servers, broker.kill, broker.start)


TARGETS = {
    "sql": KilledTarget(_sql_sink, _sql_rows),
    "postgresql": KilledTarget(_sql_sink, _sql_rows, _postgresql),
    "delta": KilledTarget(lambda place: connectors.DeltaSink(place.folder / "kept", SCHEMA), _delta_rows),
    "iceberg": KilledTarget(
        lambda place: connectors.IcebergSink(_catalog(place), "shop.kept", SCHEMA), _iceberg_rows
    ),
    "kafka": KilledTarget(_kafka_sink, _kafka_rows, _kafka),
    "parquet": KilledTarget(
        lambda place: ParquetSink(place.folder / "kept", SCHEMA, partition_by=["key"], join_files=True),
        _parquet_rows,
    ),
    "joined": KilledTarget(_joined_sink, _parquet_rows),
}
#: The targets that have a server.
SERVED = tuple(name for name, target in TARGETS.items() if target.serve is not nullcontext)


def flattened(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row of the program as a row of a table."""
    key, number, total, last, same = row
    return key, number, total, json.dumps(last), same


def rows_of(name: str, place: Place) -> list[list[Any]]:
    """Return the rows of a target as the program's."""
    found = (list(row) for row in TARGETS[name].rows(place))
    return [[key, number, total, json.loads(last), same] for key, number, total, last, same in found]


def sink_of(name: str, place: Place, kill: tuple[str, int] | None, say: Callable[[str], None]) -> Sink:
    """Return the sink of a target; the program kills itself as the sink publishes for the n-th time.

    Args:
        name: of the target.
        place: of the round.
        kill: a moment and n; None if the program is not to kill itself.
        say: is told before the kill.
    """
    sink = TARGETS[name].sink(place)
    if kill is not None:
        moment, left = kill
        method = "_publish" if isinstance(sink, FileSink) else "publish"
        publish = getattr(sink, method)

        def published(epoch: int, staged: list[Any]) -> None:
            nonlocal left
            left -= 1
            for now in MOMENTS:
                if left == 0 and now == moment:
                    say(f"killed itself {moment} it published epoch {epoch}")
                    os.kill(os.getpid(), signal.SIGKILL)
                if now == "before":
                    publish(epoch, staged)

        setattr(sink, method, published)
    return sink
