"""The settings of a job, and its slots: what they run and restore, and whether a checkpoint fits."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.backends.format import CheckpointMetadata, StateAssignment
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.keys import check_parallelism, hash_has_changed, key_group_range
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.errors import IncompatibleCheckpointError
from pyflinkstate.runtime.master.observe import JobListener
from pyflinkstate.runtime.plan import JobPlan, SettledOperator
from pyflinkstate.runtime.queries import LiveSlots
from pyflinkstate.runtime.settings import (
    CheckpointSettings,
    ExternalizedCheckpointRetention,
    RestartStrategy,
    StopSettings,
)
from pyflinkstate.runtime.slots import ControlServer, SlotRegistry
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage
from pyflinkstate.runtime.tasks import DriverLink
from pyflinkstate.runtime.wire import (
    NO_WATERMARK,
    Clock,
    DeploySlot,
    SlotId,
    new_secret,
    pickled,
)


@attrs.frozen
class FlowSettings:
    """How records are read and sent on.

    Attributes:
        epochs_ahead: how many epochs may be read and shuffled before their turn: one or none.
        buffer_timeout_ms: how long records of a source that is read live may wait for more.
        latency_interval_ms: the interval of markers of latency; 0 for none.
    """

    epochs_ahead: int = 1
    buffer_timeout_ms: int = 0
    latency_interval_ms: int = 0


@attrs.frozen(kw_only=True)
class JobSettings:
    """The settings that the user made in the environment."""

    name: str
    checkpoints: CheckpointSettings
    restart: RestartStrategy
    listeners: tuple[JobListener, ...] = ()
    state_backend: HashMapStateBackend = attrs.Factory(HashMapStateBackend)
    #: By their ids: operators with another state backend.
    own_state_backends: dict[str, HashMapStateBackend] = attrs.Factory(dict)
    retention: ExternalizedCheckpointRetention | None = None
    allow_non_restored_state: bool = False
    fall_back: bool = False
    slot_memory_bytes: int | None = None
    job_parameters: dict[str, str] = attrs.Factory(dict)
    flow: FlowSettings = attrs.Factory(FlowSettings)
    #: Whether connections over TCP are encrypted.
    is_encrypted: bool = False
    #: The address of the web page, without its token; None if there is none.
    page: str | None = None
    stopping: StopSettings = attrs.Factory(StopSettings)


#: How long the engine may take to end the tasks of a failed attempt before their slots are cut off.
CUT_OFF_MS = 2_000


@attrs.frozen
class RestorePoint:
    """A completed checkpoint to start from, and the URI or path of its folder."""

    metadata: CheckpointMetadata
    uri: str
    #: Whether it is "the newest" and was not named explicitly.
    is_latest: bool = False


class Deployments:
    """Decides what each slot runs. It is fixed when an attempt begins; then any thread may ask."""

    def __init__(
        self,
        plan: JobPlan,
        state_backend: HashMapStateBackend,
        storage: FileSystemCheckpointStorage | None,
        incremental: bool,
        memory_bytes: int | None,
        job_parameters: dict[str, str] | None = None,
        own_state_backends: dict[str, HashMapStateBackend] | None = None,
    ) -> None:
        self._plan = plan
        self._state_backend = state_backend
        self._storage = storage
        self._incremental = incremental
        self._memory_bytes = memory_bytes
        self._job_parameters = job_parameters or {}
        self._own_state_backends = own_state_backends or {}
        self._functions = {op.operator_id: pickled(op.name, op.node.function) for op in plan.operators}
        self._slots: dict[SlotId, DeploySlot] = {}

    def begin_attempt(self, attempt: int, epoch: int, restore: RestorePoint | None) -> None:
        """Decide what the slots of ``attempt`` run from the end of ``epoch`` on."""
        self._slots = {
            SlotId(operator.operator_id, subtask): deployment
            for operator in self._plan.operators
            for subtask, deployment in enumerate(self._of_operator(operator, attempt, epoch, restore))
        }

    def slots(self) -> tuple[SlotId, ...]:
        """Return the slots of the attempt."""
        return tuple(self._slots)

    def of(self, slot: SlotId) -> DeploySlot:
        """Return the deployment of ``slot``."""
        return self._slots[slot]

    def _of_operator(
        self, operator: SettledOperator, attempt: int, epoch: int, restore: RestorePoint | None
    ) -> list[DeploySlot]:
        state = None if restore is None else restore.metadata.operator(operator.operator_id)
        watermarks = {} if restore is None else restore.metadata.watermarks
        assignments = [StateAssignment()] * operator.parallelism
        if state is not None:
            assignments = assign_state(
                state.subtasks, operator.parallelism, operator.max_parallelism, operator.node.key_type
            )
        return [
            DeploySlot(
                name=operator.name,
                function=self._functions[operator.operator_id],
                key_type=operator.node.key_type,
                key_group_range=key_group_range(operator.max_parallelism, operator.parallelism, subtask),
                max_parallelism=operator.max_parallelism,
                parallelism=operator.parallelism,
                attempt=attempt,
                epoch=epoch,
                storage=self._storage,
                state_backend=self._own_state_backends.get(operator.operator_id, self._state_backend),
                restored_checkpoint_id=None
                if restore is None or state is None
                else restore.metadata.checkpoint_id,
                restore_uri=None if restore is None or state is None else restore.uri,
                state=assignment,
                incremental=self._incremental,
                memory_bytes=self._memory_bytes,
                watermark=watermarks.get(operator.operator_id, NO_WATERMARK),
                job_parameters=self._job_parameters,
            )
            for subtask, assignment in enumerate(assignments)
        ]


#: Makes the driver's end of all connections, from the job's secret, its mailbox and what tells deployments.
ControlFactory = Callable[[bytes, "queue.SimpleQueue[Any]", Callable[[SlotId], DeploySlot]], ControlServer]


class JobSlots:
    """The driver's end of a job's slots. Other threads may ask for pids, and for the slots that are live.

    ``control`` is the endpoint to which tasks and slots connect, once it is open, and ``registry`` knows the
    slots of this attempt.

    Args:
        make_control: makes the endpoint to which tasks and slots connect.
        deployments: decides what slots run.
        clock: tells the time.
        job_parameters: what tasks are told.
        is_encrypted: whether connections over TCP are encrypted.
    """

    control: ControlServer

    def __init__(
        self,
        make_control: ControlFactory,
        deployments: Deployments,
        clock: Clock,
        job_parameters: dict[str, str],
        is_encrypted: bool,
    ) -> None:
        self.deployments = deployments
        self._make_control = make_control
        self._clock = clock
        self._job_parameters = job_parameters
        self._secret = new_secret(is_encrypted)
        self.registry = SlotRegistry(0)
        #: When to cut off the slots, if what the engine runs is being cancelled and they are still there.
        self._cut_off_at_ms: int | None = None

    def open(self, mailbox: queue.SimpleQueue[object]) -> None:
        """Listen for tasks and slots, whose messages go to the mailbox."""
        self.control = self._make_control(self._secret, mailbox, self.deployments.of)

    def link(self) -> DriverLink:
        """Return how a task of this attempt reaches the driver."""
        return DriverLink(self.control.address, self._secret, self.registry.attempt, self._job_parameters)

    def live(self, epoch: int) -> LiveSlots:
        """Return the slots, which stand after ``epoch``, for a question to their state."""
        registry = self.registry
        return LiveSlots(registry.attempt, epoch, registry.addresses(), self._secret)

    def tell_all(self, message: object) -> None:
        """Send a message to all slots that run."""
        for slot in self.deployments.slots():
            self.registry.send(slot, message)

    def cut_off_later(self) -> None:
        """Cut off the slots when the engine has ended its tasks, or has had a moment to do so.

        Otherwise each task would fail because its slot is gone, and Spark would log each failure.
        """
        self._cut_off_at_ms = self._clock.monotonic_ms() + CUT_OFF_MS

    def cut_off(self, if_due: bool = False) -> None:
        """Cut off the slots if that is to be done, with ``if_due`` only if the moment is over."""
        at_ms = self._cut_off_at_ms
        if at_ms is not None and not (if_due and self._clock.monotonic_ms() < at_ms):
            self._cut_off_at_ms = None
            self.registry.end()


def fit(
    plan: JobPlan, job_name: str, metadata: CheckpointMetadata, allow_non_restored_state: bool
) -> JobPlan:
    """Check that a checkpoint belongs to this job, and take over its max parallelisms.

    Raises:
        IncompatibleCheckpointError: it belongs to another job, or state would be lost without the user's
            consent.
    """
    where = f"checkpoint {metadata.checkpoint_id} of job {metadata.job_id}"
    if metadata.job_name != job_name:
        raise IncompatibleCheckpointError(
            f"{where} belongs to job {metadata.job_name!r}, not to {job_name!r}: choose the checkpoint or "
            f"the job name that belongs to this program"
        )
    known = {operator.operator_id for operator in plan.operators}
    for state in metadata.operators:
        if state.operator_id not in known and not state.is_empty and not allow_non_restored_state:
            raise IncompatibleCheckpointError(
                f"{where} has state of operator {state.operator_id!r}, which the program does not have "
                f"(it has {', '.join(sorted(known)) or 'none'}): set uid() so that operators are found "
                f"again, or give up the state with allow_non_restored_state=True"
            )
    for operator in plan.operators:
        _check_raw_state(operator, metadata, where)
    return attrs.evolve(
        plan, operators=tuple(_with_max_parallelism(operator, metadata, where) for operator in plan.operators)
    )


def _check_raw_state(operator: SettledOperator, metadata: CheckpointMetadata, where: str) -> None:
    """Refuse raw keyed state whose keys have moved: only the function knows which keys are in a key group."""
    state = metadata.operator(operator.operator_id)
    handles = () if state is None else tuple(subtask.raw_keyed for subtask in state.subtasks)
    for handle in handles:
        if handle is not None and hash_has_changed(operator.node.key_type, handle.key_hash_version):
            raise IncompatibleCheckpointError(
                f"{where}: operator {operator.operator_id!r} has raw keyed state, and keys of "
                f"{operator.node.key_type} were in other key groups when it was written: it cannot be "
                f"assigned again. Let the version that wrote it move it to managed state and take "
                f"a savepoint",
                operator=operator.operator_id,
            )


def _with_max_parallelism(
    operator: SettledOperator, metadata: CheckpointMetadata, where: str
) -> SettledOperator:
    state = metadata.operator(operator.operator_id)
    if state is None or state.is_empty or state.max_parallelism == operator.max_parallelism:
        return operator
    if operator.max_parallelism_is_set:
        raise IncompatibleCheckpointError(
            f"{where}: operator {operator.operator_id!r} has max parallelism {state.max_parallelism}, "
            f"and the program sets {operator.max_parallelism}: it cannot change once there is state"
        )
    check_parallelism(operator.parallelism, state.max_parallelism)
    return attrs.evolve(operator, max_parallelism=state.max_parallelism)
