"""The arguments of the command line, and how it ends.

Exit codes: 0, all is well; 1, ``diff`` found differences or ``verify`` problems; 2, the arguments do not form
a command; 3, the command failed: the checkpoint cannot be read, or has no such operator, state or type of
key, or what the arguments ask for cannot be done, or the output cannot be written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.state_access.command_line import commands
from pyflinkstate.state_access.command_line.editing import add_options, edit as _edit
from pyflinkstate.state_access.command_line.printing import Printer
from pyflinkstate.state_access.command_line.progress import Progress

#: How the command line ends; see the text above.
FINE, FOUND, FAILED = 0, 1, 3

_PATH = "a checkpoint, a savepoint or a job's folder (its newest checkpoint); a path or a URI"
_CODES = (
    "exit codes: 0 all is well; 1 diff found differences, or verify problems; 2 the arguments do not form a "
    "command; 3 the command failed: the checkpoint cannot be read, or has no such operator, state or type of "
    "key, or what the arguments ask for cannot be done, or the output cannot be written"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code.

    Args:
        arguments: the words after the program's name. Default: those of the process.
    """
    _replace_closed_streams()
    code = FINE
    try:
        try:
            code = _run(parser().parse_args(arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _drop(sys.stdout)
        return FAILED if code == FAILED else FINE
    except OSError as error:
        if error.filename is not None:  # that of a file is no error of the output
            raise
        _drop(sys.stdout)
        _complain(f"the output cannot be written: {error}")
        return FAILED
    return code


def _run(chosen: argparse.Namespace) -> int:
    """Run a command, and return the exit code."""
    progress = Progress(is_wanted=not chosen.json)
    try:
        found = chosen.command(chosen, Printer(as_json=chosen.json, progress=progress))
    except PyFlinkStateError as error:
        progress.hide()
        _complain(error.message)
        return FAILED
    finally:
        progress.hide()
    return FOUND if found else FINE


def _replace_closed_streams() -> None:
    """Let what is written to a stream vanish that was closed from the beginning, so that Python has None."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end


def _complain(text: str) -> None:
    """Print to standard error, and ignore that nobody may read it."""
    try:
        print(f"pyflinkstate: {text}", file=sys.stderr)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: TextIO) -> None:
    """Discard buffered output; otherwise the interpreter tries to write it again when it ends."""
    with suppress(AttributeError, OSError):  # a replaced standard stream may have no descriptor
        descriptor = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    made = argparse.ArgumentParser("pyflinkstate", description="Look into checkpoints.", epilog=_CODES)
    each = made.add_subparsers(required=True, metavar="COMMAND")
    _add_ls(each)
    _add_show(each)
    _add_sql(each)
    _add_diff(each)
    _add_history(each)
    _add_export(each)
    _add_verify(each)
    _add_ui(each)
    _add_edit(each)
    return made


_Commands = argparse._SubParsersAction  # argparse has no public name for it


def _added(each: _Commands[argparse.ArgumentParser], name: str, about: str) -> argparse.ArgumentParser:
    one = each.add_parser(name, help=about, description=f"{about}.", epilog=_CODES)
    one.set_defaults(command=getattr(commands, name))
    one.add_argument("--json", action="store_true", help="print JSON, for programs")
    return one


def _allow_pickle(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--allow-pickle",
        action="store_true",
        help="load pickled values, which runs code: only if you trust them",
    )


def _add_ls(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "ls", "list the checkpoints of a checkpoint directory or a job's folder")
    one.add_argument("dir", help="a checkpoint directory, or the folder of one job in it")


def _add_show(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "show", "show a checkpoint, the states of an operator, or the rows of a state")
    one.add_argument("path", help=_PATH)
    one.add_argument("uid", nargs="?", help="an operator")
    one.add_argument("--state", help="show the entries of this state")
    one.add_argument("--key", help="show only this key: a string, a date and so on, or JSON for other keys")
    one.add_argument("--limit", type=_count, default=20, help="the most rows to show (default: 20)")
    one.add_argument("--with-expired", action="store_true", help="show values that have expired as well")
    _allow_pickle(one)


def _add_sql(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "sql", "ask SQL of a checkpoint, with DuckDB")
    one.add_argument("path", help=_PATH)
    one.add_argument("query", nargs="?", help="the query; without one the tables are listed")
    one.add_argument(
        "--allow-files", action="store_true", help="let the query read and write files, as this user may"
    )
    _allow_pickle(one)


def _add_diff(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "diff", "show the keys that differ between two checkpoints")
    one.add_argument("a", help=f"the old one: {_PATH}")
    one.add_argument("b", help="the new one")
    one.add_argument("--uid", help="compare this operator only")
    one.add_argument("--limit", type=_count, default=20, help="the most rows for each state (default: 20)")
    _allow_pickle(one)


def _add_history(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "history", "show a key in each checkpoint that a job has kept")
    one.add_argument("dir", help="the job's folder")
    one.add_argument("uid", help="an operator")
    one.add_argument("key", help="the key: a string, a date and so on, or JSON for other keys")
    _allow_pickle(one)


def _add_export(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "export", "write the entries of each state to a file of its own")
    one.add_argument("path", help=_PATH)
    one.add_argument("--format", choices=["parquet", "csv", "json"], default="parquet")
    one.add_argument("--to", default=".", help="an existing folder (default: the present one)")
    one.add_argument("--uid", help="export this operator only")
    _allow_pickle(one)


def _add_verify(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "verify", "read and check every file, and list files that nobody needs")
    one.add_argument("path", help=_PATH)


def _add_ui(each: _Commands[argparse.ArgumentParser]) -> None:
    one = _added(each, "ui", "show jobs that do not run any more on a web page")
    one.add_argument("path", help="a checkpoint directory, or the folder of one job in it")
    one.add_argument("--port", type=_count, default=0, help="the port to listen on (default: any free one)")
    one.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")


def _add_edit(each: _Commands[argparse.ArgumentParser]) -> None:
    one = each.add_parser(
        "edit",
        help="write a changed checkpoint as a new savepoint",
        description="Write a changed checkpoint as a new savepoint; the checkpoint stays as it is. Changes "
        "are made in the order of the options.",
        epilog=_CODES,
    )
    one.set_defaults(command=_edit)
    one.add_argument("--json", action="store_true", help="print JSON, for programs")
    one.add_argument("path", help=_PATH)
    one.add_argument("--to", required=True, help="the folder of the savepoint, which must not exist yet")
    add_options(one)
    _allow_pickle(one)


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count
