"""Tests of operators without Spark and without Java, on the real state backend.

A harness is one subtask of one operator. A test passes records, watermarks and the processing time to it,
checks the results, and can restore a snapshot at any parallelism. Names follow Flink's test harnesses.
``python -m pyflinkstate.testing`` shows it; ``docs/testing.md`` explains it.
"""

from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK
from pyflinkstate.testing.chain_harness import OneInputOperatorHarness
from pyflinkstate.testing.harnesses import (
    BroadcastOperatorHarness,
    CheckpointedOperatorHarness,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    TwoInputOperatorHarness,
)
from pyflinkstate.testing.manual_clock import ManualClock
from pyflinkstate.testing.operator_harness import OperatorHarness
from pyflinkstate.testing.output import StreamRecord, Watermark
from pyflinkstate.testing.snapshots import OperatorSnapshot, SnapshotPart, split
from pyflinkstate.testing.stream_harness import harness_of

__all__ = [
    "MAX_WATERMARK",
    "NO_WATERMARK",
    "BroadcastOperatorHarness",
    "CheckpointedOperatorHarness",
    "KeyedOneInputOperatorHarness",
    "KeyedTwoInputOperatorHarness",
    "ManualClock",
    "OneInputOperatorHarness",
    "OperatorHarness",
    "OperatorSnapshot",
    "SnapshotPart",
    "StreamRecord",
    "TwoInputOperatorHarness",
    "Watermark",
    "harness_of",
    "split",
]
