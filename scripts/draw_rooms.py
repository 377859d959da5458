"""Draws the rooms of the package from its code: the picture and the list of files in docs/ARCHITECTURE.md.

    python scripts/draw_rooms.py            writes both
    python scripts/draw_rooms.py --check    ends with 1 if they are not what the code is

A room is a package; what it says of itself, and each file of itself, is the first sentence of its docstring.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pyflinkstate"
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
BEGIN, END = "<!-- rooms: begin, drawn by scripts/draw_rooms.py -->", "<!-- rooms: end -->"
#: The floors of the house, from the top down; those of one line do not know each other.
FLOORS = [
    ["monitor"],
    ["state_access", "testing", "datastream", "common"],
    ["runtime"],
    ["backends"],
    ["api"],
    ["notebook"],
    ["errors"],
    ["version"],
]

ROW, WIDTH, LEFT, TOP = 30, 230, 260, 20


@cache
def parsed(path: Path) -> ast.Module:
    """Return what a file holds."""
    return ast.parse(path.read_text(encoding="utf-8"))


def rooms_below(floor: Path) -> list[Path]:
    """Return the packages of a floor from the top down, in the order that the rule test holds."""
    order = _orders().get(floor.name, [])
    rooms = [path for path in floor.iterdir() if (path / "__init__.py").exists()]
    return sorted(rooms, key=lambda path: (order.index(path.name) if path.name in order else -1, path.name))


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
    for path in room.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(prefix):
                found.add((node.module or "").split(".")[2])
    return {name for name in found if (PACKAGE / floor / name).is_dir()}


def sentence(path: Path) -> str:
    """Return the first sentence of a file's docstring."""
    text = ast.get_docstring(parsed(path)) or ""
    return " ".join(text.split("\n\n")[0].split())


# --- the list ------------------------------------------------------------------------------------


def listed() -> str:
    """Return the list of all rooms and files."""
    return "\n".join(line for floor in FLOORS for name in floor for line in _floor(name))


def _floor(name: str) -> Iterator[str]:
    path = PACKAGE / name
    if not path.is_dir():
        yield from ("", f"### `{name}.py`", "", sentence(path.with_suffix(".py")))
        return
    yield from _room(path)
    for room in rooms_below(path):
        yield from _room(room)
        for inner in sorted(one for one in room.iterdir() if (one / "__init__.py").exists()):
            yield from _room(inner)


def _room(room: Path) -> Iterator[str]:
    yield from ("", f"### `{room.relative_to(PACKAGE)}/`", "", sentence(room / "__init__.py"))
    files = sorted(path for path in room.glob("*.py") if path.name != "__init__.py")
    if files:
        yield from ("", "| file | what it is |", "|---|---|")
        yield from (f"| `{path.name}` | {sentence(path)} |" for path in files)


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
                places[f"{floor}.{room.name}"] = row
                parts.append(_box(f"{room.name}/", row))
                row += 1
    parts += [_label("below them", row), _box("api/", row + 1), _box("errors.py", row + 2)]
    for floor, room in rows:
        for other in sorted(_nearest(room, floor)):
            parts.append(_arc(places[f"{floor}.{room.name}"], places[f"{floor}.{other}"]))
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
    needs = {path.name: imports_of(path, floor) for path in rooms_below(PACKAGE / floor)}
    direct = needs[room.name] - {room.name}
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


# --- the files -----------------------------------------------------------------------------------


def page() -> str:
    """Return the page with the list as the code is."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{listed()}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    wanted = {PAGE: page(), PICTURE: drawn()}
    if not parser.parse_args().check:
        for path, text in wanted.items():
            path.write_text(text, encoding="utf-8")
        return
    stale = [
        str(path.relative_to(ROOT))
        for path, text in wanted.items()
        if path.read_text(encoding="utf-8") != text
    ]
    if stale:
        sys.exit(f"{', '.join(stale)}: not what the code is; run python scripts/draw_rooms.py")


if __name__ == "__main__":
    main()
