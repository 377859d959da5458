"""Writes the stubs that tell type checkers the public names of a package which loads them on first use.

python scripts/write_stub.py            writes them
python scripts/write_stub.py --check    ends with 1 if one is not what the table beside it says
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pyflinkstate"
WRITTEN = "# Written by scripts/write_stub.py.\n\n"
HEAD = f"""{WRITTEN}#: Whether the core of the heap backend runs compiled.
compiled: bool
#: The version of the package.
__version__: str
__all__: list[str]

"""
#: By package, the name of the table in its ``__init__.py``, and how its stub begins.
STUBS = {"pyflinkstate": ("_ROOMS", HEAD), "pyflinkstate.connectors": ("_FILES", WRITTEN)}


def folder_of(package: str) -> Path:
    """Return the folder of a package."""
    return PACKAGE.joinpath(*package.split(".")[1:])


def modules(package: str, table: str) -> dict[str, tuple[str, ...]]:
    """Return the public names by their module, without importing the package."""
    for node in ast.parse((folder_of(package) / "__init__.py").read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table and node.value:
            return ast.literal_eval(node.value)
    raise SystemExit(f"{package}/__init__.py has no {table}")


def stub(package: str) -> str:
    """Return the text of a stub."""
    table, head = STUBS[package]
    return head + "".join(
        f"from {package}.{module} import {name} as {name}\n"
        for module, names in modules(package, table).items()
        for name in names
    )


def main() -> None:
    for package in STUBS:
        path = folder_of(package) / "__init__.pyi"
        if "--check" not in sys.argv:
            path.write_text(stub(package))
        elif path.read_text() != stub(package):
            sys.exit(f"{path} is out of date: run scripts/write_stub.py")


if __name__ == "__main__":
    main()
