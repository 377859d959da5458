"""A source that reads the rows of a database's table, and then those that are added to it.

An epoch is a range of a column, the *cursor*: all rows from one number up to another one. That is exact only
if no row below the end of a range appears later. A column of type ``serial`` does not promise that: its
numbers are given when rows are written, and a transaction with a lower number may commit after one with a
higher number, whose row was read already.

On PostgreSQL the cursor is therefore the id of the transaction that has written the row (``xid8``), and a
range ends at the ``xmin`` of a snapshot at the latest. All transactions with lower ids have ended, so what
they have written is visible to everybody from then on. SQLite has one writer at a time: there the order of
numbers is the order of commits, and a range ends behind the newest row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeAlias

from pyflinkstate.api import Record, as_int, check_list, check_text, positive, safe_repr
from pyflinkstate.connectors.extras import needs
from pyflinkstate.connectors.sql import SqlUser
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources import Available, Epoch, Reject, Source, SplitEpoch, check_position
from pyflinkstate.runtime.storage import absolute

with needs("sql"):
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.dialects.postgresql import base as _postgresql

#: The default number of rows in an epoch.
ROWS_PER_EPOCH = 100_000
#: Rows that a task takes from the database at once.
_ROWS_PER_FETCH = 4096
#: A position: the name of the table, its id if it has one, and the cursor of the next row.
_Position: TypeAlias = Mapping[str, Any]
_USER = SqlUser(
    "SQL source",
    SourceError,
    "See that the server runs, and that this host reaches it",
    ConfigurationError,
    "Check that the table is as it was, and that the user may read it",
)


class _Xid8(sa.types.UserDefinedType[int]):
    """PostgreSQL's ids of transactions, of 64 bits, which drivers give as strings."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "xid8"

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[str | None], int | None]:
        return lambda value: None if value is None else int(value)


_postgresql.ischema_names["xid8"] = _Xid8


class SqlSource(Source):
    """Reads the rows of a table as dicts, and then those that are added. Only added rows are seen.

    An update or a delete of a row that was read is not noticed. Delete old rows only when a checkpoint that
    covers them is complete, and do not lower a row's cursor. Tasks connect to the database too.

    On PostgreSQL, from version 13 on, ``cursor`` is a column with the id of the transaction that wrote the
    row, and the table has a primary key::

        CREATE TABLE changes (
            id bigserial PRIMARY KEY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(), ...
        );
        CREATE INDEX ON changes (xid, id);

    Rows are read when all transactions with lower ids have ended, in the order of ``xid`` and of the key. So
    a transaction that stays open holds back what others write. Two transactions that overlap may be read in
    another order than they have changed a row: where that matters, compare a number of a sequence (``id``).

    Elsewhere ``cursor`` is a unique column of integers, which only grow: on SQLite best an ``INTEGER PRIMARY
    KEY AUTOINCREMENT``.

    Args:
        url: a URL of SQLAlchemy, such as ``"postgresql+psycopg://user@host/database"``.
        table: the name of the table, with a schema if it needs one: ``"sales.changes"``.
        cursor: the column by which rows are read; it needs an index.
        columns: the columns of records. Default: all.
        starting_cursor: the least value of the cursor that is read. Default: the whole table.
        bounded: whether the source ends when it has read all rows that are there. A job that is restored
            after that reads what was added since. Default: no.
        commits_in_order: whether transactions are known to commit in the order of the cursor, because only
            one writes at a time. Databases other than PostgreSQL and SQLite need it; on PostgreSQL the cursor
            is then a column of integers.
        max_rows_per_epoch: the most rows in an epoch, but for those of one larger transaction. Default:
            100,000.

    Raises:
        ConfigurationError: an argument is wrong, or the order of commits is not known.
    """

    is_parallel = False
    #: Seconds that an idle job waits before it asks the database again.
    poll_s = 1.0

    def __init__(
        self,
        url: str,
        table: str,
        cursor: str,
        *,
        columns: Sequence[str] = (),
        starting_cursor: int | None = None,
        bounded: bool = False,
        commits_in_order: bool = False,
        max_rows_per_epoch: int = ROWS_PER_EPOCH,
    ) -> None:
        check_text("table", table)
        check_text("cursor", cursor)
        check_list("columns", columns)
        self._start = None if starting_cursor is None else as_int(starting_cursor)
        if self._start != starting_cursor:
            raise ConfigurationError(f"starting_cursor is a whole number, not {safe_repr(starting_cursor)}")
        database = str(url).partition(":")[0].partition("+")[0]
        if database not in ("postgresql", "sqlite") and not commits_in_order:
            raise ConfigurationError(
                f"SQL source: it is not known in which order {database} commits, and a row that commits after"
                f" one with a greater cursor would be lost. If only one transaction writes to {table} at a "
                f"time, say so with commits_in_order=True"
            )
        self._engine = _USER.engine(url)
        self._url = _shared(self._engine.url)
        self._has_xids = database == "postgresql" and not commits_in_order
        self._name, self._cursor, self._columns = table, cursor, tuple(columns)
        self.is_bounded = bounded
        self._most = positive("max_rows_per_epoch", max_rows_per_epoch)
        self._checked: sa.Table | None = None

    def initial_offset(self) -> _Position:
        """See :class:`Source`: the table, its id if it has one, and the cursor of the next row, or None."""
        with self._errors("look at"), self._engine.connect() as connection:
            _, table_id = self._look(connection)
        return {"table": self._name, "id": table_id, "next": self._start}

    def check_restored(self, position: _Position) -> None:
        """See :class:`Source`."""
        with self._errors("look at"), self._engine.connect() as connection:
            self._stop(connection, position)

    def latest_offset(self, start: _Position, whole: bool) -> Available:
        """See :class:`Source`."""
        with self._errors("look for new rows of"), self._engine.connect() as connection:
            stop = self._stop(connection, start)
            table = self._table()
            cursor = table.c[self._cursor]
            rows = sa.select(cursor).where(*_between(cursor, start["next"], stop)).order_by(cursor)
            first = connection.scalar(rows.limit(1))
            beyond = connection.scalar(rows.offset(self._most).limit(1))
        if first is None:
            return Available(start, is_last=self.is_bounded)
        if beyond is None:
            return Available({**start, "next": stop}, is_last=self.is_bounded)
        # The rows of a transaction stay together.
        return Available({**start, "next": max(beyond, first + 1)}, is_full=True)

    def plan(self, start: _Position, end: _Position) -> Epoch:
        """See :class:`Source`."""
        with self._errors("look at"):
            table = self._table()
        columns = [table.c[name] for name in self._columns or table.c.keys()]
        order = [self._cursor, *table.primary_key.columns.keys()]
        read = partial(_read, self._url, sa.select(*columns), table.c[self._cursor], order)
        return SplitEpoch([] if start == end else [(start["next"], end["next"])], read, is_fresh=True)

    def _errors(self, what: str) -> AbstractContextManager[None]:
        return _USER.errors(self._engine, f"{what} the table {self._name}")

    def _stop(self, connection: sa.Connection, position: _Position) -> int | None:
        """Return the cursor below which no row will be added; None, or the position's, if there is no row."""
        stop, table_id = self._look(connection)
        expected: dict[str, object] = {"table": self._name, "id": table_id}
        check_position(position, expected, f"the table {self._name}")
        done = position["next"]
        if stop is not None and done is not None and stop < done:
            raise IncompatibleCheckpointError(
                f"SQL source: {self._name} is read from {self._cursor} = {done} on, and ends before {stop}: "
                f"its newest rows were deleted, it was made anew, or the database is an older copy. Start a "
                f"new job",
                table=self._name,
            )
        return done if stop is None else stop

    def _look(self, connection: sa.Connection) -> tuple[int | None, int | None]:
        """Return the cursor below which no row will be added, and the table's id, if they are known."""
        table = self._table()
        cursor = table.c[self._cursor]
        newest = sa.select(cursor).order_by(cursor.desc()).limit(1)
        if connection.scalar(sa.select(sa.select(cursor).where(cursor.is_(None)).exists())):
            raise ConfigurationError(
                f"SQL source: {self._name} has rows without {self._cursor}, which would never be read: give "
                f"them one, and make the column NOT NULL",
                table=self._name,
            )
        if not self._has_xids:
            found = connection.scalar(newest)
            return None if found is None else found + 1, None
        snapshot = sa.func.pg_current_snapshot()
        name = self._engine.dialect.identifier_preparer.format_table(table)
        xmin, xmax, found, table_id = connection.execute(
            sa.select(
                sa.func.pg_snapshot_xmin(snapshot, type_=_Xid8()),
                sa.func.pg_snapshot_xmax(snapshot, type_=_Xid8()),
                newest.scalar_subquery(),
                sa.cast(sa.cast(name, postgresql.REGCLASS), postgresql.OID),
            )
        ).one()
        if found is not None and found >= xmax:
            raise ConfigurationError(
                f"SQL source: {self._name} has a row with {self._cursor} = {found}, a transaction that this "
                f"server has not begun: the rows come from another server. Set their {self._cursor} to "
                f"pg_current_xact_id()",
                table=self._name,
            )
        return xmin, int(table_id)

    def _table(self) -> sa.Table:
        """Return the table, after a check that its cursor can be one."""
        if self._checked is None:
            table = _USER.table(self._engine, self._name, [self._cursor, *self._columns])
            kind, misfit = table.c[self._cursor].type, ""
            if self._has_xids and not isinstance(kind, _Xid8):
                misfit = (
                    f"column {self._cursor} is of type {kind}, and rows that commit out of order are lost: "
                    f"ALTER TABLE {self._name} ADD xid xid8 NOT NULL DEFAULT pg_current_xact_id(), or pass "
                    f"commits_in_order=True if only one transaction writes at a time"
                )
            elif self._has_xids and not table.primary_key.columns:
                misfit = "it needs a primary key, which gives the rows of a transaction an order"
            elif not self._has_xids and not isinstance(kind, sa.Integer):
                misfit = f"column {self._cursor} is of type {kind}, and must be of integers"
            elif not self._has_xids and not _is_unique(table, self._cursor):
                misfit = f"column {self._cursor} must be the primary key or have a unique index of its own"
            if misfit:
                raise ConfigurationError(f"SQL source: cannot read {self._name}: {misfit}", table=self._name)
            self._checked = table
        return self._checked


def _shared(url: sa.URL) -> sa.URL:
    """Return a URL that means the same database in other processes."""
    if url.get_backend_name() != "sqlite" or (url.database or "").startswith("file:"):
        return url
    if url.database in (None, "", ":memory:"):
        raise ConfigurationError(
            "SQL source: tasks cannot read a database in memory: give the path of a file"
        )
    return url.set(database=absolute(url.database))


def _is_unique(table: sa.Table, column: str) -> bool:
    unique = [table.primary_key.columns.keys()]
    unique += [index.columns.keys() for index in table.indexes if index.unique]
    unique += [each.columns.keys() for each in table.constraints if isinstance(each, sa.UniqueConstraint)]
    return [column] in unique


def _between(cursor: sa.Column[int], start: int | None, end: int | None) -> list[sa.ColumnElement[bool]]:
    """Return the conditions that the cursor is at least ``start``, if that is not None, and below ``end``."""

    def value(number: int) -> sa.ColumnElement[int]:
        return (
            sa.literal_column(f"'{number}'::xid8") if isinstance(cursor.type, _Xid8) else sa.literal(number)
        )

    return [
        *([] if start is None else [cursor >= value(start)]),
        *([] if end is None else [cursor < value(end)]),
    ]


def _read(
    url: sa.URL,
    query: sa.Select[tuple[object, ...]],
    cursor: sa.Column[int],
    order: list[str],
    split: tuple[int | None, int | None],
    _: Reject,
) -> Iterator[Record]:
    """Yield the rows of a range of the cursor as dicts, in a task.

    Args:
        url: the database.
        query: selects the columns.
        cursor: the cursor.
        order: the columns by which rows are ordered.
        split: the range.
    """
    engine, table = _USER.engine(url), cursor.table
    ordered = query.where(*_between(cursor, *split)).order_by(*[table.c[name] for name in order])
    with (
        _USER.errors(engine, f"read rows of the table {table}"),
        engine.connect().execution_options(yield_per=_ROWS_PER_FETCH) as connection,
    ):
        result = connection.execute(ordered)
        names = list(result.keys())
        yield from (dict(zip(names, row, strict=True)) for row in result)
