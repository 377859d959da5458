"""Nexmark: queries over the events of an auction site, each checked and measured.

    python benchmarks/nexmark.py [--json] [--query N ...] [--events N] [--rate N] [--rounds N] [--cores N]

The generator and the queries are those of the published benchmark; ``nexmark_suite`` says where each constant
comes from. In 50 events there are 1 person, 3 auctions and 46 bids. 10,000 events are a second of event time,
and the watermark is 4 seconds behind. The queries follow the SQL of https://github.com/nexmark/nexmark: 3 to
9, 11, 12 and 15 to 20, which keep state. The others there only map and filter, or read and write files.

* A query is **right** if its result table has the rows that plain Python gives for the same events, from the
  SQL text alone (``nexmark_suite/oracles.py``). The table is what there is when the input has ended: where a
  query corrects its rows as it goes on, the last row of each key counts.
* The windows of query 12 are cut by the machine's clock, so its rows differ from run to run. What is compared
  is the sum over all windows of a bidder, which does not depend on the cuts. To have all of them, the windows
  that are still open when the input ends fire as well.
* **records/s per core** are the events of all three kinds, divided by the seconds and by the cores that Spark
  has, whether they were busy or not. Making the events is part of it, as in the published benchmark; results
  are counted and dropped. The seconds are the difference between two sizes, so that the start of Spark's
  workers and of the slots does not count. Rounds are interleaved. The figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

from local_session import local_session
from nexmark_suite.generator import GeneratorConfig, events_between
from nexmark_suite.oracles import Tables
from nexmark_suite.queries import QUERIES, Query
from nexmark_suite.sinks import BlackHole, ResultTable
from nexmark_suite.source import NexmarkSource
from pyspark.sql import SparkSession

from pyflinkstate import Sink, StreamExecutionEnvironment

#: The smaller size of the two is this part of the other.
SMALL = 6
SHOWN = 3


def run(spark: SparkSession, query: Query, config: GeneratorConfig, cores: int, sink: Sink) -> float:
    """Run a query and return how many seconds it took."""
    env = StreamExecutionEnvironment(spark).set_parallelism(cores)
    query.build(env.from_source(NexmarkSource(config, cores))).sink_to(sink)
    started = time.perf_counter()
    env.execute(query.name)
    return time.perf_counter() - started


def is_right(spark: SparkSession, query: Query, config: GeneratorConfig, cores: int, tables: Tables) -> bool:
    """Return whether a query gives the right table; print some of the rows that differ if it does not."""
    sink = ResultTable(query.key)
    run(spark, query, config, cores, sink)
    missing, wrong = query.difference(sink.rows(), tables)
    for what, rows in [("missing", missing), ("wrong", wrong)]:
        for row in list(rows)[:SHOWN]:
            print(f"{query.name}: {what}: {row}, of {rows.total()} such rows", file=sys.stderr)
    return not missing and not wrong


def rate_of(spark: SparkSession, query: Query, config: GeneratorConfig, cores: int) -> float:
    """Return the events per second and core."""
    small = GeneratorConfig(config.events // SMALL, config.rate)
    large = GeneratorConfig(config.events + small.events, config.rate)
    start_up = run(spark, query, small, cores, BlackHole())
    seconds = run(spark, query, large, cores, BlackHole()) - start_up
    return config.events / seconds / cores


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--query", type=int, nargs="+", choices=sorted(QUERIES), default=list(QUERIES))
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--rate", type=int, default=10_000, help="events per second of event time")
    parser.add_argument("--rounds", type=int, default=3, help="0 checks the results and measures nothing")
    parser.add_argument("--cores", type=int, default=2)
    return parser.parse_args()


def session(cores: int) -> SparkSession:
    """Return a local session whose workers find the suite."""
    path = os.pathsep.join(filter(None, sys.path))
    return local_session(cores, {"spark.executorEnv.PYTHONPATH": path})


def checked(spark: SparkSession, args: argparse.Namespace) -> dict[int, bool]:
    """Return whether each query is right."""
    config = GeneratorConfig(args.events, args.rate)
    tables = Tables(events_between(config, 0, config.events))
    right = {}
    for number in args.query:
        right[number] = is_right(spark, QUERIES[number], config, args.cores, tables)
        if not args.json:
            print(f"query {number} is {'right' if right[number] else 'WRONG'}", flush=True)
    return right


def measured(spark: SparkSession, args: argparse.Namespace) -> dict[int, list[float]]:
    """Return the rates of each query, one for each round."""
    config = GeneratorConfig(args.events, args.rate)
    rates: dict[int, list[float]] = {number: [] for number in args.query}
    for _ in range(args.rounds):
        for number, seen in rates.items():
            seen.append(rate_of(spark, QUERIES[number], config, args.cores))
    return rates


def figures_of(right: dict[int, bool], rates: dict[int, list[float]]) -> dict[str, int | bool]:
    """Return whether each query is right, and its median rate if it was measured."""
    figures: dict[str, int | bool] = {"all_right": all(right.values())}
    for number, seen in rates.items():
        figures[f"q{number}_right"] = right[number]
        if seen:
            figures[f"q{number}_records_per_s_per_core"] = round(statistics.median(seen))
    return figures


def main() -> None:
    args = arguments()
    spark = session(args.cores)
    figures = figures_of(checked(spark, args), measured(spark, args))
    lines = (f"{key}: {value}" for key, value in figures.items())
    print(json.dumps(figures) if args.json else "\n".join(lines))
    sys.exit(not figures["all_right"])


if __name__ == "__main__":
    main()
