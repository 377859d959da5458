"""Tests of operators without Spark and without Java, on the real state backend.

A harness is one subtask of one operator. A test passes records, watermarks and the processing time to it,
checks the results, and can restore a snapshot at any parallelism. Names follow Flink's test harnesses.
``python -m pyflinkstate.testing`` shows it; ``docs/testing.md`` explains it.
"""

from pyflinkstate.runtime.wire import MAX_WATERMARK, NO_WATERMARK
from pyflinkstate.testing.harness import (
    ManualClock,
    OperatorHarness,
    OperatorSnapshot,
    SnapshotPart,
    StreamRecord,
    Watermark,
    split,
)
from pyflinkstate.testing.harnesses import (
    BroadcastOperatorHarness,
    CheckpointedOperatorHarness,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    OneInputOperatorHarness,
    TwoInputOperatorHarness,
    harness_of,
)
from pyflinkstate.testing.sinks import SinkContractError, check_sink

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
    "SinkContractError",
    "SnapshotPart",
    "StreamRecord",
    "TwoInputOperatorHarness",
    "Watermark",
    "check_sink",
    "harness_of",
    "split",
]
