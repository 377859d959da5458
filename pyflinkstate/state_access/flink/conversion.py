"""One door for both ways, and what runs and reads on the other side of it."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

import pyarrow as pa

from pyflinkstate.errors import CheckpointError, PyFlinkStateError
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.storage import AnyPath, child_uri, open_file_system, parent_uri
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.flink.arriving import edit_flink_savepoint
from pyflinkstate.state_access.flink.leaving import check_for_flink, write_flink_savepoint
from pyflinkstate.state_access.flink.opened import FlinkSavepoint
from pyflinkstate.state_access.writing import new_savepoint

#: The name of this project's own savepoints.
HERE = "pyflinkstate"


def convert_savepoint(
    source: AnyPath,
    target: AnyPath,
    to: str = HERE,
    *,
    program: object = None,
    uids: Mapping[str, str] | None = None,
    job_name: str | None = None,
    drop_unknown: bool = False,
    allow_pickle: bool = False,
) -> str:
    """Write a savepoint of Flink as one of this project, or the other way round, and return its URI.

    Args:
        source: a savepoint of Flink, canonical or native of the heap backend; or a checkpoint or savepoint of
            this project.
        target: a folder that does not exist, or is empty.
        to: ``pyflinkstate`` to restore it here; ``flink`` for a job in Java, ``flink-process`` or
            ``flink-thread`` for one of PyFlink in process or thread mode.
        program: the ``StreamExecutionEnvironment`` in which the program was built here and not yet executed.
        uids, job_name, drop_unknown: for a savepoint of Flink, see :func:`edit_flink_savepoint`.
        allow_pickle: load pickled keys, which runs code, if they are not plain values.

    Raises:
        PyFlinkStateError: see :func:`edit_flink_savepoint` and :func:`write_flink_savepoint`.
    """
    if to != HERE:
        return write_flink_savepoint(
            open_checkpoint(source), target, to, program=program, allow_pickle=allow_pickle
        )
    changed = edit_flink_savepoint(
        source,
        program=program,
        uids=uids,
        job_name=job_name,
        drop_unknown=drop_unknown,
        allow_pickle=allow_pickle,
    )
    return changed.write(target).uri


def savepoint_rewriter(plan: JobPlan, job_name: str, to: str) -> Callable[[str], str]:
    """Return what writes a savepoint of a running job for Flink, beside it and in place of it.

    It gets the URI of the one and returns that of the other. It raises a ``CheckpointError``, and the first
    one stays, if the other cannot be written.

    Raises:
        ConfigurationError: Flink cannot keep a state of the program, or ``to`` is not a format.
    """
    check_for_flink(plan, new_savepoint(job_name).metadata, to)

    def rewritten(uri: str) -> str:
        parent, name = parent_uri(uri)
        target = child_uri(parent, f"{name}-{to}")
        try:
            write_flink_savepoint(open_checkpoint(uri), target, to, program=plan, allow_pickle=True)
        except PyFlinkStateError as error:
            raise CheckpointError(
                f"savepoint {uri} is complete, but is not written for Flink (pyflinkstate convert does it as "
                f"well): {error}",
                savepoint=uri,
            ) from error
        file_system, folder = open_file_system(uri)
        with suppress(OSError, pa.ArrowException):
            file_system.delete_dir(folder)
        return target

    return rewritten


def open_flink_savepoint(path: AnyPath, clock: Callable[[], int]) -> Checkpoint:
    """Open a savepoint of Flink, converted into a temporary folder that is deleted with the result.

    Operators have the uids that the savepoint names, or else their ids (32 hexadecimal digits).
    """
    operators = FlinkSavepoint.open(path).content.operators
    uids = {one.id.hex(): one.uid or one.id.hex() for one in operators}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyflinkstate-"))
        opened = edit_flink_savepoint(path, uids=uids, clock=clock).write(folder)
        weakref.finalize(opened.reader, stack.pop_all().close)  # its tables read it, too
    return opened
