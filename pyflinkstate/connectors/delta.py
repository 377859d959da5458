"""What the sink and the source of Delta Lake share: where a table is, and the errors of using it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.connectors.extras import needs
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.storage import AnyPath, absolute, is_uri, open_file_system

with needs("delta"):
    from deltalake import DeltaTable, Schema as DeltaSchema
    from deltalake.exceptions import (
        DeltaError,
        DeltaProtocolError,
        SchemaMismatchError,
        TableNotFoundError,
    )

#: Escape sequences and arrows in the library's messages, which have many lines.
_DECORATION = re.compile(r"\x1b\[\d*m|↳|\s+")
_REFUSED = re.compile(r"privileges|permission denied|access.?denied|forbidden", re.IGNORECASE)
#: Types that the library would change into others: unsigned integers, nanoseconds, no type at all.
_ODD = re.compile(r"\b(uint\d+|null)\b(?!:)|\[ns")
#: Properties of tables under which files have more rules than their schema.
_RULES = re.compile(r"delta\.(constraints\..*|columnMapping\.mode|enableDeletionVectors)")
#: Errors after which another attempt would fail as well.
_LASTING = (TableNotFoundError, DeltaProtocolError, SchemaMismatchError, ValueError)
_S3_OPTIONS = {
    "access_key_id": "access_key",
    "secret_access_key": "secret_key",
    "session_token": "session_token",
    "default_region": "region",
    "region": "region",
    "endpoint": "endpoint_override",
    "endpoint_url": "endpoint_override",
}


def _checked_uri(uri: AnyPath) -> str:
    text = absolute(uri)
    if is_uri(text) and ("?" in text or not text.startswith(("s3://", "file:"))):
        raise ConfigurationError(
            f"Delta table {text}: it must be a local path, or s3://BUCKET/PATH without options; give these "
            f"as storage_options"
        )
    return text


@attrs.frozen
class DeltaPlace:
    """Where a table is.

    Attributes:
        uri: a local path, or ``s3://BUCKET/PATH``.
        storage_options: options of S3 as ``deltalake`` takes them, such as ``AWS_ENDPOINT_URL``. What is not
            given comes from the environment of each process.

    Raises:
        ConfigurationError: the URI is of another kind.
    """

    uri: str = attrs.field(converter=_checked_uri)
    storage_options: dict[str, str] = attrs.field(repr=False)

    @property
    def options(self) -> dict[str, str]:
        """Options for ``deltalake``, under which S3 refuses to overwrite a commit."""
        return {"aws_conditional_put": "etag", **self.storage_options}

    def load(self, version: int | None = None) -> DeltaTable:
        """Return the table at a version, by default at the newest one."""
        return DeltaTable(self.uri, version=version, storage_options=self.options)

    def actions(self, version: int) -> list[tuple[str, Any]]:
        """Return the actions of a version, in order, each with its kind."""
        file_system, folder = self.folder()
        with file_system.open_input_stream(f"{folder}/{log_name(version)}") as stream:
            return [action for line in stream.read().splitlines() for action in json.loads(line).items()]

    def folder(self) -> tuple[fs.FileSystem, str]:
        """Return the file system of the table's folder, and the path on it."""
        if not self.uri.startswith("s3:"):
            return open_file_system(self.uri)
        given = {name.lower().removeprefix("aws_"): value for name, value in self.storage_options.items()}
        options = {own: given[name] for name, own in _S3_OPTIONS.items() if name in given}
        return fs.S3FileSystem(**options), self.uri.removeprefix("s3://")


def log_name(version: int) -> str:
    """Return the path of a version's log in the table's folder."""
    return f"_delta_log/{version:020d}.json"


def columns_of(table: DeltaTable) -> pa.Schema:
    """Return the columns of a table."""
    return pa.schema(table.schema().to_arrow())


def rules_of(table: DeltaTable) -> list[str]:
    """Return the properties of a table that neither the sink nor the source can respect."""
    return [
        f"it has the property {name}={value}, which is not supported"
        for name, value in table.metadata().configuration.items()
        if _RULES.fullmatch(name) and value not in ("none", "false")
    ]


def storable(who: str, schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types as Delta tables have them.

    Args:
        who: the sink, for the message.
        schema: the schema.

    Raises:
        ConfigurationError: Delta Lake has no such type.
    """
    try:
        found = pa.schema(DeltaSchema.from_arrow(schema).to_arrow())
    except Exception as error:  # the library raises it
        raise ConfigurationError(f"{who}: Delta Lake has no type for a column: {_text(error)}") from error
    odd = [f"{field.name!r} ({field.type})" for field in schema if _ODD.search(str(field.type)) is not None]
    if odd:
        raise ConfigurationError(
            f"{who}: Delta Lake has no such types: {', '.join(odd)}. Use signed integers, and timestamps in "
            f"microseconds"
        )
    return found


@contextmanager
def delta_errors(
    who: str, what: str, place: DeltaPlace, refused: type[PyFlinkStateError], away: type[PyFlinkStateError]
) -> Iterator[None]:
    """Convert the library's errors.

    Args:
        who: the sink or source, for the message.
        what: what it does with the table, for the message.
        place: where the table is.
        refused: the error if another attempt would fail as well.
        away: the error if the storage cannot be reached.
    """
    try:
        yield
    except PyFlinkStateError:
        raise
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        text = _text(error)
        remedy, kind = "Try again when its storage can be reached", away
        if _REFUSED.search(text) is not None:
            remedy, kind = "Give this user the right to list, read and write there", refused
        elif isinstance(error, _LASTING):
            remedy, kind = "Check that the table is there and is not damaged", refused
        raise kind(
            f"{who}: cannot {what} the Delta table {place.uri}: {text}. {remedy}", table=place.uri
        ) from error


def _text(error: Exception) -> str:
    return " ".join(_DECORATION.sub(" ", str(error)).split()).rstrip(".")
