"""What the sink and the source of Apache Iceberg share: a table in a catalog, and the errors of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError

with needs("iceberg"):
    from pyiceberg import exceptions
    from pyiceberg.catalog import Catalog, load_catalog
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
    from pyiceberg.table import Table
    from sqlalchemy.exc import SQLAlchemyError

#: Errors after which another attempt would fail as well.
_REFUSED = (
    exceptions.BadRequestError,
    exceptions.ForbiddenError,
    exceptions.NoSuchNamespaceError,
    exceptions.NoSuchTableError,
    exceptions.NotInstalledError,
    exceptions.UnauthorizedError,
    exceptions.ValidationError,
    exceptions.ValidationException,
    TypeError,
    UnsupportedPyArrowTypeException,
    ValueError,
)
#: Errors after which another attempt may succeed. HTTP clients and Arrow's storage raise ``OSError``.
_AWAY = (exceptions.CommitFailedException, exceptions.RESTError, SQLAlchemyError, OSError)


@attrs.define
class IcebergTable:
    """A table in a catalog, which is not contacted before the first use.

    Args:
        properties: the properties that ``pyiceberg.catalog.load_catalog`` takes, and its ``name``.
        identifier: ``"namespace.table"``.

    Raises:
        ConfigurationError: one of the two has another form.
    """

    properties: Mapping[str, str] = attrs.field(repr=False)
    identifier: str
    _catalog: Catalog | None = attrs.field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.properties, Mapping):
            raise ConfigurationError(
                "Iceberg: catalog is a dict of properties such as "
                '{"name": "prod", "type": "rest", "uri": "https://..."}, '
                f"not a {type(self.properties).__name__}"
            )
        parts = self.identifier.split(".") if isinstance(self.identifier, str) else []
        if len(parts) < 2 or not all(parts):
            raise ConfigurationError(f'Iceberg: table must be "namespace.table", not {self.identifier!r}')

    @property
    def catalog(self) -> Catalog:
        """The catalog, which is contacted now if it was not before."""
        if self._catalog is None:
            properties = dict(self.properties)
            self._catalog = load_catalog(properties.pop("name", None), **properties)
        return self._catalog

    def load(self) -> Table:
        """Return the newest version of the table."""
        return self.catalog.load_table(self.identifier)

    def close(self) -> None:
        """Give back the connections to the catalog; they are made again if they are needed."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()


@contextmanager
def iceberg_errors(
    who: str, what: str, table: str, refused: type[PyFlinkStateError], away: type[PyFlinkStateError]
) -> Iterator[None]:
    """Convert the library's errors.

    Args:
        who: the sink or source, for the message.
        what: what it does with the table, for the message.
        table: the identifier of the table.
        refused: the error if another attempt would fail as well.
        away: the error if the catalog or the table's storage cannot be reached.
    """
    try:
        yield
    except PyFlinkStateError:
        raise
    except _REFUSED as error:
        raise refused(
            f"{who}: cannot {what} the table {table}: {_text(error)}. Check the table, the properties of the "
            f"catalog and the rights of its user",
            table=table,
        ) from error
    except _AWAY as error:
        raise away(
            f"{who}: cannot {what} the table {table}: {_text(error)}. Try again when the catalog and the "
            f"table's storage can be reached",
            table=table,
        ) from error


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".")
