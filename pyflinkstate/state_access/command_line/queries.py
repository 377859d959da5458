"""SQL over a checkpoint with DuckDB: a table for each operator and state."""

from __future__ import annotations

import re

from pyflinkstate.api.values import ArrowObject, JsonObject
from pyflinkstate.errors import ConfigurationError, StateTableError
from pyflinkstate.state_access.checkpoint import Checkpoint
from pyflinkstate.state_access.command_line.exports import state_names
from pyflinkstate.state_access.tables import StateTable

#: DuckDB fetches and loads no extension by itself, and does not take variables of this program for tables.
_LOCKED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}


def tables(checkpoint: Checkpoint) -> list[JsonObject]:
    """Return the names of the tables, and what each holds."""
    return [
        {"table": name, "uid": uid, "state": state or "(all, a row a key)"}
        for name, (uid, state) in _named(checkpoint).items()
    ]


def answered(
    checkpoint: Checkpoint, query: str, allow_pickle: bool = False, allow_files: bool = False
) -> list[JsonObject]:
    """Return the rows of a query. Only the tables whose names are in it are read.

    Args:
        checkpoint: the checkpoint whose tables the query can use.
        query: the SQL.
        allow_pickle: whether pickles are loaded.
        allow_files: whether the query can also read and write files.

    Raises:
        ConfigurationError: DuckDB is not installed.
        StateTableError: DuckDB refuses the query, the query fails, or two of its columns have one name.
    """
    duckdb = _duckdb()
    settings = {**_LOCKED, "enable_external_access": str(allow_files).lower()}
    with duckdb.connect(config=settings) as connection:
        for name, (uid, state) in _named(checkpoint).items():
            if re.search(rf"\b{re.escape(name)}\b", query, re.IGNORECASE):
                _table(checkpoint, uid, state, allow_pickle).to_duckdb(connection, name)
        try:
            connection.execute("SET lock_configuration = true")  # a query cannot undo the settings
            found = connection.sql(query)
            if found is None:  # a statement without rows
                return []
            _check_columns(found.columns)
            rows = found.fetchall()
        except duckdb.Error as error:
            known = ", ".join(_named(checkpoint))
            files = "" if allow_files else ", and files need --allow-files"
            raise StateTableError(f"{error}; the tables are {known}{files}") from error
        return [dict(zip(found.columns, row, strict=True)) for row in rows]


def _check_columns(names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StateTableError(f"two columns are called {twice!r}: name them with AS", column=twice)


def _named(checkpoint: Checkpoint) -> dict[str, tuple[str, str | None]]:
    """Return the operator and state of each table; the state is None if the table has a row for each key."""
    named: dict[str, tuple[str, str | None]] = {}
    for operator in checkpoint.operators():
        names = state_names(checkpoint, operator.uid)
        for state in [None, *names] if names else []:
            named[_free(named, operator.uid if state is None else f"{operator.uid}_{state}")] = (
                operator.uid,
                state,
            )
    return named


def _free(taken: dict[str, tuple[str, str | None]], text: str) -> str:
    """Return a name for SQL that is made of ``text`` and not taken."""
    name = re.sub(r"\W", "_", text).lower()
    name = f"_{name}" if not name or name[0].isdigit() else name
    while name in taken:
        name += "_"
    return name


def _table(checkpoint: Checkpoint, uid: str, state: str | None, allow_pickle: bool) -> StateTable:
    if state is None:
        return checkpoint.keyed(uid, allow_pickle=allow_pickle)
    return checkpoint.entries(uid, state, allow_pickle=allow_pickle)


def _duckdb() -> ArrowObject:
    try:
        import duckdb
    except ImportError as error:
        raise ConfigurationError(
            "SQL over checkpoints needs DuckDB: pip install 'pyflinkstate[sql]'"
        ) from error
    return duckdb
