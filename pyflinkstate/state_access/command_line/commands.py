"""The commands of the command line. Each returns whether it found something to report."""

from __future__ import annotations

import importlib
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from pyflinkstate.api import JsonObject, Key, TypeInformation
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateTableError,
    UnknownOperatorError,
)
from pyflinkstate.runtime.storage import CheckpointFolders, history_of, is_flink_savepoint
from pyflinkstate.state_access.checkpoint import (
    Checkpoint,
    history as key_history,
    jobs_at,
    locate,
    open_checkpoint,
    retained,
    verify as check,
)
from pyflinkstate.state_access.command_line.output import (
    Printer,
    date_of,
    exported,
    file_names,
    parsed_key,
    readable_row,
    readable_rows,
    state_names,
    told_apart,
)
from pyflinkstate.state_access.differences import diff as compare
from pyflinkstate.state_access.flink.opened import FlinkSavepoint
from pyflinkstate.state_access.tables import StateTable

if TYPE_CHECKING:
    from pyflinkstate.state_access.writing import CheckpointEdit


def ui(chosen: Namespace, _: Printer) -> bool:
    """Show jobs on a web page. The room is imported here, because no other command needs it."""
    importlib.import_module("pyflinkstate.monitor").show_jobs(chosen.path, chosen.port, chosen.host)
    return False


def ls(chosen: Namespace, printer: Printer) -> bool:
    """List the checkpoints of a folder, also those that cannot be read any more."""
    storage, job_ids = jobs_at(chosen.dir)
    rows = [row for job_id in job_ids for row in _listed_of(storage, job_id)]
    if not rows:
        rows = [_listed(locate(chosen.dir)[0], "completed")]  # a savepoint, or an error
    printer.table(f"checkpoints in {chosen.dir}", rows, times=("timestamp_ms",))
    return False


def _listed_of(storage: CheckpointFolders, job_id: str) -> Iterator[JsonObject]:
    """Yield a row for each complete checkpoint of a job, and for each that was set aside."""
    completed = storage.completed(job_id)
    found = {number: _loaded(storage, storage.uri_of(job_id, number)) for number in completed}
    line = _newest_line(
        storage, job_id, [one for one in found.values() if isinstance(one, CheckpointMetadata)]
    )
    for number, one in found.items():
        status = "completed" if number in line else "not in the newest line"
        yield from _rows_of(job_id, number, one, status)
    for uri in storage.superseded(job_id):
        yield from _rows_of(job_id, None, _loaded(storage, uri), "superseded")


def _newest_line(
    storage: CheckpointFolders, job_id: str, readable: Sequence[CheckpointMetadata]
) -> Container[int]:
    """Return the readable checkpoints that led to the newest readable one, in order."""
    line = storage.line(job_id)
    for newest in reversed(readable):
        if line.holds(history_of(newest), newest.epoch):
            line = history_of(newest)
            older = [one for one in readable if one.checkpoint_id <= newest.checkpoint_id]
            return [one.checkpoint_id for one in older if line.holds(history_of(one), one.epoch)]
    return ()


def _loaded(storage: CheckpointFolders, uri: str) -> CheckpointMetadata | CheckpointError | None:
    """Return a checkpoint, the reason why it cannot be read, or None if it is not there or not complete."""
    try:
        return storage.load(uri)
    except CheckpointNotFoundError:
        return None
    except (CorruptCheckpointError, IncompatibleCheckpointError) as error:
        return error


def _rows_of(
    job_id: str, number: int | None, found: CheckpointMetadata | CheckpointError | None, status: str
) -> Iterator[JsonObject]:
    """Yield the row of a checkpoint; if it cannot be read, ``verify`` says why."""
    if isinstance(found, CheckpointMetadata):
        yield _listed(found, status)
    elif found is not None:
        is_damaged = isinstance(found, CorruptCheckpointError)
        yield {
            "job_id": job_id,
            "job_name": None,
            "checkpoint": number,
            "epoch": None,
            "timestamp_ms": None,
            "size_bytes": None,
            "status": "damaged" if is_damaged else "of another format version",
        }


def _listed(metadata: CheckpointMetadata, status: str) -> JsonObject:
    sizes = [subtask.size_bytes for operator in metadata.operators for subtask in operator.subtasks]
    return {
        "job_id": metadata.job_id,
        "job_name": metadata.job_name,
        "checkpoint": metadata.checkpoint_id,
        "epoch": metadata.epoch,
        "timestamp_ms": metadata.timestamp_ms,
        "size_bytes": sum(sizes),
        "status": status,
    }


def _opened(path: str, printer: Printer) -> Checkpoint:
    """Open a checkpoint whose reading is shown."""
    checkpoint = open_checkpoint(path)
    checkpoint.reader.on_read = printer.progress.advance
    return checkpoint


def show(chosen: Namespace, printer: Printer) -> bool:
    """Show a checkpoint, an operator, or rows of a state."""
    if chosen.state is None and chosen.key is None and is_flink_savepoint(chosen.path):
        _show_flink(chosen, printer)
        return False
    checkpoint = _opened(chosen.path, printer)
    if chosen.uid is None:
        if chosen.state is not None or chosen.key is not None:
            raise UnknownOperatorError("--state and --key need an operator: name its uid after the path")
        _show_checkpoint(checkpoint, printer)
    elif chosen.state is None and chosen.key is None:
        rows = [attrs.asdict(state) for state in checkpoint.states(chosen.uid)]
        printer.table(f"states of {chosen.uid}", rows)
    else:
        _show_rows(checkpoint, chosen, printer)
    return False


def _show_flink(chosen: Namespace, printer: Printer) -> None:
    """Show the operators of a savepoint of Flink, or the states of one."""
    savepoint = FlinkSavepoint.open(chosen.path)
    if chosen.uid is None:
        printer.table(chosen.path, savepoint.operators())
    else:
        printer.table(f"states of {chosen.uid}", savepoint.states(chosen.uid))


def _show_checkpoint(checkpoint: Checkpoint, printer: Printer) -> None:
    facts = attrs.asdict(checkpoint.offsets())
    operators = facts.pop("operators")
    if printer.as_json:
        printer.value({**facts, "uri": checkpoint.uri, "operators": operators})
        return
    facts = {"timestamp": date_of(facts.pop("timestamp_ms")), **facts}
    printer.table(checkpoint.uri, [{"": name, " ": value} for name, value in facts.items()])
    printer.table("operators", operators)


def _show_rows(checkpoint: Checkpoint, chosen: Namespace, printer: Printer) -> None:
    keys = None
    if chosen.key is not None:
        keys = [parsed_key(chosen.key, checkpoint.keyed_state(chosen.uid).key_type)]
    table = _rows_in(
        checkpoint,
        chosen.uid,
        chosen.state,
        keys,
        with_expired=chosen.with_expired,
        allow_pickle=chosen.allow_pickle,
    )
    rows = readable_rows(table, chosen.limit + 1)
    printer.table(f"{chosen.uid} {chosen.state or ''}".strip(), rows[: chosen.limit])
    if len(rows) > chosen.limit:
        printer.note(f"  there are more rows: --limit is {chosen.limit}")


#: DuckDB fetches and loads no extension by itself, and does not take variables of this program for tables.
_LOCKED = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}


def sql(chosen: Namespace, printer: Printer) -> bool:
    """Ask SQL, with a table for each operator and state."""
    checkpoint = _opened(chosen.path, printer)
    if chosen.query is None:
        rows: list[JsonObject] = [
            {"table": name, "uid": uid, "state": state or "(all, a row a key)"}
            for name, (uid, state) in _sql_tables(checkpoint).items()
        ]
        printer.table("tables", rows)
    else:
        rows = _answered(checkpoint, chosen.query, chosen.allow_pickle, chosen.allow_files)
        printer.table("result", rows)
    return False


def _answered(checkpoint: Checkpoint, query: str, allow_pickle: bool, allow_files: bool) -> list[JsonObject]:
    """Return the rows of a query. Only the tables whose names are in it are read.

    Raises:
        ConfigurationError: DuckDB is not installed.
        StateTableError: DuckDB refuses the query, the query fails, or two of its columns have one name.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ConfigurationError(
            "SQL over checkpoints needs DuckDB: pip install 'pyflinkstate[sql]'"
        ) from error
    tables = _sql_tables(checkpoint)
    with duckdb.connect(config={**_LOCKED, "enable_external_access": allow_files}) as connection:
        for name, (uid, state) in tables.items():
            if re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE):
                _rows_in(checkpoint, uid, state, allow_pickle=allow_pickle).to_duckdb(connection, name)
        try:
            connection.execute("SET lock_configuration = true")  # a query cannot undo the settings
            found = connection.sql(query)
            if found is None:  # a statement without rows
                return []
            names, rows = told_apart(found.columns), found.fetchall()
        except duckdb.Error as error:
            files = "" if allow_files else ", and files need --allow-files"
            raise StateTableError(f"{error}; the tables are {', '.join(tables)}{files}") from error
    return [dict(zip(names, row, strict=True)) for row in rows]


def _sql_tables(checkpoint: Checkpoint) -> dict[str, tuple[str, str | None]]:
    """Return the operator and state of each table; the state is None if the table has a row for each key."""
    named: dict[str, tuple[str, str | None]] = {}
    for operator in checkpoint.operators():
        names = state_names(checkpoint, operator.uid)
        for state in [None, *names] if names else []:
            name = _sql_name(operator.uid if state is None else f"{operator.uid}_{state}")
            while name in named:
                name += "_"
            named[name] = operator.uid, state
    return named


def _sql_name(text: str) -> str:
    name = re.sub(r"\W", "_", text).lower()
    return f"_{name}" if not name or name[0].isdigit() else name


def _rows_in(
    checkpoint: Checkpoint,
    uid: str,
    state: str | None,
    keys: list[Key] | None = None,
    *,
    with_expired: bool = False,
    allow_pickle: bool,
) -> StateTable:
    """Return a row for each entry of a state, or without a state a row for each key."""
    if state is None:
        return checkpoint.keyed(uid, keys, with_expired=with_expired, allow_pickle=allow_pickle)
    return checkpoint.entries(uid, state, keys, with_expired=with_expired, allow_pickle=allow_pickle)


def diff(chosen: Namespace, printer: Printer) -> bool:
    """Compare two checkpoints; report whether they differ."""
    differs = False
    a, b = (_opened(path, printer) for path in (chosen.a, chosen.b))
    printer.progress.expect(_size_of(a, chosen.uid) + _size_of(b, chosen.uid))
    for one in compare(a, b, chosen.uid, allow_pickle=chosen.allow_pickle):
        counts, rows = _counted(one.table, chosen.limit)
        if any(counts.values()):
            differs = True
            told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
            printer.table(f"{one.uid} {one.state}: {told}", rows)
    if not differs:
        printer.note("no key differs")
    return differs


def _size_of(checkpoint: Checkpoint, uid: str | None) -> int:
    return sum(one.size_bytes for one in checkpoint.operators() if uid in (None, one.uid))


def _counted(table: StateTable, limit: int) -> tuple[dict[str, int], list[JsonObject]]:
    """Return how many rows there are of each kind of change, and the first rows; they are read once."""
    counts = {"added": 0, "removed": 0, "changed": 0}
    rows: list[JsonObject] = []
    for batch in table.read():
        for kind in batch.column("change").to_pylist():
            counts[kind] += 1
        if len(rows) < limit:
            first = table.rows_of(batch.slice(0, limit - len(rows)))
            rows += [readable_row(table, row) for row in first]
    return counts, rows


def history(chosen: Namespace, printer: Printer) -> bool:
    """Show a key in each checkpoint."""
    key = parsed_key(chosen.key, _key_type(chosen.dir, chosen.uid))
    for moment in key_history(chosen.dir, chosen.uid, key, allow_pickle=chosen.allow_pickle):
        rows = [] if moment.table is None else readable_rows(moment.table)
        printer.table(f"checkpoint {moment.checkpoint_id}, epoch {moment.epoch}", rows)
    return False


def _key_type(folder: str, uid: str) -> TypeInformation:
    """Return the type of an operator's keys in the newest checkpoint that has it."""
    storage, job_ids = jobs_at(folder)
    kept = retained(storage, job_ids[0]) if len(job_ids) == 1 else ()
    uri = next((uri for metadata, uri in kept if metadata.operator(uid) is not None), folder)
    return open_checkpoint(uri).keyed_state(uid).key_type


def export(chosen: Namespace, printer: Printer) -> bool:
    """Write files."""
    checkpoint = _opened(chosen.path, printer)
    printer.progress.expect(_size_of(checkpoint, chosen.uid))
    uids = [chosen.uid] if chosen.uid else [operator.uid for operator in checkpoint.operators()]
    states = [(uid, name) for uid in uids for name in state_names(checkpoint, uid)]
    files = file_names([f"{uid}.{name}" for uid, name in states], chosen.format)
    rows = []
    for (uid, name), file_name in zip(states, files, strict=True):
        table = checkpoint.entries(uid, name, allow_pickle=chosen.allow_pickle)
        file, count = exported(table, chosen.to, file_name, chosen.format)
        rows.append({"uid": uid, "state": name, "rows": count, "file": file})
    printer.table("exported", rows, is_whole=True)
    return False


def verify(chosen: Namespace, printer: Printer) -> bool:
    """Check everything; report whether something is wrong."""
    found = check(chosen.path, printer.progress.advance)
    if printer.as_json:
        printer.value(attrs.asdict(found))
        return not found.is_sound
    printer.note(f"{len(found.checkpoints)} checkpoints, {found.files} files, {found.bytes_read} bytes read")
    printer.table("problems", [{"problem": text} for text in found.problems], is_whole=True)
    printer.table("needed by no checkpoint", [{"path": text} for text in found.unneeded], is_whole=True)
    return not found.is_sound


def edit(chosen: Namespace, printer: Printer) -> bool:
    """Write a savepoint with all changes, in the order in which they were given."""
    # The commands that only read need half as many modules.
    from pyflinkstate.state_access.writing import edit as begin

    changed = begin(chosen.path, allow_pickle=chosen.allow_pickle)
    for option, words in chosen.changes:
        _CHANGES[option](changed, words)
    written = changed.write(chosen.to)
    rows = [
        {"uid": one.uid, "max_parallelism": one.max_parallelism, "size_bytes": one.size_bytes}
        for one in written.operators()
    ]
    printer.table(f"savepoint {written.uri}", rows)
    return False


def convert(chosen: Namespace, printer: Printer) -> bool:
    """Write a savepoint of Flink as one of this project, or the other way round."""
    from pyflinkstate.state_access.flink import convert_savepoint

    pairs = [uid.partition("=") for uid in chosen.uid]
    uri = convert_savepoint(
        chosen.path,
        chosen.target,
        chosen.to,
        program=None if chosen.program is None else _program(chosen.program),
        uids={theirs: ours or theirs for theirs, _, ours in pairs},
        job_name=chosen.job_name,
        drop_unknown=chosen.drop_unknown,
        allow_pickle=chosen.allow_pickle,
    )
    printer.table("savepoint", [{"uri": uri, "for": chosen.to}])
    return False


def _program(name: str) -> object:
    """Return the environment that a user's function returns; modules are also found where the user is."""
    module, _, function = name.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        build = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"--program {name} cannot be imported: {error}") from error
    return build()


def _delete(changed: CheckpointEdit, words: list[str]) -> None:
    uid, *keys = words
    key_type = changed.key_type(uid)
    changed.delete(uid, [parsed_key(key, key_type) for key in keys])


def _max_parallelism(changed: CheckpointEdit, words: list[str]) -> None:
    uid, number = words
    if not number.isdecimal():
        raise ConfigurationError(f"--max-parallelism {uid}: {number!r} is not a number of key groups")
    changed.set_max_parallelism(uid, int(number))


_CHANGES: dict[str, Callable[[Any, list[str]], object]] = {
    "--delete": _delete,
    "--drop": lambda changed, words: changed.drop(*words),
    "--drop-state": lambda changed, words: changed.drop_state(*words),
    "--rename-uid": lambda changed, words: changed.rename_uid(*words),
    "--max-parallelism": _max_parallelism,
}
