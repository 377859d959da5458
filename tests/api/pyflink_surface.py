"""Compares this package's names with PyFlink's, name by name and parameter by parameter.

``pyflink_names.json`` has the names: what each door of PyFlink exports, and what its modules define. What is
left out on purpose has a row in ``docs/differences.md``. Run as a program it prints how many are there::

    python tests/api/pyflink_surface.py
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

REFERENCE: dict[str, Any] = json.loads(Path(__file__).with_name("pyflink_names.json").read_text())
DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"
#: The heading of the table of names that are left out.
HEADING = "## Names that are not here"
#: In the table: any name of a module, or any class.
ANY = "*"
GONE = "it is not there"


@attrs.frozen
class Finding:
    """One name of PyFlink's, such as ``datastream.state`` and ``ValueState.update``; empty for the module.

    ``missing`` says what is not as in PyFlink.
    """

    module: str
    name: str
    missing: str = ""

    @property
    def key(self) -> str:
        """What people call it."""
        return f"{self.module}.{self.name}"


@attrs.frozen
class Row:
    """One name of the table: a module (``*``), a class with its members, or a member of some or all."""

    module: str
    name: str
    why: str

    def covers(self, finding: Finding) -> bool:
        """Return whether it speaks of a finding."""
        if finding.module != self.module:
            return False
        cls, _, member = finding.name.partition(".")
        return self.name in (ANY, cls, finding.name) or (bool(member) and self.name == f"{ANY}.{member}")


# --- the table -----------------------------------------------------------------------------------------


def left_out(document: str) -> list[Row]:
    """Return the rows of the table, one for each name.

    >>> left_out(HEADING + "\\n| `a.b` | `C`, `D.e` | of Java |\\n")
    [Row(module='a.b', name='C', why='of Java'), Row(module='a.b', name='D.e', why='of Java')]
    """
    _, _, table = document.partition(HEADING)
    table = table.partition("\n## ")[0]
    rows = []
    for module, names, why in re.findall(r"^\| `([\w.]+)` \| (`.+`) \| (.+) \|$", table, re.MULTILINE):
        rows += [Row(module, name, why) for name in re.findall(r"`([^`]+)`", names)]
    return rows


LEFT_OUT = left_out(DIFFERENCES.read_text())


def row_of(finding: Finding) -> Row | None:
    """Return the row that says why something is not there; None where there is none."""
    return next((row for row in LEFT_OUT if row.covers(finding)), None)


# --- the comparison ------------------------------------------------------------------------------------


def is_of_the_jvm(parameter: str) -> bool:
    """Whether PyFlink passes a Java object in it."""
    return parameter.startswith("j_")


def misfit(cls: Any, member: str, expected: Any) -> str:
    """Return what is wrong about a member; empty for nothing.

    Args:
        cls: the class, or module.
        member: its name.
        expected: the names of its parameters, ``"class"`` for a class inside, None for a value.
    """
    if not hasattr(cls, member):
        return GONE
    found = getattr(cls, member)
    if expected == "class":
        return "" if inspect.isclass(found) else "it is no class"
    return call_misfit(found, expected) if isinstance(expected, list) else ""


def call_misfit(found: Any, expected: list[str]) -> str:
    """Return why ``found`` cannot be called as in PyFlink, with each parameter by its place or its name."""
    if not callable(found):
        return "it cannot be called"
    parameters = {
        name: one
        for name, one in inspect.signature(found).parameters.items()
        if name not in ("self", "cls") or one.kind not in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    }
    names = list(parameters)
    if names[: len(expected)] != expected:
        return f"parameters {names}, not {expected}"
    more = [name for name in names[len(expected) :] if is_needed(parameters[name])]
    return f"it needs {more} as well" if more else ""


def is_needed(parameter: inspect.Parameter) -> bool:
    """Whether a call must give a parameter."""
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def constructor_misfit(cls: Any, expected: list[str] | None) -> str:
    """Return why a class cannot be made as in PyFlink; what it makes of Java objects, no program makes."""
    if not expected or is_of_the_jvm(expected[0]) or inspect.isabstract(cls):
        return ""
    return call_misfit(cls, [name for name in expected if not is_of_the_jvm(name)])


def module_here(module: str) -> ModuleType | None:
    """Return what has the place of a module of PyFlink's."""
    try:
        return importlib.import_module(f"pyflinkstate.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyflinkstate"):
            raise
        return None


def findings() -> Iterator[Finding]:
    """Yield every module, class, member and function, and whatever a door exports."""
    for full_name, names in REFERENCE["modules"].items():
        module = full_name.removeprefix("pyflink.")
        here = module_here(module)
        for name, content in names.items():
            yield from _of_name(module, here, name, content)
    for full_name, exported in REFERENCE["doors"].items():
        module = full_name.removeprefix("pyflink.")
        here = module_here(module)
        yield Finding(module, "", GONE if here is None else "")
        for name in dict.fromkeys(exported):
            yield Finding(module, name, "" if hasattr(here, name) else GONE)


def _of_name(module: str, here: ModuleType | None, name: str, content: Any) -> Iterator[Finding]:
    cls = getattr(here, name, None)
    if not isinstance(content, dict):
        yield Finding(module, name, GONE if cls is None else call_misfit(cls, content))
        return
    yield Finding(module, name, GONE if cls is None else "")
    if cls is not None:
        yield Finding(module, f"{name}.__init__", constructor_misfit(cls, content["init"]))
    for member, expected in content["members"].items():
        missing = "its class is not there" if cls is None else misfit(cls, member, expected)
        yield Finding(module, f"{name}.{member}", missing)


def is_left_out(finding: Finding) -> bool:
    """Whether the table has a row for what is missing; a door goes by where its names are defined."""
    return row_of(finding) is not None or any(
        row_of(Finding(module, finding.name)) is not None for module in modules_defining(finding)
    )


def modules_defining(finding: Finding) -> list[str]:
    """Return the modules below a door that define one of its names."""
    if not finding.name or "." in finding.name:
        return []
    return [
        module.removeprefix("pyflink.")
        for module, names in REFERENCE["modules"].items()
        if finding.name in names and module.startswith(f"pyflink.{finding.module}.")
    ]


def counts() -> dict[str, tuple[int, int]]:
    """Return for each module how many names are there, and how many there are."""
    found: dict[str, tuple[int, int]] = {}
    for finding in findings():
        there, of_all = found.get(finding.module, (0, 0))
        found[finding.module] = there + (not finding.missing), of_all + 1
    return found


def report() -> str:
    """Return the counts as a table."""
    table = counts()
    total = tuple(map(sum, zip(*table.values(), strict=True)))
    rows = [*sorted(table.items()), ("all", total)]
    return "\n".join(
        f"{module:45} {there:4} of {of_all:4}  {there / of_all:4.0%}" for module, (there, of_all) in rows
    )


if __name__ == "__main__":
    print(report())
    for finding in findings():
        if finding.missing and not is_left_out(finding):
            print(f"{finding.key}: {finding.missing}")
