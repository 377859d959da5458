"""The view of a value in a notebook: small static HTML, with every string escaped and no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

#: Longer tables are cut, and say so.
MOST_ROWS = 20
#: Longer texts are cut.
MOST_TEXT = 500


def facts(title: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return a title and a table with a row for each fact that is known; None is not.

    >>> facts("job", [("id", "<a>"), ("cause", None)])
    '<table><caption>job</caption><tr><th scope="row">id</th><td>&lt;a&gt;</td></tr></table>'
    """
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>'
        for name, value in pairs
        if value is not None
    )
    return f"<table><caption>{_text(title)}</caption>{rows}</table>"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of the first rows; nothing if there are none."""
    if not rows:
        return ""
    titles = "".join(f'<th scope="col">{_text(one)}</th>' for one in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows[:MOST_ROWS]
    )
    left_out = len(rows) - MOST_ROWS
    more = f"<p>{left_out} more</p>" if left_out > 0 else ""
    return f"<table><caption>{_text(caption)}</caption><tr>{titles}</tr>{body}</table>{more}"


def _text(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "...")


def size(size_bytes: float) -> str:
    """Return a number of bytes for a reader.

    >>> size(2048)
    '2.0 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}" if unit != "B" else f"{size_bytes:.0f} B"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"
