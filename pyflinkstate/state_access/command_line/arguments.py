"""The arguments of the command line, and how it ends.

Exit codes: 0, all is well; 1, ``diff`` found differences or ``verify`` problems; 2, the arguments do not form
a command; 3, the command failed: the checkpoint cannot be read, or has no such operator, state or type of
key, or what the arguments ask for cannot be done, or the page of a job cannot be reached or refuses it, or
the output cannot be written.
"""

from __future__ import annotations

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TextIO

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.state_access.command_line import commands, running_jobs
from pyflinkstate.state_access.command_line.output import Printer, Progress
from pyflinkstate.version import VERSION

#: How the command line ends; see the text above.
FINE, FOUND, FAILED = 0, 1, 3
_CODES = (
    "exit codes: 0 all is well; 1 diff found differences, or verify problems; 2 the arguments do not form a "
    "command; 3 the command failed: the checkpoint cannot be read, or has no such operator, state or type of "
    "key, or what the arguments ask for cannot be done, or the page of a job cannot be reached or refuses "
    "it, or the output cannot be written"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code.

    Args:
        arguments: the words after the program's name. Default: those of the process.
    """
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


def _run(chosen: Namespace) -> int:
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


# --- the commands ------------------------------------------------------------------------------------------


class _AddChange(Action):
    """Collects the changes of ``edit`` as they are given, each an option with its words."""

    def __call__(
        self, parser: ArgumentParser, chosen: Namespace, words: Any, option: str | None = None
    ) -> None:
        if option == "--delete" and len(words) < 2:
            parser.error("argument --delete: name an operator and at least one key")
        chosen.changes = [*chosen.changes, (option, words)]


#: The names and the options of an argument, as ``add_argument`` takes them.
Argument = tuple[tuple[str, ...], dict[str, Any]]


def _argument(*names: str, **options: object) -> Argument:
    return names, options


def _switch(name: str, about: str) -> Argument:
    return _argument(name, action="store_true", help=about)


def _limit(about: str) -> Argument:
    return _argument("--limit", type=int, default=20, help=f"{about} (default: 20)")


def _change(option: str, count: int | str, names: tuple[str, ...], about: str) -> Argument:
    return _argument(
        option, action=_AddChange, dest="changes", default=(), nargs=count, metavar=names, help=about
    )


_A_CHECKPOINT = "a checkpoint, a savepoint or a job's folder (its newest checkpoint); a path or a URI"
_PATH = _argument("path", help=_A_CHECKPOINT)
_JSON = _switch("--json", "print JSON, for programs")
_ALLOW_PICKLE = _switch("--allow-pickle", "load pickled values, which runs code: only if you trust them")
_JOBS = "a checkpoint directory, or the folder of one job in it"
_KEY = "a string, a date and so on, or JSON for other keys"

_RUNNING = (
    _argument("address", help="the web page of the program, such as http://127.0.0.1:8081"),
    _argument(
        "--token-file",
        help=f"the file with the page's token (default: the variable {running_jobs.TOKEN}, or the one in the "
        f"address)",
    ),
)
_JOB = _argument("job", nargs="?", help="the id or the name of a job (default: the only one that runs)")

#: By the name of a command, which is that of a function: what it does, and its arguments.
_COMMANDS: dict[str, tuple[str, Sequence[Argument]]] = {
    "ls": (
        "list the checkpoints of a checkpoint directory or a job's folder",
        [_argument("dir", help=_JOBS)],
    ),
    "show": (
        "show a checkpoint, the states of an operator, or the rows of a state",
        [
            _PATH,
            _argument("uid", nargs="?", help="an operator"),
            _argument("--state", help="show the entries of this state"),
            _argument("--key", help=f"show only this key: {_KEY}"),
            _limit("the most rows to show"),
            _switch("--with-expired", "show values that have expired as well"),
            _ALLOW_PICKLE,
        ],
    ),
    "sql": (
        "ask SQL of a checkpoint, with DuckDB",
        [
            _PATH,
            _argument("query", nargs="?", help="the query; without one the tables are listed"),
            _switch("--allow-files", "let the query read and write files, as this user may"),
            _ALLOW_PICKLE,
        ],
    ),
    "diff": (
        "show the keys that differ between two checkpoints",
        [
            _argument("a", help=f"the old one: {_A_CHECKPOINT}"),
            _argument("b", help="the new one"),
            _argument("--uid", help="compare this operator only"),
            _limit("the most rows for each state"),
            _ALLOW_PICKLE,
        ],
    ),
    "history": (
        "show a key in each checkpoint that a job has kept",
        [
            _argument("dir", help="the job's folder"),
            _argument("uid", help="an operator"),
            _argument("key", help=f"the key: {_KEY}"),
            _ALLOW_PICKLE,
        ],
    ),
    "export": (
        "write the entries of each state to a file of its own",
        [
            _PATH,
            _argument("--format", choices=["parquet", "csv", "json"], default="parquet"),
            _argument("--to", default=".", help="an existing folder (default: the present one)"),
            _argument("--uid", help="export this operator only"),
            _ALLOW_PICKLE,
        ],
    ),
    "verify": ("read and check every file, and list files that nobody needs", [_PATH]),
    "ui": (
        "show jobs that do not run any more on a web page",
        [
            _argument("path", help=_JOBS),
            _argument("--port", type=int, default=0, help="the port to listen on (default: any free one)"),
            _argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)"),
        ],
    ),
    "jobs": ("list the jobs of a program that runs", _RUNNING),
    "savepoint": ("take a savepoint of a running job, and print its folder", (*_RUNNING, _JOB)),
    "stop": (
        "stop a running job with a savepoint, and print its folder",
        (*_RUNNING, _JOB, _switch("--drain", "let event time end first, so that all windows fire")),
    ),
    "cancel": ("end a running job at once, without a savepoint", (*_RUNNING, _JOB)),
    "edit": (
        "write a changed checkpoint as a new savepoint, with changes in the order of the options",
        [
            _PATH,
            _argument("--to", required=True, help="the folder of the savepoint, which must not exist yet"),
            _change("--delete", "+", ("UID", "KEY"), f"delete everything under some keys: {_KEY}"),
            _change("--drop", 1, ("UID",), "leave out an operator"),
            _change("--drop-state", 2, ("UID", "STATE"), "leave out a state, or the timers of a service"),
            _change("--rename-uid", 2, ("UID", "TO"), "give an operator another uid"),
            _change("--max-parallelism", 2, ("UID", "N"), "change the number of key groups"),
            _ALLOW_PICKLE,
        ],
    ),
    "convert": (
        "write a savepoint of Flink as one of this project, or the other way round",
        [
            _argument("path", help="a savepoint of Flink, or a checkpoint or savepoint of this project"),
            _argument("target", help="the folder of the new savepoint, which must not exist yet"),
            _argument(
                "--to",
                choices=["pyflinkstate", "flink", "flink-process", "flink-thread"],
                required=True,
                help="who restores it: this project, a job in Java, or PyFlink in one of its modes",
            ),
            _argument(
                "--program",
                metavar="MODULE:FUNCTION",
                help="a function that returns the environment in which it has built the program; it is run",
            ),
            _argument(
                "--uid",
                action="append",
                default=[],
                metavar="UID[=UID HERE]",
                help="an operator: its uid in Flink, or its id of 32 digits, and its uid here",
            ),
            _argument("--job-name", help="the name of the job that starts from it here"),
            _switch("--drop-unknown", "leave out the state of operators whose uids are not known"),
            _ALLOW_PICKLE,
        ],
    ),
}


def parser() -> ArgumentParser:
    """Return the parser of all commands."""
    made = ArgumentParser(
        "pyflinkstate", description="Look into checkpoints, and steer jobs that run.", epilog=_CODES
    )
    made.add_argument("--version", action="version", version=f"pyflinkstate {VERSION}")
    each = made.add_subparsers(required=True, metavar="COMMAND")
    for command, (about, arguments) in _COMMANDS.items():
        one = each.add_parser(command, help=about, description=f"{about}.", epilog=_CODES)
        room = running_jobs if hasattr(running_jobs, command) else commands
        one.set_defaults(command=getattr(room, command))
        for names, options in (_JSON, *arguments):
            one.add_argument(*names, **options)
    return made
