"""Whether a program would restore a checkpoint, found out without running it.

What a restore checks is checked by the same code. The plan of the program is fitted to the checkpoint, and
each operator is opened on a backend that knows the checkpoint's states, without their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from pyflinkstate.api.safe_repr import short_repr
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    CheckpointMetadata,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorSubtaskState,
    StateFileHead,
    StateReader,
    StreamStateHandle,
)
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.master import Deployments, RestorePoint, fit
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.slots import SlotHost, SlotService
from pyflinkstate.runtime.wire import SlotId
from pyflinkstate.state_access.writing.bootstrapping import Bootstrap
from pyflinkstate.state_access.writing.drafts import OperatorDraft
from pyflinkstate.state_access.writing.saving import head_of, kept_states

Operator: TypeAlias = OperatorDraft | Bootstrap
#: There is only one.
ATTEMPT = 0


@attrs.frozen
class Mismatch:
    """Why a program would not restore an operator.

    Attributes:
        uid: the operator; None if it concerns the whole job.
        state: the state, if it is about one.
        message: what is wrong, as the restore would say it.
    """

    uid: str | None
    state: str | None
    message: str = attrs.field(repr=short_repr)


@attrs.frozen
class DryRun:
    """The result of trying a program against a checkpoint.

    Attributes:
        mismatches: why it would not restore it; empty if it would.
        new_operators: the operators of the program that would begin without state.
        restored: the operators that would get state back.
    """

    mismatches: tuple[Mismatch, ...] = attrs.field(repr=short_repr)
    new_operators: tuple[str, ...] = attrs.field(repr=short_repr)
    restored: tuple[str, ...] = attrs.field(repr=short_repr)

    @property
    def is_restorable(self) -> bool:
        """Whether the program would restore the checkpoint."""
        return not self.mismatches

    def __str__(self) -> str:
        if self.is_restorable:
            return f"the program would restore {', '.join(self.restored) or 'no operator'}"
        return "\n".join(f"{found.uid or 'the job'}: {found.message}" for found in self.mismatches)


def tried(
    metadata: CheckpointMetadata,
    operators: Mapping[str, Operator],
    reader: StateReader | None,
    program: Any,
    job_name: str | None,
) -> DryRun:
    """Try a program against a savepoint.

    Args:
        metadata: the savepoint, without operators.
        operators: its operators, by uid.
        reader: reads the files of operator state.
        program: the environment in which the program was built.
        job_name: the name with which it would be executed.

    Raises:
        ConfigurationError: the program has no sink, or is not an environment.
    """
    jobs = getattr(program, "jobs", None)
    if jobs is None:
        raise ConfigurationError(
            f"a StreamExecutionEnvironment with the program's streams and sinks is needed, not {program!r}"
        )
    plan, name = jobs.preview(job_name)
    trial = _Trial(plan, name, attrs.evolve(metadata, operators=()), operators, reader or _NoFiles())
    found = tuple(trial.mismatches())
    known = {operator.operator_id for operator in plan.operators}
    restored = tuple(uid for uid in operators if uid in known)
    return DryRun(found, tuple(sorted(known.difference(restored))), restored)


@attrs.frozen
class _Trial:
    plan: JobPlan
    job_name: str
    metadata: CheckpointMetadata
    operators: Mapping[str, Operator]
    reader: StateReader

    def mismatches(self) -> Iterator[Mismatch]:
        whole = self.metadata
        refused = self._fitted(whole)
        if isinstance(refused, str):
            yield Mismatch(None, None, refused)
            whole = attrs.evolve(whole, job_name=self.job_name)
        for uid, operator in self.operators.items():
            state = _without_values(operator)
            alone = attrs.evolve(whole, operators=(state,))
            fitted = self._fitted(alone)
            if isinstance(fitted, str):
                yield Mismatch(uid, None, fitted)
            elif not state.is_empty:
                yield from self._opened(uid, fitted, alone)

    def _fitted(self, metadata: CheckpointMetadata) -> JobPlan | str:
        """Return the plan as a restore fits it to a checkpoint, or why it refuses to."""
        try:
            return fit(self.plan, self.job_name, metadata, allow_non_restored_state=False)
        except PyFlinkStateError as error:
            return error.message

    def _opened(self, uid: str, fitted: JobPlan, metadata: CheckpointMetadata) -> Iterator[Mismatch]:
        """Restore and open the one operator of the metadata, as a slot does."""
        own = tuple(operator for operator in fitted.operators if operator.operator_id == uid)
        if own:
            error = _open(attrs.evolve(fitted, operators=own), uid, metadata, self.reader)
            if error is not None:
                yield Mismatch(uid, error.context.get("state"), error.message)


class _NoFiles:
    """Reads state from the handles; a seeded operator has no files yet."""

    def read(self, handle: StreamStateHandle, offset: int, length: int) -> bytes:
        assert isinstance(handle, ByteStreamStateHandle)
        return handle.data[offset : offset + length]

    def describe(self, handle: StreamStateHandle) -> str:
        return "the savepoint in the making"


def _open(
    plan: JobPlan, uid: str, metadata: CheckpointMetadata, reader: StateReader
) -> PyFlinkStateError | None:
    deployments = Deployments(plan, HashMapStateBackend(), None, False, None)
    deployments.begin_attempt(ATTEMPT, metadata.epoch, RestorePoint(metadata, ""))
    slot = SlotId(uid, 0)
    host = SlotHost(_ignore, _ignore, lambda: metadata.timestamp_ms, open_folder=lambda _: reader)
    service = SlotService(slot, ATTEMPT, host)
    return service.deploy(deployments.of(slot)) or service.close().error


def _ignore(_: object) -> None:
    """Ignore messages: nothing runs."""


def _without_values(operator: Operator) -> OperatorState:
    """Return an operator's state with only the names and types of its keyed states."""
    if isinstance(operator, Bootstrap):
        return operator.without_rows()
    head = head_of(operator)
    keyed = _head_only(head) if head.states else None
    written = operator.origin.subtasks or (OperatorSubtaskState(),)
    subtasks = [
        attrs.evolve(
            subtask,
            managed_keyed=keyed if number == 0 else None,
            managed_operator=kept_states(subtask.managed_operator, operator),
        )
        for number, subtask in enumerate(written)
    ]
    return attrs.evolve(
        operator.origin,
        operator_id=operator.uid,
        max_parallelism=head.max_parallelism,
        subtasks=tuple(subtasks),
    )


def _head_only(head: StateFileHead) -> KeyGroupsStateHandle:
    """Return the handle of a file with the states of a head and no key group of them."""
    sections: dict[str, dict[int, Any]] = {meta.name: {} for meta in head.states}
    return KeyGroupsStateHandle(head.key_group_range, ByteStreamStateHandle(head.encode()), sections)
