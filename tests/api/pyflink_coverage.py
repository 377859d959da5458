"""Which programs show that the names of PyFlink's DataStream API do here what they do there.

A program in one of the folders ``FOLDERS`` runs on PyFlink and here. It says in ``COVERS`` which names it
shows, one class a line: ``datastream.state MapState: get put`` is the class and two of its members. What a
program says is believed only if its text has those names. ``NOT_COMPARED`` has the names for which a program
on Spark shows nothing, with the reason. Every other name must be covered, or have a row in
``docs/differences.md``. Run as a program it prints the counts::

    python tests/api/pyflink_coverage.py
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from pyflink_surface import REFERENCE, Finding, row_of

SPARK = Path(__file__).parents[1] / "spark"
FOLDERS = ("async_programs", "features", "names")

#: Members of classes inside of others, which the list of names has not: PyFlink 2.3's, by ``vars``.
INNER = {
    "datastream.functions": {
        "BaseBroadcastProcessFunction.BaseContext": "timestamp current_processing_time current_watermark",
        "BaseBroadcastProcessFunction.Context": "get_broadcast_state",
        "BaseBroadcastProcessFunction.ReadOnlyContext": "get_broadcast_state",
        "CoProcessFunction.Context": "timer_service timestamp",
        "KeyedBroadcastProcessFunction.OnTimerContext": "time_domain get_current_key",
        "KeyedBroadcastProcessFunction.ReadOnlyContext": "timer_service get_current_key",
        "KeyedCoProcessFunction.Context": "get_current_key timer_service timestamp",
        "KeyedCoProcessFunction.OnTimerContext": "time_domain",
        "KeyedProcessFunction.Context": "get_current_key timer_service timestamp",
        "KeyedProcessFunction.OnTimerContext": "time_domain",
        "ProcessAllWindowFunction.Context": "window window_state global_state",
        "ProcessFunction.Context": "timer_service timestamp",
        "ProcessWindowFunction.Context": (
            "window current_processing_time current_watermark window_state global_state"
        ),
    },
    "datastream.state": {
        "StateTtlConfig.Builder": (
            "set_update_type update_ttl_on_create_and_write update_ttl_on_read_and_write "
            "set_state_visibility return_expired_if_not_cleaned_up never_return_expired "
            "set_ttl_time_characteristic use_processing_time cleanup_full_snapshot cleanup_incrementally "
            "cleanup_in_rocksdb_compact_filter disable_cleanup_in_background set_ttl build"
        ),
        "StateTtlConfig.CleanupStrategies": (
            "is_cleanup_in_background in_full_snapshot get_incremental_cleanup_strategy "
            "get_rocksdb_compact_filter_cleanup_strategy"
        ),
        "StateTtlConfig.StateVisibility": "ReturnExpiredIfNotCleanedUp NeverReturnExpired",
        "StateTtlConfig.UpdateType": "Disabled OnCreateAndWrite OnReadAndWrite",
    },
    "datastream.window": {
        "MergingWindowAssigner.MergeCallback": "merge",
        "Trigger.OnMergeContext": "merge_partitioned_state",
        "Trigger.TriggerContext": (
            "get_current_processing_time get_metric_group get_current_watermark "
            "register_processing_time_timer register_event_time_timer delete_processing_time_timer "
            "delete_event_time_timer get_partitioned_state"
        ),
        "WindowAssigner.WindowAssignerContext": "get_current_processing_time get_runtime_context",
    },
}

#: Members that Flink calls: a program that uses the class has them called without naming them.
CALLED_BY_FLINK = {
    *("assign_windows", "can_merge", "clear", "close", "get_default_trigger", "get_window_serializer"),
    *("is_event_time", "max_timestamp", "merge", "merge_windows", "on_element", "on_event_time"),
    *("on_merge", "on_processing_time", "open", "register_next_fire_timestamp"),
}

#: Names that no program compares, as patterns, by the reason.
NOT_COMPARED = {
    "settings: they are kept and given back, and tests of what they do are in tests/settings and "
    "tests/program": """
        common.configuration.Configuration* common.config_options.* common.execution_config.*
        common.restart_strategy.* datastream.checkpoint_config.* datastream.checkpoint_storage.*
        datastream.externalized_checkpoint_retention.* datastream.slot_sharing_group.*
        datastream.state_backend.* datastream.data_stream.*.set_uid_hash
        datastream.execution_mode.RuntimeExecutionMode.STREAMING
        datastream.stream_execution_environment.StreamExecutionEnvironment.[gis]*
        datastream.stream_execution_environment.StreamExecutionEnvironment.configure
        datastream.stream_execution_environment.StreamExecutionEnvironment.disable_operator_chaining
    """,
    "plain values, which do the same without a job: tests/api compares them with what PyFlink gave": """
        common.time.* common.types.* common.job_status.* common.typeinfo.*
        datastream.functions.AsyncFunctionDescriptor* datastream.window.CountWindow*
        datastream.window.GlobalWindow datastream.window.GlobalWindow.*
    """,
    "it says which files there are, and not which rows: tests/sinks/test_joined_files.py": """
        datastream.connectors.file_system.FileCompactStrategy*
    """,
    "it needs a broker: tests/connectors runs it with a real one": """
        datastream.connectors.kafka.* datastream.connectors.base.DeliveryGuarantee*
    """,
    "it has a row in docs/differences.md, because PyFlink's own fails or loses values": """
        common.job_client.JobClient.stop_with_savepoint common.job_client.JobClient.trigger_savepoint
        datastream.state.BroadcastState.put_all datastream.state.MapState.put_all
    """,
    "what others derive from, or are given as: nothing of it runs by itself": """
        common.completable_future.CompletableFuture.cancel datastream.async_retry_strategies.*
        common.serializer.* datastream.connectors.file_system.FileSink.RowFormatBuilder
        datastream.functions.AsyncRetryPredicate* datastream.state.AggregatingState
        datastream.state.OperatorStateStore* datastream.state.StateTtlConfig*
        datastream.window.MergingWindowAssigner* datastream.window.Trigger.*
        datastream.window.WindowAssigner* metrics.metricbase.Metric
    """,
    "PyFlink refuses them there, and so does this package: tests/program/test_stream_settings.py": """
        datastream.data_stream.KeyedStream.broadcast datastream.data_stream.KeyedStream.cache
        datastream.data_stream.KeyedStream.disable_chaining
        datastream.data_stream.KeyedStream.force_non_parallel datastream.data_stream.KeyedStream.forward
        datastream.data_stream.KeyedStream.get_name datastream.data_stream.KeyedStream.name
        datastream.data_stream.KeyedStream.partition_custom datastream.data_stream.KeyedStream.project
        datastream.data_stream.KeyedStream.rebalance datastream.data_stream.KeyedStream.rescale
        datastream.data_stream.KeyedStream.set_* datastream.data_stream.KeyedStream.shuffle
        datastream.data_stream.KeyedStream.slot_sharing_group
        datastream.data_stream.KeyedStream.start_new_chain datastream.data_stream.KeyedStream.uid
        datastream.data_stream.CachedDataStream.[dfgnsu]*
    """,
    "what it gives depends on the clock: tests/operators moves it by hand": """
        datastream.window.ProcessingTimeSessionWindows.with_dynamic_gap
        datastream.data_stream.*.allowed_lateness datastream.data_stream.*.side_output_late_data
        datastream.window.ContinuousProcessingTimeTrigger* datastream.window.DynamicProcessingTime*
        datastream.time_domain.TimeDomain.PROCESSING_TIME
        common.watermark_strategy.WatermarkStrategy.with_watermark_alignment
    """,
    "about how Flink runs a job: names of chained tasks, accumulators of Java, connections to clusters": """
        common.job_client.JobClient.get_accumulators
        common.job_execution_result.JobExecutionResult.get_accumulator_result
        datastream.functions.RuntimeContext.get_task_name*
        datastream.stream_execution_environment.StreamExecutionEnvironment.close
    """,
}


def parsed(covers: str) -> set[str]:
    """Return the names in a program's ``COVERS``; a line that begins with a space continues the one before.

    >>> sorted(parsed("datastream.state MapState: get\\n  put"))
    ['datastream.state.MapState', 'datastream.state.MapState.get', 'datastream.state.MapState.put']
    """
    names = set()
    for line in re.sub(r"\n\s+", " ", covers.strip()).splitlines():
        module, cls, *members = line.replace(":", "").split()
        names |= {f"{module}.{cls}", *(f"{module}.{cls}.{member}" for member in members)}
    return names


@cache
def covers_of(program: Path) -> set[str]:
    """Return the names that a program says it covers."""
    for statement in ast.parse(program.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "COVERS":
            return parsed(ast.literal_eval(statement.value))
    return set()


def unfounded(program: Path) -> list[str]:
    """Return what a program says it covers, although its text does not have the name."""
    text = program.read_text()
    words = set(re.findall(r"\w+", re.sub(r'COVERS = """.*?"""', "", text, flags=re.DOTALL)))
    claims = covers_of(program) - class_names()
    members = {name for name in claims if name.rpartition(".")[0] in class_names()}
    return sorted(name for name in members if name.rpartition(".")[2] not in words | CALLED_BY_FLINK)


def programs() -> list[Path]:
    """Return all programs that are compared with PyFlink."""
    return sorted(path for folder in FOLDERS for path in (SPARK / folder).glob("*.py"))


@cache
def names() -> tuple[str, ...]:
    """Return every public name that has no row among those that are not here."""
    return tuple(_names())


def _names() -> Iterator[str]:
    for full_name, classes in REFERENCE["modules"].items():
        module = full_name.removeprefix("pyflink.")
        for name, content in classes.items():
            inside = content["members"] if isinstance(content, dict) else ()
            for one in (name, *(f"{name}.{member}" for member in inside)):
                if row_of(Finding(module, one)) is None:
                    yield f"{module}.{one}"
    for module, inner in INNER.items():
        for cls, members in inner.items():
            yield from (f"{module}.{cls}.{member}" for member in members.split())


def left_out() -> list[str]:
    """Return the names that have a row among those that are not here."""
    return [
        f"{full_name.removeprefix('pyflink.')}.{one}"
        for full_name, classes in REFERENCE["modules"].items()
        for name, content in classes.items()
        for one in (name, *(f"{name}.{m}" for m in (content["members"] if isinstance(content, dict) else ())))
        if row_of(Finding(full_name.removeprefix("pyflink."), one)) is not None
    ]


@cache
def class_names() -> set[str]:
    """Return the names of all classes, with their modules."""
    outer = {
        f"{module.removeprefix('pyflink.')}.{name}"
        for module, classes in REFERENCE["modules"].items()
        for name, content in classes.items()
        if isinstance(content, dict)
    }
    return outer | {f"{module}.{cls}" for module, inner in INNER.items() for cls in inner}


@cache
def covered() -> set[str]:
    """Return the names that some program covers."""
    return set().union(*(covers_of(program) for program in programs()))


def why_not_compared(name: str) -> str | None:
    """Return the reason why no program compares a name; None if there is none."""
    for why, patterns in NOT_COMPARED.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return why
    return None


def uncovered() -> list[str]:
    """Return the names that no program covers, and for which no reason is given."""
    found = covered()
    return [name for name in names() if name not in found and why_not_compared(name) is None]


def report() -> str:
    """Return how many names there are of each kind."""
    everything, shown = list(names()), covered()
    rest = [name for name in everything if name not in shown]
    lines = [f"{len(everything) - len(rest):5} covered by {len(programs())} programs"]
    lines += [f"{len(left_out()):5} not here, with a row in docs/differences.md"]
    for why in NOT_COMPARED:
        lines.append(f"{sum(why_not_compared(name) == why for name in rest):5} {why}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(report())
    print(*uncovered(), sep="\n")
