"""The main job, ``examples/retail_spend.py``, into each sink, against the file sink.

    python benchmarks/sinks.py [--json] [--input DIR] [--days N] [--rounds N] [--sink NAME ...]
        [--postgresql URL] [--kafka SERVERS]

Rounds are interleaved, so that all meet the same noise; the figures are medians, over whole jobs with a
checkpoint every second. Without ``--input`` the lines are made up. ``ratio_<sink>`` is the throughput into
the sink against that into ``FileSink`` (Parquet) in the same round. A database or broker runs on the same
machine, and takes its share of the processor. Each round writes into a table of its own.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from local_session import local_session, tell

from pyflinkstate import FileSink, Sink, StreamExecutionEnvironment, Types
from pyflinkstate.connectors import SqlSink

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
    parser.add_argument("--sink", action="append", help="only these")
    parser.add_argument("--postgresql", metavar="URL", help="also into this database")
    return parser.parse_args()


def main() -> None:
    args = parse()
    sinks: dict[str, MakeSink] = {"sql": sqlite}
    if args.postgresql:
        sinks["postgresql"] = partial(postgresql, args.postgresql)
    sinks = {name: make for name, make in sinks.items() if not args.sink or name in args.sink}
    rates: dict[str, list[float]] = {name: [] for name in ("files", *sinks)}
    with tempfile.TemporaryDirectory() as made_up:
        if args.input is None:
            make_days(Path(made_up))
        for number in range(args.rounds + 1):
            for name, make in {"files": files, **sinks}.items():
                table = f"bench_{int(time.time())}_{number}"
                rates[name].append(run(make, table, args.input or made_up, args.days))
    del_first = {name: of_sink[1:] for name, of_sink in rates.items()}  # the first round warms Spark up
    figures = {"files_records_per_s": round(statistics.median(del_first["files"]))}
    for name in sinks:
        pairs = zip(del_first[name], del_first["files"], strict=True)
        figures[f"ratio_{name}"] = round(statistics.median(mine / files for mine, files in pairs), 3)
    tell(figures, args.json)


if __name__ == "__main__":
    SESSION = local_session(PARTITIONS)
    main()
