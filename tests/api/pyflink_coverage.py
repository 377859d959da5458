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
from pathlib import Path

from pyflink_surface import REFERENCE, Finding, row_of

SPARK = Path(__file__).parents[1] / "spark"
FOLDERS = ("async_programs", "features", "names")

#: Members of classes inside of others, which the list of names has not: PyFlink 2.3's, as ``vars`` shows them.
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
CALLED_BY_FLINK = frozenset(
    """
    assign_windows can_merge clear get_default_trigger get_window_serializer is_event_time max_timestamp
    merge_windows on_element on_event_time on_merge on_processing_time register_next_fire_timestamp
    merge open close
    """.split()
)
