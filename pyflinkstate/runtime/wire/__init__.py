"""Everything that travels between processes: frames, messages, watermarks, metrics, and their channels."""

from pyflinkstate.api import MAX_WATERMARK as MAX_WATERMARK, NO_WATERMARK as NO_WATERMARK
from pyflinkstate.runtime.wire.channel import Channel as Channel
from pyflinkstate.runtime.wire.failures import (
    TASK_ENDS as TASK_ENDS,
    NoRecord as NoRecord,
    errors_as as errors_as,
    failures_of as failures_of,
    spark_cause as spark_cause,
    told_by_spark as told_by_spark,
    user_failure as user_failure,
)
from pyflinkstate.runtime.wire.frames import (
    ColumnBatch as ColumnBatch,
    FrameCutter as FrameCutter,
    FrameKey as FrameKey,
    InputFrame as InputFrame,
    OutputSteps as OutputSteps,
    ValuesFrame as ValuesFrame,
    decode_values as decode_values,
    encoded_frames as encoded_frames,
    frames_of as frames_of,
)
from pyflinkstate.runtime.wire.handshake import HandshakeLimits as HandshakeLimits
from pyflinkstate.runtime.wire.kept import KEPT as KEPT
from pyflinkstate.runtime.wire.messages import (
    AbortCheckpoint as AbortCheckpoint,
    AcquireSlot as AcquireSlot,
    AnswerEnded as AnswerEnded,
    AskState as AskState,
    BeginEpoch as BeginEpoch,
    CancelJob as CancelJob,
    CheckpointAck as CheckpointAck,
    CheckpointDecline as CheckpointDecline,
    CheckpointTrigger as CheckpointTrigger,
    CloseSlot as CloseSlot,
    DeploySlot as DeploySlot,
    DumpThreads as DumpThreads,
    EpochAccepted as EpochAccepted,
    EpochDone as EpochDone,
    EpochFailed as EpochFailed,
    EpochRefused as EpochRefused,
    Heartbeat as Heartbeat,
    HeartbeatSettings as HeartbeatSettings,
    NotifyCheckpointComplete as NotifyCheckpointComplete,
    PackageCopy as PackageCopy,
    QuestionRefused as QuestionRefused,
    RegisterSlot as RegisterSlot,
    SlotAvailable as SlotAvailable,
    SlotClosed as SlotClosed,
    SlotFailed as SlotFailed,
    SlotId as SlotId,
    SlotOutput as SlotOutput,
    SlotReady as SlotReady,
    SlotReport as SlotReport,
    SlotUnavailable as SlotUnavailable,
    StartSlot as StartSlot,
    StateFrozen as StateFrozen,
    StateMaterialized as StateMaterialized,
    SubtaskStatus as SubtaskStatus,
    TaskReport as TaskReport,
    VertexReport as VertexReport,
    WakeUp as WakeUp,
)
from pyflinkstate.runtime.wire.metrics import (
    SIDE_OUTPUT as SIDE_OUTPUT,
    MetricValue as MetricValue,
    MetricValues as MetricValues,
    OperatorMetrics as OperatorMetrics,
    added_up as added_up,
    side_output_count as side_output_count,
)
from pyflinkstate.runtime.wire.pickling import (
    ShippedFunction as ShippedFunction,
    dumps as dumps,
    dumps_by_value as dumps_by_value,
    loads as loads,
    pickled as pickled,
    unshipped as unshipped,
)
from pyflinkstate.runtime.wire.time import (
    LOOK_EVERY_S as LOOK_EVERY_S,
    ChannelEvent as ChannelEvent,
    Clock as Clock,
    EventTimeProgress as EventTimeProgress,
    FrameTime as FrameTime,
    SystemClock as SystemClock,
    TaskTime as TaskTime,
    WatermarkMerger as WatermarkMerger,
    joined as joined,
    next_of as next_of,
    result_of as result_of,
    steady as steady,
    take as take,
    wait_for as wait_for,
)
from pyflinkstate.runtime.wire.tls import new_secret as new_secret
from pyflinkstate.runtime.wire.transport import (
    DRIVER as DRIVER,
    Address as Address,
    Server as Server,
    ServerName as ServerName,
    connect as connect,
    listen_near_and_far as listen_near_and_far,
    listen_on_tcp as listen_on_tcp,
    listen_on_unix as listen_on_unix,
)
