"""Every error that pyflinkstate raises on purpose: one family, each also the built-in it is a kind of.

Whose fault it is decides the branch:

* the program asked for something impossible: :class:`ConfigurationError`, :class:`StateAccessError`;
* a record or a value is bad: :class:`BadRecordError`;
* the user's own code raised: :class:`UserFunctionError`;
* storage or a stored checkpoint is bad: :class:`CheckpointError`;
* a process or a machine failed: :class:`RuntimeFailure`.

Every error keeps what it was made with in ``context`` (names and values), and can be pickled, because
it travels from the process that found it to the driver.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn


class PyFlinkStateError(Exception):
    """The root of the family.

    Args:
        message: what was wrong and what to do.
        **context: the state, key, operator, file ... that the message speaks of.
    """

    #: Replaying the same records may end differently, so the restart strategy may try again.
    recoverable: ClassVar[bool] = False

    def __init__(self, message: str, **context: Any) -> None:
        super().__init__(message)
        self.message = message
        self.context = context

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.context)


def _rebuild(cls: type[PyFlinkStateError], message: str, context: dict[str, Any]) -> Any:
    return cls(message, **context)


class ConfigurationError(PyFlinkStateError, ValueError):
    """The job cannot run as it is set up."""


class ParallelismError(ConfigurationError):
    """A parallelism or max parallelism is out of bounds, or the two do not fit."""


class UnsupportedSessionError(ConfigurationError):
    """The Spark session is one on which the job cannot run, such as Spark Connect (no RDDs)."""


class UnsupportedFeatureError(ConfigurationError, NotImplementedError):
    """A part of Flink's API that this version does not run; refused rather than ignored."""


class StateAccessError(PyFlinkStateError, RuntimeError):
    """State was used where there is none."""


class NotKeyedStreamError(StateAccessError):
    """Keyed state was requested on a stream that is not keyed."""


class NoCurrentKeyError(StateAccessError):
    """Keyed state was used while no key was set, for example in ``open``."""


class ConcurrentModificationError(StateAccessError):
    """Keys or elements were added to, or removed from, what is being iterated over."""


class StateRegistrationError(PyFlinkStateError, ValueError):
    """A descriptor is wrong in itself, or its name is already in use with another kind or type."""


class StateMigrationError(StateRegistrationError):
    """Restored state has another kind, type or namespace type than the program asks for.

    Or it was pickled, and the program has its classes no more.
    """


class DescriptorTypeError(StateRegistrationError, TypeError):
    """A descriptor was given a function or type of the wrong Python type."""


class BadRecordError(PyFlinkStateError, ValueError):
    """A record, key or value that cannot be processed."""


class InvalidKeyError(BadRecordError):
    """A key that is None, NaN, unhashable, of the wrong type, or has no stable hash."""


class StateValueError(BadRecordError, TypeError):
    """A value that does not fit the declared type of its state."""


class KeyGroupRangeError(BadRecordError):
    """A key whose key group belongs to another subtask."""


class MalformedRecordError(BadRecordError):
    """A row of the input that cannot be parsed, under the policy ``fail``."""


class FunctionResultError(BadRecordError, TypeError):
    """A function returned what cannot be its results, such as a text in the place of a list of texts."""


class RowError(BadRecordError, TypeError):
    """A row that does not fit the schema of the DataFrame that it is for."""


class UserFunctionError(PyFlinkStateError, RuntimeError):
    """A user function raised; the message holds the operator, the key and the user's own traceback."""

    recoverable = True


class CheckpointError(PyFlinkStateError, RuntimeError):
    """A checkpoint could not be written or read."""


class CheckpointStorageError(CheckpointError, OSError):
    """The checkpoint storage refused: not writable, full, unreachable."""

    recoverable = True


class SnapshotCancelledError(CheckpointError):
    """The checkpoint was aborted while this snapshot was being written; nothing is left of it."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """There is no completed checkpoint where one was asked for."""


class CorruptCheckpointError(CheckpointError):
    """A file of a checkpoint is missing, truncated or altered."""


class IncompatibleCheckpointError(CheckpointError):
    """The checkpoint is whole, but of another job, format version, max parallelism or state type."""


class CheckpointFailuresExceededError(CheckpointError):
    """More checkpoints failed in a row than the job tolerates."""

    recoverable = True


class SourceError(PyFlinkStateError, OSError):
    """An input file cannot be read."""

    recoverable = True


class StreamingQueryError(SourceError):
    """The streaming query that a job follows has failed; a restart of the job would not start it again."""

    recoverable = False


class SinkError(PyFlinkStateError, OSError):
    """The output directory cannot take this job's output."""


class SinkStorageError(SinkError):
    """The storage of a sink refused: full, not writable, unreachable."""

    recoverable = True


class RuntimeFailure(PyFlinkStateError, RuntimeError):
    """A process, a connection or a Spark task failed; restarting from a checkpoint may help."""

    recoverable = True


class SlotLostError(RuntimeFailure, ConnectionError):
    """A state slot died or cannot be reached."""


class UntrustedConnectionError(RuntimeFailure, ConnectionError):
    """The other end of a connection is not who it should be, or what it sent was changed on the way."""


class StaleSlotError(RuntimeFailure):
    """A state slot is not at the version that the task expects."""


class SlotBusyError(RuntimeFailure):
    """Another task feeds the slot: a speculative copy, which Spark may let fail without harm."""


class SparkJobError(RuntimeFailure):
    """Spark failed the job of an epoch for a reason of its own."""


class SparkUnavailableError(RuntimeFailure):
    """The Spark application has ended, or cannot be reached any more."""

    recoverable = False


class DriverUnreachableError(RuntimeFailure):
    """The driver no longer takes connections of tasks and slots."""

    recoverable = False


class SlotMemoryError(RuntimeFailure, MemoryError):
    """A state slot holds more than it may, or than its host has left."""

    recoverable = False


class JobCancelledError(PyFlinkStateError, RuntimeError):
    """Somebody cancelled the job."""


class JobSupersededError(PyFlinkStateError, RuntimeError):
    """A newer driver has taken the job over: this one ends, and changes nothing any more."""


class ImpossibleEventError(PyFlinkStateError, RuntimeError):
    """A state machine of the runtime was told what cannot happen in its state: a fault of this package."""


class JobFailedError(PyFlinkStateError, RuntimeError):
    """The job failed, and its restart strategy allows no further attempt; ``__cause__`` is why."""


def assert_never(value: NoReturn) -> NoReturn:
    """Say that no case is left; type checkers see whether that is so."""
    raise ImpossibleEventError(f"nothing is known to do with {value!r}")
