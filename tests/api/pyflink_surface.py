"""Compares this package's names with PyFlink's, name by name and parameter by parameter.

``pyflink_names.json`` has the names. Run as a program it prints how many of them are there::

    python tests/api/pyflink_surface.py
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from left_out import LEFT_OUT

NAMES = json.loads(Path(__file__).with_name("pyflink_names.json").read_text())["modules"]
#: Classes that PyFlink's own inspection shows the parameters of an ``enum`` for.
ENUM_PARAMETERS = ["value", "names", "module", "qualname", "type", "start", "boundary"]


@attrs.frozen
class Finding:
    """One name of PyFlink's, such as ``state.ValueState.update``; ``missing`` says what is not there."""

    module: str
    name: str
    missing: str = ""

    @property
    def key(self) -> str:
        """What the list of names left out calls it."""
        return f"{self.module}.{self.name}"


def is_of_the_jvm(parameter: str) -> bool:
    """Whether PyFlink passes a Java object in it."""
    return parameter.startswith("j_")


def parameters_of(member: Any) -> list[str]:
    """Return the names of the parameters, ``self`` apart."""
    names = list(inspect.signature(member).parameters)
    return [name for name in names if name not in ("self", "cls")]


def misfit(cls: Any, member: str, expected: Any) -> str:
    """Return what is wrong about a member; empty for nothing."""
    if member == "__init__":
        found: Any = cls
    else:
        found = getattr(cls, member, None)
        if found is None and not hasattr(cls, member):
            return "it is not there"
    if not isinstance(expected, list) or expected == ENUM_PARAMETERS or not callable(found):
        return ""
    wanted = [name for name in expected if not is_of_the_jvm(name)]
    if not wanted:
        return ""
    names = parameters_of(found)
    return "" if names[: len(wanted)] == wanted else f"parameters {names}, not {wanted}"


def findings() -> Iterator[Finding]:
    """Yield every class and every member, constructors that take Java objects alone apart."""
    for module, classes in NAMES.items():
        short = module.removeprefix("pyflink.")
        here = importlib.import_module(f"pyflinkstate.{short}")
        for name, content in classes.items():
            cls = getattr(here, name, None)
            yield Finding(short, name, "" if cls is not None else "it is not there")
            for member, expected in content["members"].items():
                if member == "__init__" and all(map(is_of_the_jvm, expected)):
                    continue
                missing = "its class is not there" if cls is None else misfit(cls, member, expected)
                yield Finding(short, f"{name}.{member}", missing)


def is_left_out(finding: Finding) -> bool:
    """Whether a name, or its class, is left out on purpose."""
    cls, _, _ = finding.name.partition(".")
    return finding.key in LEFT_OUT or f"{finding.module}.{cls}" in LEFT_OUT


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
    rows = [*table.items(), ("all", total)]
    return "\n".join(
        f"{module:45} {there:4} of {of_all:4}  {there / of_all:4.0%}" for module, (there, of_all) in rows
    )


if __name__ == "__main__":
    print(report())
    for finding in findings():
        if finding.missing and not is_left_out(finding):
            print(f"{finding.key}: {finding.missing}")
