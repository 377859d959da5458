"""The main job, ``examples/retail_spend.py``, into each sink, against the file sink.

    python benchmarks/sinks.py [--json] [--input DIR] [--days N] [--rounds N] [--sink NAME ...]
        [--postgresql URL] [--kafka HOST:PORT]

Rounds are interleaved, so that all meet the same noise; the figures are medians, over whole jobs with a
checkpoint every second. Without ``--input`` the lines are made up. ``ratio_<sink>`` is the throughput into
the sink against that into ``FileSink`` (Parquet) in the same round. Each job writes into its own table.

Without an address, a broker of Kafka, and a server of PostgreSQL where there is one, are started. They take
their share of the processor. ``ratio_sql`` is into PostgreSQL; ``ratio_sqlite`` is into SQLite, and
``ratio_sql`` as well where there is no PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import servers
from local_session import local_session, tell

from pyflinkstate import DeliveryGuarantee, FileSink, Sink, StreamExecutionEnvironment, Types
from pyflinkstate.connectors import (
    DeltaSink,
    IcebergSink,
    KafkaRecordSerializationSchema,
    KafkaSink,
    SqlSink,
)

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import retail_spend  # noqa: E402 - the examples are not on the path before
from made_up_retail import make_days  # noqa: E402

PARTITIONS = 2
SCHEMA = pa.schema(
    [
        ("customer", pa.string()),
        ("invoice", pa.string()),
        ("spend_cents", pa.int64()),
        ("orders", pa.int64()),
        ("last_products", pa.string()),
        ("largest_quantity", pa.int64()),
        ("mean_line_cents", pa.int64()),
    ]
)
COLUMNS = SCHEMA.names
DDL = ", ".join(f"{field.name} {'TEXT' if field.type == pa.string() else 'BIGINT'}" for field in SCHEMA)
SINKS = ("delta", "iceberg", "sql", "sqlite", "kafka")
#: Makes the sink of one job, which writes below a folder, into a table of a name that is not used yet.
MakeSink = Callable[[Path, str], Sink]


def flat(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(",".join(row[name]) if name == "last_products" else row[name] for name in COLUMNS)


def files(folder: Path, name: str) -> Sink:
    return FileSink(folder / "out", "parquet", SCHEMA)


def sqlite(folder: Path, name: str) -> Sink:
    path = folder / "out.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(f"CREATE TABLE {name} ({DDL})")
    return SqlSink(f"sqlite:///{path}", name, COLUMNS)


def postgresql(url: str, folder: Path, name: str) -> Sink:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE {name} ({DDL})")
    return SqlSink(url, name, COLUMNS)


def delta(folder: Path, name: str) -> Sink:
    return DeltaSink(folder / "delta", SCHEMA)


def iceberg(folder: Path, name: str) -> Sink:
    catalog = {
        "name": "default",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.sqlite",
        "warehouse": f"file://{folder}/warehouse",
    }
    return IcebergSink(catalog, f"bench.{name}", SCHEMA)


def as_json(row: tuple[Any, ...]) -> bytes:
    return json.dumps(row).encode()


def kafka(address: str, folder: Path, name: str) -> Sink:
    topic = servers.make_topic(address, name, PARTITIONS)
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    sink = KafkaSink.builder().set_bootstrap_servers(address).set_transactional_id_prefix(name)
    sink.set_record_serializer(schema.set_value_serialization_schema(as_json).build())
    return sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()


def run(make: MakeSink, name: str, input_dir: str, days: int | None) -> float:
    """Return how many records a second a job wrote."""
    with tempfile.TemporaryDirectory() as directory:
        env = StreamExecutionEnvironment(SESSION).set_parallelism(PARTITIONS)
        env.enable_checkpointing(1_000, f"{directory}/checkpoints")
        for module in ("retail_spend.py", "made_up_retail.py"):
            env.add_python_file(str(EXAMPLES / module))
        lines = env.from_files(input_dir, "csv", max_files=days)
        known = lines.filter(retail_spend.has_customer).name("known")
        keyed = known.key_by(retail_spend.customer_of, key_type=Types.STRING())
        keyed.process(retail_spend.Spend()).uid("spend").map(flat).sink_to(make(Path(directory), name))
        started = time.perf_counter()
        result = env.execute("retail spend")
        seconds = time.perf_counter() - started
        read = result.get_accumulator_result("files.records_out")
        return (read - result.get_accumulator_result("known.records_dropped")) / seconds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--input", help="a directory of CSV files, one a day; without it, made-up days")
    parser.add_argument("--days", type=int, help="only the first so many files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sink", action="append", choices=SINKS, help="only these")
    parser.add_argument("--postgresql", metavar="URL", help="of a database")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="of brokers")
    return parser.parse_args()


def sinks_of(args: argparse.Namespace, running: ExitStack) -> dict[str, MakeSink]:
    """Return the wanted sinks by name, and start the servers that they need."""
    wanted = args.sink or SINKS
    sinks: dict[str, MakeSink] = {"delta": delta, "iceberg": iceberg, "sql": sqlite, "sqlite": sqlite}
    if "sql" in wanted and (url := running.enter_context(servers.postgresql(args.postgresql))):
        sinks["sql"] = partial(postgresql, url)
    if "kafka" in wanted:
        sinks["kafka"] = partial(kafka, running.enter_context(servers.kafka(args.kafka)))
    return {name: sinks[name] for name in wanted}


def rates_of(sinks: dict[str, MakeSink], input_dir: str, args: argparse.Namespace) -> dict[str, list[float]]:
    """Return the rates of each sink, a round each."""
    rates: dict[str, list[float]] = {name: [] for name in sinks}
    for number in range(args.rounds + 1):
        for name, make in sinks.items():
            rate = run(make, f"bench_{name}_{time.time_ns()}", input_dir, args.days)
            rates[name].append(rate)
            if not args.json:
                print(f"round {number}: {name} {rate:,.0f} records/s", flush=True)
    return {name: of_sink[1:] for name, of_sink in rates.items()}  # the first round warms Spark up


def main() -> None:
    args = parse()
    with tempfile.TemporaryDirectory() as made_up, ExitStack() as running:
        if args.input is None:
            make_days(Path(made_up))
        sinks = {"files": files, **sinks_of(args, running)}
        rates = rates_of(sinks, args.input or made_up, args)
    figures = {"files_records_per_s": round(statistics.median(rates["files"]))}
    for name in [name for name in sinks if name != "files"]:
        pairs = zip(rates[name], rates["files"], strict=True)
        figures[f"ratio_{name}"] = round(statistics.median(mine / files for mine, files in pairs), 3)
    tell(figures, args.json)


if __name__ == "__main__":
    SESSION = local_session(PARTITIONS)
    main()
