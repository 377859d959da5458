"""All errors that pyflinkstate raises on purpose: one family; each also derives from a built-in error.

The branch of the family says whose fault it is:

* the program asked for something impossible: :class:`ConfigurationError`, :class:`StateAccessError`;
* a record or a value is bad: :class:`BadRecordError`;
* the user's own code raised: :class:`UserFunctionError`;
* storage or a stored checkpoint is bad: :class:`CheckpointError`;
* a process or a machine failed: :class:`RuntimeFailure`.

Every error keeps names and values in ``context``, and can be pickled, because it travels from the process
that raised it to the driver.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, NoReturn


class PyFlinkStateError(Exception):
    """The root of the family.

    Args:
        message: what was wrong and what to do.
        **context: the state, key, operator, file and so on that the message is about.
    """

    #: Whether replaying the same records may succeed, so that the restart strategy may try again.
    recoverable: ClassVar[bool] = False

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.message, **self.context), ()


class ConfigurationError(PyFlinkStateError, ValueError):
    """The job cannot run as it is set up."""


class ParallelismError(ConfigurationError):
    """A parallelism or max parallelism is out of bounds, or the two do not go together."""


class UnsupportedSessionError(ConfigurationError):
    """The job cannot run on this Spark session, for example because Spark Connect has no RDDs."""


class PackageMismatchError(UnsupportedSessionError):
    """An executor has another version of this package than the driver, or lacks one of its dependencies."""


class UnsupportedFeatureError(ConfigurationError, NotImplementedError):
    """This version does not run a part of Flink's API, and refuses it rather than ignoring it."""


class StateAccessError(PyFlinkStateError, RuntimeError):
    """State was used where it is not available."""


class NotKeyedStreamError(StateAccessError):
    """Keyed state was requested on a stream that is not keyed."""


class NoCurrentKeyError(StateAccessError):
    """Keyed state was used while no key was set, for example in ``open``."""


class ConcurrentModificationError(StateAccessError):
    """Keys or elements were added or removed during an iteration over them."""


class StateRegistrationError(PyFlinkStateError, ValueError):
    """A descriptor is wrong in itself, or its name is already in use with another kind or type."""


class StateMigrationError(StateRegistrationError):
    """Restored state has another kind, type or namespace type than the program asks for.

    Or it was pickled, and the program no longer has its classes.
    """


class DescriptorTypeError(StateRegistrationError, TypeError):
    """A descriptor was given a function or type of the wrong Python type."""


class BadRecordError(PyFlinkStateError, ValueError):
    """A record, key or value cannot be processed."""


class InvalidKeyError(BadRecordError):
    """A key is None, NaN, unhashable or of the wrong type, or has no stable hash."""


class StateValueError(BadRecordError, TypeError):
    """A value does not fit the declared type of its state."""


class KeyGroupRangeError(BadRecordError):
    """The key group of a key belongs to another subtask."""


class MalformedRecordError(BadRecordError):
    """A row of the input cannot be parsed, and the policy is ``fail``."""


class FunctionResultError(BadRecordError, TypeError):
    """A function returned a value that cannot be its results, such as a string instead of a list."""


class RowError(BadRecordError, TypeError):
    """A row does not fit the schema of its DataFrame."""


class UserFunctionError(PyFlinkStateError, RuntimeError):
    """A user function raised; the message holds the operator, the key and the user's own traceback."""

    recoverable = True


class CheckpointError(PyFlinkStateError, RuntimeError):
    """A checkpoint could not be written or read."""


class CheckpointStorageError(CheckpointError, OSError):
    """The checkpoint storage failed: it is not writable, full or unreachable."""

    recoverable = True


class SnapshotCancelledError(CheckpointError):
    """The checkpoint was aborted while this snapshot was being written; no file of it is left."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no completed checkpoint at the given place."""


class CorruptCheckpointError(CheckpointError):
    """A file of a checkpoint is missing, truncated or altered."""


class IncompatibleCheckpointError(CheckpointError):
    """The checkpoint is intact, but has another job, format version, max parallelism or state type."""


class UnknownOperatorError(CheckpointError, LookupError):
    """A checkpoint or a job has no operator with this uid; the message names those that it has."""


class UnknownStateError(CheckpointError, LookupError):
    """An operator has no state of this name; the message names those that it has."""


class PickledStateError(CheckpointError, PermissionError):
    """Pickled state would have to be loaded, which runs code, and the caller has not allowed it."""


class StateTableError(CheckpointError, ValueError):
    """State cannot be shown as the table that was asked for."""


class CheckpointFailuresExceededError(CheckpointError):
    """More checkpoints failed in a row than the job tolerates."""

    recoverable = True


class SourceError(PyFlinkStateError, OSError):
    """An input file cannot be read."""

    recoverable = True


class StreamingQueryError(SourceError):
    """The streaming query that a job reads has failed; restarting the job would not restart the query."""

    recoverable = False


class SinkError(PyFlinkStateError, OSError):
    """The output directory cannot be used for this job's output, or the program cannot take its results."""


class SinkStorageError(SinkError):
    """The storage of a sink failed: it is full, not writable or unreachable. Or a sink of your own failed."""

    recoverable = True


class StateQueryError(PyFlinkStateError, RuntimeError):
    """A question to live state cannot be answered: the job is over, a slot died, or too many are open."""


class StateQueryTimeoutError(StateQueryError, TimeoutError):
    """A question to live state was not answered in time; the message says what it was waiting for."""


class RuntimeFailure(PyFlinkStateError, RuntimeError):
    """A process, a connection or a Spark task failed; restarting from a checkpoint may help."""

    recoverable = True


class SlotLostError(RuntimeFailure, ConnectionError):
    """A state slot died or cannot be reached."""


class EpochBrokenOffError(SlotLostError):
    """An epoch was broken off because something else has failed, which is told instead if it is known."""


class UntrustedConnectionError(RuntimeFailure, ConnectionError):
    """The peer of a connection is not the expected one, or its data was changed on the way."""


class StaleSlotError(RuntimeFailure):
    """The state of a slot is not at the epoch that the task expects."""


class SlotBusyError(RuntimeFailure):
    """Another task feeds the slot. A speculative copy gets this error and waits until the slot is free."""


class SparkJobError(RuntimeFailure):
    """Spark itself failed the job of an epoch."""


class SparkUnavailableError(RuntimeFailure):
    """The Spark application has ended, or can no longer be reached."""

    recoverable = False


class DriverUnreachableError(RuntimeFailure):
    """The driver no longer accepts connections from tasks and slots."""

    recoverable = False


class SlotMemoryError(RuntimeFailure, MemoryError):
    """A state slot uses more memory than it may, or than its host has left."""

    recoverable = False


class StateStorageError(RuntimeFailure, OSError):
    """The local disk with the state that is not in memory failed: it is full, or not writable."""


class JobCancelledError(PyFlinkStateError, RuntimeError):
    """The job was cancelled."""


class JobSupersededError(PyFlinkStateError, RuntimeError):
    """A newer driver has taken the job over; this driver ends and changes nothing any more."""


class ImpossibleEventError(PyFlinkStateError, RuntimeError):
    """A state machine of the runtime got an event that is impossible in its state: a bug in this package."""


class JobFailedError(PyFlinkStateError, RuntimeError):
    """The job failed, and its restart strategy allows no further attempt; ``__cause__`` is the reason."""


def assert_never(value: NoReturn) -> NoReturn:
    """Mark a branch that no case reaches, which type checkers verify."""
    raise ImpossibleEventError(f"an unexpected value, {value!r}: this is a bug in pyflinkstate")
