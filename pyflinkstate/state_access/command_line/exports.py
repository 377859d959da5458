"""Writes tables of state to files."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import csv, parquet

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import JsonObject, TypedValue
from pyflinkstate.errors import CheckpointStorageError, StateTableError
from pyflinkstate.state_access.checkpoint import Checkpoint
from pyflinkstate.state_access.command_line.printing import json_text, readable, told_apart
from pyflinkstate.state_access.tables import StateTable

#: The longest name of a file in bytes, without its ending. Most file systems allow 255, and a number may be
#: added, and 34 bytes while the file is not complete.
_LONGEST_BYTES = 190


def state_names(checkpoint: Checkpoint, uid: str) -> list[str]:
    """Return the names of the keyed states of an operator."""
    kinds = ("VALUE", "LIST", "MAP", "REDUCING", "AGGREGATING")
    return [state.name for state in checkpoint.states(uid) if state.kind in kinds]


def file_names(names: Iterable[str], kind: str) -> list[str]:
    """Return a name of a file for each of these names, in which a file system allows all letters.

    >>> file_names(["op.a b", "op.a/b"], "csv")
    ['op.a_b.csv', 'op.a_b-2.csv']
    """
    plain = (re.sub(r"[^\w.-]", "_", name) for name in names)
    short = (name.encode()[:_LONGEST_BYTES].decode(errors="ignore") for name in plain)
    return [f"{name}.{kind}" for name in told_apart(short, "-")]


def exported(table: StateTable, folder: str, file_name: str, kind: str) -> tuple[str, int]:
    """Write a table to a new file, a key group at a time; return its path and the number of rows.

    The file appears under its name only when it is complete.

    Raises:
        StateTableError: there is such a file already, or the format cannot hold the table.
        CheckpointStorageError: the file cannot be written.
    """
    path = Path(folder) / file_name
    with _whole_file(path) as unfinished:
        count = _WRITERS[kind](table, str(unfinished))
    return str(path), count


@contextmanager
def _whole_file(path: Path) -> Iterator[Path]:
    """Yield the name under which to write a file, which gets its own name at the end."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        if path.exists():
            raise StateTableError(
                f"{path} exists already: move it away, or choose another folder", path=str(path)
            )
        yield unfinished
        os.rename(unfinished, path)
    except (OSError, pa.ArrowException) as error:
        raise CheckpointStorageError(f"{path} cannot be written: {error}", path=str(path)) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _write_parquet(table: StateTable, path: str) -> int:
    reader, count = table.to_reader(), 0
    with parquet.ParquetWriter(path, reader.schema) as file:
        for batch in reader:
            file.write_batch(batch)
            count += batch.num_rows
    return count


def _write_csv(table: StateTable, path: str) -> int:
    """Write CSV, in which lists, maps and rows are JSON, and bytes are what they are in JSON."""
    count = 0
    schema = pa.schema([pa.field(field.name, _flat(field.type)) for field in table.schema])
    with csv.CSVWriter(path, schema) as file:
        for batch, rows in _batches_with_rows(table):
            file.write_batch(pa.record_batch(_flat_columns(table, batch, rows), schema=schema))
            count += batch.num_rows
    return count


def _batches_with_rows(table: StateTable) -> Iterator[tuple[pa.RecordBatch, list[JsonObject]]]:
    """Yield batches, each with its rows as :func:`_write_json` has them."""
    batches = table.to_batches()
    # Batches with loaded pickles are no longer in the declared types, so rows are made of the others.
    pairs = (
        zip(batches, table.read(), strict=True) if table.loads_pickles else ((one, one) for one in batches)
    )
    for batch, declared in pairs:
        yield batch, list(table.rows_of(declared))


def _flat(arrow: pa.DataType) -> pa.DataType:
    return pa.large_string() if _is_told_as_text(arrow) else arrow


def _is_told_as_text(arrow: pa.DataType) -> bool:
    is_binary = pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow)
    return bool(pa.types.is_nested(arrow) or is_binary or pa.types.is_fixed_size_binary(arrow))


def _flat_columns(table: StateTable, batch: pa.RecordBatch, rows: list[JsonObject]) -> list[pa.Array]:
    types = _types_to_read(table)
    return [
        _as_text(types[name], [row[name] for row in rows]) if _is_told_as_text(array.type) else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]


def _as_text(type_info: TypeInformation | None, values: Iterable[TypedValue]) -> pa.Array:
    shown = [readable(type_info, value) for value in values]
    texts = [value if value is None or isinstance(value, str) else json_text(value) for value in shown]
    return pa.array(texts, pa.large_string())


def _types_to_read(table: StateTable) -> dict[str, TypeInformation | None]:
    """Return the type of each column; None if its pickles were loaded, so that bytes are not pickles."""
    return {
        column.name: None if table.allow_pickle and column.is_pickled else column.type_info
        for column in table.columns
    }


def _write_json(table: StateTable, path: str) -> int:
    """Write a JSON object on each line."""
    types, count = _types_to_read(table), 0
    with open(path, "x", encoding="utf-8") as file:
        for row in table.rows():
            made = {name: readable(types[name], value) for name, value in row.items()}
            file.write(json_text(made) + "\n")
            count += 1
    return count


_WRITERS = {"parquet": _write_parquet, "csv": _write_csv, "json": _write_json}
