"""One door for both ways."""

from __future__ import annotations

from collections.abc import Mapping

from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.state_access.checkpoint import open_checkpoint
from pyflinkstate.state_access.flink.arriving import edit_flink_savepoint
from pyflinkstate.state_access.flink.leaving import write_flink_savepoint

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
        opened = open_checkpoint(source)
        return write_flink_savepoint(opened, target, to, program=program, allow_pickle=allow_pickle)
    changed = edit_flink_savepoint(
        source,
        program=program,
        uids=uids,
        job_name=job_name,
        drop_unknown=drop_unknown,
        allow_pickle=allow_pickle,
    )
    return changed.write(target).uri
