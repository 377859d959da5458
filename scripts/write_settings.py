"""Writes the tables of settings in the documents from the table of settings in the code.

    python scripts/write_settings.py            writes them
    python scripts/write_settings.py --check    ends with 1 if one is not what the code is

A document has a place for each: a line ``<!-- written by scripts/write_settings.py: NAME -->``, the table,
and a line ``<!-- written: end -->``.
"""

from __future__ import annotations

import argparse
import enum
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from pyflinkstate.runtime.program.environment_settings import TABLE
from pyflinkstate.runtime.settings import CheckpointConfig, CheckpointSettings, Setting, rows_of

DOCS = Path(__file__).parents[1] / "docs"
_PLACE = re.compile(
    r"(<!-- written by scripts/write_settings\.py: (\w+) -->\n).*?(<!-- written: end -->)", re.DOTALL
)


def default_of(row: Setting) -> str:
    """Return the default in words."""
    value = row.default
    if row.shown or value is None:
        return row.shown
    if isinstance(value, enum.Enum):
        return f"`{value.name}`"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    heads = list(heads)
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows).replace("|  |", "| |")


def keys_of(row: Setting) -> str:
    """Return the names of a setting in a ``Configuration``, and those that are read with it."""
    family = row.key.rpartition(".")[0]
    parts = [part if kind is None else f"{family}.{kind}.*" for part, kind in row.parts.items()]
    return ", ".join(f"`{key}`" for key in dict.fromkeys([*row.instead, row.key, *parts]))


def tables() -> dict[str, str]:
    """Return the tables by their names."""
    rows = [option.row for option in TABLE]
    used = [row for row in rows if row.key and not row.why_idle]
    checkpoints = [*rows_of(CheckpointSettings).values(), *rows_of(CheckpointConfig).values()]
    told = {row.setter for row in checkpoints}
    return {
        "checkpoints": table(
            ["setting", "default", "meaning"],
            ([f"`{row.setter}`", default_of(row), row.meaning] for row in checkpoints),
        ),
        "configuration": table(
            ["key", "method", "default", "meaning"],
            (
                [keys_of(row), f"`{row.setter}`" if row.setter else "", default_of(row), row.meaning]
                for row in used
                if row.setter not in told
            ),
        ),
        "checkpoint_keys": table(
            ["key", "method"],
            ([keys_of(row), f"`{row.setter}`"] for row in used if row.setter in told),
        ),
        "idle": table(
            ["key, method", "why it changes nothing"],
            (
                [", ".join(f"{keys_of(row)} `{row.setter}`" for row in rows if row.why_idle == why), why]
                for why in dict.fromkeys(row.why_idle for row in rows if row.why_idle)
            ),
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    written, left = tables(), set(tables())
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        left -= {name for _, name, _ in _PLACE.findall(text)}
        drawn = _PLACE.sub(lambda found: f"{found[1]}\n{written[found[2]]}\n{found[3]}", text)
        if drawn != text and is_check:
            sys.exit(f"{path.name}: not what the code has; run python scripts/write_settings.py")
        if drawn != text:
            path.write_text(drawn, encoding="utf-8")
    if left:
        sys.exit(f"no document has a place for: {', '.join(sorted(left))}")


if __name__ == "__main__":
    main()
