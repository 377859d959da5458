"""Rows into a table of PostgreSQL, SQLite, or any other database that SQLAlchemy knows, exactly once.

An epoch's rows and its marker change in one transaction. Markers are in a table of their own, a row for each
sink of a job. Each transaction first writes to that row, which locks it, and then looks which run it belongs
to: the transaction of an older driver waits, finds a newer run, and fails. An older driver that is frozen in
the middle of a transaction holds the row. On PostgreSQL a driver that opens the sink therefore ends the
sessions of older ones, which it knows by their ``application_name``; elsewhere it waits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, TypeAlias

from pyflinkstate.api import check_list
from pyflinkstate.connectors.extras import needs
from pyflinkstate.connectors.sql import SqlUser
from pyflinkstate.errors import ConfigurationError, SinkError, SinkStorageError
from pyflinkstate.runtime.sinks import Batches, Convert, RowConverter, TransactionalSink
from pyflinkstate.runtime.storage import AnyPath

with needs("sql"):
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql, sqlite

#: The values of some columns of a row, in their order.
Values: TypeAlias = Sequence[object]
#: The table of markers.
MARKERS = "pyflinkstate_markers"
_END_SESSIONS = sa.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE :sink || ' %' "
    "AND application_name <> :own AND usename = current_user"
)
#: Rows that are written with one call, if a database has no faster way.
ROWS_PER_CALL = 1000
#: Databases that replace a row in one statement.
_INSERTS: dict[str, Callable[[sa.Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}
_markers = sa.Table(
    MARKERS,
    sa.MetaData(),
    sa.Column("job", sa.String(64), primary_key=True),
    sa.Column("sink", sa.String(200), primary_key=True),
    sa.Column("run", sa.String(64), nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)


class SqlSink(TransactionalSink):
    """Appends rows to a table, or replaces rows by key. An epoch is one transaction.

    The table must exist. Records are dicts or ``Row``s with the fields of ``columns``, or tuples or lists in
    their order. With ``key``, the last row of a key counts; a ``Row`` of kind ``DELETE`` deletes the row with
    its key, and one of kind ``UPDATE_BEFORE`` is left out. Without, a row that is not an insert or an
    ``UPDATE_AFTER`` is an error.

    PostgreSQL gets rows by a binary ``COPY`` (it needs psycopg), other databases by ``executemany``.

    Args:
        url: a URL of SQLAlchemy, such as ``"postgresql+psycopg://user@host/database"`` or
            ``"sqlite:////data/totals.sqlite"``. Only the driver connects to it.
        table: the name of the table, with a schema if it needs one: ``"sales.totals"``.
        columns: the names of the columns to write.
        key: the columns by which rows are replaced; they must not be None, and the database needs a primary
            key or a unique index on them. Default: rows are appended.
        name: see :class:`StagedSink`. Default: ``sql.`` and the name of the table.
        staging: see :class:`StagedSink`.

    Raises:
        ConfigurationError: the arguments do not go together, or SQLAlchemy does not know the URL.
    """

    def __init__(
        self,
        url: str,
        table: str,
        columns: Sequence[str],
        *,
        key: Sequence[str] = (),
        name: str | None = None,
        staging: AnyPath | None = None,
    ) -> None:
        check_list("columns", columns)
        check_list("key", key)
        if not columns or len(set(columns)) < len(columns) or not set(key) <= set(columns):
            raise ConfigurationError(
                f"sql sink: columns must be different names, and key some of them, not {columns} and {key}"
            )
        super().__init__(f"sql.{table}" if name is None else name, staging)
        self.columns, self.key = tuple(columns), tuple(key)
        self._user = SqlUser(
            f"sink {self.name!r}",
            SinkStorageError,
            "If the server has ended the transaction, look at its limits (PostgreSQL: statement_timeout, "
            "idle_in_transaction_session_timeout)",
            SinkError,
            "What is staged stays: mend the table, or the rights of the user, and start the job again from "
            "its newest checkpoint",
            {"sink": self.name},
        )
        self._engine = self._user.engine(url)
        self._table_name = table
        self._table: sa.Table | None = None
        self._opened_run = ""

    def committed_epoch(self) -> int | None:
        """See :class:`StagedSink`."""
        with self._errors("read its marker"):
            if self._table is None:
                table = self._user.table(self._engine, self._table_name, self.columns)
                _markers.create(self._engine, checkfirst=True)
                self._table = table
            if self._opened_run != self.run:
                self._end_older()
                self._opened_run = self.run
            with self._engine.begin() as connection:
                return self._claimed(connection)

    @property
    def _sessions(self) -> tuple[str, str]:
        """How the sessions of this sink begin their names, and the name of those of its run."""
        sink = f"pyflinkstate {hashlib.sha256(f'{self.job_id}/{self.name}'.encode()).hexdigest()[:16]}"
        return sink, f"{sink} {self.run}"

    def _end_older(self) -> None:
        """End the sessions of other runs, unless one of them is newer."""
        if self._engine.dialect.name != "postgresql":
            return
        sink, own = self._sessions
        with self._engine.begin() as connection:
            found = connection.execute(sa.select(_markers.c.run).where(self._own)).scalar()
            self.check_run(found or self.run)
            connection.execute(_END_SESSIONS, {"sink": sink, "own": own})

    @property
    def _own(self) -> sa.ColumnElement[bool]:
        return sa.and_(_markers.c.job == self.job_id, _markers.c.sink == self.name)

    def _claimed(self, connection: sa.Connection) -> int | None:
        """Lock the marker, check that no newer run has it, and return its epoch."""
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.set_config("application_name", self._sessions[1], True)))
        connection.execute(sa.update(_markers).where(self._own).values(epoch=_markers.c.epoch))
        found = connection.execute(sa.select(_markers.c.run, _markers.c.epoch).where(self._own)).first()
        if found is None:
            return None
        self.check_run(found.run)
        if found.run != self.run:
            connection.execute(sa.update(_markers).where(self._own).values(run=self.run))
        return int(found.epoch)

    def write(self, epoch: int, batches: Batches) -> None:
        """See :class:`TransactionalSink`."""
        with self._errors(f"write epoch {epoch}"), self._engine.begin() as connection:
            if self._claimed(connection) is None:
                connection.execute(
                    sa.insert(_markers).values(job=self.job_id, sink=self.name, run=self.run, epoch=epoch)
                )
            else:
                connection.execute(sa.update(_markers).where(self._own).values(epoch=epoch))
            self._write_rows(connection, batches)

    # --- rows ------------------------------------------------------------------------------------------

    def converter(self) -> Convert:
        """See :class:`TransactionalSink`."""
        return RowConverter(self.name, self.columns, self.key)

    def _write_rows(self, connection: sa.Connection, batches: Batches) -> None:
        assert self._table is not None, "it is open"
        rows = (row for batch in batches for row in batch)
        if not self.key:
            _insert(connection, self._table, self.columns, rows)
            return
        places = [self.columns.index(column) for column in self.key]
        last = {tuple([change[place] for place in places]): change for change in rows}
        _delete(connection, self._table, self.key, [key for key, change in last.items() if change[-1]])
        kept = {key: change[:-1] for key, change in last.items() if not change[-1]}
        _replace(connection, self._table, self.columns, self.key, kept)

    def _errors(self, what: str) -> AbstractContextManager[None]:
        return self._user.errors(self._engine, what)


# --- statements --------------------------------------------------------------------------------------


def _delete(connection: sa.Connection, table: sa.Table, key: Sequence[str], keys: Sequence[Values]) -> None:
    """Delete the rows that have these keys."""
    names = [f"key_{column}" for column in key]
    is_one = sa.and_(
        *[table.c[column] == sa.bindparam(name) for column, name in zip(key, names, strict=True)]
    )
    _execute(connection, sa.delete(table).where(is_one), names, keys)


def _replace(
    connection: sa.Connection,
    table: sa.Table,
    columns: Sequence[str],
    key: Sequence[str],
    rows: Mapping[tuple[object, ...], Values],
) -> None:
    """Write rows with different keys in place of those that have these keys."""
    make_insert = _INSERTS.get(connection.dialect.name)
    if make_insert is None:
        _delete(connection, table, key, list(rows))
        _insert(connection, table, columns, rows.values())
        return
    insert = make_insert(table)
    changed = [name for name in columns if name not in key] or columns
    upsert = insert.on_conflict_do_update(
        index_elements=list(key), set_={name: insert.excluded[name] for name in changed}
    )
    if not _has_copy(connection):
        _execute(connection, upsert, columns, rows.values())
        return
    typed = [sa.Column(name, table.c[name].type) for name in columns]
    new = sa.Table("pyflinkstate_rows", sa.MetaData(), *typed)
    query = sa.select(*[table.c[name] for name in columns]).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"CREATE TEMP TABLE {new.name} ON COMMIT DROP AS {query} WITH NO DATA")
    _insert(connection, new, columns, rows.values())
    connection.execute(upsert.from_select(list(columns), sa.select(new)))


def _insert(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[Values]
) -> None:
    if _has_copy(connection):
        _copy(connection, table, columns, rows)
    else:
        _execute(connection, sa.insert(table), columns, rows)


def _execute(
    connection: sa.Connection, statement: sa.Executable, names: Sequence[str], rows: Iterable[Values]
) -> None:
    """Execute a statement for each row."""
    left = iter(rows)
    while part := [dict(zip(names, row, strict=True)) for row in islice(left, ROWS_PER_CALL)]:
        connection.execute(statement, part)


def _has_copy(connection: sa.Connection) -> bool:
    return connection.dialect.driver == "psycopg"


def _copy(connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[Values]) -> None:
    """Write rows with PostgreSQL's binary ``COPY``."""
    preparer = connection.dialect.identifier_preparer
    target, names = preparer.format_table(table), ", ".join(preparer.quote(name) for name in columns)
    psycopg: Any = connection.connection
    with psycopg.cursor() as cursor:
        cursor.execute(f"SELECT {names} FROM {target} LIMIT 0")
        types = [column.type_code for column in cursor.description]
        with cursor.copy(f"COPY {target} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
