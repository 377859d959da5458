"""What the command line prints and writes to files, and the keys that users write in the same form.

Tables have borders on a terminal, and are plain text elsewhere, or JSON.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import pyarrow as pa
from pyarrow import csv, parquet

from pyflinkstate.api import (
    ExternalTypeInfo,
    Json,
    JsonObject,
    Key,
    PickledBytesTypeInfo,
    Row,
    TypedValue,
    TypeInformation,
)
from pyflinkstate.backends.types import WrittenForm, find_codec, has_pickles
from pyflinkstate.errors import CheckpointStorageError, InvalidKeyError, PickledStateError, StateTableError
from pyflinkstate.state_access.checkpoint import Checkpoint
from pyflinkstate.state_access.tables import StateTable, load_plain

if TYPE_CHECKING:
    from rich import progress as rich_progress

#: The longest string in a column on a terminal.
_WIDEST = 60


@attrs.frozen
class Printer:
    """Prints to the standard output."""

    as_json: bool
    progress: Progress = attrs.field(factory=lambda: Progress(is_wanted=False))

    def table(
        self,
        title: str,
        rows: Sequence[Mapping[str, object]],
        is_whole: bool = False,
        times: Collection[str] = (),
    ) -> None:
        """Print rows under a title; they all have the same names. JSON has both in one object.

        Args:
            title: describes the rows.
            rows: the rows.
            is_whole: whether a long text is shown to its end, on one line, such as a path to be copied.
            times: the columns with moments in ms since 1970, which people see as dates; JSON has the numbers.
        """
        self.progress.hide()
        if not self.as_json:
            rows = [_with_dates(row, times) for row in rows]
        shown = [readable(None, row) for row in rows]
        if self.as_json:
            print(json_text({"title": title, "rows": shown}))
        elif shown and sys.stdout.isatty() and not is_whole:
            _print_with_borders(title, shown)
        else:
            _print_plainly(title, shown, None if is_whole else _WIDEST)

    def value(self, value: Json) -> None:
        """Print a value as JSON, on one line."""
        print(json_text(readable(None, value)))

    def note(self, text: str) -> None:
        """Print a remark, which programs do not need."""
        if not self.as_json:
            self.progress.hide()
            print(text)


def _with_dates(row: Mapping[str, object], times: Collection[str]) -> Mapping[str, object]:
    return {
        name.removesuffix("_ms") if name in times else name: date_of(value)
        if name in times and isinstance(value, int)
        else value
        for name, value in row.items()
    }


def date_of(at_ms: int) -> str:
    """Return a time in ms since 1970 as a date in the time zone of this machine.

    >>> date_of(1_700_000_000_000)[:5], date_of(1_700_000_000_000)[16:19]
    ('2023-', ':20')
    """
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.utc).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):  # a damaged checkpoint may say anything
        return str(at_ms)


def readable_rows(table: StateTable, limit: int | None = None) -> list[JsonObject]:
    """Return rows of a table that can be printed: pickles of plain values as these, others by their size."""
    return [readable_row(table, row) for row in islice(table.rows(), limit)]


def readable_row(table: StateTable, row: JsonObject) -> JsonObject:
    """Return a row of a table in a form that can be printed."""
    types = {column.name: column.type_info for column in table.columns}
    return {name: readable(types[name], value) for name, value in row.items()}


def json_text(value: Json) -> str:
    """Return a readable value as JSON."""
    return json.dumps(value, default=str, ensure_ascii=False, allow_nan=False)


def readable(type_info: TypeInformation | None, value: TypedValue) -> Any:
    """Return a value in a form that JSON can express: NaN and infinity, for example, become strings."""
    if isinstance(value, bytes) and type_info is not None and has_pickles(type_info):
        return _of_pickle(value) if isinstance(type_info, PickledBytesTypeInfo) else value.hex()
    if isinstance(value, dict):
        key, item = _parts(type_info, 2)
        names = told_apart(str(readable(key, name)) for name in value)
        return {name: readable(item, one) for name, one in zip(names, value.values(), strict=True)}
    if isinstance(value, (list, tuple, Row)):
        parts = _parts(type_info, len(value))
        return [readable(part, one) for part, one in zip(parts, value, strict=True)]
    if isinstance(value, bytes):
        return value.hex()
    is_json = value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value))
    return value if is_json else str(value)


def told_apart(names: Iterable[str], separator: str = " #") -> list[str]:
    """Return the names, with a number behind each that was there before, so that none takes another's place.

    >>> told_apart(["a", "b", "a", "a"])
    ['a', 'b', 'a #2', 'a #3']
    """
    found: dict[str, None] = {}
    counts: Counter[str] = Counter()
    for name in names:
        free = name
        while free in found:
            counts[name] += 1
            free = f"{name}{separator}{counts[name] + 1}"
        found[free] = None
    return list(found)


def _parts(type_info: TypeInformation | None, count: int) -> Sequence[TypeInformation | None]:
    """Return the types of the parts of a value; all elements of a list have one type."""
    parts = () if type_info is None else type_info.parts()
    if len(parts) == count:
        return parts
    return (parts[0] if len(parts) == 1 else None,) * count


def _of_pickle(data: bytes) -> Json:
    try:
        return readable(None, load_plain(data))
    except PickledStateError:
        return f"<pickle, {len(data)} bytes>"


def _cell(value: Json, widest: int | None) -> str:
    text = value if isinstance(value, str) else json_text(value)
    return text if widest is None or len(text) <= widest else f"{text[: widest - 1]}…"


def _print_plainly(title: str, rows: Sequence[JsonObject], widest: int | None) -> None:
    print(title)
    if not rows:
        print("  (none)")
        return
    lines = [list(rows[0]), *([_cell(value, widest) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("".join(f"  {text.ljust(width)}" for text, width in zip(line, widths, strict=True)).rstrip())


def _print_with_borders(title: str, rows: Sequence[JsonObject]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        made.add_row(*(Text(_cell(value, _WIDEST)) for value in row.values()))
    Console().print(made)


#: Work that takes less than this, in seconds, shows nothing.
_PATIENCE_S = 1.0


class Progress:
    """Shows on the standard error how many bytes have been read, on a terminal only.

    Args:
        is_wanted: False shows nothing in any case.
        clock: returns the time in seconds, from any moment on.
    """

    def __init__(self, is_wanted: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._clock = clock
        self._begin = clock()
        self._bytes_read = 0
        self._total: int | None = None
        self._display: rich_progress.Progress | None = None

    def expect(self, size_bytes: int) -> None:
        """Say how much there is to read."""
        self._total = size_bytes

    def advance(self, size_bytes: int) -> None:
        """Add to the number of bytes read."""
        self._bytes_read += size_bytes
        if self._is_wanted and self._clock() - self._begin >= _PATIENCE_S:
            self._show()

    def hide(self) -> None:
        """Take the display away, so that other lines can be printed. The next advance brings it back."""
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _show(self) -> None:
        if self._display is None:
            self._display = _started()
        (task,) = self._display.task_ids
        self._display.update(task, completed=self._bytes_read, total=self._total)


def _started() -> rich_progress.Progress:
    """Return a display that is shown."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    columns = (SpinnerColumn(), TextColumn("read"), DownloadColumn(), TransferSpeedColumn())
    made = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )
    made.add_task("read", total=None)
    made.start()
    return made


#: A value of JSON that may be a key or a part of one.
_Written: TypeAlias = "Key | list[_Written]"


def parsed_key(text: str, key_type: TypeInformation) -> Key:
    """Return the key that a user has written: strings, dates and the like as printed, others as JSON.

    A key without a declared type is JSON if it can be, and otherwise a text. Lists become tuples, and the
    texts in them values of the types of their fields.

    Raises:
        InvalidKeyError: the text is neither.
    """
    form = _form_of(key_type)
    if form is not None:
        return _read(form, text, key_type)
    try:
        written = json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(key_type, PickledBytesTypeInfo):
            return text
        raise InvalidKeyError(
            f"keys are of {key_type}, and {text!r} is not JSON: {error}", key=text
        ) from error
    return _typed(written, key_type)


def _form_of(key_type: TypeInformation) -> WrittenForm | None:
    if isinstance(key_type, ExternalTypeInfo):
        return _form_of(key_type.parts()[0])
    return find_codec(key_type).written


def _read(form: WrittenForm, text: str, key_type: TypeInformation) -> Key:
    try:
        key: Key = form.read(text)
    except (ValueError, ArithmeticError) as error:
        raise InvalidKeyError(
            f"a key of {key_type} is written like {form.example}, and {text!r} is not: {error}", key=text
        ) from error
    return key


def _typed(written: _Written, key_type: TypeInformation | None) -> Key:
    """Convert parsed JSON to a key; parts without a type stay as they are."""
    if isinstance(written, list):
        parts = () if key_type is None else key_type.parts()
        types = parts if len(parts) == len(written) else (None,) * len(written)
        return tuple([_typed(one, part) for one, part in zip(written, types, strict=True)])
    form = None if key_type is None else _form_of(key_type)
    if form is None or key_type is None or not isinstance(written, str):
        return written
    return _read(form, written, key_type)


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
    types, count = _types_to_read(table), 0
    fields = [field.with_type(pa.large_string()) if _is_json(field.type) else field for field in table.schema]
    schema = pa.schema(fields)
    with csv.CSVWriter(path, schema) as file:
        for batch, rows in _batches_with_rows(table):
            columns = [
                _as_text(types[name], [row[name] for row in rows]) if _is_json(array.type) else array
                for name, array in zip(schema.names, batch.columns, strict=True)
            ]
            file.write_batch(pa.record_batch(columns, schema=schema))
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


def _is_json(arrow: pa.DataType) -> bool:
    is_binary = pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow)
    return bool(pa.types.is_nested(arrow) or is_binary or pa.types.is_fixed_size_binary(arrow))


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
