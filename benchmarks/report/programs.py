"""Which benchmarks are recorded, what is asked of their figures, and what each figure means."""

from __future__ import annotations

import operator

import attrs

_TIME_AND_MEMORY = ("ms", "s", "mb", "gib")
#: What costs something without a unit at the end of its name; all other ratios are those of a speed.
_COSTS = {
    "bytes_per_entry",
    "epoch_ratio",
    "incremental_share",
    "one_key_read_share",
    "rescale_read_ratio",
    "rmw_map_pure_ratio",
    "rmw_map_ratio",
    "rmw_value_state_ratio",
    "sync_ms_1m",
    "sync_ms_4m",
}


def lower_is_better(key: str) -> bool:
    """Return whether a figure of this name is the better the smaller it is."""
    unit = key.rpartition("_")[2]
    return key in _COSTS or (unit in _TIME_AND_MEMORY and "_per_" not in key)


@attrs.frozen
class Benchmark:
    """A program and how it is called.

    Attributes:
        name: of the result.
        program: the file, without its suffix.
        small: arguments that make it do little, to try it.
        always: arguments that it is always called with.
        has_rounds: whether it takes ``--rounds``.
        is_on_one_core: whether it and all its processes share one core.
    """

    name: str
    program: str
    small: tuple[str, ...]
    always: tuple[str, ...] = ()
    has_rounds: bool = True
    is_on_one_core: bool = False


_FEW_KEYED = ("--records", "20000", "--keys", "1000", "--rounds", "1")
_FEW_ENTRIES = ("--entries", "20000", "--rounds", "1")
_FEW_FOR_PEERS = ("--records", "50000", "--rounds", "1", "--engine", "pyflinkstate", "dict")

WORKLOADS: dict[str, str] = {
    "keyed_count": "count per key",
    "timers": "event-time timers",
    "tumbling": "tumbling windows",
    "session": "session windows",
    "large_state": "count over 20 million keys, state of 200 characters, on disk",
}

#: All that are recorded; the short ones first.
BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("state_map", "state_map", _FEW_ENTRIES),
        Benchmark("snapshot", "snapshot", _FEW_ENTRIES),
        Benchmark(
            "disk_state",
            "disk_state",
            ("--entries", "20000", "--memory-mb", "1", "--seconds", "0.2"),
            has_rounds=False,
        ),
        Benchmark("state_access", "state_access", ("--entries", "20000"), has_rounds=False),
        Benchmark("keyed_count", "keyed_count", _FEW_KEYED),
        Benchmark("keyed_count_one_core", "keyed_count", _FEW_KEYED, is_on_one_core=True),
        Benchmark("keyed_count_stages", "keyed_count", _FEW_KEYED, ("--engine", "stages")),
        Benchmark("keyed_count_pipelined", "keyed_count", _FEW_KEYED, ("--engine", "pipelined")),
        Benchmark("dataframe", "dataframe", (*_FEW_KEYED, "--tws-records", "2000")),
        Benchmark("epoch_cost", "epoch_cost", ("--keys", "2000", "--epochs", "3"), has_rounds=False),
        Benchmark(
            "epoch_cost_pipelined",
            "epoch_cost",
            ("--keys", "2000", "--epochs", "3"),
            ("--engine", "pipelined"),
            has_rounds=False,
        ),
        Benchmark(
            "epoch_cost_without",
            "epoch_cost",
            ("--keys", "2000", "--epochs", "3"),
            ("--engine", "pipelined", "--no-checkpoints"),
            has_rounds=False,
        ),
        Benchmark("page_cost", "page_cost", ("--records", "20000", "--viewers", "2", "--rounds", "1")),
        Benchmark("recovery", "recovery", ("--keys", "4000"), has_rounds=False),
        Benchmark(
            "live_state",
            "live_state",
            ("--entries", "20000", "--records", "20000", "--queries", "20", "--rounds", "1"),
        ),
        Benchmark(
            "operators", "operators", ("--records", "60000", "--rounds", "1", "--only", "ttl", "session")
        ),
        Benchmark(
            "operators_pipelined",
            "operators",
            ("--records", "60000", "--rounds", "1", "--only", "chain2"),
            ("--engine", "pipelined"),
        ),
        Benchmark("nexmark", "nexmark", ("--events", "6000", "--rounds", "1", "--query", "3", "7")),
        Benchmark("sinks", "sinks", ("--days", "3", "--rounds", "1")),
        Benchmark(
            "kafka",
            "kafka",
            ("--seconds", "2", "--interval-ms", "500", "--records", "20000", "--rounds", "1"),
        ),
        Benchmark(
            "kafka_pipelined",
            "kafka",
            ("--seconds", "2", "--records", "20000", "--rounds", "1"),
            ("--engine", "pipelined", "--interval-ms", "200"),
        ),
        Benchmark(
            "latency",
            "latency",
            ("--seconds", "1", "--warm-up", "1", "--high-rate", "5000"),
            has_rounds=False,
        ),
        Benchmark(
            "peers_latency",
            "latency",
            ("--seconds", "1", "--warm-up", "1", "--no-peers"),
            ("--peers", "--high-rate", "0"),
            has_rounds=False,
        ),
        # Each work is recorded alone, as all five take hours.
        *(Benchmark(f"peers_{work}", "peers", _FEW_FOR_PEERS, ("--workload", work)) for work in WORKLOADS),
    )
}


@attrs.frozen
class Mark:
    """What is asked of a figure; it is missed if the worst of all runs misses it."""

    benchmark: str
    key: str
    asked: float

    def is_met_by(self, worst: float) -> bool:
        """Return whether the worst of all runs is as good as was asked."""
        compare = operator.le if lower_is_better(self.key) else operator.ge
        return bool(compare(worst, self.asked))


_MARKS: dict[str, dict[str, float]] = {
    "keyed_count": {"ratio_no_checkpoint": 1.0, "ratio_with_checkpoint": 0.85},
    "keyed_count_one_core": {"ratio_no_checkpoint": 1.0, "ratio_with_checkpoint": 0.85},
    "keyed_count_pipelined": {"ratio_no_checkpoint": 1.35, "ratio_with_checkpoint": 1.2},
    "dataframe": {"ratio_apply_in_pandas": 3, "ratio_tws": 20, "ratio_rdd_path": 0.6},
    "operators_pipelined": {"ratio_chain2": 0.75, "ratio_session": 0.45},
    "operators": {
        "ratio_ttl": 0.7,
        "ratio_timers": 0.5,
        "ratio_tumbling": 0.55,
        "ratio_process_window": 0.45,
        "ratio_session": 0.3,
        "ratio_sliding": 0.25,
        "ratio_chain2": 0.55,
    },
    "nexmark": {"all_right": True},
    "peers_keyed_count": {
        "keyed_count_times_pyflink_process": 20,
        "keyed_count_times_pyflink_thread": 20,
        "keyed_count_times_transform_with_state": 30,
        "keyed_count_times_bytewax": 1.5,
    },
    "peers_large_state": {
        "large_state_times_pyflink_process": 10,
        "large_state_times_pyflink_thread": 10,
        "large_state_times_transform_with_state": 20,
    },
    "peers_timers": {"timers_times_transform_with_state": 30},
    "peers_tumbling": {
        "tumbling_times_pyflink_process": 15,
        "tumbling_times_pyflink_thread": 15,
        "tumbling_times_bytewax": 1.5,
    },
    "peers_session": {
        "session_times_pyflink_process": 15,
        "session_times_pyflink_thread": 15,
        "session_times_bytewax": 1.5,
    },
    "state_map": {
        "rmw_value_state_ratio": 1.8,
        "rmw_map_ratio": 1.3,
        "rmw_map_pure_ratio": 2.5,
        "gc_full_ms": 100,
        "bytes_per_entry": 64,
    },
    "snapshot": {
        "sync_ms_1m": 3,
        "sync_ms_4m": 8,
        "write_entries_per_s": 3_000_000,
        "write_beside_owner_entries_per_s": 1_500_000,
        "owner_share": 0.6,
        "longest_op_ms": 25,
        "restore_entries_per_s": 2_500_000,
    },
    "epoch_cost": {"epoch_p50_ms": 150, "epoch_ratio": 1.25, "incremental_share": 0.03},
    "epoch_cost_pipelined": {"epoch_p50_ms": 40, "epoch_ratio": 1.25, "incremental_share": 0.03},
    "epoch_cost_without": {"epoch_without_p50_ms": 10},
    "disk_state": {
        "ratio_hot": 0.85,
        "ratio_zipf": 0.5,
        "uniform_records_per_s": 60_000,
        "incremental_share": 0.05,
        "sync_p99_ms": 10,
    },
    "page_cost": {"throughput_ratio": 0.97},
    "recovery": {"rescale_read_ratio": 1.1},
    "state_access": {
        "one_key_s": 0.5,
        "one_key_read_share": 0.02,
        "to_arrow_entries_per_s": 2_000_000,
        "diff_s": 15,
        "diff_peak_mb": 600,
    },
    "live_state": {"query_p50_ms": 20, "scan_s": 3, "scan_throughput_ratio": 0.8},
    "sinks": {"ratio_delta": 0.75, "ratio_iceberg": 0.75, "ratio_sql": 0.75, "ratio_kafka": 0.75},
    "kafka": {"records_per_s": 100_000},
    "kafka_pipelined": {"latency_p99_ms": 50, "visible_p50_ms": 250, "visible_p99_ms": 500},
    "latency": {
        "latency_p50_ms": 5,
        "latency_p99_ms": 25,
        "latency_max_ms": 200,
        "visible_p50_ms": 120,
        "visible_p99_ms": 250,
        "latency_p99_at_50k_ms": 100,
    },
}
MARKS = [Mark(name, key, asked) for name, marks in _MARKS.items() for key, asked in marks.items()]


def mark_of(benchmark: str, key: str) -> Mark | None:
    """Return what is asked of a figure, if anything is."""
    return next((mark for mark in MARKS if (mark.benchmark, mark.key) == (benchmark, key)), None)


#: What a figure of the tables means.
MEANINGS: dict[str, str] = {
    "dict_records_per_s": "dict in `mapPartitions`, records/s",
    "state_records_per_s": "`ValueState` without checkpoints, records/s",
    "ratio_no_checkpoint": "the same, compared with the dict",
    "ratio_with_checkpoint": "an incremental checkpoint every second, compared with the dict",
    "keyed_process_rows_per_s": "`keyed_process` over a DataFrame, rows/s",
    "apply_in_pandas_rows_per_s": "`applyInPandas`, with the counts before joined to the rows, rows/s",
    "tws_rows_per_s": "`transformWithState`, all rows in one batch, rows/s",
    "rdd_path_rows_per_s": "`from_rdd` with strings, results counted in the tasks, records/s",
    "ratio_apply_in_pandas": "`keyed_process` compared with `applyInPandas`",
    "ratio_tws": "`keyed_process` compared with `transformWithState`",
    "ratio_rdd_path": "`keyed_process` compared with the RDD path",
    "rmw_value_state_ratio": "read-modify-write through `ValueState`, time compared with a plain dict",
    "rmw_map_ratio": "`get` and `put` of the state map alone, time compared with a plain dict",
    "rmw_map_pure_ratio": "the same, interpreted instead of compiled",
    "gc_full_ms": "a full garbage collection while the state is alive, ms",
    "bytes_per_entry": "memory of an entry in addition to its key and value, bytes",
    "sync_ms_1m": "pause for a snapshot of 1 million entries, ms",
    "sync_ms_4m": "pause for a snapshot of 4 million entries, ms",
    "write_entries_per_s": "written (zstd, local file) while the owner is idle, entries/s",
    "write_beside_owner_entries_per_s": "written while the owner never rests, entries/s",
    "owner_share": "the owner's rate meanwhile, compared with its rate alone",
    "longest_op_ms": "the owner's longest read-modify-write meanwhile, ms",
    "restore_entries_per_s": "restored from local files, entries/s",
    "epoch_p50_ms": "an epoch of 1,000 records over 2 million keys, with its checkpoint, ms",
    "epoch_without_p50_ms": "the same without checkpoints, ms",
    "epoch_ratio": "the same, compared with an epoch over 1,000 keys",
    "incremental_share": "bytes of its incremental checkpoint, compared with a full one",
    "throughput_ratio": "records/s with 50 viewers of the web page and a scrape each second, against no page",
    "cpu_ratio": "processor time of the job without them, compared with that with them",
    "answers": "pages and scrapes that were read meanwhile",
    "first_output_s": "from `SIGKILL` of a state slot with 2 million keys to the next committed output, s",
    "rescale_read_ratio": "bytes read to restore 4 subtasks as 3, compared with the bytes of their state",
    "one_key_s": "open the checkpoint and read one key, s",
    "one_key_read_share": "share of the state file that is read for it",
    "to_arrow_entries_per_s": "all entries as an Arrow table, entries/s",
    "diff_s": "all differences from a second checkpoint in which 100 keys differ, s",
    "diff_peak_mb": "the most memory of that process, MB",
    "diff_rows": "differences found",
    "query_p50_ms": "the value of one key between two epochs, ms",
    "query_p99_ms": "the same, the slowest of a hundred, ms",
    "scan_s": "all entries as an Arrow table while epochs follow each other, s",
    "scan_wait_s": "of it, waiting for the end of an epoch, s",
    "scan_throughput_ratio": "the job's rate during a scan, compared with the time before and after it",
    "records_per_s": "the job's own rate, records/s",
    "files_records_per_s": "`FileSink` (Parquet), records/s",
    "ratio_delta": "`DeltaSink`, compared with it",
    "ratio_iceberg": "`IcebergSink`",
    "ratio_sql": "`SqlSink` into PostgreSQL, on the same machine",
    "ratio_sqlite": "`SqlSink` into SQLite",
    "ratio_kafka": "`KafkaSink`, with its broker on the same machine",
    "visible_p50_ms": "from the time in a record until readers of committed output see it, ms",
    "visible_p99_ms": "the same, the slowest of a hundred, ms",
    "latency_p50_ms": "from the time in a record to the sink, ms",
    "latency_p99_ms": "the same, the slowest of a hundred, ms",
    "latency_max_ms": "the same, the slowest of all, ms",
    "latency_p99_at_50k_ms": "the slowest of a hundred at 50,000 records/s, ms",
    "interval_ms": "the shortest checkpoint interval that holds, ms",
    "checkpoint_ms": "from one checkpoint to the next one, ms",
    "heap_records_per_s": "`HashMapStateBackend`, as many keys as fit, zipf(1.0), records/s",
    "hot_records_per_s": "`EmbeddedRocksDBStateBackend`, the same keys, records/s",
    "ratio_hot": "the same, compared with the heap",
    "zipf_records_per_s": "all keys, zipf(1.0), records/s",
    "ratio_zipf": "the same, compared with the heap over the keys that fit",
    "uniform_records_per_s": "all keys, each as likely, records/s",
    "state_mb": "keys and values, MiB",
    "peak_mb": "the most memory of the process, MiB",
    "sync_p99_ms": "pause for an incremental snapshot, the longest of a hundred, ms",
    "load_entries_per_s": "restored, entries/s",
    "broker_records_per_s": "a plain loop that reads and sends in transactions, records/s",
    "ratio_broker": "the job, compared with that loop",
}
OPERATORS: dict[str, str] = {
    "value": "`ValueState` count (the yardstick)",
    "stateless": "source, map, filter, map: no state",
    "map": "count in a `MapState`",
    "reducing": "count in a `ReducingState`",
    "list": "`ListState`, ten elements at a time",
    "chain2": "two counts in a row, each after its own shuffle",
    "ttl": "count with time to live",
    "timers": "count, and an event-time timer for each record",
    "tumbling": "tumbling window, `aggregate`",
    "process_window": "tumbling window, `ProcessWindowFunction`",
    "session": "session window, `aggregate`",
    "sliding": "sliding window, each record in three, `aggregate`",
}
OURS = "pyflinkstate"
ENGINES: dict[str, str] = {
    OURS: "pyflinkstate",
    "dict": "dict in mapPartitions",
    "bytewax": "bytewax",
    "pyflink_process": "PyFlink, process mode",
    "pyflink_thread": "PyFlink, thread mode",
    "transform_with_state": "transformWithState, one batch",
    "transform_with_state_batches": "transformWithState, batches",
}
#: The names of the published benchmark.
QUERIES: dict[int, str] = {
    3: "Local Item Suggestion",
    4: "Average Price for a Category",
    5: "Hot Items",
    6: "Average Selling Price by Seller",
    7: "Highest Bid",
    8: "Monitor New Users",
    9: "Winning Bids",
    11: "User Sessions",
    12: "Processing Time Windows",
    15: "Bidding Statistics Report",
    16: "Channel Statistics Report",
    17: "Auction Statistics Report",
    18: "Find Last Bid",
    19: "Auction TOP-10 Price",
    20: "Expand Bid with Auction",
}
