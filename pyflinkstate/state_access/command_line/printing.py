"""Prints tables: with borders on a terminal, as plain text elsewhere, or as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from math import isfinite

import attrs

from pyflinkstate.api.row import Row
from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Json, JsonObject, TypedValue
from pyflinkstate.errors import PickledStateError
from pyflinkstate.state_access.command_line.progress import Progress
from pyflinkstate.state_access.pickles import has_pickles, load_plain
from pyflinkstate.state_access.tables import StateTable

#: The longest string in a column on a terminal.
_WIDEST = 60


@attrs.frozen
class Printer:
    """Prints to the standard output."""

    as_json: bool
    progress: Progress = attrs.field(factory=lambda: Progress(is_wanted=False))

    def table(self, title: str, rows: Sequence[JsonObject], is_whole: bool = False) -> None:
        """Print rows under a title; they all have the same names. JSON has both in one object.

        Args:
            title: describes the rows.
            rows: the rows.
            is_whole: whether a long text is shown to its end, on one line, such as a path to be copied.
        """
        self.progress.hide()
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


def readable(type_info: TypeInformation | None, value: TypedValue) -> Json:
    """Return a value in a form that JSON can express: NaN and infinity, for example, become strings."""
    if isinstance(value, bytes) and type_info is not None and has_pickles(type_info):
        return _of_pickle(value) if isinstance(type_info, PickledBytesTypeInfo) else value.hex()
    if isinstance(value, dict):
        key, item = _parts(type_info, 2)
        names = told_apart(str(readable(key, name)) for name in value)
        return {name: readable(item, one) for name, one in zip(names, value.values(), strict=True)}
    if isinstance(value, Row):
        parts = _parts(type_info, len(value))
        return [readable(part, one) for part, one in zip(parts, value, strict=True)]
    if isinstance(value, (list, tuple)):
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


def _cells(rows: Sequence[JsonObject], widest: int | None = _WIDEST) -> list[list[str]]:
    return [[_cell(value, widest) for value in row.values()] for row in rows]


def _cell(value: Json, widest: int | None) -> str:
    text = value if isinstance(value, str) else json_text(value)
    return text if widest is None or len(text) <= widest else f"{text[: widest - 1]}…"


def _print_plainly(title: str, rows: Sequence[JsonObject], widest: int | None) -> None:
    print(title)
    if not rows:
        print("  (none)")
        return
    names = list(rows[0])
    lines = [names, *_cells(rows, widest)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(names))]
    for line in lines:
        print(f"  {'  '.join(_padded(line, widths))}".rstrip())


def _padded(line: Iterable[str], widths: Iterable[int]) -> list[str]:
    return [text.ljust(width) for text, width in zip(line, widths, strict=True)]


def _print_with_borders(title: str, rows: Sequence[JsonObject]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left")
    for name in rows[0]:
        made.add_column(name)
    for cells in _cells(rows):
        made.add_row(*map(Text, cells))
    Console().print(made)
