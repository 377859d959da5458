"""Writes pyflinkstate/__init__.pyi, which tells type checkers the public names, from ``_ROOMS`` beside it.

    python scripts/write_stub.py            writes it
    python scripts/write_stub.py --check    ends with 1 if it is not what ``_ROOMS`` says

The package loads its names on first use, so type checkers cannot see them without it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pyflinkstate"
STUB = PACKAGE / "__init__.pyi"
HEAD = """# Written by scripts/write_stub.py.

#: Whether the core of the heap backend runs compiled.
compiled: bool
#: The version of the package.
__version__: str
__all__: list[str]

"""


def rooms() -> dict[str, tuple[str, ...]]:
    """Return the public names by their module, without importing the package."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_ROOMS" and node.value:
            return ast.literal_eval(node.value)
    raise SystemExit("pyflinkstate/__init__.py has no _ROOMS")


def stub() -> str:
    """Return the text of the stub."""
    lines = [
        f"from pyflinkstate.{room} import {name} as {name}\n"
        for room, names in rooms().items()
        for name in names
    ]
    return HEAD + "".join(lines)


def main() -> None:
    if "--check" not in sys.argv:
        STUB.write_text(stub())
    elif STUB.read_text() != stub():
        sys.exit("pyflinkstate/__init__.pyi is out of date: run scripts/write_stub.py")


if __name__ == "__main__":
    main()
