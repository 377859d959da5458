"""The query that the options of the data source describe. Nothing here uses Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import attrs

from pyflinkstate.api import Duration, Key
from pyflinkstate.errors import ConfigurationError, UnknownOperatorError
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.tables import StateTable, nearest

T = TypeVar("T")

#: The options of each kind of table, besides the common ones.
_TAKES = {
    "keyed": ("states", "with_expired", "time_to_live", "now_ms"),
    "entries": ("state", "with_expired", "time_to_live", "now_ms"),
    "windows": ("with_expired", "time_to_live", "now_ms"),
    "timers": (),
    "operator_state": ("state",),
}
_OF_ALL = ("path", "uid", "what", "allow_pickle", "partitions")


@attrs.frozen
class Query:
    """A table of a checkpoint, as the options of the data source name it.

    Attributes:
        checkpoint: the checkpoint that the path meant when the options were read.
        uid: the operator.
        what: the method of :class:`Checkpoint` that makes the table.
        arguments: its other arguments.
        partitions: the maximum number of partitions; None chooses it by the size.
        keys: only these keys; None for all.
    """

    checkpoint: Checkpoint
    uid: str
    what: str
    arguments: Mapping[str, Any]
    partitions: int | None = None
    keys: tuple[Key, ...] | None = None

    @property
    def allow_pickle(self) -> bool:
        """Whether pickles are loaded."""
        return bool(self.arguments.get("allow_pickle"))

    def table(self) -> StateTable:
        """Return the table.

        Raises:
            CheckpointError: the checkpoint cannot be read, or has no such operator or state.
        """
        keys = {} if self.keys is None else {"keys": self.keys}
        table: StateTable = getattr(self.checkpoint, self.what)(self.uid, **self.arguments, **keys)
        return table

    def parts(self) -> list[StateTable]:
        """Return the table in parts, the same ones each time."""
        return self.table().parts(self.partitions)


def query_of(options: Mapping[str, str]) -> Query:
    """Return the query that the options describe. Their names may be written in camel case, and in any case.

    Raises:
        ConfigurationError: an option is unknown, missing or malformed, or does not go with the others.
        CheckpointError: the checkpoint cannot be read, or has no such operator or state.
    """
    given = _named(options)
    what = given.get("what") or ("entries" if "state" in given else "keyed")
    if what not in _TAKES:
        raise ConfigurationError(f"option 'what' is one of {', '.join(_TAKES)}, not {what!r}", option="what")
    takes = (*_OF_ALL, *_TAKES[what])
    for name in given:
        if name not in takes:
            raise ConfigurationError(
                f"option {name!r} does not go with what={what!r}, which takes {', '.join(takes)}", option=name
            )
    if "path" not in given:
        raise ConfigurationError("name a checkpoint: .load(path), or option 'path'", option="path")
    moment = _parsed(given, "now_ms", int)
    checkpoint = open_checkpoint(given["path"])
    # The clock stands still, so that all partitions and runs see the same values.
    clock = partial(int, checkpoint.clock() if moment is None else moment)
    checkpoint = attrs.evolve(checkpoint, clock=clock)
    query = Query(
        checkpoint,
        _uid(checkpoint, given.get("uid")),
        what,
        _arguments(given, what),
        _parsed(given, "partitions", int),
    )
    query.table()  # all that is wrong with it is wrong at once
    return query


def _named(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by the names that they have here."""
    known = dict.fromkeys((*_OF_ALL, *(name for names in _TAKES.values() for name in names)))
    by_letters = {_letters(name): name for name in known}
    found = {}
    for name, value in options.items():
        if _letters(name) not in by_letters:
            raise ConfigurationError(
                f"there is no option {name!r}; there are {nearest(name, list(known))}", option=name
            )
        found[by_letters[_letters(name)]] = value
    return found


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _uid(checkpoint: Checkpoint, uid: str | None) -> str:
    uids = [operator.uid for operator in checkpoint.operators()]
    if uid is None and len(uids) == 1:
        return uids[0]
    if uid is None:
        raise UnknownOperatorError(
            f"{checkpoint.uri} has {len(uids)} operators, so option 'uid' must name one: "
            f"{', '.join(map(repr, uids)) or 'there are none'}"
        )
    return uid


def _arguments(given: Mapping[str, str], what: str) -> dict[str, object]:
    if what == "entries" and "state" not in given:
        raise ConfigurationError("what='entries' needs option 'state'", option="state")
    parsers: dict[str, Callable[[str], object]] = {
        "state": str,
        "states": _names,
        "with_expired": _flag,
        "time_to_live": _lengths,
        "allow_pickle": _flag,
    }
    return {name: _parsed(given, name, parser) for name, parser in parsers.items() if name in given}


def _parsed(given: Mapping[str, str], name: str, parser: Callable[[str], T]) -> T | None:
    if name not in given:
        return None
    try:
        return parser(given[name])
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"option {name!r} cannot be {given[name]!r}: {error}", option=name
        ) from error


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.lower() == "true"


def _names(text: str) -> list[str]:
    """Return names between commas, or in a list in JSON."""
    found = json.loads(text) if text.lstrip().startswith("[") else text.split(",")
    return [name.strip() for name in found]


def _lengths(text: str) -> dict[str, Duration]:
    """Return lengths of time from JSON: ``{"state": milliseconds}``."""
    lengths = json.loads(text)
    return {name: Duration.of_millis(length) for name, length in lengths.items()}
