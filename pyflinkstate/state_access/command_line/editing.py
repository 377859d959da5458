"""The command ``edit``: writes a changed checkpoint as a new savepoint."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _AppendAction
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.state_access.command_line.printing import Printer
from pyflinkstate.state_access.command_line.written_keys import parsed_key

if TYPE_CHECKING:
    from pyflinkstate.state_access.writing import CheckpointEdit

#: A change: the option, and its words.
Change = tuple[str, list[str]]


class _AddChange(_AppendAction):
    """Collects the options of changes in the order in which they are given."""

    def __call__(
        self, parser: ArgumentParser, chosen: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        words = values if isinstance(values, list) else [values]
        if option_string == "--delete" and len(words) < 2:
            parser.error("argument --delete: name an operator and at least one key")
        chosen.changes = [*chosen.changes, (option_string, words)]


def add_options(one: ArgumentParser) -> None:
    """Add the options of the changes to the command's parser."""
    one.set_defaults(changes=[])

    def add(option: str, count: int | str, names: Sequence[str], about: str) -> None:
        metavar = tuple(names)
        one.add_argument(option, action=_AddChange, nargs=count, metavar=metavar, help=about)

    add("--delete", "+", ("UID", "KEY"), "delete everything under some keys: strings, or JSON for other keys")
    add("--drop", 1, ("UID",), "leave out an operator")
    add("--drop-state", 2, ("UID", "STATE"), "leave out a state, or the timers of a service")
    add("--rename-uid", 2, ("UID", "TO"), "give an operator another uid")
    add("--max-parallelism", 2, ("UID", "N"), "change the number of key groups")


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


def _delete(changed: CheckpointEdit, words: list[str]) -> None:
    uid, *keys = words
    key_type = changed.key_type(uid)
    changed.delete(uid, [parsed_key(key, key_type) for key in keys])


def _max_parallelism(changed: CheckpointEdit, words: list[str]) -> None:
    uid, number = words
    try:
        most = int(number)
    except ValueError:
        raise ConfigurationError(
            f"--max-parallelism {uid}: {number!r} is not a number of key groups"
        ) from None
    changed.set_max_parallelism(uid, most)


_CHANGES: dict[str, Callable[[Any, list[str]], object]] = {
    "--delete": _delete,
    "--drop": lambda changed, words: changed.drop(*words),
    "--drop-state": lambda changed, words: changed.drop_state(*words),
    "--rename-uid": lambda changed, words: changed.rename_uid(*words),
    "--max-parallelism": _max_parallelism,
}
