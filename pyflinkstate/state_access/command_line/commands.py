"""The commands of the command line. Each returns whether it found something to report."""

from __future__ import annotations

import importlib
from argparse import Namespace

import attrs

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import JsonObject
from pyflinkstate.errors import CheckpointNotFoundError, UnknownOperatorError
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.command_line import exports, listing, queries
from pyflinkstate.state_access.command_line.printing import Printer, readable_row, readable_rows
from pyflinkstate.state_access.command_line.written_keys import parsed_key
from pyflinkstate.state_access.differences import diff as compare
from pyflinkstate.state_access.history import history as history_of
from pyflinkstate.state_access.locations import jobs_at, locate, retained
from pyflinkstate.state_access.tables import StateTable
from pyflinkstate.state_access.verification import verify as check


def ui(chosen: Namespace, _: Printer) -> bool:
    """Show jobs on a web page. The room is imported here, because no other command needs it."""
    importlib.import_module("pyflinkstate.monitor").show_jobs(chosen.path, chosen.port, chosen.host)
    return False


def ls(chosen: Namespace, printer: Printer) -> bool:
    """List the checkpoints of a folder."""
    storage, job_ids = jobs_at(chosen.dir)
    rows = [row for job_id in job_ids for row in listing.checkpoints_of(storage, job_id)]
    if not rows:
        rows = [listing.listed(locate(chosen.dir)[0], "completed")]  # a savepoint, or an error
    printer.table(f"checkpoints in {chosen.dir}", rows)
    return False


def _opened(path: str, printer: Printer) -> Checkpoint:
    """Open a checkpoint whose reading is shown."""
    checkpoint = open_checkpoint(path)
    checkpoint.reader.on_read = printer.progress.advance
    return checkpoint


def show(chosen: Namespace, printer: Printer) -> bool:
    """Show a checkpoint, an operator, or rows of a state."""
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


def _show_checkpoint(checkpoint: Checkpoint, printer: Printer) -> None:
    facts = attrs.asdict(checkpoint.offsets())
    operators = facts.pop("operators")
    if printer.as_json:
        printer.value({**facts, "uri": checkpoint.uri, "operators": operators})
        return
    printer.table(checkpoint.uri, [{"": name, " ": value} for name, value in facts.items()])
    printer.table("operators", operators)


def _show_rows(checkpoint: Checkpoint, chosen: Namespace, printer: Printer) -> None:
    options: JsonObject = {"with_expired": chosen.with_expired, "allow_pickle": chosen.allow_pickle}
    keys = None
    if chosen.key is not None:
        keys = [parsed_key(chosen.key, checkpoint.keyed_state(chosen.uid).key_type)]
    if chosen.state is None:
        table = checkpoint.keyed(chosen.uid, keys, **options)
    else:
        table = checkpoint.entries(chosen.uid, chosen.state, keys, **options)
    rows = readable_rows(table, chosen.limit + 1)
    printer.table(f"{chosen.uid} {chosen.state or ''}".strip(), rows[: chosen.limit])
    if len(rows) > chosen.limit:
        printer.note(f"  there are more rows: --limit is {chosen.limit}")


def sql(chosen: Namespace, printer: Printer) -> bool:
    """Ask SQL."""
    checkpoint = _opened(chosen.path, printer)
    if chosen.query is None:
        printer.table("tables", queries.tables(checkpoint))
    else:
        rows = queries.answered(checkpoint, chosen.query, chosen.allow_pickle, chosen.allow_files)
        printer.table("result", rows)
    return False


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
    for moment in history_of(chosen.dir, chosen.uid, key, allow_pickle=chosen.allow_pickle):
        rows = [] if moment.table is None else readable_rows(moment.table)
        printer.table(f"checkpoint {moment.checkpoint_id}, epoch {moment.epoch}", rows)
    return False


def _key_type(folder: str, uid: str) -> TypeInformation:
    """Return the type of an operator's keys in the newest checkpoint that has it."""
    storage, job_ids = jobs_at(folder)
    if len(job_ids) != 1:
        raise CheckpointNotFoundError(f"{folder} is not the folder of a job", path=folder)
    for metadata, uri in retained(storage, job_ids[0]):
        if metadata.operator(uid) is not None:
            return open_checkpoint(uri).keyed_state(uid).key_type
    return open_checkpoint(folder).keyed_state(uid).key_type


def export(chosen: Namespace, printer: Printer) -> bool:
    """Write files."""
    checkpoint = _opened(chosen.path, printer)
    printer.progress.expect(_size_of(checkpoint, chosen.uid))
    uids = [chosen.uid] if chosen.uid else [operator.uid for operator in checkpoint.operators()]
    states = [(uid, name) for uid in uids for name in exports.state_names(checkpoint, uid)]
    files = exports.file_names([f"{uid}.{name}" for uid, name in states], chosen.format)
    rows = []
    for (uid, name), file_name in zip(states, files, strict=True):
        table = checkpoint.entries(uid, name, allow_pickle=chosen.allow_pickle)
        file, count = exports.exported(table, chosen.to, file_name, chosen.format)
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
