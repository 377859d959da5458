"""The signatures of ``keyed_process`` and ``keyed_map``: of each overload, and of what both take."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from pyflinkstate import keyed_map, keyed_process
from pyflinkstate.runtime.program.dataframes import processing

#: What only one of the two takes.
OF_PROCESS = {
    *("timestamp", "watermark", "window", "allowed_lateness", "late_rows"),
    *("then", "side_outputs"),
}
OF_MAP = {"state_type", "state_ttl"}


def copies() -> list[ast.FunctionDef]:
    """Return both overloads and the implementation."""
    tree = ast.parse(Path(processing.__file__).read_text())
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "keyed_process"]


def parameters(copy: ast.FunctionDef) -> dict[str, tuple[str, str]]:
    """Return annotation and default by name, of all but ``side_outputs``, by which overloads differ."""
    defaults = [ast.unparse(default) if default else "" for default in copy.args.kw_defaults]
    return {
        one.arg: (ast.unparse(one.annotation) if one.annotation else "", default)
        for one, default in zip(copy.args.kwonlyargs, defaults, strict=True)
        if one.arg != "side_outputs"
    }


def test_the_copies_of_the_signature_are_the_same() -> None:
    first, second, whole = map(parameters, copies())
    assert list(first.items()) == list(second.items()) == list(whole.items())


def test_overloads_differ_in_side_outputs_alone() -> None:
    told = [[one.arg for one in copy.args.kwonlyargs] for copy in copies()]
    assert told[0] == told[1] == told[2]
    assert "side_outputs" in told[0]


def test_both_functions_take_the_same_options() -> None:
    process, mapped = (set(inspect.signature(one).parameters) for one in (keyed_process, keyed_map))
    assert process - mapped == OF_PROCESS
    assert mapped - process == OF_MAP


def test_every_parameter_is_documented() -> None:
    for function in (keyed_process, keyed_map):
        told = inspect.getdoc(function) or ""
        assert [
            name for name in inspect.signature(function).parameters if f"\n    {name}: " not in told
        ] == []
