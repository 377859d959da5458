"""Draws the picture of the rooms in docs/ARCHITECTURE.md from the imports of the code.

    python scripts/draw_rooms.py            writes it
    python scripts/draw_rooms.py --check    ends with 1 if it is not what the code is

A room is a package, or a file beside the packages. The picture shows which rooms import which.
"""

from __future__ import annotations

import argparse
import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pyflinkstate"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
ROW, WIDTH, LEFT, TOP = 30, 230, 260, 20


@cache
def parsed(path: Path) -> ast.Module:
    """Return what a file holds."""
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms_below(floor: Path) -> list[Path]:
    """Return the rooms of a floor from the top down, in the order that the rule test holds.

    A folder without code is what a room has left that is a file now: caches.
    """
    rooms = {path.stem: path for path in floor.iterdir() if path.suffix == ".py" or list(path.glob("*.py"))}
    return [rooms[name] for name in _orders()[floor.name]]


def _orders() -> dict[str, list[str]]:
    rules = parsed(ROOT / "tests" / "test_rules.py")
    found = {}
    for node in rules.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("_ORDER"):
            name = ast.unparse(node.targets[0]).removesuffix("_ORDER").lower()
            found[name] = ast.literal_eval(node.value)
    return found


def reached_from(name: str, needs: dict[str, set[str]]) -> set[str]:
    """Return all the rooms that ``name`` stands on."""
    found: set[str] = set()
    ahead = [*needs[name] - {name}]
    while ahead:
        other = ahead.pop()
        if other not in found:
            found.add(other)
            ahead += needs[other] - {other}
    return found


@cache
def imports_of(room: Path, floor: str) -> set[str]:
    """Return the names of the rooms of ``floor`` that the files of ``room`` import."""
    prefix = f"pyflinkstate.{floor}."
    found = set()
    for path in room.rglob("*.py") if room.is_dir() else [room]:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(prefix):
                found.add((node.module or "").split(".")[2])
    return found


# --- the picture ---------------------------------------------------------------------------------


def drawn() -> str:
    """Return the picture: the rooms one above the other, and on the right who imports whom."""
    rows = [(floor, room) for floor in ("runtime", "backends") for room in rooms_below(PACKAGE / floor)]
    height = TOP * 2 + ROW * (len(rows) + 6)
    places = {}
    parts = [_box("testing, datastream, common", 0)]
    row = 1
    for floor in ("runtime", "backends"):
        parts.append(_label(f"{floor}/", row))
        row += 1
        for name, room in rows:
            if name == floor:
                places[f"{floor}.{room.stem}"] = row
                parts.append(_box(f"{room.name}/" if room.is_dir() else room.name, row))
                row += 1
    parts += [_label("below them", row), _box("api/", row + 1), _box("errors.py", row + 2)]
    for floor, room in rows:
        for other in sorted(_nearest(room, floor)):
            parts.append(_arc(places[f"{floor}.{room.stem}"], places[f"{floor}.{other}"]))
    style = (
        "text{font:14px sans-serif;fill:#333}rect{fill:#e8f0ee;stroke:#4a7a70}path{fill:none;stroke:#4a7a70}"
        "@media (prefers-color-scheme: dark)"
        "{text{fill:#e6edf3}rect{fill:#1d302c;stroke:#6fa89c}path{stroke:#6fa89c}}"
    )
    size = f'width="620" height="{height}" viewBox="0 0 620 {height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
    title = "<title>The rooms of pyflinkstate, and who imports whom</title>"
    return "\n".join([head, title, *parts, "</svg>", ""])


def _nearest(room: Path, floor: str) -> set[str]:
    """Return what a room imports and does not reach through another one that it imports."""
    needs = {path.stem: imports_of(path, floor) for path in rooms_below(PACKAGE / floor)}
    direct = needs[room.stem] - {room.stem}
    return {
        name for name in direct if not any(name in reached_from(other, needs) for other in direct - {name})
    }


def _y(row: int) -> int:
    return TOP + row * ROW


def _box(text: str, row: int) -> str:
    return (
        f'<rect x="{LEFT - WIDTH}" y="{_y(row)}" width="{WIDTH}" height="{ROW - 6}" rx="4"/>'
        f'<text x="{LEFT - WIDTH + 10}" y="{_y(row) + 17}">{text}</text>'
    )


def _label(text: str, row: int) -> str:
    return f'<text x="{LEFT - WIDTH}" y="{_y(row) + 20}" font-weight="bold">{text}</text>'


def _arc(upper: int, lower: int) -> str:
    begin, end = _y(upper) + 16, _y(lower) + 8
    reach = LEFT + 20 + 22 * (lower - upper)
    return f'<path d="M{LEFT} {begin} C{reach} {begin} {reach} {end} {LEFT} {end}"/>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = drawn()
    if not parser.parse_args().check:
        PICTURE.write_text(text, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PICTURE.relative_to(ROOT)}: not what the code is; run python scripts/draw_rooms.py")


if __name__ == "__main__":
    main()
