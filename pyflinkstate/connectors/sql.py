"""What the sink and the source of databases share: engines, tables, and the errors of using them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError

with needs("sql"):
    import sqlalchemy as sa


@attrs.frozen
class SqlUser:
    """A sink or source, and the errors it raises.

    Attributes:
        name: what messages call it.
        away: the error if another attempt may succeed, because the server may be back.
        away_remedy: what to do then.
        refused: the error if another attempt would fail as well.
        refused_remedy: what to do then.
        context: what errors keep.
    """

    name: str
    away: type[PyFlinkStateError]
    away_remedy: str
    refused: type[PyFlinkStateError]
    refused_remedy: str
    context: dict[str, object] = attrs.Factory(dict)

    def engine(self, url: str | sa.URL) -> sa.Engine:
        """Return an engine, which keeps no connection open.

        Raises:
            ConfigurationError: SQLAlchemy does not know the URL, or its driver is not installed.
        """
        try:
            return sa.create_engine(url, poolclass=sa.NullPool)
        except (sa.exc.ArgumentError, sa.exc.NoSuchModuleError, ImportError) as error:
            raise ConfigurationError(f"{self.name}: SQLAlchemy takes no such URL: {error}") from None

    def table(self, engine: sa.Engine, name: str, columns: Sequence[str]) -> sa.Table:
        """Return a table as it is in the database; it must have these columns."""
        schema, _, own_name = name.rpartition(".")
        try:
            table = sa.Table(own_name, sa.MetaData(), schema=schema or None, autoload_with=engine)
        except sa.exc.NoSuchTableError as error:
            raise self.refused(f"{self.name}: there is no table {error}: create it", **self.context) from None
        missing = [column for column in columns if column not in table.columns]
        if missing:
            raise self.refused(
                f"{self.name}: table {table.fullname} has no column {', '.join(missing)}; it has "
                f"{', '.join(table.columns.keys())}",
                **self.context,
            )
        return table

    @contextmanager
    def errors(self, engine: sa.Engine, what: str) -> Iterator[None]:
        """Convert the errors of SQLAlchemy and of the driver; ``what`` failed is for the message."""
        driver = engine.dialect.loaded_dbapi
        try:
            yield
        except (sa.exc.OperationalError, sa.exc.TimeoutError, driver.OperationalError) as error:
            message = f"{self.name}: cannot {what}: {_reason(error)}. {self.away_remedy}"
            raise self.away(message, **self.context) from error
        except (sa.exc.SQLAlchemyError, driver.Error) as error:
            message = f"{self.name}: cannot {what}: {_reason(error)}. {self.refused_remedy}"
            raise self.refused(message, **self.context) from error


def _reason(error: Exception) -> str:
    """Return what the database says of an error, without the statement and its rows."""
    return str(getattr(error, "orig", None) or error).strip().rstrip(".")
